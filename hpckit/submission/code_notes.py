"""What people are told of the code that is kept with a job: what the copy does not cover.

That is what is left out, what the job reads from the project all the same, and packages that are
installed as links to folders outside of it (`pip install -e`). Of these, the environment's `.pth`
files are read, as Python's `site` reads them, and the finders that setuptools writes; no Python of
the environment runs.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.environ import own_python
from hpckit.environments import Environment, EnvironmentKind
from hpckit.files import DamagedFileError, open_regular, read_bytes
from hpckit.job import Job
from hpckit.paths import home
from hpckit.text import in_line, listed

if TYPE_CHECKING:  # only a submission looks through the files
    from hpckit.code.files import Found

_SHOWN = 5
_SHELLS = (".sh", ".bash")
_MOST_SHELL = 1 << 16
# Names with a folder or an ending; words without are seldom files.
_NAME = r"(?<![\w/$.{-])[\w.][\w-]*(?:[./][\w.-]+)+"
_MOST_BYTES = 2**20
_MOST_FILES = 2000  # of a project, in which imports are looked for
_FINDER = r"import (__editable___\w+_finder)\b"
_MAPPING = r"(?m)^MAPPING\b[^=\n]*=\s*(\{.*\})\s*$"
_IMPORTS = r"(?m)^[ \t]*(?:from[ \t]+(\w+)[\w.]*[ \t]+import\b|import[ \t]+([\w., \t]+))"
# The package that runs the job is not the user's code.
_OWN = "hpckit"


def notes_on(job: Job, found: "Found", cwd: str) -> list[str]:
    """Say what a copy of the code does not cover; `cwd` is the job's working directory."""
    return [*_left_out(found), *read_later(job, found, cwd), *_edited_elsewhere(job, found)]


def program_in(job: Job, found: "Found") -> str | None:
    """Return where the program lies in its project; None where it is not kept.

    A link to it that is kept, too, stays a link: some programs do what their name says.
    """
    file = job.program.file
    if file is None:
        return None
    named = Path(os.path.realpath(file.parent), file.name)
    for path, kept in ((named, found.links), (Path(os.path.realpath(file)), _paths(found))):
        if path.is_relative_to(found.project.root):
            inside = str(path.relative_to(found.project.root))
            if inside in kept:
                return inside
    return None


def _paths(found: "Found") -> set[str]:
    return {row.path for row in found.files}


def _left_out(found: "Found") -> list[str]:
    """Say in short what is not kept although one may think so."""
    rows = (
        ("looks like a secret", found.secrets),
        ("leads out of the project", found.outward),
        ("is neither a file nor a folder", found.odd),
    )
    said = [f"{_first(paths)} ({why})" for why, paths in rows if paths]
    return [f"not kept with the code: {'; '.join(said)}"] if said else []


def read_later(job: Job, found: "Found", cwd: str) -> list[str]:
    """Say which files of the code the job takes from the project, not from the copy.

    These are files that an argument or a shell script names: they are found by the working
    directory `cwd`, which stays the folder of submission.
    """
    words = [*job.command[len(job.command) - job.own_args :], *_shell_words(job)]
    here = os.path.realpath(cwd)
    kept = _paths(found) - {program_in(job, found)}
    places = (os.path.join(here, word.rpartition("=")[2]) for word in words)  # noqa: PTH118
    inside = (os.path.relpath(place, found.project.root) for place in places)
    named = {path: None for path in inside if path in kept}
    if not named:
        return []
    return [
        f"{_first([*named])} will be read as it is when the job runs, not as it is now. "
        "The copy is below $HPCKIT_CODE_DIR."
    ]


def _edited_elsewhere(job: Job, found: "Found") -> list[str]:
    """Say which packages the job imports from folders outside the project that may be edited."""
    places = editable_imports(found, job.environment, own_python()[0])
    if not places:
        return []
    named = _first([f"{name} ({place})" for name, place in places.items()])
    return [
        f"imported as it is when the job runs, not as it is now: {named}. An editable install "
        "outside the project is not kept with the code."
    ]


def _shell_words(job: Job) -> list[str]:
    """Return what may be names of files in a shell script that does not know its copy."""
    file = job.program.file
    if file is None or Path(file).suffix not in _SHELLS:
        return []
    try:
        with open_regular(Path(file)) as stream:
            text = stream.read(_MOST_SHELL).decode(errors="replace")
    except (OSError, DamagedFileError):  # the node will say so
        return []
    if "HPCKIT_CODE_DIR" in text:
        return []
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [word for line in lines for word in re.findall(_NAME, line)]


def _first(paths: list[str]) -> str:
    return in_line(listed(paths, _SHOWN))


def editable_imports(found: "Found", environment: Environment, python: str) -> dict[str, str]:
    """Return packages that the files of a project import and that are edited elsewhere.

    Args:
        found: the project's files.
        environment: the job's. Of a container, and of one that has only a name, nothing is known
            but what the user has installed at home.
        python: hpckit's interpreter.

    Returns:
        the packages' names, and their places.
    """
    links: dict[str, Path] = {}
    folders: list[Path] = []
    for site in _site_packages(environment, python):
        for name, place in _links(site):
            if name:
                links.setdefault(name, place)
            else:
                folders.append(place)
    folders = [place for place in folders if not (place / _OWN / "__init__.py").is_file()]
    links.pop(_OWN, None)
    if not links and not folders:
        return {}
    places: dict[str, str] = {}
    for name in sorted(_imported(found) - {_OWN}):
        linked = links.get(name) or _in_folders(name, folders)
        if linked and not linked.resolve().is_relative_to(found.project.root):
            places[name] = str(linked)
    return places


def _site_packages(environment: Environment, python: str) -> list[Path]:
    prefixes = []
    if environment.kind in (EnvironmentKind.NONE, EnvironmentKind.VENV):
        prefixes.append(Path(environment.command(python)[0]).parent.parent)
    elif environment.kind is EnvironmentKind.CONDA and "/" in (environment.path or ""):
        prefixes.append(Path(environment.path or ""))
    if environment.kind is not EnvironmentKind.VENV:
        prefixes.append(home() / ".local")
    return [
        place
        for prefix in prefixes
        for kind in ("site", "dist")
        for place in sorted(prefix.glob(f"lib/python3*/{kind}-packages"))
    ]


def _links(site: Path) -> Iterator[tuple[str, Path]]:
    """Yield what the files of a folder of packages link to: a package's name, "" for a folder."""
    for file in sorted(site.glob("*.pth")):
        for line in _text(file).splitlines():
            if line.startswith(("import ", "import\t")):
                if finder := re.match(_FINDER, line):
                    yield from _mapped(_text(site / f"{finder[1]}.py"))
            elif line.strip() and not line.startswith("#"):
                place = site / line.strip()
                if place.is_dir() and not {"site-packages", "dist-packages"} & {*place.parts[-2:]}:
                    yield "", place


def _mapped(text: str) -> Iterator[tuple[str, Path]]:
    """Yield the packages that a finder of setuptools knows."""
    import ast  # noqa: PLC0415  # few environments have such a finder

    said = re.search(_MAPPING, text)
    try:
        rows = ast.literal_eval(said[1]) if said else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return  # of a setuptools to come
    for name, path in rows.items() if isinstance(rows, dict) else ():
        yield str(name).partition(".")[0], Path(str(path))


def _in_folders(name: str, folders: Iterable[Path]) -> Path | None:
    places = (place for folder in folders for place in (folder / name, folder / f"{name}.py"))
    return next((place for place in places if place.exists()), None)


def _imported(found: "Found") -> set[str]:
    """Return the packages that a project's files import, but for those that lie in it."""
    paths = [row.path for row in found.files if row.path.endswith(".py")][:_MOST_FILES]
    names: set[str] = set()
    for path in paths:
        for one, several in re.findall(_IMPORTS, _text(found.project.root / path)):
            names |= {words[0] for part in (one or several).split(",") if (words := part.split())}
    tops = {name.partition(".")[0] for name in names}
    file = found.project.file
    beside = [found.project.root, *([file.parent] if file else ())]
    return {name for name in tops if _in_folders(name, beside) is None}


def _text(path: Path) -> str:
    try:
        return read_bytes(path, most=_MOST_BYTES).decode(errors="replace")
    except (OSError, DamagedFileError):
        return ""  # it is not there, or not text; Python passes over it, too
