"""Slurm took the job, or not, and nobody heard its answer: a fake Slurm at the edge."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HPCKIT, add_program
from tests.integration.test_local import until
from tests.patience import LONG_S

pytestmark = pytest.mark.long

SUBMIT = ("submit", "ddp", "--executor=slurm", "--gpus=1")
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
# Takes the job as job 77, then does as $1 says; squeue shows 77 from then on.
_SBATCH = """#!/bin/bash
if [ "${{1-}}" = --version ]; then echo "slurm-wlm 22.05.8"; exit 0; fi
cat >"$FAKE_SLURM_DIR/script"; printf '%s\\n' "$@" >"$FAKE_SLURM_DIR/argv"
token=$(printf '%s\\n' "$@" | sed -n 's/^--comment=//p')
log=$(sed -n 's/^#SBATCH --output=//p' "$FAKE_SLURM_DIR/script")
printf '77   %s   %s\\n' "$token" "$log" >>"$FAKE_SLURM_DIR/taken"
{then}
"""
_SQUEUE = """#!/bin/bash
case "$*" in *Format=*) ;; *) exit 0 ;; esac
echo ask >>"$FAKE_SLURM_DIR/asks"
{then}
"""
KNOWS = 'cat "$FAKE_SLURM_DIR/taken"'
SILENT = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"


@pytest.fixture
def slurm(here: Path, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hpckit.schedulers.slurm.sbatch._PAUSE_S", 0.0)

    def fake(sbatch: str, squeue: str) -> Path:
        add_program(here.parent / "bin" / "sbatch", _SBATCH.format(then=sbatch))
        add_program(here.parent / "bin" / "squeue", _SQUEUE.format(then=squeue))
        return fake_slurm

    return fake


def runs(here: Path) -> list[Path]:
    return sorted(here.glob("runs/[!.]*"))


@pytest.mark.parametrize(
    "sbatch",
    [f"echo '{TIMED_OUT}' >&2; exit 1", "kill -9 $$", "echo 'Have a nice day'",
     "echo 77; printf 'Your balance is\\n1200\\n'", "printf '1200\\n77\\n'", "echo 1200; echo 42",
     "printf '\\033[32m77\\033[0m\\r\\n'", "echo 'Submitted batch job 5'; echo 77",
     "echo 'sbatch: error: Zero Bytes were transmitted or received' >&2; exit 1"],
)  # fmt: skip
@pytest.mark.parametrize("array", [(), ("--array", "lr=0.1,0.2")])
def test_a_job_that_slurm_took_without_a_word_is_found_and_kept(
    here, cli, slurm, sbatch, array
) -> None:
    slurm(sbatch, KNOWS)
    said = cli(*SUBMIT, *array)
    assert said.status == 0, said.err
    assert said.out.startswith("Submitted 77")
    records = [json.loads(path.read_text()) for path in (here / "runs").glob("*/run.json")]
    ids = ["77_0", "77_1"] if array else ["77"]
    assert sorted(record["job_id"] for record in records) == ids
    names = {path.name for path in (here / "runs").glob("*/submitit/*")}
    assert names == {f"{job_id}_submitted.pkl" for job_id in ids}
    assert not list((here / "runs").glob("*/handover.json"))


def test_an_index_that_cannot_be_written_is_told(here, cli, slurm, monkeypatch) -> None:
    slurm("echo 77", KNOWS)
    (here / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "file"))
    said = cli(*SUBMIT)
    assert said.status == 0, said.err
    assert (
        f"note: your index {here}/file/hpckit/runs.jsonl cannot be written: Not a directory. "
        f"Elsewhere this run is found only with --runs {here}/runs\n" in said.err
    )
    assert cli("status", "77").status == 0  # here it is found all the same


def test_what_slurm_did_not_take_leaves_nothing(here, cli, slurm) -> None:
    answers = slurm(f"echo '{TIMED_OUT}' >&2; exit 1", "exit 0")
    said = cli(*SUBMIT)
    assert said.status == 3
    assert "Socket timed out" in said.err
    assert runs(here) == []
    assert len((answers / "asks").read_text().split()) == 3  # it may be late
    assert cli("jobs").err == "No runs yet. Start one: hpckit submit ddp\n"


REFUSED = "sbatch: error: Batch job submission failed: "
UNREACHED = f"{REFUSED}Unable to contact slurm controller (connect failure)"
# It is not taken the first two times; `tries` has a line for each.
RESTARTING = f"""\
tries=$FAKE_SLURM_DIR/tries; echo >>"$tries"
if (($(wc -l <"$tries") < 3)); then
  rm "$FAKE_SLURM_DIR/taken"; {{sent}}
  echo '{UNREACHED}' >&2; exit 1
fi
echo 77"""


def test_a_controller_that_restarts_is_waited_for(here, cli, slurm, monkeypatch) -> None:
    """Where sbatch could not connect there is no job: to try again is safe."""
    monkeypatch.setattr("hpckit.schedulers.slurm.sbatch._LONGEST_PAUSE_S", 0.01)
    answers = slurm(RESTARTING.format(sent=""), KNOWS)
    said = cli(*SUBMIT)
    assert (said.status, said.out) == (0, "Submitted 77\n"), said.err
    assert (answers / "tries").read_text() == "\n" * 3
    assert not (answers / "asks").exists()
    (run,) = runs(here)
    assert json.loads((run / "run.json").read_text())["job_id"] == "77"


def test_what_may_have_arrived_is_not_sent_again(here, cli, slurm) -> None:
    """The controller went down with the job, it may be."""
    answers = slurm(RESTARTING.format(sent=f"echo '{TIMED_OUT}' >&2"), "exit 0")
    said = cli(*SUBMIT)
    assert said.status == 3
    assert (answers / "tries").read_text() == "\n"
    assert (answers / "asks").exists()


def test_a_controller_that_stays_away_is_said_in_the_end(here, cli, slurm, monkeypatch) -> None:
    monkeypatch.setattr("hpckit.schedulers.slurm.sbatch._LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr("hpckit.schedulers.slurm.sbatch._UNREACHED_S", 0.5)
    slurm(f"echo '{UNREACHED}' >&2; exit 1", "exit 0")
    said = cli(*SUBMIT)
    assert said.status == 3
    assert "Unable to contact slurm controller (connect failure). The controller does" in said.err
    assert runs(here) == []


def test_ctrl_c_ends_the_waiting_for_a_controller(here, slurm) -> None:
    answers = slurm(f"echo >>$FAKE_SLURM_DIR/tries; kill -2 $PPID; echo '{UNREACHED}' >&2; exit 1",
                    "exit 0")  # fmt: skip
    done = subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 130
    assert "Interrupted: the run is cancelled, nothing is left." in done.stderr
    assert (answers / "tries").read_text() == "\n"
    assert runs(here) == []


@pytest.mark.parametrize(
    ("sbatch", "shown"),
    [
        ("printf 'Your balance is\\n1200\\n'", "'Your balance is / 1200'"),
        ("printf 'Job 1200, your balance is\\r\\n9\\r\\n'", "'Job 1200, your balance is / 9'"),
    ],
)
def test_a_number_that_is_no_job_of_ours_is_not_recorded(here, cli, slurm, sbatch, shown) -> None:
    slurm(sbatch, "echo '1200   other   /elsewhere/job.out'")
    said = cli(*SUBMIT)
    (run,) = runs(here)
    assert (said.status, said.out) == (3, "")
    assert f"it printed {shown}. Slurm shows no job of this run." in said.err
    assert f"its comment is hpckit:{run.name}: squeue --me" in said.err
    assert not (run / "run.json").exists()
    pretend_its_process_has_ended(run)
    slurm("", KNOWS)  # it was there, after all
    assert f"Slurm has taken run {run.name}: it is job 77." in cli("status", run.name).err
    assert json.loads((run / "run.json").read_text())["job_id"] == "77"


@pytest.mark.parametrize("squeue", [KNOWS, "exit 0"])
def test_an_sbatch_that_fails_after_its_answer_is_asked_about(here, cli, slurm, squeue) -> None:
    slurm("echo 77; exit 1", squeue)
    said = cli(*SUBMIT)
    (run,) = runs(here)
    if squeue == KNOWS:
        assert (said.status, said.out) == (0, "Submitted 77\n")
        return
    assert (said.status, said.out) == (3, "")
    assert "took the job: sbatch exited with status 1, and it printed '77'. Slurm shows" in said.err
    assert f"hpckit status {run.name}" in said.err


def test_a_number_beside_a_refusal_is_no_job(here, cli, slurm) -> None:
    slurm("echo 1200; echo 'sbatch: error: Invalid qos' >&2; exit 1", "exit 0")
    said = cli(*SUBMIT)
    assert (said.status, runs(here)) == (3, [])
    assert "sbatch refused the job: Invalid qos." in said.err


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_refusal_whose_exit_status_a_wrapper_lost_is_a_refusal(here, cli, slurm, stream) -> None:
    words = "sbatch: error: Batch job submission failed: Invalid qos specification"
    slurm(f"echo '{words}' {stream}", "exit 0")
    said = cli(*SUBMIT)
    assert said.status == 3
    assert "sbatch refused the job: Invalid qos specification." in said.err
    assert runs(here) == []


def test_while_slurm_is_silent_all_is_kept_until_it_speaks(here, cli, slurm) -> None:
    slurm(f"echo '{TIMED_OUT}' >&2; exit 1", SILENT)
    said = cli(*SUBMIT)
    (run,) = runs(here)
    assert said.status == 3
    assert len(said.err.splitlines()) == 1
    assert f"Ask `hpckit status {run.name}`, and do not submit again before it knows." in said.err
    pretend_its_process_has_ended(run)
    for command in ("status", "logs", "stats", "wait", "cancel", "resubmit"):
        asked = cli(command, run.name)
        assert (asked.status, asked.out) == (3, ""), command
        assert f"hpckit does not know yet whether Slurm took run {run.name}: " in asked.err
    assert f"not know yet whether Slurm took run {run.name}" in cli("jobs").err
    slurm("echo 'sbatch: error: Invalid qos' >&2; exit 1", SILENT)
    again = cli(*SUBMIT)
    # No second one without a word.
    assert f"not know yet whether Slurm took run {run.name}" in again.err
    slurm("", KNOWS)
    found = cli("jobs", "--json")
    assert f"Slurm has taken run {run.name}: it is job 77." in found.err
    assert json.loads((run / "run.json").read_text())["job_id"] == "77"
    assert (run / "submitit" / "77_submitted.pkl").exists()
    assert not (run / "handover.json").exists()
    assert cli("status", run.name).status == 0


def test_what_slurm_never_took_is_said_later_too(here, cli, slurm) -> None:
    slurm(f"echo '{TIMED_OUT}' >&2; exit 1", SILENT)
    cli(*SUBMIT)
    (run,) = runs(here)
    pretend_its_process_has_ended(run)
    slurm("", "exit 0")
    asked = cli("status", run.name)
    assert asked.status == 2
    assert f"Slurm has no job of run {run.name}: submit it again" in asked.err
    assert "not know" not in cli("jobs").err


def pretend_its_process_has_ended(run: Path) -> None:
    path = run / "handover.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid_started": 1}))


def test_a_planted_handover_is_not_believed(here, cli, slurm) -> None:
    slurm(f"echo '{TIMED_OUT}' >&2; exit 1", SILENT)
    cli(*SUBMIT)
    (run,) = runs(here)
    pretend_its_process_has_ended(run)
    (run / "handover.json").chmod(0o666)
    slurm("", KNOWS)
    assert cli("status", run.name).status == 2
    assert not (run / "run.json").exists()


def test_a_comment_of_the_users_own_stays(here, cli, slurm) -> None:
    answers = slurm("echo 12", KNOWS)
    cli(*SUBMIT)
    assert "--comment=hpckit:ddp-" in (answers / "argv").read_text()
    folder = here / "templates" / "slurm"
    folder.mkdir(parents=True)
    (folder / "mine.sh.j2").write_text(
        '{% extends "slurm/base.sh.j2" %}\n{% block header %}{{ super() }}\n'
        "#SBATCH --comment=mine\n{% endblock %}\n"
    )
    slurm(f"echo '{TIMED_OUT}' >&2; exit 1", KNOWS)
    said = cli(*SUBMIT, "--template=mine")
    assert "--comment" not in (answers / "argv").read_text()
    assert said.out.startswith("Submitted 77"), said.err  # by the name of its log


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# The moment of the signal: before Slurm has the job, after, and with the answer on its way.
BEFORE = "kill -{signal} $PPID; sleep 0.3; echo 77"
AFTER = "echo 77; kill -{signal} $PPID; sleep 0.3"


@pytest.mark.long
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_a_signal_takes_the_job_back_for_sure(here, slurm, number, moment) -> None:
    answers = slurm(moment.format(signal=int(number)), KNOWS)
    done = subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert "Interrupted: job 77 is cancelled, nothing is left." in done.stderr
    assert '["scancel", "77"]' in (answers / "calls.jsonl").read_text()
    assert runs(here) == []


def test_a_job_that_cannot_be_taken_back_is_said(here, slurm) -> None:
    answers = slurm(BEFORE.format(signal=2), KNOWS)
    (answers / "scancel.rc").write_text("1")
    (answers / "scancel.err").write_text("scancel: error: Unable to contact slurm controller\n")
    done = subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 130
    assert "Slurm has job 77, and it could not be cancelled" in done.stderr
    (run,) = runs(here)
    assert json.loads((run / "run.json").read_text())["job_id"] == "77"


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        ("RUNNING", "Asked Slurm to cancel 77; it still runs (RUNNING)."),
        ("PENDING", "Asked Slurm to cancel 77; it still waits (PENDING)."),
        (SILENT, "Asked Slurm to cancel 77; hpckit does not know whether it ended: "),
        (SILENT.replace("; exit 1", ""), "Asked Slurm to cancel 77; hpckit does not know whether"),
    ],
)
def test_a_scancel_without_effect_takes_nothing_back(
    here, cli, slurm, monkeypatch, queue, told
) -> None:
    monkeypatch.setattr("hpckit.schedulers.slurm.ending._PAUSE_S", 0.0)
    monkeypatch.setattr("hpckit.schedulers.slurm.ending._SETTLING_S", 0.1)
    slurm(BEFORE.format(signal=2), KNOWS)
    add_program(
        here.parent / "bin" / "squeue", still(queue) if queue.isupper() else f"#!/bin/sh\n{queue}"
    )
    said = cli(*SUBMIT)
    assert said.status == 130
    assert told in said.err
    assert "nothing is left" not in said.err
    (run,) = runs(here)
    assert json.loads((run / "run.json").read_text())["job_id"] == "77"


@pytest.mark.parametrize("then", [SILENT, SILENT.replace("; exit 1", ""), "echo Welcome"])
def test_cancelling_by_number_without_an_answer_after_is_not_cancelled(
    here, cli, slurm, then
) -> None:
    answers = slurm("", KNOWS)
    program = still("RUNNING").replace(
        "\n", f"\nif [ -e {answers}/calls.jsonl ]; then {then}; exit; fi\n", 1
    )
    add_program(here.parent / "bin" / "squeue", program)
    said = cli("cancel", "77")
    assert (said.status, said.out) == (3, "")
    assert "Asked Slurm to cancel 77; hpckit does not know whether it ended: 'squeue' " in said.err
    assert "Slurm's last answer was RUNNING. Ask again: squeue --job=77" in said.err


def still(state: str) -> str:
    """Return a squeue that shows job 77 in a state, whatever is done to it."""
    return f"""#!/bin/bash
for word; do case $word in --format=*) row=${{word#--format=}} ;; esac; done
for cell in %i=77 %A=77 %u=root %a=lab %P=gpu %q=normal %T={state} %M=1:00 %l=2:00 %V=N/A %S=N/A \
    %e=N/A %N=c1 %r=None %j=x; do row=${{row//${{cell%%=*}}/${{cell#*=}}}}; done
printf '%s\n' "$row"
"""


@pytest.mark.long
def test_a_second_signal_waits_no_longer_and_keeps_everything(here, slurm) -> None:
    # The second comes when the first has been heard: two that come at once are one.
    heard = 'until grep -q Interrupted "$FAKE_SLURM_DIR/said"; do sleep 0.05; done'
    answers = slurm(f"kill -2 $PPID; {heard}; kill -2 $PPID; exec sleep 300", KNOWS)
    with (answers / "said").open("w") as said:
        done = subprocess.run([*HPCKIT, *SUBMIT], stdout=said, stderr=said, timeout=LONG_S)
    assert done.returncode == 130
    (run,) = runs(here)
    told = f"hpckit does not know whether Slurm took run {run.name}."
    assert told in (answers / "said").read_text()
    status = subprocess.run([*HPCKIT, "status", run.name], capture_output=True, text=True)
    assert f"Slurm has taken run {run.name}: it is job 77." in status.stderr


@pytest.mark.long
def test_signals_before_anything_was_sent_leave_nothing(here, slurm) -> None:
    code = """if 1:
        import os, sys
        number = int(sys.argv.pop())
        from hpckit.submission import submit
        real = submit._make_folders
        def slow(*words):
            real(*words)
            os.kill(os.getpid(), number)
        submit._make_folders = slow
        from hpckit.cli import main
        main()
    """
    slurm("echo 77", KNOWS)
    for number in SIGNALS:
        argv = [sys.executable, "-c", code, *SUBMIT, str(int(number))]
        done = subprocess.run(argv, capture_output=True, text=True, env=dict(os.environ))
        assert done.returncode == 130, done.stderr
        assert runs(here) == []


KILLED = "kill -9 $PPID; sleep 0.3"


def test_a_job_whose_submission_was_killed_is_among_the_jobs(here, cli, slurm) -> None:
    slurm(KILLED, KNOWS)
    done = subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, timeout=LONG_S)
    assert done.returncode == -signal.SIGKILL
    (run,) = runs(here)
    said = cli("jobs")
    assert f"Slurm has taken run {run.name}: it is job 77." in said.err
    assert "77 " in said.out
    assert cli("jobs").err == ""


def test_a_chain_whose_submission_was_killed_is_found_as_far_as_it_came(here, cli, slurm) -> None:
    second = '[ $(wc -l <"$FAKE_SLURM_DIR/taken") -lt 2 ] && echo 77 && exit\n'
    answers = slurm(second + KILLED, KNOWS)
    subprocess.run([*HPCKIT, *SUBMIT, "--chain=2"], capture_output=True, timeout=LONG_S)
    assert "--dependency=afterany:77" in (answers / "argv").read_text()
    taken = [line.split()[1] for line in (answers / "taken").read_text().splitlines()]
    (run,) = runs(here)
    assert taken == [f"hpckit:{run.name}.0", f"hpckit:{run.name}.1"]
    said = cli("jobs")
    assert f"Slurm has taken only 2 of the 3 jobs of run {run.name}, a chain, as job" in said.err
    assert json.loads((run / "run.json").read_text())["chain"] == ["77", "77"]
    assert (run / "submitit" / "1" / "77_submitted.pkl").exists()
    assert cli("jobs").err == ""


def test_a_chain_says_all_of_its_jobs_and_replaces_the_users_comment(here, cli, slurm) -> None:
    answers = slurm('echo $((76 + $(wc -l <"$FAKE_SLURM_DIR/taken"))); exit\n', KNOWS)
    said = cli(*SUBMIT, "--chain=2", "--sbatch=comment=mine")
    assert said.out == "Submitted 77 (then 78, 79)\n"
    (run,) = runs(here)
    taken = [line.split()[1] for line in (answers / "taken").read_text().splitlines()]
    assert taken == [f"hpckit:{run.name}.{link}" for link in range(3)]


def test_a_chain_is_taken_whole_or_not_at_all(here, cli, slurm) -> None:
    third = '[ $(wc -l <"$FAKE_SLURM_DIR/taken") -lt 3 ] && echo 77 && exit\n'
    answers = slurm(third + "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1", "")
    said = cli(*SUBMIT, "--chain=2")
    assert "QOSMaxSubmitJobPerUserLimit. The job is one of the 2 that follow the first" in said.err
    calls = [json.loads(line) for line in (answers / "calls.jsonl").read_text().splitlines()]
    assert [call for call in calls if call[0] == "scancel"] == [["scancel", "77"]] * 2
    assert runs(here) == []


def test_while_another_host_submits_nobody_calls_it_not_taken(here, cli, slurm) -> None:
    slurm(KILLED, "exit 0")
    subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, timeout=LONG_S)
    path = runs(here)[0] / "handover.json"
    handover = json.loads(path.read_text()) | {"host": "another"}
    path.write_text(json.dumps(handover))
    assert "has no job" not in cli("jobs").err
    path.write_text(json.dumps(handover | {"since": handover["since"] - 600}))
    assert "has no job" in cli("jobs").err


def test_a_second_signal_while_the_job_is_taken_back_is_said(here, slurm) -> None:
    slurm(BEFORE.format(signal=2), KNOWS)
    add_program(here.parent / "bin" / "scancel", "#!/bin/bash\nkill -2 $PPID; exec sleep 300\n")
    done = subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 130
    assert "Interrupted again: Slurm has job 77, and hpckit does not know whether" in done.stderr


def test_a_slow_sbatch_is_said(here, cli, slurm, monkeypatch) -> None:
    monkeypatch.setattr("hpckit.schedulers.slurm.sbatch._SILENT_S", 0.05)
    slurm("sleep 2; echo 77", KNOWS)
    said = cli(*SUBMIT)
    assert said.out.startswith("Submitted 77")
    assert "Slurm has not answered sbatch for 0.05 s" in said.err


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_hangs_ends_with_the_command_that_asked(here, slurm, number) -> None:
    """It has a process group of its own, which no terminal's hang-up reaches."""
    mark = f"60.{os.getpid()}{int(number)}"  # what is looked for among all processes
    slurm(KILLED, f"sleep 0.5; kill -{int(number)} $PPID; exec sleep {mark}")
    subprocess.run([*HPCKIT, *SUBMIT], capture_output=True, timeout=LONG_S)
    done = subprocess.run([*HPCKIT, "jobs"], capture_output=True, timeout=LONG_S)
    assert done.returncode == 130
    until(lambda: not [words for words in command_lines() if mark.encode() in words])


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            found.append(path.read_bytes())
    return found


@pytest.mark.long
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_a_result_that_stdout_does_not_take_is_one_error(here, slurm, where) -> None:
    slurm("echo 77", KNOWS)
    for argv in (("--version",), ("--help",), ("jobs", "-h"), ("jobs", "--json"), SUBMIT):
        shell = ["bash", "-c", f'"$@" {where}', "_", *HPCKIT, *argv]
        done = subprocess.run(shell, capture_output=True, text=True, timeout=LONG_S)
        assert done.returncode == 3
        errors = [line for line in done.stderr.splitlines() if "hpckit: error:" in line]
        assert len(errors) == 1
        assert "cannot be written to stdout" in errors[0]
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
    assert "hpckit logs 77 -f" in done.stderr  # there is a job all the same


def deserted() -> int:
    """Return a pipe's end for writing whose reader has left, as `| head` does."""
    theirs, ours = os.pipe()
    os.close(theirs)
    return ours


@pytest.mark.long
def test_a_reader_who_has_left_ends_a_command_without_a_word(here, slurm) -> None:
    slurm("echo 77", KNOWS)
    for argv in (("--version",), ("--help",), ("jobs", "-h"), ("jobs", "--json"), SUBMIT):
        stdout = deserted()
        done = subprocess.run(
            [*HPCKIT, *argv], stdout=stdout, stderr=subprocess.PIPE, timeout=LONG_S
        )
        os.close(stdout)
        assert done.returncode == 1, done.stderr
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


def test_a_reader_of_errors_who_has_left_changes_no_exit_status(here) -> None:
    for argv, status in ((("status", "none-such"), 2), (("jobs", "--json"), 0)):
        stderr = deserted()
        done = subprocess.run(
            [*HPCKIT, *argv], stdout=subprocess.PIPE, stderr=stderr, timeout=LONG_S
        )
        os.close(stderr)
        assert done.returncode == status


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_nobody_to_tell_changes_no_exit_status(here, where) -> None:
    for argv, status in ((("status", "none-such"), 2), (("jobs", "--json"), 0)):
        shell = ["bash", "-c", f'"$@" {where}', "_", *HPCKIT, *argv]
        assert subprocess.run(shell, capture_output=True, timeout=LONG_S).returncode == status


def test_a_refusal_is_heard_where_the_parent_ignores_ended_children(here: Path, slurm) -> None:
    slurm("echo 'sbatch: error: Invalid account' >&2; exit 1", "exit 0")
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    argv = [sys.executable, "-c", ignoring, *HPCKIT, *SUBMIT]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert answer.returncode == 3
    assert "Invalid account" in answer.stderr
    assert runs(here) == []
