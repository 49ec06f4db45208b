"""Whether a file can be a Python script: by its name and its beginning. Nothing of it is run."""

import re
from pathlib import Path

from hpckit.files import DamagedFileError, open_regular, reason

_PYTHON_NAMES = frozenset((".py", ".pyw", ".pyz", ".pyc"))
_SHELL_NAMES = frozenset((".sh", ".bash", ".zsh", ".ksh", ".csh", ".tcsh", ".slurm", ".sbatch"))
_OTHER_NAMES = frozenset(
    (".r", ".jl", ".m", ".pl", ".rb", ".lua", ".c", ".cc", ".cpp", ".cu", ".f90")
)
_PYTHON_LINE = re.compile(rb"python|pypy|\buv\b|\btorchrun\b|\baccelerate\b|\bsage\b")
# How pip starts a script whose Python has a long path: sh reads one word here, Python a string.
_BOTH = re.compile(rb"#![^\n]*\n(?:(?:#[^\n]*)?\n)*(?:'''|\"\"\"|\"(?:exec|true|:)\" )")
_START = 4096  # bytes
_SHOWN = 80  # characters of a first line


def not_python(script: Path) -> str | None:
    """Say why a script that is there cannot be Python, and what to do; None: it may be."""
    if script.suffix.lower() in _PYTHON_NAMES:
        return None
    try:
        with open_regular(script) as file:
            start = file.read(_START)
    except (OSError, DamagedFileError) as error:
        return f"Script {str(script)!r} cannot be read: {reason(error)}."
    found = _what_it_is(start, script.suffix.lower())
    if found is None:
        return None
    what, advice = found
    return f"{str(script)!r} is not a Python file ({what}): {advice}."


def _what_it_is(start: bytes, suffix: str) -> tuple[str, str] | None:
    """Return what a file is that is not Python, and the advice."""
    starts = "submit the Python script that it starts"
    if start.startswith(b"#!"):
        line = start.partition(b"\n")[0].decode(errors="replace").strip()[:_SHOWN]
        python = _PYTHON_LINE.search(start.partition(b"\n")[0]) or _BOTH.match(start)
        return None if python else (f"its first line is {line!r}", starts)
    if start.startswith(b"\x7fELF"):
        return "it is a compiled program", "hpckit starts Python scripts only"
    if suffix in _SHELL_NAMES:
        return "it is named as a shell script", starts
    if suffix == ".ipynb":
        return "it is a notebook", "make a script of it first: jupyter nbconvert --to script NAME"
    if suffix in _OTHER_NAMES:
        return f"its name ends in {suffix}", "hpckit starts Python scripts only"
    return None
