"""Printing: results to stdout, everything else to stderr. Nothing outside this module prints.

While a command runs, both streams spell out what a terminal would obey, whoever writes into them:
our functions, typer's errors, Python's warnings. Only `_obeyed` goes past that, and its callers
are here: colours and movements of our own, a user's own log, a file into a pipe.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from hpckit.errors import OutsideError
from hpckit.text import COLOURS, cells, columns_of, in_line, padded, shows_colours, spelt

if TYPE_CHECKING:
    from hpckit import Run

# A column of fewer letters than this is harder to read than a block of lines.
_LEAST_COLUMN = 20
_CLEAR = "\x1b[H\x1b[2J"


class _Spelling:
    """A stream whose text is spelt out on its way; `must` is what to raise where it takes none.

    Without `must` the text is lost: whoever cannot be told of one thing cannot of another.
    """

    def __init__(self, stream: TextIO, must: str = "") -> None:
        self.stream = stream
        self._must = must
        self._lost: OutsideError | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with self._taken():
            self._put(spelt(text))
        return len(text)

    def flush(self) -> None:
        with self._taken():
            self.stream.flush()

    def obey(self, text: str, *, exact: bool = False) -> None:
        """Write text as it is; `exact`: letter by letter, or not at all."""
        with self._taken():
            self._put(text, exact=exact)
            self.stream.flush()

    def pour(self, content: bytes) -> None:
        """Write bytes as they are."""
        with self._taken():
            self.stream.flush()
            self.stream.buffer.write(content)
            self.stream.buffer.flush()

    def _put(self, text: str, *, exact: bool = False) -> None:
        """Write text; spell out letters that the user's own encoding (PYTHONIOENCODING) lacks."""
        try:
            self.stream.write(text)
        except UnicodeEncodeError as error:
            kind = self.stream.encoding
            if exact:
                raise OutsideError(
                    f"{self._must}: its encoding, {kind}, has no {text[error.start]!r}. Unset "
                    "PYTHONIOENCODING."
                ) from error
            self.stream.write(text.encode(kind, "backslashreplace").decode(kind))

    @contextlib.contextmanager
    def _taken(self) -> Iterator[None]:
        """Turn a full disk, a quota or a closed stream into an error of ours; stderr is forgiven.

        It is raised again at each use, the last flush included: typer tries a stream, and keeps to
        itself what comes of that.
        """
        if self._lost:
            raise self._lost
        try:
            yield
        except OSError as error:
            # What is left in the buffer would be tried again at Python's own exit.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self.stream.fileno())
            os.close(devnull)
            if self._must and isinstance(error, BrokenPipeError):
                raise  # the reader (head, less) has left, which is no error
            if self._must:
                self._lost = OutsideError(f"{self._must}: {error.strerror}.")
                raise self._lost from error

    def forgive(self) -> None:
        """Raise nothing from now on: loggers of libraries keep the stream until Python's exit."""
        self._must, self._lost = "", None

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def spelling() -> Iterator[None]:
    """Spell out whatever is written to stdout and stderr meanwhile."""
    streams = sys.stdout, sys.stderr
    results = _Spelling(sys.stdout, "The result cannot be written to stdout")
    sys.stdout = cast("TextIO", results)
    sys.stderr = cast("TextIO", _Spelling(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        results.forgive()


def print_json(value: object) -> None:
    """Print one JSON document."""
    import json  # noqa: PLC0415  # the first page prints none

    say(json.dumps(value, indent=2))


def note(text: str) -> None:
    """Say something to the person, not to the pipe."""
    print(spelt(text), file=sys.stderr)


def say_note(text: str) -> None:
    """Say on stderr what a user should know and did not ask for."""
    note(f"note: {text}")


def say_whose(run: "Run") -> None:
    """Say on stderr whose words a run's are, if they are not this user's own."""
    if doubt := run.doubt:
        note(f"note: it is not certain who has written run {run.run_id}: {doubt}")
    elif not run.mine:
        note(f"note: run {run.run_id} and its contents belong to {run.owner}")


def say(text: str) -> None:
    """Print a result for people."""
    print(spelt(text), flush=True)


def show_text(text: str) -> None:
    """Print a file's own text: as it is into a pipe, spelt out for a terminal."""
    if sys.stdout.isatty():
        print(spelt(text), end="")
    else:
        _obeyed(sys.stdout, text, exact=True)


def show_file(content: bytes, *, binary: bool) -> None:
    """Print a whole file: byte by byte into a pipe, and for a terminal as `show_text`."""
    if not binary and sys.stdout.isatty():
        show_text(content.decode())
    elif isinstance(sys.stdout, _Spelling):
        sys.stdout.pour(content)
    else:
        sys.stdout.buffer.write(content)


def show_log(text: str, *, own: bool) -> None:
    """Print a piece of a log: one's own as it is, with its colours and progress bars."""
    _obeyed(sys.stdout, text if own else spelt(text))


def show_page(text: str, *, anew: bool = False) -> None:
    """Print a page of `report/`, which spells out all but its colours; `anew` clears the screen."""
    _obeyed(sys.stdout, (_CLEAR if anew and sys.stdout.isatty() else "") + text + "\n")


def redraw(lines: Sequence[str], width: int, *, drawn: int) -> None:
    """Write lines over the last `drawn` ones on stderr."""
    up = f"\x1b[{drawn}A" if drawn else ""
    text = "".join(f"\r\x1b[2K{in_line(line)[: width - 1]}\n" for line in lines)
    _obeyed(sys.stderr, up + text)


def by(launcher: str | None) -> str:
    """Return ` by NAME` for pages, of who starts the ranks."""
    return f" by {launcher}" if launcher else ""


def show_table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], paint: Callable[[str, str], str | None]
) -> None:
    """Print a `table`, in colours where stdout is a terminal that shows some."""
    if shows_colours(sys.stdout):
        show_page(table(heads, rows, paint))
    else:
        say(table(heads, rows))


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    paint: Callable[[str, str], str | None] | None = None,
) -> str:
    """Return aligned columns; absent values show as `-`.

    `paint` says for a head and a cell which colour of `COLOURS` it has; then `show_page` prints it.

    Where they are wider than the terminal, the last column's words go on in its next lines; where
    that leaves it too little room, each row is a block of lines. Words are never cut: people copy
    ids and paths.
    """
    said = [[("-" if cell in (None, "") else in_line(str(cell))) for cell in row] for row in rows]
    widths = [max(cells(row[column]) for row in [heads, *said]) for column in range(len(heads))]
    most = room()
    if most is None or sum(widths) + 2 * (len(widths) - 1) <= most:
        lines = [_aligned(row, widths, heads if paint else (), paint) for row in said]
        return "\n".join([_aligned(heads, widths), *lines])
    left = most - sum(widths[:-1]) - 2 * (len(widths) - 1)
    longest = max((cells(word) for row in said for word in row[-1].split()), default=0)
    if left < max(_LEAST_COLUMN, longest):
        return "\n".join(_block(heads, row, most) for row in said)
    lines = [_aligned(heads, widths)]
    for row in said:
        first, *more = _wrapped(row[-1], left)
        lines.append(_aligned([*row[:-1], first], widths))
        lines += [" " * (most - left) + words for words in more]
    return "\n".join(lines)


def room() -> int | None:
    """Return the columns there are; None: as many as it takes, for files and programs."""
    return columns_of(sys.stdout)


def _aligned(
    row: Sequence[str],
    widths: Sequence[int],
    heads: Sequence[str] = (),
    paint: Callable[[str, str], str | None] | None = None,
) -> str:
    texts = [padded(cell, width) for cell, width in zip(row, widths, strict=True)]
    if paint:
        colours = map(paint, heads, row)
        texts = [_painted(text, colour) for text, colour in zip(texts, colours, strict=True)]
    return "  ".join(texts).rstrip()


def _painted(text: str, colour: str | None) -> str:
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if colour else text


def _block(heads: Sequence[str], row: Sequence[str], most: int) -> str:
    """Return a row as lines of its own: its first cell, then the others with their heads."""
    width = max(len(head) for head in heads)
    lines = [row[0]]
    for head, cell in zip(heads[1:], row[1:], strict=True):
        first, *more = _wrapped(cell, max(most - width - 4, 1))
        lines.append(f"  {head.lower():<{width}}  {first}")
        lines += [" " * (width + 4) + words for words in more]
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap  # noqa: PLC0415  # of tables that are too wide alone

    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def _obeyed(stream: TextIO, text: str, *, exact: bool = False) -> None:
    """Write text as it is, orders to the terminal and all."""
    if isinstance(stream, _Spelling):
        stream.obey(text, exact=exact)
    else:
        stream.write(text)
        stream.flush()
