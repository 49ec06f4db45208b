"""The line that says why a rank failed, found in what it wrote to stderr."""

import re
import signal
import time
from itertools import takewhile
from pathlib import Path

from hpckit.files import DamagedFileError, read_tail
from hpckit.job_ends.mpi_ends import MpiEnd, is_mpi_end, mpi_end

_TAIL_BYTES = 64_000
START = "Traceback (most recent call last):"
_MAX_LINES, _MAX_WIDTH, _LINE_WIDTH, _LAST_LINES = 80, 2_000, 200, 10
_BEFORE_MPI = 20  # Open MPI may have explained its error
# How Python begins and ends what it says of a script that it cannot read (traceback module).
_FILE, _UNREAD = '  File "', ("SyntaxError: ", "IndentationError: ", "TabError: ")
_WHERE = re.compile(r'  File "(?:.*/)?([^/"]+)", line (\d+)')
_THROWN = "terminate called after throwing an instance of"  # libstdc++'s and libc++'s words
# Open MPI's own frames of a rank that crashed, or UCX's, and the rules that they draw.
_NOISE = re.compile(
    r"\[[\w.-]+:\d+(?::\d+:\d+)?\] |={4} backtrace |[-=*\s]*$"
    r"|\s*\d+ +(?:/.*\[0x[\da-f]+\]|0x[\da-f]{8,} .*)$"
)
# What the supervisor adds where the job's cgroup tells of such a kill since the rank began.
OUT_OF_MEMORY = "out of memory: the kernel killed a process of this job on this node"
# The same, where nothing counts such kills: see `hpckit.payload.last_memory`.
OUT_OF_MEMORY_SAMPLED = "out of memory, by the job's samples"
# What the supervisor writes of a script that is done, and whose process does not end.
HANGS_AT_END = "hpckit: the script has ended, its process has not"
# How Python joins the tracebacks of one chain (traceback module).
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def last_error(path: Path, start: int = 0) -> str | None:
    """Return the last traceback in a log from byte `start` on, else its last line, or None."""
    lines = _tail(path, start)
    starts = [number for number, line in enumerate(lines) if START in line]
    if not starts:
        if end := mpi_end(lines):
            return end.text
        said = [line.strip() for line in lines if not _NOISE.match(line)]
        found = _unread(lines) or _thrown(said) or _halted(said)
        return found or (said[-1] if said else None)
    return "\n".join(lines[_chain_start(lines, starts) :][-_MAX_LINES:])


def last_words(err: tuple[Path, int], out: tuple[Path, int]) -> str | None:
    """Return the last lines of a program that says nothing in Python's way; None: it is silent.

    They are stderr's; stdout's where stderr has one line or none. Of a rank that MPI ended they are
    those before MPI's own. Each log comes with the byte from which on it counts.
    """
    lines = _tail(*err)
    end = mpi_end(lines)
    said, least, most = (lines[: end.at], 1, _BEFORE_MPI) if end else (lines, 2, _LAST_LINES)
    before = "before that, " if end else ""
    for words, name, enough in ((said, "stderr", least), (_tail(*out), "stdout", 1)):
        kept = [line for line in words if line.strip() and not _NOISE.fullmatch(line)]
        if len(kept) >= enough:
            return "\n".join([f"{before}the end of its {name}:", *kept[-most:]])
    return None


def ended_by_mpi(path: Path, start: int) -> MpiEnd | None:
    """Return how MPI ended a rank by its stderr's log from byte `start` on; None: it did not."""
    return mpi_end(_tail(path, start))


def _tail(path: Path, start: int) -> list[str]:
    """Return the last lines of a log from byte `start` on, but for what hpckit said there."""
    try:
        text = read_tail(path, _TAIL_BYTES, start=start).decode(errors="replace")
    except (OSError, DamagedFileError):
        return []
    return [
        line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}..."
        for line in text.rstrip().splitlines()
        if not line.startswith("hpckit: ")
    ]


def silent_error(err: Path, out: Path, start: int, quiet_s: float) -> str | None:
    """Return the traceback with which a script fell silent `quiet_s` seconds ago or earlier.

    Such a script has failed and does not end: a thread of it goes on, or waits for ever.
    """
    try:
        last_wrote = max(err.stat().st_mtime, out.stat().st_mtime)
    except OSError:
        return None
    if time.time() - last_wrote < quiet_s:
        return None
    words = last_error(err, start)
    return words if words and START in words else None


def says_why(words: str) -> bool:
    """Say whether an error is more than a last line: a traceback, or what MPI ended it with."""
    return START in words or words.startswith(_FILE) or is_mpi_end(words)


def _unread(lines: list[str]) -> str | None:
    """Return what Python says of a script that it cannot read: no traceback, for nothing ran."""
    if not lines or not lines[-1].startswith(_UNREAD):
        return None
    first = next((at for at in reversed(range(len(lines))) if lines[at].startswith(_FILE)), None)
    return None if first is None else "\n".join(lines[first:])


def _thrown(lines: list[str]) -> str | None:
    """Return what C++ says of an exception that nobody caught; frames may follow it."""
    for number, line in enumerate(lines[:-1]):
        if line.startswith(_THROWN) and lines[number + 1].startswith("what():"):
            return f"{line} {lines[number + 1]}"
    return None


def _halted(lines: list[str]) -> str | None:
    """Return the error with which R ended: its last line is the same for every error."""
    if not lines or lines[-1] != "Execution halted":
        return None
    starts = [at for at, line in enumerate(lines) if line.startswith(("Error in ", "Error: "))]
    if not starts:
        return None
    said = takewhile(
        lambda line: not line.startswith(("Calls: ", "In addition: ")), lines[starts[-1] : -1]
    )
    return " ".join(said)


def signal_error(status: int, error: str | None, *, by_signal: bool = True) -> str | None:
    """Return the error of a rank that ended with `status`, named where a signal ended it.

    Not `by_signal`: it ended by itself, with the status that shells and containers give for one.
    """
    try:
        name = signal.Signals(status - 128).name
    except ValueError:
        return error
    if error and says_why(error):
        return error
    what = f"killed by {name}" if by_signal else f"it ended by itself, with the status of {name}"
    return what + (f"; the last it wrote: {error}" if error else "")


def status_words(status: int | None) -> str:
    """Say in words what an exit status means to a shell; empty where it means nothing."""
    if status is None or status <= 128:
        return "a program did not start" if status in (126, 127) else ""
    try:
        return signal.Signals(status - 128).name
    except ValueError:
        return ""


def _chain_start(lines: list[str], starts: list[int]) -> int:
    """Return where the last traceback begins, or the one it came from: the cause stands first."""
    first = starts[-1]
    for number in reversed(starts[:-1]):
        between = "\n".join(lines[number:first])
        if not any(word in between for word in _CHAINED):
            break
        first = number
    return first


def error_line(error: str) -> str:
    """Return the one line of an error that says what it was: the first after the last traceback."""
    lines = error.rstrip().splitlines()
    if not lines:
        return ""
    starts = [number for number, line in enumerate(lines) if START in line]
    if starts:
        prefix = lines[starts[-1]].partition(START)[0]
        for line in lines[starts[-1] + 1 :]:
            body = line.removeprefix(prefix)
            if body and not body[0].isspace():
                return _cut(body.strip())
    if where := _WHERE.match(error):
        return _cut(f"{lines[-1].strip()} ({where[1]}, line {where[2]})")
    return _cut(lines[-1].strip())


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_WIDTH else f"{line[:_LINE_WIDTH]}..."
