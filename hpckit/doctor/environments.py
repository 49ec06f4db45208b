"""Whether a site's environments are there: modules, virtual environments, conda, containers."""

from collections.abc import Iterator
from pathlib import Path

from hpckit import shell
from hpckit.doctor.model import Check, bad, good, unknown
from hpckit.environments import Environment, EnvironmentKind
from hpckit.errors import CommandError
from hpckit.sites import Site

_NO_FUNCTION = 99
# A login shell, since that is where sites define `module`; names are arguments, never code.
_AVAIL = f"""\
type module >/dev/null 2>&1 || exit {_NO_FUNCTION}
name=$1; shift
for folder; do module use "$folder" || exit 1; done
module -t avail "$name" 2>&1
"""


def environment_checks(site: Site, timeout_s: float) -> Iterator[Check]:
    """Check every environment of a site, as far as this machine can tell."""
    for row in site.environments.values():
        yield from _files(row)
        if row.load:
            yield _modules(row, site.modules, timeout_s)


def _modules(row: Environment, system: str, timeout_s: float) -> Check:
    what = f"environment {row.name!r}"
    if system == "none":
        return bad(
            f"{what} loads modules, and the site says 'modules: none'", "set modules: lmod or tmod"
        )
    if system == "spack":
        return unknown(f"the packages of {what}", "Spack is asked in the job")
    missing = []
    for name in row.load:
        try:
            said = shell.run(
                ["bash", "-lc", _AVAIL, "hpckit", name, *row.use], timeout_s=timeout_s, check=False
            )
        except CommandError as error:
            return unknown(f"the modules of {what}", str(error))
        if said.returncode == _NO_FUNCTION:
            return unknown(f"the modules of {what}", "this shell has no module command")
        if not _lists(said.stdout, name):
            missing.append(name)
    if missing:
        todo = f"module spider {missing[0]}; then correct the site's environments:"
        return bad(f"{what}: there is no module {', '.join(missing)}", todo)
    return good(f"{what}: its modules are there ({', '.join(row.load)})")


def _lists(text: str, name: str) -> bool:
    """Say whether `module -t avail` lists a module, by its full name or without the version."""
    words = [line.strip().removesuffix("(default)").rstrip("/") for line in text.splitlines()]
    return any(word == name or word.startswith(f"{name}/") for word in words)


def _files(row: Environment) -> Iterator[Check]:
    what = f"environment {row.name!r}"
    path = Path(row.path or "").expanduser()
    match row.kind:
        case EnvironmentKind.VENV:
            yield _there(what, path / "bin" / "python", "make it, or correct path:")
        case EnvironmentKind.CONDA:
            if row.conda_init:
                yield _there(what, Path(row.conda_init), "correct conda_init:")
            if "/" in (row.path or ""):
                yield _there(what, path / "bin" / "python", "make it, or correct path:")
        case EnvironmentKind.APPTAINER:
            if "://" not in (row.path or ""):
                yield _there(what, path, "build or pull it, or correct image:")
            if shell.which("apptainer") is None:
                yield unknown(f"whether nodes have apptainer for {what}", "this machine has none")
        case _:
            if row.kind is EnvironmentKind.NONE and row.python:
                yield _there(what, Path(row.python), "correct python:")


def _there(what: str, path: Path, todo: str) -> Check:
    return good(f"{what}: {path} is there") if path.exists() else bad(f"{what}: no {path}", todo)
