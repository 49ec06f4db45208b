"""`hpckit shell` on a real Slurm, in a terminal: left, lost and found again, ended by idleness."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurm.conftest import HPCKIT, Desk, processes_of

pytestmark = pytest.mark.slurm
LEAVE = b"\x1d\x1d\x1d"


class Terminal:
    """hpckit in a terminal of its own, as a user has it."""

    def __init__(self, desk: Desk, *words: str) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(desk.work)
            os.execve(HPCKIT, ["hpckit", *words], {**desk.env, "SHELL": "/bin/bash"})
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.seen = b""
        self.status: int | None = None

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def until(self, pattern: bytes, within_s: float = LONG_S) -> "re.Match[bytes]":
        """Wait until something was shown, and forget what is before its end."""
        limit = time.monotonic() + within_s
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < limit, f"{pattern!r} is not in {self.seen!r}"
            assert self._read(), f"{pattern!r} is not in {self.seen!r}"
        self.seen = self.seen[found.end() :]
        return found

    def _read(self) -> bool:
        """Read what has come; say whether there may be more."""
        if not select.select([self.master], [], [], 1)[0]:
            return True
        try:
            chunk = os.read(self.master, 1 << 16)
        except OSError:  # EIO: it has ended
            return False
        self.seen += chunk
        return bool(chunk)

    def end(self, signum: int | None = None) -> int:
        """Wait for its end, and give its exit status; `signum` asks for it."""
        if self.status is None:
            if signum is not None:
                os.kill(self.pid, signum)
            while signum != signal.SIGKILL and self._read():
                pass
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.master)
        return self.status


@pytest.fixture
def terminals(desk: Desk) -> Iterator[list[Terminal]]:
    found: list[Terminal] = []
    yield found
    for one in found:
        one.end(signal.SIGKILL)


def opened(desk: Desk, terminals: list[Terminal], *words: str) -> tuple[Terminal, str]:
    """Open a new shell; give its terminal and its job."""
    one = Terminal(desk, "shell", "--time", "10", *words)
    terminals.append(one)
    job_id = one.until(rb"Submitted (\d+)")[1].decode()
    desk.submitted.append(job_id)
    return one, job_id


def back(desk: Desk, terminals: list[Terminal], job_id: str) -> Terminal:
    one = Terminal(desk, "shell", job_id)
    terminals.append(one)
    one.until(rb"\[hpckit: job %b on c\d\. Leave it running" % job_id.encode())
    return one


def test_a_shell_is_left_lost_and_found_again(desk: Desk, terminals: list[Terminal]) -> None:
    first, job_id = opened(desk, terminals, "--gpus", "2", "--idle", "30m")
    node = first.until(rb"\[hpckit: job \d+ on (c\d)\. Leave it running: Ctrl-\] three times")[1]
    first.until(rb"\(job %b %b\) " % (job_id.encode(), node))
    first.type(b"echo $SLURM_JOB_ID $SLURMD_NODENAME got:$CUDA_VISIBLE_DEVICES:\r")
    first.until(rb"%b %b got:[0-9],[0-9]:" % (job_id.encode(), node))
    # A step inside: Slurm would call the session's own step a neighbour that has all the memory.
    first.type(b"srun bash -c 'echo step:$SLURM_STEP_ID:'\r")
    first.until(rb"step:\d+:[^$]*\(job ")  # until srun has ended, it has what is typed

    # Left by its keys, while something goes on.
    go = desk.work / "go"
    first.type(f"while [ ! -e {go} ]; do sleep 0.1; done; echo do$((1+1))ne; kept=here\r".encode())
    first.until(rb"done")
    first.type(LEAVE)
    first.until(rb"Come back: hpckit shell %b\]" % job_id.encode())
    assert first.end() == 0
    note = f"a session; go there: hpckit shell {job_id}"
    assert note in desk.status(job_id)["notes"]
    go.touch()

    # Found again, with what was written meanwhile, and lost as by a closed window.
    second = back(desk, terminals, job_id)
    second.until(rb"do2ne")
    second.type(b"echo se$kept; cat\r")
    second.until(rb"sehere")
    second.end(signal.SIGHUP)

    # And as by a killed client; the third takes over from whatever is left of the second.
    third = back(desk, terminals, job_id)
    third.until(rb"sehere")
    third.type(b"\x03")
    third.until(rb"\^C[^$]*\(job ")
    third.type(b"echo th$kept\r")
    third.until(rb"thhere")
    third.end(signal.SIGKILL)
    fourth = back(desk, terminals, job_id)
    fourth.type(b"echo fo$kept; false\r")
    fourth.until(rb"fohere")
    fourth.type(b"exit\r")
    fourth.until(rb"\[hpckit: the shell has ended with status 1\]")
    assert fourth.end() == 0

    status = desk.over(job_id)
    assert (status["state"], status["exit_code"]) == ("COMPLETED", 0)
    assert processes_of(status["run_dir"]) == []
    # What was on the screen may hold secrets: no file of the run has it.
    held = [path for path in Path(status["run_dir"]).rglob("*") if path.is_file()]
    assert not [path for path in held if b"fohere" in path.read_bytes()]
    assert "a bash on" in desk.call("logs", job_id).out
    stats = desk.call("stats", job_id).out
    assert f"Job {job_id} shell  COMPLETED" in stats
    refused = desk.call("resubmit", job_id, expect=2).err
    assert "This run is a session" in refused
    gone = Terminal(desk, "shell", job_id)
    terminals.append(gone)
    gone.until(rb"There is no shell to go to: %b COMPLETED" % job_id.encode())
    assert gone.end() == 3


def test_an_idle_shell_is_warned_and_ended(desk: Desk, terminals: list[Terminal]) -> None:
    words = ("--idle", "8s", "--sample-interval", "1")
    one, job_id = opened(desk, terminals, *words)
    one.until(rb"Leave it running")
    one.until(rb"\[hpckit: this session has been idle for .* Press any key")
    one.until(rb"\[hpckit: this session is ended: idle for \d+ s \(--idle\)\]")
    assert one.end() == 0
    status = desk.over(job_id)
    assert (status["state"], status["exit_code"]) == ("COMPLETED", 0)
    assert re.search(r"ended this session: idle for \d+ s \(--idle\)", status["notes"][0])


def test_ctrl_c_while_it_waits_cancels_it(desk: Desk, terminals: list[Terminal]) -> None:
    one, job_id = opened(desk, terminals, "--sbatch", "begin=now+1hour")
    one.until(rb"PENDING: It may not start yet")
    one.type(b"\x03")
    one.until(rb"Interrupted: job %b is cancelled" % job_id.encode())
    assert one.end() == 130
    assert desk.over(job_id)["state"] == "CANCELLED"
