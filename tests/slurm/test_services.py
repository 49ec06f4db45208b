"""Slurm's daemons end and come back while commands are at work: right answers afterwards."""

import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.interrupts import desk_in as interrupted_desk
from benchmarks.interrupts import interrupt
from tests.patience import LONG_S
from tests.slurm.conftest import HPCKIT, SCRIPTS, Desk, eventually, lacking

pytestmark = pytest.mark.slurm
SEEN = str(SCRIPTS / "seen.py")


class Command:
    """A command of hpckit's that goes on beside the test; what it says is in a file."""

    def __init__(self, desk: Desk, *words: str, env: Mapping[str, str] | None = None) -> None:
        self.log = desk.work / f"{'-'.join(words[:1])}{len([*desk.work.glob('*.log')])}.log"
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(
                [HPCKIT, *words], env={**desk.env, **(env or {})}, cwd=desk.work,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def said(self) -> str:
        """All it has said so far."""
        return self.log.read_text()

    def says(self, text: str) -> bool:
        """Wait until it has said something; False: it has ended without."""
        eventually(lambda: text in self.said or self.process.poll() is not None)
        return text in self.said

    def status(self) -> int:
        """Wait for its end; give its exit status."""
        return self.process.wait(timeout=LONG_S)


@contextmanager
def without_controller(desk: Desk) -> Iterator[None]:
    """Stop slurmctld, and start it again."""
    desk.slurm.kill_controller()
    try:
        yield
    finally:
        desk.slurm.start_controller()


def test_who_waits_outlasts_a_restart_of_the_controller_and_a_submission_arrives(
    desk: Desk,
) -> None:
    job = desk.submit("serial", SEEN, "--gpus=0", "--", "--hold")
    desk.until(job["job_id"], "RUNNING")
    impatient = {"SLURM_CONF": desk.slurm.impatient["SLURM_CONF"]}
    follow = Command(desk, "submit", "serial", SEEN, "--gpus=0", "--follow", "--", "--hold",
                     env=impatient)  # fmt: skip
    wait = Command(desk, "wait", job["job_id"], env=impatient)
    logs = Command(desk, "logs", "-f", job["job_id"], env=impatient)
    assert follow.says(" RUNNING")
    (followed,) = (path for path in desk.runs.iterdir() if path.name in follow.said)
    # A step that is asked for without a controller begins a minute late.
    begun = [Path(job["run_dir"]), followed]
    assert eventually(lambda: all(list(folder.glob("seen-*.json")) for folder in begun))
    with without_controller(desk):
        for command in (follow, wait):
            assert command.says("hpckit does not know what became of the jobs: squeue: ")
        # sbatch gives up, again and again, before the controller is back.
        submit = Command(desk, "submit", "serial", SEEN, "--gpus=0", "--name=late", env=impatient)
    for folder in begun:
        (folder / "go").touch()
    assert [command.status() for command in (follow, wait, logs, submit)] == [0] * 4
    for command in (follow, wait):
        assert "Slurm answers again, after " in command.said
    assert wait.said.splitlines()[-1].startswith(f"{job['job_id']} COMPLETED")
    assert " COMPLETED" in follow.said
    late = submit.said.partition("Submitted ")[2].split()[0]
    desk.submitted.append(late)
    assert desk.over(late)["state"] == "COMPLETED"
    said = "".join(command.said for command in (follow, wait, logs, submit))
    assert "Traceback" not in said
    # Each job has a record, and each record a job.
    listed = desk.slurm.run("squeue", "-h", "--states=all", "--format=%A %k").stdout.splitlines()
    ours = {row["job_id"]: row["run_id"] for row in desk.call("jobs", "--json").json["jobs"]}
    rows = (re.fullmatch(r"(\d+) hpckit:(\S+)", line) for line in listed)
    carried = {row[1]: row[2] for row in rows if row}
    assert {job: run for job, run in carried.items() if run in set(ours.values())} == ours
    assert sum(run.startswith("late-") for run in carried.values()) == 1


def test_figures_while_slurmdbd_is_down_or_sacct_hangs_and_afterwards(
    desk: Desk, tmp_path: Path
) -> None:
    job_id = desk.done("serial", SEEN, "--gpus=0", "--sample-interval=0")["job_id"]
    queued = desk.slurm.run("squeue", "-h", "--states=all", "-j", job_id, "-o", "%M").stdout
    minutes, _, seconds = queued.strip().partition(":")
    ran_s = int(minutes) * 60 + int(seconds)
    hanging = lacking(desk, tmp_path / "bin", sacct="exec sleep 1000") | {"HPCKIT_PATIENCE": "3"}
    desk.slurm.kill_dbd()
    try:
        silent = [desk.call("stats", job_id, "--json"), desk.call("stats", job_id, "--json",
                                                                   env=hanging)]  # fmt: skip
        told = desk.status(job_id)
    finally:
        desk.slurm.start_dbd()
    assert (told["state"], told["source"]) == ("COMPLETED", "squeue")
    for answer in silent:
        found = answer.json
        assert (found["state"], found["elapsed_s"], found["gpus"]) == ("COMPLETED", ran_s, 0)
        assert "no_accounting" in {note["code"] for note in found["notes"]}
        assert "Traceback" not in answer.err
    found = desk.call("stats", job_id, "--json").json
    assert (found["state"], found["elapsed_s"], found["gpus"]) == ("COMPLETED", ran_s, 0)
    assert "no_accounting" not in {note["code"] for note in found["notes"]}


def test_submissions_that_are_ended_leave_no_job_without_a_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small part of benchmarks/interrupts.py, each with its own moment."""
    for name, value in desk.env.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGINT)
    try:
        with interrupted_desk(desk.work / "cut") as one:
            result = interrupt(one, 6, seed=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.good, result
