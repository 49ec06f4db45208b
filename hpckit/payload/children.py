"""Child processes that cannot outlive or hang their parent: start, signal, stop."""

import atexit
import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from hpckit.errors import CommandError
from hpckit.payload.task import Task
from hpckit.rank_variables import restart_count
from hpckit.run_folders.run_files import JOB_LOG, open_to_write
from hpckit.stop_marks import ALONE, add_mark, marks_of

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# How long the supervisors of a local run may take to end after SIGTERM.
LOCAL_GRACE_S = 5.0
# The exit status by which submitit asks for another start of a local job (submitit/local/local.py).
REQUEUE_STATUS = 144
# The number of the job in which `hpckit.submission.watched` stands in the script's place: what a
# script submits may inherit it.
WATCHED = "HPCKIT_WATCHED"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
# Read while this module is imported: the parent may be killed at any moment.
_BEGAN_UNDER = os.getppid()
_INIT = 1


def is_abandoned() -> bool:
    """Say whether this process's parent is gone; the parent of a step's supervisor is slurmstepd.

    If it went before this module was imported, the parent is init. That counts only if Slurm knows
    this process by its number: in a container, process 1 may be the one that started it.
    """
    parent = os.getppid()
    own = os.environ.get("SLURM_TASK_PID") == str(os.getpid())
    return parent != _BEGAN_UNDER or (parent == _INIT and own)


# Signals of the kernel and of a terminal's job control; and those that end a job.
_NOT_PASSED = {
    *("SIGTERM", "SIGINT", "SIGKILL", "SIGSTOP", "SIGCHLD", "SIGPIPE", "SIGTSTP", "SIGTTIN"),
    *("SIGTTOU", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"),
    *("SIGXFSZ", "SIGPROF", "SIGVTALRM"),
}
PASSED = tuple(
    sorted(row for row in signal.valid_signals() if getattr(row, "name", "") not in _NOT_PASSED)
)


def handle_passed(handler: Callable[[int, FrameType | None], object]) -> None:
    """Set a handler for every signal that means nothing to hpckit but may mean much to a script.

    `scancel --signal` sends such a signal to the supervisor, alone or with all processes of its
    step (ProctrackType). Without a handler it would end the supervisor, and with it the script.
    """
    for signum in PASSED:
        signal.signal(signum, handler)
    atexit.unregister(_ignore_passed)
    atexit.register(_ignore_passed)


def _ignore_passed() -> None:
    """Ignore these signals while the process exits: Python restores handlers before it is gone."""
    for signum in PASSED:
        signal.signal(signum, signal.SIG_IGN)


def prepare_child() -> None:
    """Prepare a child between fork and exec: it dies with its parent.

    It ignores the signals that are meant for scripts, since Slurm may send them to every process of
    a step. An ignored signal stays ignored after exec.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for signum in PASSED:
        signal.signal(signum, signal.SIG_IGN)


def prepare_shielded_child() -> None:
    """Prepare a child that SIGINT ends, and that ignores SIGTERM."""
    prepare_child()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def prepare_script() -> None:
    """Prepare a script between fork and exec: it dies with its parent; signals stay as they are."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def prepare_client() -> None:
    """Prepare a child that has the terminal: it is asked to end when its parent does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def prepare_warned_script() -> None:
    """Prepare a script that may get Slurm's warning, SIGUSR2, from something other than hpckit.

    The signal would kill a script that does not handle it. So it starts ignored; a script that
    handles it installs its handler later.
    """
    prepare_script()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def die_with_parent(signum: int) -> None:
    """Let the kernel send this process `signum` when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signum)
    if is_abandoned():  # the kernel does not report an end that came before this call
        os.kill(os.getpid(), signum)


def signal_group(child: "Popen[bytes]", signum: int) -> None:
    """Signal a child's whole process group (it was started in a session of its own)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signum)


def stop_all(children: "list[Popen[bytes]]", grace_s: float) -> None:
    """SIGTERM to every group still alive, SIGKILL to what is left after `grace_s` seconds."""
    for child in children:
        if child.poll() is None:
            signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(child.poll() is None for child in children):
        time.sleep(0.05)
    for child in children:
        # Also groups whose leader is gone: its data loader workers may be left.
        signal_group(child, signal.SIGKILL)
        child.wait()


def until_ended(child: "Popen[bytes]", pause_s: float) -> Iterator[None]:
    """Yield every `pause_s` seconds until a child has ended, and once more as soon as it has.

    On a kernel without pidfd_open (before 5.3) its end is seen up to `pause_s` later.
    """
    try:
        ended = os.pidfd_open(child.pid)
    except OSError:
        ended = -1
    try:
        while child.poll() is None:
            select.select([ended] if ended >= 0 else [], [], [], pause_s)
            child.poll()  # who looks at it now must not take it for one that still runs
            yield
    finally:
        if ended >= 0:
            os.close(ended)


def wait_for(child: "Popen[bytes] | None", seconds: float) -> None:
    """Wait at most `seconds` for a child to end by itself."""
    deadline = time.monotonic() + seconds
    while child is not None and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def shell_status(returncode: int) -> int:
    """Return a status as shells give it: 128 + signal for a killed process."""
    return 128 - returncode if returncode < 0 else returncode


def end_job(task: Task) -> None:
    """End the job that this process is part of, whose slurmstepd on this node was killed.

    Slurm itself does not notice. srun hears nothing more of this slurmstepd's ranks, and waits for
    them for ever. Or it is told to give up, and reports the highest exit status it knows, which is
    0 if the other ranks end well: Slurm would call the job COMPLETED (seen with 22.05.8). Ending
    the batch script makes it FAILED. The ranks here have recorded their ends before.

    `hpckit.submission.watched` outlives SIGTERM, which Slurm would also note down as scancel's. It
    finds a mark, and ends srun when the other ranks have ended.
    """
    if task.one_machine:
        return
    # Imported only here: a rank that ends as it should asks Slurm nothing.
    from hpckit.slurm.client import own_job_id  # noqa: PLC0415
    from hpckit.slurm.control import end_batch_script, end_step  # noqa: PLC0415

    job_id = own_job_id()
    if job_id is None:
        return
    add_mark(marks_of(task.folder, 0), restart_count(), ALONE)
    if os.environ.get(WATCHED) == os.environ["SLURM_JOB_ID"]:
        with contextlib.suppress(CommandError):  # at least, that one slurmstepd does not answer
            end_step(job_id, os.environ.get("SLURM_STEP_ID", "0"))
        return
    try:
        end_batch_script(job_id)
    except CommandError as error:
        # Nothing more can be done here; the ranks' records say what became of them. This process's
        # stderr led to the slurmstepd that is gone, so the log gets the message.
        with open_to_write(task.folder / JOB_LOG, "ab") as log:
            log.write(f"hpckit: job {job_id} cannot be ended: {error}\n".encode())
