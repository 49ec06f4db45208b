"""Environments: where a job's `python` comes from: modules, a venv, conda, a container...

A module system is one template, `modules/NAME.sh.j2` of any collection on the search path.
"""

import os
import re
import shlex
from enum import StrEnum
from pathlib import Path

from hpckit.collections import Collection, Found, find_all, search_path
from hpckit.documents import Fields
from hpckit.errors import ConfigError, MissingKeyError, UnsetVariableError
from hpckit.files import DamagedFileError, read_text
from hpckit.frozen import frozen
from hpckit.paths import is_file, is_folder, is_program, typed_path, users_path

# What a site says for `modules:` where there are none; it is no module system.
NO_MODULES = "none"
# Of Pyxis: what is safe in a word, and what hpckit gives itself.
_OPTION = r"(?a)--(no-)?container-[a-z-]+(=[\w.,:/+-]*)?"
_OWN_OPTIONS = (
    "--container-image",
    "--container-mounts",
    "--container-name",
    "--container-workdir",
)
# `SCHEME://USER:PASSWORD@`, as addresses have it, or Pyxis's `USER:PASSWORD@REGISTRY#IMAGE`.
_WITH_PASSWORD = r"(?i)((?:[a-z0-9+.-]+://)?[^/@:#]*:)[^/@#]+@(?!sha\d)"  # noqa: S105  # it finds them
# As `python3.13t`, `pypy3` and wrappers called so; not `python3-config`, nor a script.
_PYTHON = r"(?i)(?:python|pypy|graalpy)(?!.*(?:-config|\.py)$).*"
_FIRST_COMMENT = r"(?s)\s*\{#(.*?)#\}"


class EnvironmentKind(StrEnum):
    """What provides `python`. All kinds may load modules first."""

    NONE = "none"
    MODULES = "modules"
    VENV = "venv"
    CONDA = "conda"
    SPACK = "spack"
    APPTAINER = "apptainer"
    PYXIS = "pyxis"


# Kinds whose programs run in an image.
_CONTAINERS = (EnvironmentKind.APPTAINER, EnvironmentKind.PYXIS)


@frozen(kw_only=True)
class Environment:
    """One named way to get a python, as a site lists it or `--env` spells it.

    `path` is the venv's folder, the name or folder of a conda or Spack environment, or the
    container image. `options` are Pyxis's own, of srun. `python` is the program that runs the
    script; None means hpckit's own interpreter. `unset` says which of its paths has a variable that
    is not set, as this path then has it: the environment cannot be used, others of its site can.
    """

    name: str
    kind: EnvironmentKind
    load: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    path: str | None = None
    conda_init: str | None = None
    binds: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    python: str | None = None
    unset: str = ""

    def __post_init__(self) -> None:
        """Refuse what `module load` or `conda activate` would take for an option."""
        words = [*self.load, *self.use, self.path or "", self.conda_init or ""]
        if wrong := next((word for word in words if word.startswith("-")), None):
            raise ConfigError(
                f"Environment {self.name!r}: {wrong!r} begins with a dash. A program would "
                "read it as an option."
            )
        if self.in_container and (why := image_fault(self.kind, self.path or "")):
            raise ConfigError(f"Environment {image_shown(self.name)!r}: {why}")
        for word in self.options:
            if not re.fullmatch(_OPTION, word) or word.startswith(_OWN_OPTIONS):
                raise ConfigError(
                    f"Environment {self.name!r}: {word!r} is not an option of Pyxis that can be "
                    "given here, such as --container-mount-home. The image is `image:`, mounts are "
                    "`binds:`."
                )

    @property
    def in_container(self) -> bool:
        """Whether programs run in an image, and not among the node's files."""
        return self.kind in _CONTAINERS

    @property
    def entered(self) -> bool:
        """Whether ranks enter a container that the job script has started."""
        return self.kind is EnvironmentKind.PYXIS

    def command(self, python: str) -> tuple[str, ...]:
        """Return the argv prefix that runs a Python script; `python` is hpckit's interpreter."""
        match self.kind:
            case EnvironmentKind.NONE:
                return (self.python or python,)
            case EnvironmentKind.VENV:
                return (self.python or f"{self.path}/bin/python",)
        return (*self.prefix(), self.python or "python")

    def prefix(self) -> tuple[str, ...]:
        """Return the argv in front of a program of the environment; Apptainer's, or nothing."""
        if self.kind is not EnvironmentKind.APPTAINER:
            return ()
        binds = [part for bind in self.binds for part in ("--bind", bind)]
        return ("apptainer", "exec", "--nv", *binds, self.path or "")


BARE = Environment(name="none", kind=EnvironmentKind.NONE)


def read_environment(name: str, fields: Fields) -> Environment:
    """Read one entry of a site's `environments:`; paths are those of the user who reads it.

    One with a variable that is not set stays as it is, and the environment says so in `unset`.

    Raises:
        ConfigError: unknown key or kind, or a kind without the path it needs.
    """
    kind = EnvironmentKind(fields.choice("kind", list(EnvironmentKind), "modules"))
    path = fields.text("image") if kind in _CONTAINERS else fields.text("path")
    needs = {"modules": None, "none": None, "apptainer": "image", "pyxis": "image"}.get(
        kind, "path"
    )
    if needs and not path:
        raise MissingKeyError(
            f"environment {name!r} of kind {kind} needs '{needs}:'.", at=fields.mark
        )
    unset: list[str] = []

    def users(text: str, setting: str) -> str:
        try:
            return users_path(text, setting)
        except UnsetVariableError as error:
            unset.append(error.why)
            return text

    conda_init, python = fields.text("conda_init"), fields.text("python")
    environment = Environment(
        name=name,
        kind=kind,
        load=fields.texts("load"),
        use=tuple(users(word, "use") for word in fields.texts("use")),
        path=path and users(path, "image" if kind in _CONTAINERS else "path"),
        conda_init=conda_init and users(conda_init, "conda_init"),
        binds=tuple(users(word, "binds") for word in fields.texts("binds")),
        options=fields.texts("options"),
        python=python and users(python, "python"),
        unset=next(iter(unset), ""),
    )
    fields.refuse_unknown()
    return environment


def ad_hoc_environment(word: str) -> Environment | None:
    """Understand `--env` values that name no entry of the site.

    `PATH/TO/venv`, `venv:PATH`, `uv:PROJECT`, `conda:NAME`, `spack:NAME`, `module:NAME[,NAME]`,
    `apptainer:IMAGE`, `pyxis:IMAGE`, or the path of a python. None when the word is none of these.

    Raises:
        ConfigError: it is one of them, but cannot be used.
    """
    kind, colon, rest = word.partition(":")
    if colon and rest:
        match kind:
            case "venv":
                return _venv(rest)
            case "uv":
                return _venv_of_uv(word, rest)
            case "conda" | "mamba" | "micromamba":
                return Environment(name=word, kind=EnvironmentKind.CONDA, path=_named(rest))
            case "spack":
                return Environment(name=word, kind=EnvironmentKind.SPACK, path=_named(rest))
            case "module" | "modules":
                load = tuple(part for part in rest.split(",") if part)
                return Environment(name=word, kind=EnvironmentKind.MODULES, load=load)
            case "apptainer" | "pyxis":
                kind = EnvironmentKind(kind)
                return Environment(name=word, kind=kind, path=typed_image(kind, rest))
    if is_file(typed_path(word) / "bin" / "python"):
        return _venv(word)
    if "/" in word and is_program(typed_path(word)) and _is_python(typed_path(word)):
        return Environment(name=word, kind=EnvironmentKind.NONE, python=str(typed_path(word)))
    return None


def why_none(word: str) -> str:
    """Say why a value of `--env` is no environment by itself; `ad_hoc_environment` said None."""
    path = typed_path(word)
    if link := _leads_nowhere(path / "bin" / "python") or _leads_nowhere(path):
        return f"has a python that cannot be reached: {link}"
    if is_folder(path):
        why = "is a folder, but not of a virtual environment: it has no bin/python"
        near = (path.parent, path / ".venv", path / "venv")  # of bin, and of a project
        one = next((place for place in near if is_file(place / "bin" / "python")), None)
        return f"{why} ({one} is one)" if one else why
    if is_program(path) and "/" in word:
        return (
            "is a program, but not a Python by its name, as python3.12 or pypy3 (a wrapper of "
            "another name can be `python:` of an environment in the site's YAML)"
        )
    if is_file(path) and "/" in word:
        return "is a file that cannot be started as a python is"
    if is_file(path):
        return f"is a file in this folder: for a python write ./{word}"
    if "/" in word and word[0] not in "/.~":
        return f"is not a path on this machine (a module is written module:{word})"
    if "/" in word:
        return "does not exist"
    return "is not a folder on this machine"


def not_here(environment: Environment) -> str:
    """Return an environment's folder or image that is not on this machine; nothing: all is.

    It may be on the nodes alone. Names, addresses and modules cannot be looked for.
    """
    where = environment.path or ""
    if not where.startswith("/"):
        return ""
    venv = environment.kind is EnvironmentKind.VENV
    path = Path(where, "bin", "python") if venv else Path(where)
    return "" if is_file(path) or is_folder(path) else where


def _is_python(path: Path) -> bool:
    """Say whether a program is a Python by its name, or by that of what it is a link to."""
    names = (path.name, os.path.basename(os.path.realpath(path)))  # noqa: PTH119  # as is_file
    return any(re.fullmatch(_PYTHON, name) for name in names)


def _leads_nowhere(path: Path) -> str:
    """Say where a link ends, of a python that is gone or may not be seen; nothing: it leads there.

    So it is in a virtual environment that was moved here, or whose Python was removed.
    """
    if not os.path.islink(path) or is_file(path) or is_folder(path):  # noqa: PTH114  # as is_file
        return ""
    return f"{path} is a link to {os.path.realpath(path)}, which is not there or not open to you"


def typed_image(kind: EnvironmentKind, text: str) -> str:
    """Return an image as it is written into a job: a file's whole path, or an address.

    Pyxis takes a word without `/`, `.` or `~` at its beginning for an image of a registry.
    """
    if "://" in text or (kind is EnvironmentKind.PYXIS and not _is_image_file(text)):
        return text
    return str(typed_path(text))


def _is_image_file(text: str) -> bool:
    return text.startswith(("/", ".", "~")) or is_file(typed_path(text))


def image_fault(kind: EnvironmentKind, image: str) -> str:
    """Say why no container can be started of an image of such a name; nothing: it may be."""
    if re.match(_WITH_PASSWORD, image):
        return (
            "the image's address holds a password, which everybody could read in the job script. "
            "Leave it out, and log in with the container program: apptainer registry login, or "
            "~/.config/enroot/.credentials for Pyxis."
        )
    if kind is EnvironmentKind.PYXIS and (not image.isprintable() or " " in image):
        return f"{image!r} is not an image for Pyxis: it holds a blank or a control character."
    return ""


def image_shown(text: str) -> str:
    """Return a text that names an image without the password in it."""
    return (
        re.sub(_WITH_PASSWORD, r"\1...@", text.partition(":")[2])
        if re.search(_WITH_PASSWORD, text)
        else text
    )


def _named(text: str) -> str:
    """Return an environment's name as it is, or its folder's whole path."""
    return str(typed_path(text)) if "/" in text or text.startswith("~") else text


def _venv_of_uv(word: str, project: str) -> Environment:
    """Return the environment that `uv sync` has made in a project.

    Raises:
        ConfigError: it has made none.
    """
    folder = typed_path(project)
    path = folder / (os.environ.get("UV_PROJECT_ENVIRONMENT") or ".venv")
    if not is_file(path / "bin" / "python"):
        raise ConfigError(
            f"--env {word}: {path} is not an environment. Make it here, where the network is: "
            f"uv sync --project {shlex.quote(str(folder))}. Jobs use it as it is then."
        )
    return Environment(name=word, kind=EnvironmentKind.VENV, path=str(path))


def _venv(path: str) -> Environment:
    return Environment(name=path, kind=EnvironmentKind.VENV, path=str(typed_path(path)))


_SYSTEM = r"(?a)[A-Za-z0-9][A-Za-z0-9._-]{0,60}"


def module_templates(collections: tuple[Collection, ...] | None = None) -> dict[str, Found]:
    """Return the template of each module system on the search path, by name; `none` is one, too."""
    path = search_path() if collections is None else collections
    found = find_all("modules/*.sh.j2", "templates", path)
    names = {
        name.removeprefix("modules/").removesuffix(".sh.j2"): row for name, row in found.items()
    }
    # Others choose them, and `init` writes them into a site's YAML.
    return {name: row for name, row in names.items() if re.fullmatch(_SYSTEM, name)}


def module_signs(template: Found) -> dict[str, tuple[str, ...]]:
    """Return what a module system's template says, in its first comment, of where it is at home.

    Lines of `key: WORDS`. `variables`: one of them is set in its shells, `unless` one of these is.
    `files`: one of them is where it is installed. `after`: the systems that are rather taken.
    `command`: what lists its modules in a login shell (only `module` is known).
    """
    try:
        comment = re.match(_FIRST_COMMENT, read_text(template.path))
    except (OSError, DamagedFileError):
        return {}
    rows = (line.partition(":") for line in (comment[1] if comment else "").splitlines())
    return {key.strip(): tuple(words.split()) for key, colon, words in rows if colon}
