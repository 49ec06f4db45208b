"""The line that says why a rank failed, found in what it wrote to stderr."""

from pathlib import Path

from hpckit.files import DamagedFileError, read_tail

_TAIL_BYTES = 64_000
START = "Traceback (most recent call last):"
_MAX_LINES = 80
# How Python joins the tracebacks of one chain (traceback module).
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def last_error(path: Path, start: int = 0) -> str | None:
    """Return the last traceback in a log from byte `start` on, else its last line, or None."""
    try:
        text = read_tail(path, _TAIL_BYTES, start=start).decode(errors="replace")
    except (OSError, DamagedFileError):
        return None
    # What hpckit itself said there is no error of the script's.
    lines = [line for line in text.rstrip().splitlines() if not line.startswith("hpckit: ")]
    if not lines:
        return None
    starts = [number for number, line in enumerate(lines) if START in line]
    if not starts:
        return lines[-1].strip()
    return "\n".join(lines[_chain_start(lines, starts) :][-_MAX_LINES:])


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
    starts = [number for number, line in enumerate(lines) if START in line]
    if starts:
        prefix = lines[starts[-1]].partition(START)[0]
        for line in lines[starts[-1] + 1 :]:
            body = line.removeprefix(prefix)
            if body and not body[0].isspace():
                return body.strip()
    return lines[-1].strip()
