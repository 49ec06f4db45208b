"""A node's slurmstepd is killed: Slurm hears no more of its ranks, and would call the job good."""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.run_folders.runs import read_run
from tests.patience import LONG_S
from tests.slurm.conftest import (
    OVER,
    SCRIPTS,
    Desk,
    Record,
    add_site,
    eventually,
    processes_of,
    stepd_of,
)

pytestmark = pytest.mark.slurm
SEEN = str(SCRIPTS / "seen.py")
PAIR = ("--nodes", "2", "--tasks-per-node", "1", "--time", "5")
ALONE = ("--gpus", "0", "--time", "5")


def held(desk: Desk, *argv: str) -> Record:
    return desk.submit(*argv, "--", "--hold")


def sacct(desk: Desk, job: Record) -> str:
    """Give what accounting says of a job that is over, once it knows that."""
    ask = ("sacct", "-X", "-n", "-P", "-o", "State,ExitCode", "-j", job["job_id"])
    said: list[str] = []

    def over() -> bool:
        said[:] = [desk.slurm.run(*ask).stdout.strip()]
        return said[0].partition("|")[0] in OVER

    assert eventually(over), said
    return said[0]


def test_a_job_that_lost_a_slurmstepd_has_failed(desk: Desk) -> None:
    """Whether the other ranks still work, have ended well, or there are none."""
    uneven = desk.work / "uneven.py"
    uneven.write_text("import os, time\ntime.sleep(300 * int(os.environ['RANK']))\n")
    (desk.work / "scancel").write_text("#!/bin/sh\necho no way >&2; exit 1\n")
    (desk.work / "scancel").chmod(0o755)
    add_site(desk, f"setup: ['export PATH={desk.work}:$PATH']\n", "mute")
    working, alone = held(desk, "ddp", SEEN, *PAIR), held(desk, "serial", SEEN, *ALONE)
    torchrun = held(desk, "ddp", SEEN, *PAIR, "--launcher", "torchrun")
    ended = desk.submit("ddp", uneven, *PAIR)
    tasks = [
        row["run_dir"] for row in held(desk, "serial", SEEN, *ALONE, "--array", "i=0,1")["jobs"]
    ]
    unheard = desk.submit("ddp", uneven, *PAIR, "--site", "mute")

    def are_ready() -> bool:
        begun = [len([*Path(job["run_dir"]).glob("seen-*.json")]) for job in (working, torchrun)]
        rank_0 = [row for job in (ended, unheard) for row in desk.status(job["job_id"])["ranks"]]
        ends = [(row["rank"], row["exit_code"]) for row in rank_0]
        begun += [len([*Path(folder).glob("seen-*.json")]) for folder in tasks]
        return begun == [2, 2, 1, 1] and Counter(ends) == {(0, 0): 2, (1, None): 2}

    assert eventually(are_ready)
    for job in (working, torchrun, ended, unheard):
        os.kill(stepd_of(job["job_id"], "c2"), signal.SIGKILL)
    os.kill(stepd_of(alone["job_id"], "c1"), signal.SIGKILL)
    # The one of the two by whose number Slurm means both.
    array = str(read_run(Path(tasks[0])).array_job_id)
    os.kill(step_of(array)[0], signal.SIGKILL)

    for job in (working, torchrun, ended, alone):
        assert desk.over(job["job_id"])["state"] == "FAILED"
        assert sacct(desk, job) == "FAILED|0:15"
    assert eventually(
        lambda: sorted(row["state"] for row in desk.status(array)["jobs"])[0] == "FAILED"
    )
    assert sorted(row["state"] for row in desk.status(array)["jobs"]) == ["FAILED", "RUNNING"]
    # Here nothing could tell Slurm, which calls it COMPLETED when srun is made to give up.
    rank_1 = Path(unheard["run_dir"], "ranks", "1.json")
    assert eventually(lambda: "no way" in Path(unheard["run_dir"], "job.out").read_text())
    assert '"exit_code": 143' in rank_1.read_text()
    desk.slurm.run("scancel", f"{unheard['job_id']}.0")
    waited = desk.call("wait", unheard["job_id"], "--json", expect=1).json
    assert sacct(desk, unheard) == "COMPLETED|0:0"
    assert (waited["state"], waited["exit_code"], waited["source"]) == ("FAILED", 143, "ranks")
    why = "Slurm says COMPLETED, but rank 1 on c2 ended with exit status 143"
    assert waited["reason_text"] == why


def step_of(job_id: str) -> tuple[int, list[int]]:
    """Give the slurmstepd of a job's step, and what it has started; 0: there is none yet."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            if (entry / "cmdline").read_text().startswith(f"slurmstepd: [{job_id}.0]"):
                found[int(entry.name)] = [int(child) for child in children_of(int(entry.name))]
    copies = {child for tasks in found.values() for child in tasks}  # not yet programs of their own
    return next(((pid, tasks) for pid, tasks in found.items() if pid not in copies), (0, []))


def is_hpckits(pid: int) -> bool:
    """Say whether a process is no longer slurmstepd's own copy."""
    with contextlib.suppress(OSError):
        return "hpckit" in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def forked(job_id: str, is_there: Callable[[int], bool]) -> tuple[int, list[int]]:
    """Stop the slurmstepd of a job's step once a task that it has forked is there.

    It goes on for a moment at a time, so that a loaded machine does not miss that one.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):  # root of a container may not
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        return _forked(job_id, is_there, time.monotonic() + LONG_S)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _forked(job_id: str, is_there: Callable[[int], bool], until: float) -> tuple[int, list[int]]:
    while not (stepd := step_of(job_id)[0]):
        assert time.monotonic() < until, f"job {job_id} has no step"
        time.sleep(0.001)
    while True:
        os.kill(stepd, signal.SIGSTOP)
        while not all_stopped(stepd):
            time.sleep(0)
        tasks = [int(task) for task in children_of(stepd)]
        if any(map(is_there, tasks)):
            return stepd, tasks
        assert time.monotonic() < until, f"job {job_id} has no task"
        os.kill(stepd, signal.SIGCONT)
        time.sleep(0.0002)


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def all_stopped(pid: int) -> bool:
    """Say whether no thread of a process runs: proc(5)."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended since
        return False
    return all(stat.rpartition(")")[2].split()[0] in "TZ" for stat in stats)


def test_a_slurmstepd_that_is_killed_while_hpckit_starts_is_missed_too(desk: Desk) -> None:
    """Among the imports of hpckit's process, which is not stopped: Linux would end it.

    A process group that is orphaned while one of it is stopped gets SIGHUP.
    """
    job = held(desk, "serial", SEEN, *ALONE)
    # Not sooner: srun then gives up before the launch is over; see the test below.
    stepd, _ = forked(job["job_id"], is_hpckits)
    os.kill(stepd, signal.SIGKILL)
    assert desk.over(job["job_id"])["state"] == "FAILED"
    assert eventually(lambda: not processes_of(job["run_dir"]))


def unlaunched(desk: Desk) -> Record:
    """Give a job whose step ended, with its slurmstepd, before its rank had begun."""
    for _ in range(20):
        job = desk.submit("serial", SEEN, *ALONE)
        stepd, tasks = forked(job["job_id"], lambda _: True)
        for pid in tasks:
            os.kill(pid, signal.SIGSTOP)
        too_late = any(map(is_hpckits, tasks))
        for pid in (stepd, *tasks):
            os.kill(pid, signal.SIGKILL)
        # By itself srun waits for minutes, and gives up in the same way.
        desk.slurm.run("scancel", job["job_id"] if too_late else f"{job['job_id']}.0")
        if not too_late and sacct(desk, job) == "COMPLETED|0:0":
            return job
    raise AssertionError("no slurmstepd was caught in time")


def test_a_job_whose_rank_never_began_has_failed_whatever_slurm_says(desk: Desk) -> None:
    job = unlaunched(desk)
    status = desk.status(job["job_id"])
    assert (status["state"], status["exit_code"], status["ranks"]) == ("FAILED", None, [])
    report = desk.call("logs", job["job_id"], "--errors").out
    assert report.startswith("no rank had started: srun gave up (")
    assert "FAILED" in desk.call("stats", job["job_id"]).out
    desk.call("wait", job["job_id"], expect=1)
