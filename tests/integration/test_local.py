"""This machine as the cluster: real processes, tiny scripts."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpckit.stop_marks import WARNED, marks, marks_of
from tests.conftest import HPCKIT, processes_of

pytestmark = pytest.mark.long

HOST = socket.gethostname()
ENVIRONMENT = """\
import json, os, sys
folder, rank = os.environ["HPCKIT_RUN_DIR"], os.environ["RANK"]
with open(f"{folder}/seen-{rank}.json", "w") as stream:
    json.dump({"env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd()}, stream)
print("hello from", rank)
"""
SLEEP = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
STUBBORN = """\
import os, signal, sys, time
if os.environ["RANK"] == "1":
    time.sleep(1)
    raise ValueError("boom in one")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(3600)
"""
SPAN = """\
import json, os, sys, time
begun = time.time()
time.sleep(0.5)
with open(os.environ["HPCKIT_RUN_DIR"] + "/span.json", "w") as stream:
    json.dump([begun, time.time(), os.environ["MASTER_PORT"], sys.argv[1:]], stream)
"""


def hpckit(
    *words: str | Path, status: int | None = 0, timeout: float = 280
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*HPCKIT, *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


def submit(
    script: str, *words: str, args: Sequence[str] = (), name: str = "script.py", **how: Any
) -> dict[str, Any]:
    """Submit a script of this text; return the JSON document."""
    path = Path(name)
    path.write_text(script)
    strategy = "ddp" if "--tasks-per-node" in words else "serial"
    tail = ["--", *args] if args else []
    how = {"status": None} | how
    done = hpckit("submit", strategy, path, "--json", "--executor", "local", *words, *tail, **how)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def state(job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hpckit("status", job, "--json").stdout)
    return found


def until(check: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def nothing_runs(folder: Path) -> None:
    until(lambda: not processes_of(folder))


def started(run: dict[str, Any], rank: int = 0) -> Callable[[], bool]:
    return (Path(run["run_dir"]) / "ranks" / f"{rank}.json").exists


def seen(run: dict[str, Any], rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run["run_dir"]) / f"seen-{rank}.json").read_text())
    return found


def test_every_rank_gets_its_place_and_the_run(here: Path) -> None:
    run = submit(ENVIRONMENT, "--nodes", "2", "--gpus", "0", "--tasks-per-node", "2", "--wait")
    assert run["state"] == "COMPLETED"
    ranks = [seen(run, rank)["env"] for rank in range(4)]
    for rank, env in enumerate(ranks):
        wanted = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2,
                  "NODE_RANK": rank // 2, "MASTER_ADDR": "127.0.0.1", "HPCKIT_RESTART": 0,
                  "HPCKIT_DEVICE": "cpu", "HPCKIT_RUN_DIR": run["run_dir"],
                  "HPCKIT_RUN_ID": run["run_id"]}  # fmt: skip
        assert {key: env[key] for key in wanted} == {k: str(v) for k, v in wanted.items()}
        assert "HPCKIT_TASK" not in env
    assert len({env["MASTER_PORT"] for env in ranks}) == 1


def test_ranks_that_never_met_are_told_of_at_the_end_and_in_status(here: Path) -> None:
    Path("alone.py").write_text("print('the whole work')\n")
    words = ["submit", "ddp", "alone.py", "--executor", "local", "--gpus", "2", "--wait"]
    done = hpckit(*words)
    said = "the 2 ranks never met: no rank joined a process group of torch.distributed."
    assert done.stderr.count(said) == 1
    page = hpckit("status", "latest").stdout
    assert page.splitlines()[0].split()[1] == "COMPLETED:"
    assert page.count(said) == 1
    assert [text[: len(said)] for text in state("latest")["notes"]] == [said]


def test_the_folder_is_as_the_contract_says(here: Path) -> None:
    run = submit(ENVIRONMENT, "--gpus", "0", "--tasks-per-node", "2", "--wait")
    folder = Path(run["run_dir"])
    assert folder.parent == here / "runs"
    assert (folder / "logs" / "1.out").read_text() == "hello from 1\n"
    record = json.loads((folder / "run.json").read_text())
    assert (record["job_id"], record["plan"]["ranks"]) == (run["job_id"], 2)
    attempt = json.loads((folder / "ranks" / "1.json").read_text())["attempts"][0]
    assert (attempt["exit_code"], attempt["host"], attempt["error"]) == (0, HOST, None)
    assert (folder / "job.sh").read_text().startswith("#!/bin/bash\n")
    assert (folder / "submitit").stat().st_mode & 0o777 == 0o700
    nothing_runs(here)


def test_wait_and_json_give_one_document(here: Path) -> None:
    run = submit("raise SystemExit(3)\n", "--wait", status=1)
    assert set(run) == {"job_id", "run_id", "run_dir", "executor", "state", "exit_code"}
    assert (run["executor"], run["state"], run["exit_code"]) == ("local", "FAILED", 3)
    assert hpckit("wait", run["job_id"], status=1).stdout.startswith(f"{run['job_id']} FAILED")
    assert state("latest")["job_id"] == run["job_id"]


ODD = ["a b", "it's", '"q"', "two\nlines", "", "$(touch pwned)", "`id`", "--", "-x=1", "é*?", "%j"]


def test_arguments_arrive_exactly_as_they_were_given(here: Path) -> None:
    run = submit(ENVIRONMENT, "--gpus", "2", "--wait", args=ODD)
    assert seen(run, 0)["argv"] == ODD
    assert not list(here.rglob("pwned"))
    # One process that was to use two GPUs: as many logical replicas on this machine's CPU.
    assert seen(run, 0)["env"]["HPCKIT_CPU_REPLICAS"] == "2"


def test_any_path_works(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = here / 'it\'s 100% $(touch pwned) "x" `y` %x {{ z }}'
    odd.mkdir()
    monkeypatch.chdir(odd)
    run = submit(ENVIRONMENT, "--wait", name="my script's $HOME %x.py")
    assert run["state"] == "COMPLETED"
    assert seen(run, 0)["cwd"] == str(odd)
    assert Path(run["run_dir"]).parent == odd / "runs"
    assert "hello from 0" in hpckit("logs", run["job_id"]).stdout
    assert not list(here.rglob("pwned"))


def test_an_array_in_an_odd_path_works_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = here / "a 100% b"
    odd.mkdir()
    monkeypatch.chdir(odd)
    found = submit(ENVIRONMENT, "--array", "x=it's,$(id)", "--wait")["jobs"]
    assert [seen(run, 0)["argv"] for run in found] == [["--x", "it's"], ["--x", "$(id)"]]


def test_one_failing_rank_ends_the_run_and_what_would_work_on(here: Path) -> None:
    run = submit(STUBBORN, "--nodes", "2", "--gpus", "0", "--tasks-per-node", "2", "--wait")
    assert (run["state"], run["exit_code"]) == ("FAILED", 1)
    said = hpckit("logs", run["job_id"], "--errors").stdout
    assert said.startswith(f"rank 1 on {HOST} failed first, exit status 1")
    assert "ValueError: boom in one" in said
    assert "stopped after that: ranks 0, 2, 3" in said
    ranks = {row["rank"]: row["exit_code"] for row in state(run["job_id"])["ranks"]}
    assert ranks[1] == 1
    assert all(code and code > 128 for rank, code in ranks.items() if rank != 1)
    nothing_runs(here)


def test_cancel_works_from_another_process(here: Path) -> None:
    run = submit(SLEEP, "--gpus", "0", "--tasks-per-node", "2")
    until(started(run, 1))
    assert "CANCELLED" in hpckit("cancel", run["job_id"]).stdout
    assert state(run["job_id"])["state"] == "CANCELLED"
    nothing_runs(here)
    hpckit("cancel", run["job_id"])
    assert state(run["job_id"])["state"] == "CANCELLED"


def test_a_run_whose_folder_is_removed_ends_because_no_command_could_end_it(here: Path) -> None:
    run = submit(SLEEP, "--gpus", "0", "--sample-interval", "0")
    until(started(run))

    def removed() -> bool:
        shutil.rmtree(run["run_dir"], ignore_errors=True)
        return not Path(run["run_dir"]).exists()

    until(removed)
    nothing_runs(here)


def test_submission_returns_at_once_and_outlives_its_terminal(here: Path) -> None:
    text = """import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.1)
print("done")
"""
    Path("slow.py").write_text(text)
    line = f"{sys.executable} -m hpckit submit serial slow.py --executor local; sleep 60"
    shell = subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE, start_new_session=True)
    assert shell.stdout is not None
    with shell.stdout:
        job = shell.stdout.readline().decode().split()[1]
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    Path("go").touch()  # until here the job cannot have ended
    assert hpckit("wait", job).stdout.startswith(f"{job} COMPLETED")
    assert hpckit("logs", job).stdout == "done\n"


def test_a_killed_controller_is_a_failed_node_and_not_a_good_end(here: Path) -> None:
    run = submit(SLEEP)
    until(started(run))
    local = json.loads((Path(run["run_dir"]) / "local.json").read_text())
    os.kill(local["pid"], signal.SIGKILL)
    until(lambda: state(run["job_id"])["state"] != "RUNNING")
    assert state(run["job_id"])["state"] == "NODE_FAIL"
    hpckit("wait", run["job_id"], status=1)
    nothing_runs(here)


def test_an_array_runs_so_many_at_once_and_all_of_it(here: Path) -> None:
    words = ("--array", "x=1,2,3,4", "--array", "y=a b", "--parallel", "2", "--wait")
    found = submit(SPAN, *words)["jobs"]
    assert [run["state"] for run in found] == ["COMPLETED"] * 4
    spans = [json.loads((Path(run["run_dir"]) / "span.json").read_text()) for run in found]
    assert [span[3] for span in spans] == [["--x", str(n), "--y", "a b"] for n in (1, 2, 3, 4)]
    assert len({span[2] for span in spans}) == 4  # a port each
    # As one begins, it and at most one other are at work.
    assert max(sum(one[0] <= begun < one[1] for one in spans) for begun, *_ in spans) <= 2
    array = found[0]["job_id"].rpartition("_")[0]
    assert len(json.loads(hpckit("status", array, "--json").stdout)["jobs"]) == 4
    assert hpckit("status", array).stdout.count("COMPLETED") == 4


def test_one_task_of_an_array_is_cancelled_alone(here: Path) -> None:
    found = submit(SLEEP, "--array", "x=1,2", "--parallel", "2")["jobs"]
    until(started(found[0]))
    until(started(found[1]))
    hpckit("cancel", found[1]["job_id"])
    states = [state(run["job_id"])["state"] for run in found]
    assert states == ["RUNNING", "CANCELLED"]
    hpckit("cancel", found[0]["job_id"].rpartition("_")[0])
    nothing_runs(here)


def test_resubmitting_one_task_runs_that_task_alone(here: Path) -> None:
    found = submit(ENVIRONMENT, "--array", "x=1,2", "--wait", args=["--common", "a b"])["jobs"]
    done = hpckit("resubmit", found[1]["job_id"], "--wait", "--json")
    again = json.loads(done.stdout)
    assert seen(again, 0)["argv"] == ["--common", "a b", "--x", "2"]
    whole = hpckit("resubmit", found[1]["job_id"].rpartition("_")[0], "--dry-run")
    assert "parameter" not in done.stderr + whole.stderr
    fewer = hpckit("resubmit", found[1]["job_id"], "--dry-run", "--array", "x=3")
    assert "array: none -> x=3" in fewer.stderr
    assert again["run_id"] != found[1]["run_id"]
    array = found[1]["job_id"].rpartition("_")[0]
    assert f"Resubmitting task 1 of array {array} (x=2), without differences" in done.stderr
    assert f"Resubmitting array {array} with all its 2 tasks, without" in whole.stderr
    several = hpckit("resubmit", found[1]["job_id"], "--array", "x=3,4", "--wait", "--json").stdout
    assert [seen(run, 0)["argv"][-1] for run in json.loads(several)["jobs"]] == ["3", "4"]
    before = f"note: job {found[1]['job_id']} was submitted again before, as job {again['job_id']}"
    assert before in hpckit("resubmit", found[1]["job_id"], "--dry-run").stderr
    assert "before" not in done.stderr + whole.stderr + fewer.stderr
    page = hpckit("status", found[1]["job_id"]).stdout
    assert f"  resubmit again as job {again['job_id']}\n" in page


def test_resubmitting_says_what_differs(here: Path) -> None:
    run = submit(ENVIRONMENT, "--gpus", "0", "--tasks-per-node", "2", "--wait")
    Path("script.py").write_text(ENVIRONMENT + "# changed\n")
    done = hpckit("resubmit", run["run_id"], "--nodes", "2", "--wait", "--json")
    assert "nodes: 1 -> 2" in done.stderr
    assert "ranks: 2 -> 4" in done.stderr
    assert "the script itself has changed" in done.stderr
    assert seen(json.loads(done.stdout), 3)["env"]["WORLD_SIZE"] == "4"


def test_a_job_waits_for_the_one_before(here: Path) -> None:
    first = submit(SPAN, name="first.py")
    second = submit(SPAN, "--after", first["job_id"], "--wait", name="second.py")
    assert second["state"] == "COMPLETED"
    one, two = (
        json.loads((Path(run["run_dir"]) / "span.json").read_text()) for run in (first, second)
    )
    assert one[1] < two[0]


def test_a_job_after_one_that_failed_never_starts(here: Path) -> None:
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.1)\n"
    first = submit(f"{wait}raise SystemExit(1)\n", name="first.py")
    second = submit(ENVIRONMENT, "--after", first["job_id"])
    Path("go").touch()
    hpckit("wait", second["job_id"], status=1)
    assert state(second["job_id"])["state"] == "CANCELLED"
    assert "so it will never start" in hpckit("status", second["job_id"]).stdout
    assert not (Path(second["run_dir"]) / "ranks").exists()
    # Once it is known, it is said at once.
    refused = hpckit("submit", "serial", "first.py", "--after", first["job_id"], status=2)
    assert f"job {first['job_id']} is FAILED" in refused.stderr
    assert "--skip-check after" in refused.stderr
    third = submit(ENVIRONMENT, "--after", f"afterany:{first['job_id']}", "--wait")
    assert third["state"] == "COMPLETED"


def test_a_requeued_run_starts_again_and_counts(here: Path) -> None:
    script = """\
import os, sys, time
print("restart", os.environ["HPCKIT_RESTART"], os.environ["MASTER_PORT"], flush=True)
if os.environ["HPCKIT_RESTART"] == "0":
    time.sleep(60)
"""
    run = submit(script, "--max-requeues", "1")
    until(started(run))
    until(lambda: "restart 0" in (Path(run["run_dir"]) / "logs" / "0.out").read_text())
    os.killpg(job_script(Path(run["run_dir"])), signal.SIGUSR2)  # as the controller does
    assert hpckit("wait", run["job_id"]).returncode == 0
    found = state(run["job_id"])
    assert (found["state"], found["restarts"], found["exit_code"]) == ("COMPLETED", 1, 0)
    log = (Path(run["run_dir"]) / "logs" / "0.out").read_text()
    assert re.findall(r"restart (\d)", log) == ["0", "1"]
    ports = re.findall(r"restart \d (\d+)", log)
    assert ports[0] != ports[1]
    nothing_runs(here)


STOPS = """\
import os, pathlib, time
time.sleep(float(os.environ["RANK"]))  # the signal may come before this
from hpckit.parallel import should_stop
print("attempt", os.environ["HPCKIT_RESTART"], flush=True)
while os.environ["HPCKIT_RESTART"] == "0":
    time.sleep(0.05)
    if should_stop():
        print("saved", flush=True)
        break
"""
TRAPS = """\
trap 'echo saved; exit 3' USR2
echo attempt $HPCKIT_RESTART
while [ $HPCKIT_RESTART = 0 ]; do sleep 0.05; done
"""


def test_scripts_that_handle_the_warning_save_before_the_next_attempt(here: Path) -> None:
    """One rank has its handler when the warning comes, the other not yet; and a shell."""
    words = ("--max-requeues", "1", "--sample-interval", "0")
    runs = [
        submit(STOPS, "--tasks-per-node", "2", *words),
        submit(TRAPS, *words, name="script.sh"),
    ]
    for run in runs:
        log = Path(run["run_dir"]) / "logs" / "0.out"
        until(lambda: log.exists() and "attempt 0" in log.read_text())  # noqa: B023
        os.killpg(job_script(Path(run["run_dir"])), signal.SIGUSR2)
        assert hpckit("wait", run["job_id"]).returncode == 0
        found = state(run["job_id"])
        assert (found["state"], found["restarts"], found["exit_code"]) == ("COMPLETED", 1, 0)
        for rank in found["ranks"]:
            log = Path(run["run_dir"]) / "logs" / f"{rank['rank']}.out"
            assert log.read_text() == "attempt 0\nsaved\nattempt 1\n"


AT_ITS_END = """\
import atexit, os, time
if os.environ["RANK"] == "0" and os.environ["HPCKIT_RESTART"] == "0":
    atexit.register(time.sleep, 1)  # runs when the handler of SIGUSR2 is gone
from hpckit.parallel import should_stop, stopping
stopping._warning._look_s = 0  # it reads of the warning before the signal is sent
print("attempt", os.environ["HPCKIT_RESTART"], flush=True)
while os.environ["HPCKIT_RESTART"] == "0":
    if should_stop():
        time.sleep(3 * float(os.environ["RANK"]))
        print("saved", flush=True)
        break
"""
SLOW_EXIT = """\
import os, signal, time
class Model:
    def __del__(self):
        print("goes", flush=True)
        while not self.access(self.go, 0):
            self.sleep(0.05)
signal.signal(signal.SIGUSR2, lambda *_: print("saved", flush=True))
model, Model.go = Model(), os.path.join(os.environ["HPCKIT_RUN_DIR"], "go")
Model.access, Model.sleep = staticmethod(os.access), staticmethod(time.sleep)
"""


def warned_ranks(script: str, word: str) -> tuple[int, list[str]]:
    """Warn a job of two ranks when both have said a word; return its restarts, and all they say.

    A file `go` in the run's folder says when both supervisors have had the warning.
    """
    words = ("--tasks-per-node", "2", "--max-requeues", "1", "--sample-interval", "0")
    run = submit(script, *words)
    folder = Path(run["run_dir"])
    logs = [folder / "logs" / f"{rank}.out" for rank in (0, 1)]
    until(lambda: all(log.exists() and word in log.read_text() for log in logs))
    os.killpg(job_script(folder), signal.SIGUSR2)
    until(lambda: all(WARNED in marks(marks_of(folder, rank), 0) for rank in (0, 1)))
    time.sleep(0.5)  # their supervisors look at them some times
    (folder / "go").touch()
    assert hpckit("wait", run["job_id"]).returncode == 0
    found = state(run["job_id"])
    assert found["state"] == "COMPLETED"
    return found["restarts"], [log.read_text() for log in logs]


def test_a_rank_at_its_end_does_not_cost_the_others_their_save(here: Path) -> None:
    """Rank 0 has read of the warning and stops; without a handler it does not look deaf then."""
    assert warned_ranks(AT_ITS_END, "attempt 0") == (1, ["attempt 0\nsaved\nattempt 1\n"] * 2)


def test_a_script_that_is_complete_is_not_started_again(here: Path) -> None:
    """Python gives handlers back before it ends, which may take a while."""
    assert warned_ranks(SLOW_EXIT, "goes") == (0, ["goes\n"] * 2)


def test_the_last_attempt_has_all_of_its_time(here: Path) -> None:
    """With no requeue left the warning before the end is nobody's business."""
    script = """\
import os, pathlib, time
print("restart", os.environ["HPCKIT_RESTART"], flush=True)
while not pathlib.Path(os.environ["HPCKIT_RUN_DIR"], "go" + os.environ["HPCKIT_RESTART"]).exists():
    time.sleep(0.05)
"""
    run = submit(script, "--max-requeues", "1")
    folder = Path(run["run_dir"])
    until(started(run))
    for attempt in (0, 1):
        until(lambda: f"restart {attempt}" in (folder / "logs" / "0.out").read_text())  # noqa: B023
        os.killpg(job_script(folder), signal.SIGUSR2)
    time.sleep(0.5)  # the signal would have ended it by now
    (folder / "go1").touch()
    assert hpckit("wait", run["job_id"]).returncode == 0
    assert "Traceback" not in (folder / "job.out").read_text()


def job_script(run_dir: Path) -> int:
    """Return the process group of a run's job script."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            log = (entry / "fd" / "1").readlink()
        except OSError:
            continue
        if words[0] == b"/bin/bash" and log == run_dir / "job.out":
            return os.getpgid(int(entry.name))
    raise AssertionError("the job script does not run")


def test_nothing_is_loaded_from_a_folder_that_others_can_write(here: Path) -> None:
    first = submit(SPAN, name="first.py")
    second = submit(ENVIRONMENT, "--after", first["job_id"])
    folder = Path(second["run_dir"]) / "submitit"
    folder.chmod(0o777)
    # Nor does the script come from there: the controller has it in its memory.
    (folder.parent / "job.sh").write_text("#!/bin/bash\ntouch ranks\n")
    assert "FAILED" in hpckit("wait", second["job_id"], status=1).stdout
    assert f"chmod 700 {folder}" in hpckit("logs", second["job_id"], "--errors").stdout
    assert not (Path(second["run_dir"]) / "ranks").exists()


# --- The controller by itself: what would take minutes through the command line ---


CONTROLLER = "from hpckit.schedulers.local import controller; {}controller.main()"


def control(here: Path, script: str, clock: str = "", **spec: Any) -> dict[str, Any]:
    """Run a controller over one job script to its end; return its `local.json`."""
    folder = here / "run"
    folder.mkdir(exist_ok=True)
    given = {"script": script, "run_dirs": [str(folder)], "job_ids": ["local-1"],
             "time_min": 1, **spec}  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", CONTROLLER.format(clock)],
        input=json.dumps(given),
        text=True,
        check=True,
        timeout=280,
    )
    found: dict[str, Any] = json.loads((folder / "local.json").read_text())
    return found


def test_a_job_over_its_time_is_ended_with_all_it_started(here: Path) -> None:
    found = control(here, "trap '' TERM\nsleep 500 &\nsleep 600\n", time_min=0.02)
    assert found["state"] == "TIMEOUT"
    assert found["ended"] - found["started"] < 300
    until(lambda: not [line for line in processes_of(here) if "sleep" in line])


def test_before_its_time_is_up_a_requeueing_job_is_warned(here: Path) -> None:
    # Jobs start with the signal ignored, which bash cannot undo, so Python takes it.
    program = "import signal,sys,time\nsignal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))\n"
    script = f'exec {sys.executable} -c \'{program}open("ready", "x"); time.sleep(300)\'\n'
    # The controller's clock goes on when the script has said that it takes the signal.
    clock = (
        "import os; controller.LocalJob.elapsed_s = "
        "property(lambda job: 70.0 if os.path.exists('ready') else 50.0); "
    )
    found = control(here, script, clock, time_min=2, max_requeues=1, signal_delay_s=60)
    assert (found["state"], found["exit_code"]) == ("FAILED", 7)


def test_status_144_asks_for_another_start_so_many_times(here: Path) -> None:
    found = control(here, 'echo "start $HPCKIT_RESTART"; exit 144\n', max_requeues=2)
    assert (found["state"], found["exit_code"], found["restarts"]) == ("FAILED", 144, 2)
    assert (here / "run" / "job.out").read_text() == "start 0\nstart 1\nstart 2\n"
