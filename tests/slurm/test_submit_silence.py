"""slurmctld stands still while a job is handed over: none is lost, none is sent twice."""

import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurm.conftest import HPCKIT, SCRIPTS, Desk, eventually
from tests.slurmbox import daemons

pytestmark = pytest.mark.slurm
SUBMIT = ("submit", "serial", str(SCRIPTS / "seen.py"), "--gpus=0")


@contextmanager
def standing_still(desk: Desk) -> Iterator[None]:
    """Stop slurmctld as a loaded file system would: it takes connections, and answers later."""
    # Not what it starts (scripts, mail): that may end by itself, and its number be used again.
    pids = daemons.without_jobs(desk.slurm.layout, "slurmctld")
    try:
        daemons.send(pids, signal.SIGSTOP)
        yield
    finally:
        daemons.send(pids, signal.SIGCONT)


def begin(desk: Desk, env: Mapping[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [HPCKIT, *SUBMIT], env={**desk.env, **env}, cwd=desk.work, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_job_taken_in_silence_is_found_and_runs(desk: Desk) -> None:
    with standing_still(desk):
        out, err = begin(desk, desk.slurm.impatient).communicate(timeout=LONG_S)
    assert out == ""
    assert "hpckit does not know whether Slurm took the job: " in err
    (run,) = (path for path in desk.runs.iterdir() if not path.name.startswith("."))
    assert (run / "handover.json").exists()
    asked = desk.call("status", run.name, "--json")
    assert f"Slurm has taken run {run.name}: it is job " in asked.err
    desk.submitted.append(asked.json["job_id"])
    status = desk.over(run.name)
    assert status["state"] == "COMPLETED", desk.call("logs", run.name, "--all").out
    comments = desk.slurm.run("squeue", "-h", "--states=all", "--format=%k").stdout.split()
    assert comments.count(f"hpckit:{run.name}") == 1


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


def test_ctrl_c_while_slurm_is_slow_cancels_the_job(desk: Desk) -> None:
    with standing_still(desk):
        process = begin(desk, {})
        assert eventually(lambda: "--parsable" in command_of(children(process.pid)))
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LONG_S)
    assert process.returncode == 130, said
    assert "is cancelled, nothing is left" in said
    assert not desk.runs.exists()
    job_id = said.rpartition("job ")[2].partition(" ")[0]
    states = desk.slurm.run("squeue", "-h", "--states=all", "--format=%T", "--jobs", job_id).stdout
    assert states.split() == ["CANCELLED"]


def command_of(pids: str) -> str:
    try:
        return Path(f"/proc/{pids.split()[0]}/cmdline").read_text() if pids else ""
    except OSError:
        return ""
