"""The line that says why a rank failed, found in what it wrote to stderr."""

from pathlib import Path

_TAIL_BYTES = 64_000
_START = "Traceback (most recent call last):"
_MAX_LINES = 60


def last_error(path: Path, start: int = 0) -> str | None:
    """Return the last traceback in a log from byte `start` on, else its last line, or None."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(start, size - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return None
    lines = text.rstrip().splitlines()
    if not lines:
        return None
    starts = [number for number, line in enumerate(lines) if _START in line]
    if not starts:
        return lines[-1].strip()
    block = lines[starts[-1] :]
    return "\n".join(_until_error_line(block)[-_MAX_LINES:])


def _until_error_line(block: list[str]) -> list[str]:
    """Cut what follows a traceback: its last line is the first one that is not indented."""
    prefix = block[0][: block[0].index(_START)]
    for number, line in enumerate(block[1:], start=1):
        body = line.removeprefix(prefix)
        if body and not body[0].isspace():
            return block[: number + 1]
    return block


def error_line(error: str) -> str:
    """Return the one line of an error that says what it was."""
    return error.rstrip().splitlines()[-1].strip()
