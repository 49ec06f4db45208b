"""Whether a site's environments are there: modules, virtual environments, conda, containers."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from hpckit import shell
from hpckit.collections import Collection
from hpckit.doctor import Check, Level, bad, good, unknown
from hpckit.environments import (
    NO_MODULES,
    Environment,
    EnvironmentKind,
    module_signs,
    module_templates,
)
from hpckit.errors import CommandError
from hpckit.files import DamagedFileError, read_text
from hpckit.oldest import LEAST, is_older
from hpckit.paths import is_file, is_folder
from hpckit.sites import Site

_NO_FUNCTION = 99
# A login shell, since that is where sites define `module`; names are arguments, never code.
_AVAIL = f"""\
type module >/dev/null 2>&1 || exit {_NO_FUNCTION}
module -t avail "$1" 2>&1
"""
# Of an environment's folder `lib`, and of torch's own file `version.py`.
_LIBRARY = r"python3\.\d+"
_VERSION = r"(?m)^__version__ = ['\"]([\w.+-]+)['\"]"
# What gives modules other names, in a language of its own: it would run here, as whoever asks.
_ALIASES = (".modulerc", ".modulerc.lua", ".version")


def environment_checks(
    site: Site, timeout_s: float, collections: tuple[Collection, ...] | None = None
) -> Iterator[Check]:
    """Check every environment of a site, as far as this machine can tell."""
    for row in site.environments.values():
        if row.unset:
            yield bad(f"environment {row.name!r}: {row.unset}", "set it, or correct the path")
            continue
        yield from _files(row)
        if row.load:
            yield _modules(row, site.modules, timeout_s, collections)


def _modules(
    row: Environment, system: str, timeout_s: float, collections: tuple[Collection, ...] | None
) -> Check:
    what = f"environment {row.name!r}"
    commands = {
        name: module_signs(found).get("command", ())
        for name, found in module_templates(collections).items()
    }
    if system == NO_MODULES:
        known = " or ".join(name for name, command in commands.items() if command)
        return bad(
            f"{what} loads modules, but the site says 'modules: none'", f"set modules: {known}"
        )
    if "module" not in commands.get(system, ()):
        return unknown(f"the packages of {what}", f"only the job itself can ask {system}")
    folders = [Path(word) for word in row.use if is_folder(Path(word))]
    missing = []
    for name in row.load:
        if any(_has_file(folder, name) for folder in folders):
            continue
        if not name.isprintable():  # no program can be asked for it
            missing.append(name)
            continue
        try:
            said = shell.run(
                ["bash", "-lc", _AVAIL, "hpckit", name], timeout_s=timeout_s, check=False
            )
        except CommandError as error:
            return unknown(f"the modules of {what}", str(error))
        if said.returncode == _NO_FUNCTION:
            return unknown(f"the modules of {what}", "this shell has no module command")
        if not _lists(said.stdout, name):
            missing.append(name)
    if missing and (why := _unread(folders)):
        return unknown(f"module {', '.join(missing)} of {what}", why)
    if missing:
        todo = f"module spider {missing[0]}; then correct the site's environments:"
        return bad(f"{what}: there is no module {', '.join(missing)}", todo)
    where = f"; in {', '.join(row.use)} only file names were checked" if row.use else ""
    return good(f"{what}: its modules exist ({', '.join(row.load)}){where}")


def _has_file(folder: Path, name: str) -> bool:
    """Say whether a folder of `use:` has a module's file; nothing in the folder is read or run.

    `module use` and `avail` would run what lies there, which a job may do and this command not.
    """
    path = folder / name
    if ".." in path.parts:
        return False
    if is_folder(path):
        with contextlib.suppress(OSError):  # it may not be entered
            return any(not row.name.startswith(".") for row in path.iterdir())
    return is_file(path) or is_file(path.with_name(f"{path.name}.lua"))


def _unread(folders: list[Path]) -> str:
    """Say what of these folders may name modules otherwise, and was not looked at."""
    for folder in folders:
        try:
            names = {row.name for row in folder.iterdir()}
        except OSError as error:
            return f"{folder} cannot be read: {error.strerror}"
        if found := names & {*_ALIASES}:
            return (
                f"{folder}/{min(found)} may define this module; it is a program, so "
                "only a job may run it"
            )
    return ""


def _lists(text: str, name: str) -> bool:
    """Say whether `module -t avail` lists a module, by its full name or without the version."""
    words = [line.strip().removesuffix("(default)").rstrip("/") for line in text.splitlines()]
    return any(word == name or word.startswith(f"{name}/") for word in words)


def _files(row: Environment) -> Iterator[Check]:
    what = f"environment {row.name!r}"
    path = Path(row.path or "")
    match row.kind:
        case EnvironmentKind.VENV:
            yield _python_in(what, path)
        case EnvironmentKind.CONDA:
            if row.conda_init:
                yield _there(what, Path(row.conda_init), "correct conda_init:")
            if "/" in (row.path or ""):
                yield _python_in(what, path)
        case EnvironmentKind.SPACK:
            if "/" in (row.path or ""):
                yield _there(what, path / "spack.yaml", "create it, or correct path:")
        case EnvironmentKind.PYXIS:
            if (row.path or "").startswith(("/", "~", ".")):
                yield _there(what, path, "import it (enroot import), or correct image:")
            yield _pyxis(what)
        case EnvironmentKind.APPTAINER:
            if "://" not in (row.path or ""):
                yield _there(what, path, "build or pull it, or correct image:")
            if shell.which("apptainer") is None:
                yield unknown(
                    f"whether nodes have apptainer for {what}", "this machine does not have it"
                )
        case _:
            if row.kind is EnvironmentKind.NONE and row.python:
                yield _there(what, Path(row.python), "correct python:")


def _python_in(what: str, folder: Path) -> Check:
    """Say whether an environment's folder has a Python, and which, by its files alone."""
    found = _there(what, folder / "bin" / "python", "create it, or correct path:")
    versions = dict(_versions(folder))
    if found.level is not Level.GOOD or not versions:
        return found
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    old = [name for name, version in versions.items() if is_older(name, version)]
    least = " and ".join(f"{name} {'.'.join(map(str, LEAST[name]))}" for name in old)
    return good(f"{found.what} ({said}{f'; hpckit.parallel needs {least}' if old else ''})")


def _versions(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield an environment's versions of Python and torch, as far as its files tell."""
    with contextlib.suppress(OSError, DamagedFileError):
        libraries = [one for one in (folder / "lib").iterdir() if re.fullmatch(_LIBRARY, one.name)]
        if len(libraries) != 1:
            return
        yield "Python", libraries[0].name.removeprefix("python")
        text = read_text(libraries[0] / "site-packages" / "torch" / "version.py")
        if found := re.search(_VERSION, text):
            yield "torch", found[1]


def _pyxis(what: str) -> Check:
    """Say whether srun has Pyxis's options here; nodes must have it, too."""
    said = "whether Pyxis is here for"
    try:
        answer = shell.run(["srun", "--help"], timeout_s=10, check=False)
    except CommandError as error:
        return unknown(f"{said} {what}", str(error))
    if "--container-image" in answer.stdout:
        return good(f"{what}: srun knows Pyxis's --container-image")
    return bad(f"{what}: srun knows no --container-image", "use kind: apptainer, or ask for Pyxis")


def _there(what: str, path: Path, todo: str) -> Check:
    return (
        good(f"{what}: {path} exists")
        if path.exists()
        else bad(f"{what}: {path} does not exist", todo)
    )
