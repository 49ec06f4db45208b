"""Environments: where a job's `python` comes from: modules, a venv, conda, a container, or none.

A module system is one template, `modules/NAME.sh.j2` of any collection on the search path.
"""

import re
from enum import StrEnum

from hpckit.collections import Collection, Found, find_all, search_path
from hpckit.documents import Fields
from hpckit.errors import ConfigError, MissingKeyError
from hpckit.files import DamagedFileError, read_text
from hpckit.frozen import frozen
from hpckit.paths import is_file, is_folder, is_program, typed_path

# What a site says for `modules:` where there are none; it is no module system.
NO_MODULES = "none"
_FIRST_COMMENT = re.compile(r"\s*\{#(.*?)#\}", re.DOTALL)


class EnvironmentKind(StrEnum):
    """What provides `python`. All kinds may load modules first."""

    NONE = "none"
    MODULES = "modules"
    VENV = "venv"
    CONDA = "conda"
    APPTAINER = "apptainer"


@frozen(kw_only=True)
class Environment:
    """One named way to get a python, as a site lists it or `--env` spells it.

    `path` is the venv's folder, the conda prefix or name, or the container image. `python` is the
    program that runs the script; None means hpckit's own interpreter.
    """

    name: str
    kind: EnvironmentKind
    load: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    path: str | None = None
    conda_init: str | None = None
    binds: tuple[str, ...] = ()
    python: str | None = None

    def __post_init__(self) -> None:
        """Refuse what `module load` or `conda activate` would take for an option."""
        words = [*self.load, *self.use, self.path or "", self.conda_init or ""]
        if wrong := next((word for word in words if word.startswith("-")), None):
            raise ConfigError(
                f"Environment {self.name!r}: {wrong!r} begins with a dash. A program would "
                "read it as an option."
            )

    def command(self, python: str) -> tuple[str, ...]:
        """Return the argv prefix that runs a Python script; `python` is hpckit's interpreter."""
        match self.kind:
            case EnvironmentKind.NONE:
                return (self.python or python,)
            case EnvironmentKind.VENV:
                return (self.python or f"{self.path}/bin/python",)
        return (*self.prefix(), self.python or "python")

    def prefix(self) -> tuple[str, ...]:
        """Return the argv in front of a program of the environment; empty but for containers."""
        if self.kind is not EnvironmentKind.APPTAINER:
            return ()
        binds = [part for bind in self.binds for part in ("--bind", bind)]
        return ("apptainer", "exec", "--nv", *binds, self.path or "")


BARE = Environment(name="none", kind=EnvironmentKind.NONE)


def read_environment(name: str, fields: Fields) -> Environment:
    """Read one entry of a site's `environments:`.

    Raises:
        ConfigError: unknown key or kind, or a kind without the path it needs.
    """
    kind = EnvironmentKind(fields.choice("kind", list(EnvironmentKind), "modules"))
    path = fields.text("image") if kind is EnvironmentKind.APPTAINER else fields.text("path")
    needs = {"venv": "path", "conda": "path", "apptainer": "image"}.get(kind)
    if needs and not path:
        raise MissingKeyError(
            f"environment {name!r} of kind {kind} needs '{needs}:'.", at=fields.mark
        )
    environment = Environment(
        name=name,
        kind=kind,
        load=fields.texts("load"),
        use=fields.texts("use"),
        path=path,
        conda_init=fields.text("conda_init"),
        binds=fields.texts("binds"),
        python=fields.text("python"),
    )
    fields.refuse_unknown()
    return environment


def ad_hoc_environment(word: str) -> Environment | None:
    """Understand `--env` values that name no entry of the site.

    `PATH/TO/venv`, `venv:PATH`, `conda:NAME`, `module:NAME[,NAME]`, `apptainer:IMAGE`, or the path
    of a python. None when the word is none of these.
    """
    kind, colon, rest = word.partition(":")
    if colon and rest:
        match kind:
            case "venv":
                return _venv(rest)
            case "conda":
                return Environment(name=word, kind=EnvironmentKind.CONDA, path=rest)
            case "module" | "modules":
                load = tuple(part for part in rest.split(",") if part)
                return Environment(name=word, kind=EnvironmentKind.MODULES, load=load)
            case "apptainer":
                return Environment(
                    name=word, kind=EnvironmentKind.APPTAINER, path=str(typed_path(rest))
                )
    if is_file(typed_path(word) / "bin" / "python"):
        return _venv(word)
    if "/" in word and is_program(typed_path(word)):
        return Environment(name=word, kind=EnvironmentKind.NONE, python=str(typed_path(word)))
    return None


def why_none(word: str) -> str:
    """Say why a value of `--env` is no environment by itself; `ad_hoc_environment` said None."""
    path = typed_path(word)
    if is_folder(path):
        return "is a folder, but not of a virtual environment: it has no bin/python"
    if is_file(path) and "/" in word:
        return "is a file that cannot be started as a python is"
    if is_file(path):
        return f"is a file in this folder: for a python write ./{word}"
    if "/" in word and word[0] not in "/.~":
        return f"is not a path on this machine (a module is written module:{word})"
    if "/" in word:
        return "does not exist"
    return "is not a folder on this machine"


def _venv(path: str) -> Environment:
    return Environment(name=path, kind=EnvironmentKind.VENV, path=str(typed_path(path)))


_SYSTEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", re.ASCII)


def module_templates(collections: tuple[Collection, ...] | None = None) -> dict[str, Found]:
    """Return the template of each module system on the search path, by name; `none` is one, too."""
    path = search_path() if collections is None else collections
    found = find_all("modules/*.sh.j2", "templates", path)
    names = {
        name.removeprefix("modules/").removesuffix(".sh.j2"): row for name, row in found.items()
    }
    # Others choose them, and `init` writes them into a site's YAML.
    return {name: row for name, row in names.items() if _SYSTEM.fullmatch(name)}


def module_signs(template: Found) -> dict[str, tuple[str, ...]]:
    """Return what a module system's template says, in its first comment, of where it is at home.

    Lines of `key: WORDS`. `variables`: one of them is set in its shells, `unless` one of these is.
    `files`: one of them is where it is installed. `after`: the systems that are rather taken.
    `command`: what lists its modules in a login shell (only `module` is known).
    """
    try:
        comment = _FIRST_COMMENT.match(read_text(template.path))
    except (OSError, DamagedFileError):
        return {}
    rows = (line.partition(":") for line in (comment[1] if comment else "").splitlines())
    return {key.strip(): tuple(words.split()) for key, colon, words in rows if colon}
