"""From preview to resubmission: what users do around a job."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurm.conftest import HPCKIT, SCRIPTS, Desk, eventually, processes_of, rank_files

pytestmark = pytest.mark.slurm
SEEN, FAIL = str(SCRIPTS / "seen.py"), str(SCRIPTS / "fail.py")
EVERYTHING = ("--nodes", "2", "--gpus", "4")
CPU = ("--gpus", "0")
_RUN_ID = re.compile(r"\b([\w.-]+)-\d{8}-\d{6}-[0-9a-f]{6}(?![0-9a-f])")


def nameless(text: str) -> str:
    """Give a script without its run's own id."""
    return _RUN_ID.sub(r"\1-ID", text)


@pytest.mark.parametrize(
    "request_",
    [
        ("ddp", SEEN, *EVERYTHING, "--time", "5", "--", "--lr", "0.1"),
        ("serial", SEEN, *CPU, "--array", "lr=1,2,3", "--parallel", "2"),
        ("ddp", SEEN, "--nodes", "2", "--tasks-per-node", "2", "--launcher", "torchrun"),
        ("mpi", SEEN, "--tasks-per-node", "2", "--launcher", "mpirun", "--max-requeues", "1"),
    ],
    ids=["srun", "array", "torchrun", "mpirun"],
)
def test_what_is_previewed_is_what_is_submitted(desk: Desk, request_: tuple[str, ...]) -> None:
    preview = desk.call("submit", request_[0], "--dry-run", *request_[1:])
    assert not desk.runs.exists()
    job = desk.submit(*request_)
    job = job.get("jobs", [job])[0]
    assert nameless(Path(job["run_dir"], "job.sh").read_text()) == nameless(preview.out)
    array = job["job_id"].partition("_")[0]
    desk.call("cancel", array)
    stored = desk.slurm.run("scontrol", "write", "batch_script", array, "-").stdout
    assert nameless(stored).rstrip("\n") == nameless(preview.out).rstrip("\n")


def test_check_says_when_it_would_start_and_leaves_nothing(desk: Desk) -> None:
    before = desk.slurm.run("squeue", "-h", "-t", "all", "-o", "%A").stdout.split()
    answer = desk.call("submit", "ddp", *EVERYTHING, "--check")
    assert re.fullmatch(r"Slurm would accept this job and start it .* on c1, c2\.\n", answer.out)
    assert not desk.runs.exists()
    after = desk.slurm.run("squeue", "-h", "-t", "all", "-o", "%A").stdout.split()
    assert set(after) <= set(before)  # Slurm forgets some meanwhile


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--account", "nobodys"), "nvalid account"),
        (("--partition", "nowhere"), "nvalid partition"),
        (("--gpus", "h100:2"), "node configuration is not available"),
        (("--partition", "short", "--time", "2h"), "never start"),
    ],
)
def test_check_refuses_what_slurm_refuses(desk: Desk, options: tuple[str, ...], word: str) -> None:
    answer = desk.call("submit", "ddp", *options, "--check", expect=3)
    assert answer.out == ""
    (line,) = answer.err.splitlines()
    assert word in line
    assert not desk.runs.exists()


def test_a_refused_submission_leaves_nothing(desk: Desk) -> None:
    answer = desk.call("submit", "ddp", "--account", "nobodys", expect=3)
    assert answer.out == ""
    assert "Invalid account" in answer.err.splitlines()[-1]
    assert not desk.runs.exists()
    assert "There is no run yet" in desk.call("status", "latest", expect=2).err


def test_a_job_after_another(desk: Desk) -> None:
    first = desk.submit("serial", SEEN, *CPU, "--", "--hold")
    second = desk.submit("serial", SEEN, *CPU, "--after", first["job_id"])
    desk.until(first["job_id"], "RUNNING")
    waiting = desk.status(second["job_id"])
    assert (waiting["state"], waiting["reason"]) == ("PENDING", "Dependency")
    assert "waits for another job" in waiting["reason_text"]
    Path(first["run_dir"], "go").touch()
    assert desk.over(second["job_id"])["state"] == "COMPLETED"
    assert desk.status(first["job_id"])["state"] == "COMPLETED"


def test_a_job_after_one_that_fails_says_that_it_never_starts(desk: Desk) -> None:
    first = desk.submit("serial", FAIL, *CPU, "--sbatch", "hold")  # its end must not be known yet
    second = desk.submit("serial", SEEN, *CPU, "--after", first["job_id"])
    desk.slurm.run("scontrol", "release", first["job_id"])
    assert desk.over(first["job_id"])["state"] == "FAILED"
    never = "DependencyNeverSatisfied"
    # Who waits for it hears so, and how to take it out of the queue.
    waited = desk.call("wait", second["job_id"], expect=1).out
    assert "will never start" in waited
    assert f"hpckit cancel {second['job_id']}" in waited
    assert desk.status(second["job_id"])["reason"] == never
    # Now that the first one's end is known, it is said before anything is submitted.
    words = ("submit", "serial", SEEN, *CPU, "--after", first["job_id"])
    refused = desk.call(*words, expect=2)
    assert f"job {first['job_id']} is FAILED" in refused.err
    third = desk.submit(*words[1:], "--skip-check", "after", "--follow", expect=1)
    assert third["state"] == "PENDING"


def test_jobs_behind_one_that_never_starts_are_not_waited_for(desk: Desk) -> None:
    first = desk.submit("serial", FAIL, *CPU, "--sbatch", "hold")
    second = desk.submit("serial", SEEN, *CPU, "--after", first["job_id"])["job_id"]
    third = desk.submit("serial", SEEN, *CPU, "--after", f"afterany:{second}")["job_id"]
    array = ("--array", "x=1,2", "--after", third)
    last = [row["job_id"] for row in desk.submit("serial", SEEN, *CPU, *array)["jobs"]]
    by_task = ("--array", "x=1,2", "--after", f"aftercorr:{last[0].partition('_')[0]}")
    after_all = [row["job_id"] for row in desk.submit("serial", SEEN, *CPU, *by_task)["jobs"]]
    desk.slurm.run("scontrol", "release", first["job_id"])
    assert desk.over(first["job_id"])["state"] == "FAILED"
    said = desk.call("wait", third, *last, *after_all, expect=1).out
    lines = said.splitlines()
    assert len(lines) == 5
    for job, line in zip((third, *last, *after_all), lines, strict=True):
        assert line.startswith(f"{job} PENDING")
        assert f": It waits for job {second}, which will never start" in line
        assert line.endswith(f"remove it from the queue: hpckit cancel {job}")
    status = desk.status(third)
    assert (status["state"], status["reason"]) == ("PENDING", "Dependency")  # in Slurm's words
    for word in (second, third, last[0], f"afterany:{after_all[1]}"):
        refused = desk.call("submit", "serial", SEEN, *CPU, "--after", word, expect=2).err
        assert f"--after {word}: job {word.partition(':')[2] or word} can never start" in refused
    # A job of Slurm's own, too, which hpckit did not submit.
    wrapped = ("sbatch", "--parsable", "--output", "/dev/null", "--wrap", "true")
    foreign = desk.slurm.run(*wrapped, "--dependency", f"afterok:{third}").stdout.strip()
    refused = desk.call("submit", "serial", SEEN, *CPU, "--after", foreign, expect=2).err
    assert f"job {foreign} can never start" in refused
    # Once the one in front is gone, an afterany is met.
    desk.call("cancel", second)
    assert desk.over(third)["state"] == "COMPLETED"
    assert {desk.over(job)["state"] for job in (*last, *after_all)} == {"COMPLETED"}
    desk.slurm.run("scancel", foreign)


def test_a_waiting_job_says_why_and_when(desk: Desk) -> None:
    holder = desk.submit("ddp", SEEN, *EVERYTHING, "--time", "9", "--", "--hold")["job_id"]
    desk.until(holder, "RUNNING")
    waiting = desk.submit("ddp", SEEN, *EVERYTHING)["job_id"]
    assert eventually(lambda: desk.status(waiting)["reason"] in ("Resources", "Priority"))
    assert eventually(lambda: desk.status(waiting)["expected_start"] is not None)
    status = desk.status(waiting)
    assert 0 < status["expected_start"] - time.time() < 600
    page = desk.call("status", waiting).out
    assert re.search(r"PENDING: .*(next in line|are ahead)", page), page
    assert "expected start" in page
    desk.call("cancel", waiting, holder)


def test_a_wrong_id_among_several_ends_nothing_and_hides_nothing(desk: Desk) -> None:
    hold = ("--hold", "--parsable", "--output=/dev/null", "--wrap", "true")
    foreign = desk.slurm.run("sbatch", *hold).stdout.strip()  # hpckit has no run of it
    ours = desk.submit("serial", SEEN, *CPU, "--sbatch", "hold")["job_id"]
    for words in ((foreign, ours, "999999"), ("nobody", foreign, ours), (ours, f"{ours}_7")):
        said = desk.call("cancel", *words, expect=2)
        assert said.out == ""
        assert "hpckit: error: Nothing was cancelled. There is no run " in said.err
    assert desk.slurm.run("squeue", "-h", "-o", "%T", "-j", foreign).stdout == "PENDING\n"
    said = desk.call("status", "999999", ours, "--json", expect=2)
    assert [(row["job_id"], row["state"]) for row in said.json["jobs"]] == [(ours, "PENDING")]
    assert "There is no run '999999'" in said.err
    ended = desk.call("cancel", foreign, ours).out
    assert f"{ours} CANCELLED" in ended
    assert f"{foreign} CANCELLED according to Slurm" in ended


def test_ctrl_c_while_it_waits_leaves_a_script_the_job(desk: Desk) -> None:
    waiting = subprocess.Popen(
        [HPCKIT, "submit", "serial", SEEN, *CPU, "--sbatch", "hold", "--wait", "--json"],
        env=desk.env, cwd=desk.work, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert waiting.stderr
    while "follow" not in (line := waiting.stderr.readline()):
        assert line, waiting.communicate()
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=LONG_S)
    assert waiting.returncode == 130, err
    job = json.loads(out)
    assert (job["state"], job["exit_code"]) == ("PENDING", None)
    assert desk.call("cancel", job["job_id"]).out.startswith(f"{job['job_id']} CANCELLED")


@pytest.mark.parametrize("launcher", ["srun", "torchrun", "mpirun"])
def test_a_running_job_is_cancelled_with_its_processes(desk: Desk, launcher: str) -> None:
    strategy = "mpi" if launcher == "mpirun" else "ddp"
    words = ("--launcher", launcher, "--", "--rank", "99", "--children")
    job = desk.submit(strategy, FAIL, "--nodes", "2", "--tasks-per-node", "2", *words)
    run_dir = Path(job["run_dir"])
    assert eventually(lambda: len(list(run_dir.glob("ready-*"))) == 4)
    answer = desk.call("cancel", job["job_id"]).out
    assert answer.startswith(f"{job['job_id']} CANCELLED")
    assert eventually(lambda: processes_of(run_dir) == []), processes_of(run_dir)
    assert desk.call("wait", job["job_id"], expect=1).out.startswith(f"{job['job_id']} CANCELLED")
    again = desk.call("cancel", job["job_id"])
    assert again.out.startswith(f"{job['job_id']} CANCELLED")


def test_submit_and_wait_says_how_it_ended(desk: Desk) -> None:
    good = desk.call("submit", "serial", SEEN, *CPU, "--wait")
    assert re.match(r"Submitted \d+\n\d+ COMPLETED", good.out)
    bad = desk.call("submit", "serial", FAIL, *CPU, "--wait", "--json", expect=1)
    assert (bad.json["state"], bad.json["exit_code"]) == ("FAILED", 1)
    assert f"hpckit logs {bad.json['job_id']} --errors" in bad.err
    waited = desk.call("wait", bad.json["job_id"], expect=1)
    assert "FAILED" in waited.out


def test_following_a_job_to_its_end(desk: Desk) -> None:
    answer = desk.call("submit", "serial", SEEN, *CPU, "--follow")
    assert "COMPLETED" in answer.out
    log = desk.call("logs", "latest", "-f").out
    assert log == "rank 0 restart 0\n"


def test_resubmitting_says_what_differs(desk: Desk) -> None:
    script = desk.work / "mine.py"
    script.write_text(Path(SEEN).read_text())
    first = desk.done("ddp", script, "--nodes", "1", "--tasks-per-node", "2", "--", "--lr", "0.1")
    again = desk.call("resubmit", first["job_id"], "--wait", "--json", cwd=desk.home)
    assert "without differences" in again.err
    (seen, _) = rank_files(again.json["run_dir"]).values()
    assert seen["argv"] == ["--lr", "0.1"]
    assert seen["cwd"] == str(desk.work)
    script.write_text(script.read_text() + "\n# changed\n")
    wider = desk.call("resubmit", first["job_id"], "--nodes", "2", "--wait", "--json")
    assert re.search(r"^ *nodes: 1 -> 2$", wider.err, re.MULTILINE)
    assert re.search(r"^ *ranks: 2 -> 4$", wider.err, re.MULTILINE)
    assert "the script itself has changed" in wider.err
    assert [seen["host"] for seen in rank_files(wider.json["run_dir"]).values()] == [
        *("c1", "c1"),
        *("c2", "c2"),
    ]


def test_one_task_of_an_array_is_resubmitted_alone(desk: Desk) -> None:
    jobs = desk.submit("serial", SEEN, *CPU, "--array", "lr=1,2,3", "--", "--epochs", "2")["jobs"]
    desk.until(jobs[0]["job_id"].partition("_")[0], "COMPLETED")
    again = desk.call("resubmit", jobs[1]["job_id"], "--wait", "--json").json
    assert "_" not in again["job_id"]
    (seen,) = rank_files(again["run_dir"]).values()
    assert seen["argv"] == ["--epochs", "2", "--lr", "2"]


def test_jobs_lists_them_newest_first(desk: Desk) -> None:
    made = [desk.done("serial", SEEN, *CPU)["job_id"] for _ in range(2)]
    listed = desk.call("jobs", "--json").json
    rows = listed["jobs"] if isinstance(listed, dict) else listed
    assert [row["job_id"] for row in rows] == made[::-1]
    assert {row["state"] for row in rows} == {"COMPLETED"}
