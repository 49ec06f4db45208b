"""What a file is, told by its name and its first bytes: what starts it, or why nothing can."""

import re
import shlex
from pathlib import Path

from hpckit.files import DamagedFileError, open_regular, reason

# What starts a file with such a name, if the file is not executable.
STARTERS = {
    **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch"), "bash"),
    **dict.fromkeys((".csh", ".tcsh"), "tcsh"),
    ".zsh": "zsh",
    ".ksh": "ksh",
    ".r": "Rscript",
    ".jl": "julia",
    ".pl": "perl",
    ".rb": "ruby",
    ".lua": "lua",
}
SOURCES = frozenset((".c", ".cc", ".cpp", ".cxx", ".cu", ".f", ".f90", ".rs", ".go", ".java"))
_PYTHON_LINE = rb"python|pypy|\buv\b|\btorchrun\b|\baccelerate\b|\bsage\b"
# How pip starts a script whose Python has a long path: sh reads a command here, Python a string.
_BOTH = rb"#![^\n]*\n(?:(?:#[^\n]*)?\n)*(?:'''|\"\"\"|\"(?:exec|true|:)\" )"
# The Python in a program that pip or conda installed.
_ITS_PYTHON = rb"(?:\A#! *|'''exec' \"?)(/[^\s\"]*/)[^/\s\"]+"
_SBATCH = rb"(?m)^#SBATCH\s"
# In Python they stand among the first comments: elsewhere they are of a job that it submits.
_SBATCH_FIRST = rb"(?:(?:#[^\n]*)?\n)*#SBATCH\s"
_SRUN = rb"(?m)^[ \t]*(?:exec[ \t]+)?srun[ \t](?!.*--overlap)"
_ELF, _ZIP = b"\x7fELF", b"PK\x03\x04"
_MOST = 4 << 20  # bytes of a text that Python may be asked about


def says_what_starts_it(start: bytes) -> bool:
    """Say whether the kernel knows what starts a file: a first line, or a compiled program."""
    return start.startswith((b"#!", _ELF)) or (b"\0" in start and not start.startswith(_ZIP))


def names_python(start: bytes) -> bool:
    """Say whether a file's first lines name a Python that starts it."""
    line = start.partition(b"\n")[0]
    return line.startswith(b"#!") and bool(re.search(_PYTHON_LINE, line) or re.match(_BOTH, start))


def is_beside_its_python(path: Path, start: bytes) -> bool:
    """Say whether a program is one that pip or conda has put beside the Python it belongs to."""
    found = (match[1].decode(errors="replace") for match in re.finditer(_ITS_PYTHON, start))
    return any(Path(folder) == path.parent for folder in found)


def starter_of(suffix: str, start: bytes) -> tuple[str, ...]:
    """Return what starts a file of such a name: as its first line says, as sbatch would."""
    if suffix not in STARTERS:
        return ()
    line = start.partition(b"\n")[0].decode(errors="replace")
    # The kernel takes all behind the first word for one argument (execve(2)).
    words = line.removeprefix("#!").strip().split(maxsplit=1)
    return tuple(words) if line.startswith("#!") and words else (STARTERS[suffix],)


def not_python(path: Path, start: bytes) -> str | None:
    """Say why a file that nothing else starts cannot be Python either; None: it may be."""
    suffix, shown = path.suffix.lower(), f"Program {str(path)!r}"
    if suffix == ".ipynb":
        return f"{shown} is a notebook: make a script of it, jupyter nbconvert --to script NAME."
    if suffix in SOURCES:
        return f"{shown} is a source file: compile it, and submit the program."
    if start.startswith(_ZIP):
        return None
    import ast  # noqa: PLC0415  # few programs are of that kind

    try:
        with open_regular(path) as file:
            ast.parse(file.read(_MOST))
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        return (
            f"{shown} has no first line such as #!/bin/bash that says what starts it, and is not "
            f"Python{line}. Write that line, and chmod +x; or end its name in .py, .sh, .R or .jl."
        )
    except (OSError, DamagedFileError) as error:
        return f"{shown} cannot be read: {reason(error)}."
    return None


def no_start(path: Path, start: bytes, *, may_start: bool) -> str | None:
    """Say why a file cannot be started as it is; None: it may be."""
    what = "a compiled program" if start.startswith(_ELF) else "a program"
    line = start.partition(b"\n")[0]
    if line.endswith(b"\r") and not start.startswith(_ELF):
        return (
            f"Program {str(path)!r} has the line ends of Windows, so that no shell can read "
            f"it. Write it anew: sed -i 's/\\r$//' {shlex.quote(str(path))}"
        )
    if may_start:
        return None
    if path.stat().st_mode & 0o111:
        return (
            f"Program {str(path)!r} is {what} that may not be started here: it is not yours to "
            "start, or its file system allows no programs (noexec). Copy it elsewhere."
        )
    return (
        f"Program {str(path)!r} is {what} that may not be started: it lacks the permission. "
        f"chmod +x {shlex.quote(str(path))}"
    )


def notes_on(path: Path, start: bytes) -> tuple[str, ...]:
    """Say what a batch script has that means something else, or nothing, in a rank of a job."""
    if start.startswith(_ELF):
        return ()
    notes = []
    if re.search(_SBATCH, start):
        notes.append(_not_read(path))
    if re.search(_SRUN, start):
        notes.append(
            f"{path.name} starts srun, which would wait for the end of this very rank: submit what "
            "it starts, or write srun --overlap --mem=0"
        )
    return tuple(notes)


def notes_on_python(path: Path, start: bytes) -> tuple[str, ...]:
    """Say the same of a Python file."""
    return (_not_read(path),) if re.match(_SBATCH_FIRST, start) else ()


def _not_read(path: Path) -> str:
    return f"the #SBATCH lines of {path.name} are not read: give their options to hpckit submit"
