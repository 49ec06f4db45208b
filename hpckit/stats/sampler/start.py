"""Starts and stops a sampler from a process of the job, or beside a command of the user's.

Neither can fail or hold up the job; the command runs as if nothing stood between it and its caller.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.environ import own_python
from hpckit.errors import CommandError
from hpckit.processes import STARTED, stat_fields

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only


_NICE = 10  # the sampler's own
# The sampler ends in less than a second; one that hangs in a dead file system never does.
_STOP_S = 1.5
_KILLED_S = 0.5  # one that hangs in the kernel does not hear even that
# From its start to its end where it is told to end at once: its Python begins behind all that works
# on the node. At load 9 on two cores that took 0.7 s.
_START_S = 5.0
# A day at 10 s takes a fifth of a second; Slurm kills 30 s after a time-out.
_SUMMARY_S = 10


def start_sampler(
    folder: Path,
    interval_s: float,
    ids: Mapping[str, str],
    *,
    root_pid: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> "Popen[bytes] | None":
    """Start a sampler that writes to a folder and ends with this process; takes milliseconds.

    Call it before the job's own work, from a thread that lives as long as the sampler should: the
    kernel ends the sampler with the thread that started it, or with all of the process.

    Args:
        folder: where its file goes; made if it is not there.
        interval_s: seconds between samples; 0 starts none.
        ids: what the header should say beside Slurm's own variables: `run_id`, `job_id`,
            `restart`, `host`.
        root_pid: whose descendants are the job where there is neither a cgroup nor a slurmstepd;
            this process by default.
        environ: its environment; this process's by default.

    Returns:
        None if it is off or cannot be started, which is logged.
    """
    if interval_s <= 0:
        return None
    pid = str(os.getpid())
    numbers = [
        "--interval",
        f"{interval_s:g}",
        "--root-pid",
        str(root_pid or pid),
        "--parent-pid",
        pid,
    ]
    words = [word for name, value in ids.items() for word in ("--id", f"{name}={value}")]
    argv = [*own_python(), "-m", "hpckit.stats.sampler", "--dir", str(folder)]
    command = [*argv, *numbers, *words]
    try:
        with Path(os.devnull).open("wb") as quiet, _held_back():
            return shell.spawn(
                command,
                env=environ,
                stdout=quiet,
                stderr=quiet,
                new_session=True,
                # Python may stand still between fork and exec where there are other threads; the
                # sampler steps back itself, too, some 0.2 s later.
                prepare=_step_back if threading.active_count() == 1 else None,
            )
    except CommandError as error:
        _warn("No GPU samples: %s", error)
        return None


def _step_back() -> None:
    """Give way to the job from the first instruction: the script starts at the same time."""
    os.nice(_NICE)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold signals back from this thread, and from a sampler that is started meanwhile.

    Until its Python handles them they would end it, and a short job would have no sample. They wait
    for it in the kernel: after its first sample it takes those that tell it to end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_sampler(process: "Popen[bytes] | None") -> None:
    """Let a sampler take its last sample and end, and log if it does not. None is nothing to stop.

    Waits 1.5 s at most; for one that is still starting, until 5 s after its start.
    """
    if process is not None and (failure := end_sampler(process)):
        _warn("The GPU sampler %s.", failure)


def end_sampler(process: "Popen[bytes]") -> str:
    """Do what `stop_sampler` does, but return what it would log; empty where all went well."""
    process.send_signal(signal.SIGTERM)
    patience_s = max(_STOP_S, _START_S - _age_s(process.pid))
    if _ends_within(process, patience_s):
        return ""
    process.kill()
    _ends_within(process, _KILLED_S)
    return f"did not end within {round(patience_s, 1):g} s and was killed"


def _ends_within(process: "Popen[bytes]", seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process.poll() is not None


def _age_s(pid: int) -> float:
    """Return how long ago a process was started; of one that is gone, infinity."""
    fields = stat_fields(pid)
    if not fields:
        return float("inf")
    started_s = int(fields[STARTED]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def write_summary(run_dir: Path, ledgers: Sequence[str] = ()) -> None:
    """Write a run's summary.json from what its folder says, and ledgers' lines, at the job's end.

    A process of its own, given some seconds: what goes wrong in it cannot change how the job ends.
    `hpckit stats` writes the summary again, with Slurm's word on the state.
    """
    argv = [*own_python(), "-m", "hpckit.report", str(run_dir), *ledgers]
    lacks = "No summary.json" + (", or no line in the ledger" if ledgers else "")
    try:
        result = shell.run(argv, check=False, timeout_s=_SUMMARY_S, prepare=_outlast)
    except CommandError as error:
        _warn("%s: %s", lacks, error)
        return
    said = result.stderr.strip()[-500:]
    if result.returncode != 0:
        _warn("%s: %s", lacks, said or f"its process {how_ended(result.returncode)}")
    elif said:
        _warn("%s", said)


def _warn(words: str, *values: object) -> None:
    import logging  # noqa: PLC0415  # 3 ms, in front of every rank

    logging.getLogger(__name__).warning(words, *values)


def _outlast() -> None:
    """Do not hear what ends the job: Slurm signals all of a step, and at a time limit twice."""
    for signum in _FORWARDED:
        signal.signal(signum, signal.SIG_IGN)


def how_ended(status: int) -> str:
    """Say how a process ended that wrote nothing, by its exit status; below 0, by a signal."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


_POLL_S = 0.05
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_alongside(argv: Sequence[str]) -> int:
    """Run a command to its end, pass it our signals; return its exit status as a shell would.

    From another thread than the main one no signals are passed on: Python handles them there alone.

    Raises:
        CommandError: it is missing or cannot be started.
    """
    child: Popen[bytes] | None = None
    early: list[int] = []

    def forward(signum: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(signum)
        else:
            child.send_signal(signum)

    handled = _FORWARDED if threading.current_thread() is threading.main_thread() else ()
    before = {signum: signal.signal(signum, forward) for signum in handled}
    try:
        # stdin is inherited: the command may be a shell, or read a pipe.
        child = shell.spawn(argv, stdin=None, close_fds=False)
        for signum in early:
            child.send_signal(signum)
        # A signal just before a call that blocks is heard after it only: at the command's end.
        while (status := child.poll()) is None:
            time.sleep(_POLL_S)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return 128 - status if status < 0 else status
