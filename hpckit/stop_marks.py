"""The files of `signals/`, by which ranks, scripts and supervisors tell each other things.

`signals/<rank>` is about Slurm's warning. Each line is an attempt's number and a word. The script
and its supervisor both read and write it, under whatever Python: a signal is lost if there is no
handler yet, but a line stays.

`signals/full-<attempt>`: the disk had no room for a rank's record.

`signals/asked-<attempt>`: a supervisor asks Slurm what becomes of the job, instead of rank 0's.

`signals/decides-<attempt>`: a supervisor decides for the job, instead of rank 0's, which has left.

`signals/undone-<attempt>`: a rank other than 0 has left work undone, as rank 0's file says then.

`signals/failed-<attempt>`: a rank has failed. A rank that is told to end looks there, and not into
the records of all others, which would be a million reads for a thousand ranks.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

# The variable of the script's environment with the path of its rank's file.
VARIABLE = "HPCKIT_SIGNALS"
FOLDER = "signals"

# Written by the supervisor: the warning has come; the script had no handler for SIGUSR2 then; the
# script was sent the signal; the job is not requeued, for want of what --checkpoint asks for.
WARNED, DEAF, SENT, NO_CHECKPOINT = "warned", "no-handler", "sent", "no-checkpoint"
# Written by rank 0's supervisor, in that rank's file, about Slurm's SIGTERM: a preemption's grace
# time has begun; the job is in the queue again; the job ends. Any rank's supervisor also writes the
# last one, before it ends the script.
PREEMPTED, REQUEUED, OVER = "preempted", "requeued", "over"
# Written by a supervisor that passes SIGTERM on: the script handles it. Such a script may save what
# it has, and end with 0 before its work is done.
TERMINATED = "sent-sigterm"
# Written by rank 0's supervisor: it requeued the job for the time limit, not for a preemption.
LIMIT = "limit"
# Written by the same: the next job of the chain goes on. srun's status may be another rank's.
NEXT = "next-job"
# Written by a supervisor before the script begins: Slurm's SIGTERM goes to the script, too.
ALL_SIGNALLED = "all-signalled"
# Written by a supervisor whose slurmstepd was killed, in rank 0's file: srun never learns its end.
ALONE = "alone"
# Written in rank 0's file: its supervisor has left, for rank 0 had done its part; another rank has
# stopped before its own was done.
LEFT, UNDONE = "left", "undone"
# Written by `hpckit.parallel` in the script: it got the warning, and will say if it stops; it has.
HEARD, STOPPED = "heard", "stopped"

_MOST = 1 << 16  # bytes
# The end of the file's name for a rank whose only error is that another rank is gone.
_BY_PEER = "-peer"
# How often all ranks of a job together look at a file at most.
_LOOKS_PER_S = 100


def marks_of(run_dir: Path, rank: int) -> Path:
    """Return the path of a rank's file."""
    return run_dir / FOLDER / str(rank)


def make_file(path: Path) -> None:
    """Create the file early, since an NFS client remembers for a while that a file is missing."""
    _append(path, "")


def add_mark(path: Path, attempt: int, word: str) -> None:
    """Write down a word of an attempt. On a full disk it is left out, and only signals remain."""
    _append(path, f"{attempt} {word}\n")


def _append(path: Path, text: str) -> None:
    _write(path, text, os.O_APPEND)


def _write(path: Path, text: str, how: int) -> bool:
    """Write to a file; say whether that was done, as not on a full disk, or by O_EXCL in `how`."""
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
        return True
    return False


def marks(path: Path, attempt: int) -> set[str]:
    """Return the words of an attempt."""
    return {word for number, word in _rows(path) if number == str(attempt)}


def marks_until(path: Path, attempt: int) -> list[set[str]]:
    """Return the words of each attempt from the first one on, and of this one last."""
    words: dict[str, set[str]] = {}
    for number, word in _rows(path):
        words.setdefault(number, set()).add(word)
    return [words.get(str(number), set()) for number in range(attempt + 1)]


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    for line in (_read(path) or "").splitlines():
        row = line.split(" ")
        if len(row) == 2:
            yield row[0], row[1]


def stopped_early(said: set[str], code: int) -> bool:
    """Say by an attempt's words and a script's exit status whether the script left work undone.

    One that was sent the signal and did not say that it would tell if it stops has done so. In rank
    0's words, another rank's end counts, too, unless rank 0 has failed.
    """
    if STOPPED in said or (UNDONE in said and not code):
        return True
    return SENT in said and (bool(code) or HEARD not in said)


def heeds(said: set[str]) -> bool | None:
    """Say by an attempt's words whether the script knows of the warning; None: not known yet.

    It may have read of it here, and be at its end before the signal is sent: without a handler.
    """
    if not said.isdisjoint((SENT, HEARD, STOPPED)):
        return True
    return False if DEAF in said else None


def mark_undone(run_dir: Path, attempt: int) -> None:
    """Write down, where all look, that a rank other than 0 has left work undone.

    The first one does so: all ranks of a job may stop in the same moment, and what is written after
    thousands of lines would not be read.
    """
    if _write(run_dir / FOLDER / f"undone-{attempt}", "", os.O_EXCL):
        add_mark(marks_of(run_dir, 0), attempt, UNDONE)


def _read(path: Path) -> str | None:
    """Return a file's text; None: it is not there, or cannot be read."""
    try:
        # Not by `hpckit.files`, which scripts do not load; but without following links or waiting.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(number, _MOST).decode(errors="replace")
        finally:
            os.close(number)
    except OSError:
        return None


def look_every(least_s: float, processes: int) -> float:
    """Return how many seconds one of so many processes waits between two looks at a file.

    All processes together make no more looks than their file system can bear.
    """
    return max(least_s, processes / _LOOKS_PER_S)


def mark_failed(run_dir: Path, attempt: int, code: int, *, by_peer: bool) -> None:
    """Write down the exit status of a rank that failed by itself, unless another one did before.

    `by_peer`: its only error is that another rank is gone.
    """
    _write(_failed_file(run_dir, attempt, by_peer=by_peer), f"{code}\n", os.O_EXCL)


def failed_with(run_dir: Path, attempt: int) -> int | None:
    """Return the exit status of the first rank that failed by itself; None: none has.

    Ranks whose only error is that another rank is gone count only if no other rank failed.
    """
    for by_peer in (False, True):
        text = _read(_failed_file(run_dir, attempt, by_peer=by_peer))
        if text is not None:
            code = text.strip()
            return int(code) or 1 if code.isdigit() else 1
    return None


def claim_to_ask(run_dir: Path, attempt: int) -> bool:
    """Say whether this process may ask Slurm in the place of rank 0's supervisor; one alone may."""
    return _write(run_dir / FOLDER / f"asked-{attempt}", "", os.O_EXCL)


def claim_to_decide(run_dir: Path, attempt: int) -> bool:
    """Say whether this process may decide for the job in the place of rank 0's, which has left."""
    return _write(_decides_file(run_dir, attempt), "", os.O_EXCL)


def decide_no_more(run_dir: Path, attempt: int) -> None:
    """Let another process claim to decide: this one, which has, leaves."""
    with contextlib.suppress(OSError):
        _decides_file(run_dir, attempt).unlink()


def mark_full(run_dir: Path, attempt: int) -> None:
    """Create an empty file: the disk had no room for a record, but it mostly has for that.

    Nothing else tells it later: there may be room again, and a user's quota cannot be seen.
    """
    _write(_full_file(run_dir, attempt), "", 0)


def was_full(run_dir: Path, attempt: int) -> bool:
    """Say whether the disk had no room for a record of an attempt's ranks."""
    return _read(_full_file(run_dir, attempt)) is not None


def _decides_file(run_dir: Path, attempt: int) -> Path:
    return run_dir / FOLDER / f"decides-{attempt}"


def _full_file(run_dir: Path, attempt: int) -> Path:
    return run_dir / FOLDER / f"full-{attempt}"


def _failed_file(run_dir: Path, attempt: int, *, by_peer: bool) -> Path:
    return run_dir / FOLDER / f"failed-{attempt}{_BY_PEER if by_peer else ''}"
