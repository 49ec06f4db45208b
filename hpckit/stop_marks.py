"""What a rank's script and its supervisor tell each other of Slurm's warning: `signals/<rank>`.

A line of the file is the attempt's number and a word. Both sides read and write it, whichever
Python they run under: a signal is lost where no handler is there yet, a line is not.
"""

import contextlib
import os
from pathlib import Path

# In the script's environment: the path of its rank's file.
VARIABLE = "HPCKIT_SIGNALS"
FOLDER = "signals"

# By the supervisor: the warning has come; the script had no handler of SIGUSR2 then; it has been
# sent the signal; the job is not requeued, because no checkpoint is what --checkpoint asks for.
WARNED, DEAF, SENT, NO_CHECKPOINT = "warned", "no-handler", "sent", "no-checkpoint"
# By rank 0's supervisor, in that rank's file, of Slurm's SIGTERM: a preemption's grace time has
# begun; the job is in the queue again; it ends. The last one also by any rank's supervisor, before
# it ends the script.
PREEMPTED, REQUEUED, OVER = "preempted", "requeued", "over"
# By rank 0's supervisor: it has requeued the job because of the warning, and not for a preemption.
LIMIT = "limit"
# By a supervisor, before the script begins: Slurm's SIGTERM goes to the script, too.
ALL_SIGNALLED = "all-signalled"
# By `hpckit.parallel` in the script: it has heard, and will say if it stops; it stops.
HEARD, STOPPED = "heard", "stopped"

_MOST = 1 << 16  # bytes


def marks_of(run_dir: Path, rank: int) -> Path:
    """Return a rank's file."""
    return run_dir / FOLDER / str(rank)


def make_file(path: Path) -> None:
    """Make the file before anything is written: an NFS client remembers that one is not there."""
    _append(path, "")


def add_mark(path: Path, attempt: int, word: str) -> None:
    """Write a word of an attempt down, unless the disk is full: then the signal alone must do."""
    _append(path, f"{attempt} {word}\n")


def _append(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o755)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        number = os.open(path, flags, 0o644)
        try:
            os.write(number, text.encode())
        finally:
            os.close(number)


def marks(path: Path, attempt: int) -> set[str]:
    """Return the words of an attempt."""
    try:
        # Not through `hpckit.files`, which scripts do not load; but no link, and never waiting.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            text = os.read(number, _MOST)
        finally:
            os.close(number)
    except OSError:
        return set()
    rows = (line.split(" ") for line in text.decode(errors="replace").splitlines())
    return {row[1] for row in rows if len(row) == 2 and row[0] == str(attempt)}
