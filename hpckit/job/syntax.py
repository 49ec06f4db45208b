"""Whether Python can read the program of a job: asked before it queues, without running it.

The job's Python may be another one, and know more than the one that hpckit runs with. Then what
this one says is a note, and no refusal.
"""

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from hpckit.environments import Environment, image_shown
from hpckit.files import DamagedFileError, open_regular
from hpckit.job.program import KeptFiles, Program, ProgramKind
from hpckit.paths import is_file, typed_path

# A longer text is not asked about: a megabyte takes Python half a second.
_MOST = 1 << 20  # bytes


def with_syntax(
    program: Program,
    args: tuple[str, ...],
    environment: Environment,
    python: str,
    kept: KeptFiles | None = None,
) -> Program:
    """Return a program with a fault, or a note, if Python cannot read its file.

    Args:
        program: as it was found; Python is what starts it.
        args: its arguments; the first one of a word `python` is its file.
        environment: the job's.
        python: hpckit's interpreter.
        kept: the copy of the code that the job runs.
    """
    file = _file(program, args, kept)
    said = syntax_error(file) if file and program.fault is None else None
    if file is None or said is None:
        return program
    if not _is_ours(environment.command(python)[0], python) or "encoding" in said:
        version = ".".join(map(str, sys.version_info[:2]))
        where = "" if environment.name == "none" else f" ({image_shown(environment.name)})"
        note = f"{said}. So says Python {version}; the job's Python{where} may be another one"
        return replace(program, notes=(*program.notes, note))
    copied = bool(kept and file.is_relative_to(os.path.realpath(kept.copy)))
    hint = (
        "So it is in the copy that --same-code runs: leave that out to run today's file."
        if copied
        else "Fix that line."
    )
    return replace(program, fault=f"Python cannot read the program. {said}. {hint}")


def syntax_error(file: Path) -> str | None:
    """Return file, line and Python's own words on a file that it cannot read; None: it may.

    The text is compiled with the encoding that it names, and never run.
    """
    try:
        with open_regular(file) as stream:
            text = stream.read(_MOST + 1)
    except (OSError, DamagedFileError):
        return None
    # Python also runs an archive, or its own bytecode, under any name.
    if len(text) > _MOST or b"\0" in text:
        return None
    try:
        with warnings.catch_warnings():  # they are for the job's own log, and no errors here
            warnings.simplefilter("ignore")
            compile(text, str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        return f"{file}{line}: {type(error).__name__}: {error.msg}"
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _file(program: Program, args: tuple[str, ...], kept: KeptFiles | None) -> Path | None:
    """Return the file that a Python reads first; None: there is none, or nobody knows it here."""
    if program.kind is not ProgramKind.WORD:
        return program.file
    if not args[0].endswith(".py"):
        return None
    typed = typed_path(args[0])
    file = kept.of(typed) if kept else typed
    return file if is_file(file) else None


def _is_ours(python: str, ours: str) -> bool:
    """Say whether a job's Python is the one that hpckit runs with, by its name or its file."""
    return python == ours or os.path.realpath(python) == os.path.realpath(ours)
