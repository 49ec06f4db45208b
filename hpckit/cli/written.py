"""The files that a command writes where its user says: `-` is standard output, as elsewhere."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpckit.cli.output import show_file
from hpckit.errors import RequestError
from hpckit.text import listed

_STDOUT = Path("-")
# Kinds of files that no terminal shows.
_BINARY = ("png",)


def is_stdout(path: Path | None) -> bool:
    """Say whether a file's name means standard output."""
    return path == _STDOUT


def check_files(files: Mapping[str, Path | None], printed: Sequence[str] = ()) -> None:
    """Refuse what standard output cannot take, before there is any work.

    Args:
        files: what is written, by the names of their options, which are also what they are.
        printed: options that print there, too.

    Raises:
        RequestError: several would go there, or a picture to a terminal, or a file's name says that
            it is of another kind.
    """
    for kind, path in files.items():
        _refuse_other_kind(kind, path)
    ours = [name for name, path in files.items() if is_stdout(path)]
    several = [f"--{name} -" for name in ours] + [f"--{name}" for name in printed if ours]
    if len(several) > 1:
        raise RequestError(
            f"{listed(several)} would all go to standard output: write all but one of them into "
            "files, or leave them out."
        )
    if sys.stdout.isatty() and (name := next((row for row in ours if row in _BINARY), None)):
        raise RequestError(
            f"--{name} - is not for a terminal: give the name of a file, or a pipe, as in "
            f"--{name} - > FILE."
        )


def _refuse_other_kind(name: str, path: Path | None) -> None:
    """Refuse a picture by a wrong name, and a page in place of another file, say of a script."""
    if path is None or is_stdout(path):
        return
    suffix = path.suffix.lower()
    if name in ("png", "svg") and suffix != f".{name}":
        raise RequestError(f"--{name} {str(path)!r}: the file's name must end in .{name}.")
    if name == "html" and suffix not in ("", ".html", ".htm") and path.is_file():
        raise RequestError(
            f"--html {str(path)!r}: this file is there already, and by its name it is not a page. "
            "Give a name that ends in .html."
        )


def write(kind: str, path: Path, make: Callable[[Path], Path]) -> Path | None:
    """Have a file made, and return its path; None: it went to standard output.

    Raises:
        OutsideError: it cannot be written.
    """
    if not is_stdout(path):
        return make(path)
    from tempfile import TemporaryDirectory  # noqa: PLC0415  # few go there

    with TemporaryDirectory(prefix="hpckit-") as folder:
        made = make(Path(folder) / f"file.{kind}")
        show_file(made.read_bytes(), binary=kind in _BINARY)
    return None
