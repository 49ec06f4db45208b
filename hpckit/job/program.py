"""What every rank of a job runs: a Python file or module, or any other program.

A file's kind is told by its name and its first bytes. A bare word that is not a file here is a
program that the environment or its modules provide; it is looked up on the node.
"""

import os
import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from hpckit import shell
from hpckit.environments import Environment
from hpckit.errors import RequestError
from hpckit.files import DamagedFileError, open_regular, reason
from hpckit.frozen import frozen
from hpckit.job.first_bytes import (
    SOURCES,
    STARTERS,
    is_beside_its_python,
    names_python,
    no_start,
    not_python,
    notes_on,
    notes_on_python,
    says_what_starts_it,
    starter_of,
)
from hpckit.paths import here, is_file, is_folder, is_program, is_there, nearest_name, typed_path

_PYTHON_NAMES = frozenset((".py", ".pyw", ".pyz", ".pyc"))
_MODULE = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_PYTHONS = ("python", "python3")
_START = 16_384  # bytes


class ProgramKind(StrEnum):
    """How a program is started."""

    PYTHON = "python"  # a file that the environment's Python runs
    MODULE = "module"  # `python -m` runs it
    FILE = "file"  # it starts by itself, or with what its name or first line says
    WORD = "word"  # it is found on the node's PATH


@frozen(kw_only=True)
class Program:
    """What every rank of a job runs.

    Attributes:
        word: the absolute path of a file, or the name of a module or of a program on the node.
        file: the file to hash; a module's, if it is in this folder or on PYTHONPATH.
        top: the folder that a module is imported from.
        starter: argv in front of a file that cannot be started by itself.
        fault: why it cannot run, as far as that can be seen from here.
        notes: lines about it for people.
    """

    kind: ProgramKind
    word: str
    file: Path | None = None
    top: Path | None = None
    starter: tuple[str, ...] = ()
    fault: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its job, by default."""
        path = Path(self.word)
        known = {*_PYTHON_NAMES, *STARTERS}
        if self.kind is ProgramKind.PYTHON:
            return path.stem
        if self.kind is ProgramKind.FILE:
            return path.stem if path.suffix.lower() in known else path.name
        return self.word

    @property
    def what(self) -> str:
        """What it is, in words, for a comment: `script /x/train.py`."""
        kinds = {ProgramKind.PYTHON: "script", ProgramKind.MODULE: "module"}
        return f"{kinds.get(self.kind, 'program')} {self.word}"

    def command(self, environment: Environment, python: str) -> tuple[str, ...]:
        """Return the argv that starts it in an environment; `python` is hpckit's interpreter."""
        if self.kind is ProgramKind.PYTHON:
            return (*environment.command(python), self.word)
        if self.kind is ProgramKind.MODULE:
            return (*environment.command(python), "-m", self.word)
        if self.kind is ProgramKind.WORD and self.word in _PYTHONS:
            return environment.command(python)
        return (*environment.prefix(), *self.starter, self.word)

    def is_python(self, args: tuple[str, ...]) -> bool:
        """Say whether the environment's Python runs a script or a module, given its arguments."""
        if self.kind is ProgramKind.WORD and self.word in _PYTHONS and args:
            return args[0] == "-m" or not args[0].startswith("-")
        return self.kind in (ProgramKind.PYTHON, ProgramKind.MODULE)


@frozen(kw_only=True)
class KeptFiles:
    """The copy of the code that a job runs in place of today's files.

    Attributes:
        root: the project's real path, today. copy: where its copy is.
        script: the program's file in the copy; None: it was not kept, so that today's runs.
    """

    root: Path
    copy: Path
    script: Path | None

    def of(self, file: Path) -> Path:
        """Return a file's copy; where it has none, the file itself, which is then what runs."""
        real = Path(os.path.realpath(file))
        if not real.is_relative_to(self.root):
            return file
        kept = self.copy / real.relative_to(self.root)
        return kept if is_file(kept) else file


def typed_program(text: str) -> str:
    """Return the absolute path of a path, or of a file here; return any other word unchanged.

    Raises:
        RequestError: there is no word, or it means standard input.
    """
    if not text:
        raise RequestError(
            "The program is empty, as of a variable that the shell has not set. Give its path."
        )
    if text == "-":
        raise RequestError(
            "Program '-' would be standard input, which no rank has. Write the script into a file."
        )
    path = typed_path(text)
    bare = "/" not in text and not text.startswith("~")
    return text if bare and not is_file(path) else str(path)


def find_module(name: str, kept: KeptFiles | None = None) -> Program:
    """Return a Python module as a program; whether it exists is found out on the node.

    Its file is looked for as `python -m` does: in this folder, then in those of PYTHONPATH; in
    `kept` first, where that is what runs.

    Raises:
        RequestError: no module can have such a name.
    """
    if not re.fullmatch(_MODULE, name):
        raise RequestError(
            f"-m {name!r} is not the name of a Python module, as in package.module. "
            "A file is given by its path, without -m."
        )
    words = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for top in (here(), *(here() / word for word in words if word)):
        at = top.joinpath(*name.split("."))
        for typed in (at.with_name(f"{at.name}.py"), at / "__main__.py"):
            file = kept.of(typed) if kept else typed
            if is_file(file):
                return Program(kind=ProgramKind.MODULE, word=name, file=file, top=top)
    return Program(kind=ProgramKind.MODULE, word=name, fault=_file_as_module(name, kept))


def _file_as_module(name: str, kept: KeptFiles | None) -> str | None:
    """Say what is wrong with `-m train.py`: Python runs all of the file, and then fails."""
    module = name.removesuffix(".py")
    file = None if module == name else find_module(module, kept).file
    if file is None or file.stem != module.rpartition(".")[2]:
        return None
    return (
        f"-m {name!r} is the name of a file: Python would run the file, and then end with an "
        f"error. Write -m {module}, or {module.replace('.', '/')}.py without -m."
    )


def find_program(text: str, environment: Environment, kept: KeptFiles | None = None) -> Program:
    """Return the program that a user, or a workload, names: a path, a file here, or a bare word.

    If `kept` has its file, that copy is read, whatever lies in its place today.

    Raises:
        RequestError: it is a folder, or no program can have such a name.
    """
    if kept and kept.script:
        return read_program(typed_path(text), kept)
    word = typed_program(text)
    path = Path(word)
    if not path.is_absolute():
        return _bare_word(word, environment)
    if is_folder(path):
        raise RequestError(f"Program {word!r} is a folder. Give the path of your program.")
    if is_file(path):
        return read_program(path)
    if is_there(path):
        raise RequestError(f"Program {word!r} is not a file. Give the path of your program.")
    near = nearest_name(path)
    hint = f"Did you mean {near!r}?" if near else "Give the path of your program."
    python = path.suffix.lower() in _PYTHON_NAMES
    return Program(
        kind=ProgramKind.PYTHON if python else ProgramKind.FILE,
        word=word,
        fault=f"Program {word!r} does not exist. {hint}",
    )


def _bare_word(word: str, environment: Environment) -> Program:
    """Return a program that is looked up on the node; a file misspelt is a fault."""
    if len(word.split()) != 1 or not word.isprintable():
        first, *rest = word.split() or [""]
        line = f"hpckit submit serial {first} -- {' '.join(rest)}"
        raise RequestError(f"{word!r} is not a file. Arguments of a program go after `--`: {line}")
    program = Program(kind=ProgramKind.WORD, word=word)
    if word in _PYTHONS or _is_here(word, environment):
        return program
    path = typed_path(word)
    if is_folder(path):
        fault = f"Program {str(path)!r} is a folder. Give the path of your program."
        return Program(kind=ProgramKind.WORD, word=word, fault=fault)
    near, suffix = nearest_name(path), path.suffix.lower()
    if near or suffix in {*_PYTHON_NAMES, *STARTERS, *SOURCES}:
        hint = f"Did you mean {near!r}?" if near else "Give the path of your program."
        what = f"{str(path)!r} does not exist, and no program on this machine is called {word!r}"
        fault = f"Program {what}. {hint}"
        return Program(kind=ProgramKind.WORD, word=word, fault=fault)
    note = f"{word!r} is not a program on this machine: it is looked for on the node's PATH"
    return Program(kind=ProgramKind.WORD, word=word, notes=(note,))


def _is_here(word: str, environment: Environment) -> bool:
    """Say whether a word is a program of this machine, or of the environment."""
    if environment.in_container:
        return False
    beside = environment.path and Path(environment.path) / "bin" / word
    return shell.which(word) is not None or bool(beside and is_program(beside))


def read_program(path: Path, kept: KeptFiles | None = None) -> Program:
    """Return how a file that is there, or its copy in `kept`, is started."""
    if kept is None or kept.script is None:
        return _read_program(path, str(path))
    found = _read_program(kept.script, str(path))
    if found.fault is None:
        return found
    said = found.fault.replace(str(kept.script), str(path))
    hint = "So it is in the copy that --same-code runs: leave that out to run today's file."
    return replace(found, fault=f"{said} {hint}")


def _read_program(path: Path, word: str) -> Program:
    suffix, may_start = path.suffix.lower(), is_program(path)
    python = Program(kind=ProgramKind.PYTHON, word=word, file=path)
    try:
        with open_regular(path) as file:
            start = file.read(_START)
    except (OSError, DamagedFileError) as error:
        if suffix in _PYTHON_NAMES:
            return python
        # A program may be started, and not read, where its owner wants it so.
        fault = None if may_start else f"Program {word!r} cannot be read: {reason(error)}."
        return Program(kind=ProgramKind.FILE, word=word, fault=fault)
    python = replace(python, notes=notes_on_python(path, start))
    beside = may_start and is_beside_its_python(Path(word), start)
    if suffix in _PYTHON_NAMES or (names_python(start) and not beside):
        return python
    alone = says_what_starts_it(start)
    starter = () if alone and may_start else starter_of(suffix, start)
    if not alone and not starter:
        return replace(python, fault=not_python(path, start))
    return Program(
        kind=ProgramKind.FILE,
        word=word,
        file=path,
        starter=starter,
        fault=no_start(path, start, may_start=may_start or bool(starter)),
        notes=notes_on(path, start),
    )
