"""What ranks, and a rank's script and its supervisor, tell each other: the files of `signals/`.

Of Slurm's warning: `signals/<rank>`. A line of the file is the attempt's number and a word. Both
sides read and write it, whichever Python they run under: a signal is lost where no handler is there
yet, a line is not.

That a record found no room on the disk: `signals/full-<attempt>`.

That a rank has failed: `signals/failed-<attempt>`. A rank that is told to end looks there, and not
into the records of all others: these would be a million files for a thousand ranks.
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
# Of a rank whose only error is that another one is gone, which says less.
_BY_PEER = "-peer"
# How often all ranks of a job together look at a file, at most.
_LOOKS_PER_S = 100


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
    _write(path, text, os.O_APPEND)


def _write(path: Path, text: str, how: int) -> None:
    """Write to a file, unless the disk is full, or `how` says that it must not be there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | how
    with contextlib.suppress(OSError):
        try:
            number = os.open(path, flags, 0o644)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(mode=0o755)
            number = os.open(path, flags, 0o644)
        try:
            os.write(number, text.encode())
        finally:
            os.close(number)


def marks(path: Path, attempt: int) -> set[str]:
    """Return the words of an attempt."""
    rows = (line.split(" ") for line in (_read(path) or "").splitlines())
    return {row[1] for row in rows if len(row) == 2 and row[0] == str(attempt)}


def _read(path: Path) -> str | None:
    """Return a file's text; None: it is not there, or cannot be read."""
    try:
        # Not through `hpckit.files`, which scripts do not load; but no link, and never waiting.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(number, _MOST).decode(errors="replace")
        finally:
            os.close(number)
    except OSError:
        return None


def look_every(least_s: float, processes: int) -> float:
    """Return the seconds between two looks of one of so many processes at what another may write.

    A file system that they share bears so many looks a second, however many they are.
    """
    return max(least_s, processes / _LOOKS_PER_S)


def mark_failed(run_dir: Path, attempt: int, code: int, *, by_peer: bool) -> None:
    """Write down that a rank has failed by itself, with an exit status, unless another one has.

    `by_peer`: its error is only that another rank is gone.
    """
    _write(_failed_file(run_dir, attempt, by_peer=by_peer), f"{code}\n", os.O_EXCL)


def failed_with(run_dir: Path, attempt: int) -> int | None:
    """Return the exit status of the first rank that failed by itself; None: none has.

    Of ranks whose only error is that another one is gone only where no other one failed.
    """
    for by_peer in (False, True):
        text = _read(_failed_file(run_dir, attempt, by_peer=by_peer))
        if text is not None:
            code = text.strip()
            return int(code) or 1 if code.isdigit() else 1
    return None


def mark_full(run_dir: Path, attempt: int) -> None:
    """Leave an empty file: a record of this attempt found no room, which an empty one mostly does.

    Later nothing else tells it: there may be room again, and none of a user's quota is seen.
    """
    _write(_full_file(run_dir, attempt), "", 0)


def was_full(run_dir: Path, attempt: int) -> bool:
    """Say whether a record of an attempt's ranks found no room."""
    return _read(_full_file(run_dir, attempt)) is not None


def _full_file(run_dir: Path, attempt: int) -> Path:
    return run_dir / FOLDER / f"full-{attempt}"


def _failed_file(run_dir: Path, attempt: int, *, by_peer: bool) -> Path:
    return run_dir / FOLDER / f"failed-{attempt}{_BY_PEER if by_peer else ''}"
