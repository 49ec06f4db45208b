"""Paths as users type them, and hpckit's own folders.

What cannot be a path is simply not there.
"""

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from hpckit.errors import ConfigError, OutsideError, UnsetVariableError, refused_by_disk
from hpckit.owners import login, steps, strangers

# As os.path.expandvars has it.
_VARIABLE = r"(?a)\$(\w+|\{[^}]*\})"
_STANDING: ContextVar[Path | None] = ContextVar("folder", default=None)


def here() -> Path:
    """Return the folder that relative paths start from: the process's own, unless told another.

    Raises:
        OutsideError: the process's own was deleted.
    """
    if told := _STANDING.get():
        return told
    try:
        return Path.cwd()
    except OSError as error:
        raise OutsideError(
            "The folder that this program works in no longer exists. Go to another folder: "
            "os.chdir(...)."
        ) from error


@contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    """Let relative paths start from a folder, for this thread alone: a library changes no folder.

    Raises:
        OSError: it cannot be entered.
    """
    with os.scandir(folder):
        pass
    token = _STANDING.set(folder)
    try:
        yield
    finally:
        _STANDING.reset(token)


def typed_path(text: str | Path) -> Path:
    """Return an absolute path; `~` of a user who does not exist stays as it is.

    Links stay too: a venv's bin/python is one, and its place is what makes it a venv's.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # Path's own raises RuntimeError
    return path if path.is_absolute() else here() / path


def users_path(text: str, setting: str) -> str:
    """Return a path of a site's file, with the `~` and `$VARIABLES` of this user.

    `$USER` is the user's own name where it is not set: cron and some containers do not set it.

    Args:
        text: as it stands there.
        setting: what it is of, as errors name it: `runs`.

    Raises:
        UnsetVariableError: another variable is not set.
    """

    def value(found: "re.Match[str]") -> str:
        name = found[1].strip("{}")
        known = os.environ.get(name, (login() if name == "USER" else None))
        if known is None:
            raise UnsetVariableError(setting, text, found[0])
        return known

    return os.path.expanduser(re.sub(_VARIABLE, value, text))  # noqa: PTH111  # as typed_path


def whole_path(text: str, setting: str) -> str:
    """Return the same as an absolute path.

    Raises:
        UnsetVariableError: as above.
    """
    return str(typed_path(users_path(text, setting)))


def is_file(path: Path) -> bool:
    """Say whether there is such a file; not so where it may not be looked at, or is too long."""
    return os.path.isfile(path)  # noqa: PTH113  # Path's own raises PermissionError and the like


def is_program(path: Path) -> bool:
    """Say whether there is a file that may be started, by the same rule."""
    return is_file(path) and os.access(path, os.X_OK)


def is_folder(path: Path) -> bool:
    """Say whether there is such a folder, by the same rule."""
    return os.path.isdir(path)  # noqa: PTH112


def nearest_name(path: Path) -> str | None:
    """Return the name in the same folder that looks most like a path's, whatever its capitals.

    `train` is `train.py` where there is that.
    """
    try:
        names = {name.casefold(): name for name in sorted(os.listdir(path.parent))[:10_000]}  # noqa: PTH208
    except OSError:
        return None
    import difflib  # noqa: PLC0415  # only errors need it

    close = difflib.get_close_matches(path.name.casefold(), names, n=1, cutoff=0.75)
    close = [name for name in (f"{path.name.casefold()}.py",) if name in names] or close
    near = names[close[0]] if close else path.name
    return None if near == path.name else near


def is_there(path: Path) -> bool:
    """Say whether there is anything, by the same rule."""
    return os.path.exists(path)  # noqa: PTH110


CACHE, CONFIG = "XDG_CACHE_HOME", "XDG_CONFIG_HOME"


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's home folder: `$HOME`, else that of the machine's list of users.

    An empty or relative `$HOME` names none: files kept there would be found from one folder alone.

    Raises:
        OutsideError: neither says where it is, as in a container for a user it does not list.
    """
    named = environ.get("HOME", "")
    if (path := Path(named)).is_absolute():
        return path
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        what = "is not set" if "HOME" not in environ else f"is {named!r}"
        raise OutsideError(
            f"There is no home folder to keep settings in: $HOME {what}, and this machine does not "
            f"list user {os.getuid()}. Name a folder of yours: export HOME=/path/to/folder"
        ) from error


def home_steps() -> frozenset[Path]:
    """Return the folders and links on the way to this user's home; none where there is no home."""
    try:
        return frozenset(steps(home()))
    except OutsideError:
        return frozenset()


def make_folder(path: Path, *, mode: int = 0o755) -> None:
    """Make a folder and those above it that are not there, none writable for others.

    A umask of 002 or 0 would have them so: `mode` is the folder's own, those above get 755.

    Raises:
        OSError: one cannot be made, or something else is in its place.
    """
    for step in reversed(path.absolute().parents):
        if not step.is_dir():
            step.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=mode, exist_ok=True)


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.config/hpckit`, the user's own collection."""
    return _base(environ, CONFIG, ".config") / "hpckit"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.cache/hpckit`; jobs read workloads from there, so nodes must see it."""
    return _base(environ, CACHE, ".cache") / "hpckit"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.local/state/hpckit`: what hpckit keeps in mind for its user."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "hpckit"


def _base(environ: Mapping[str, str], name: str, at_home: str) -> Path:
    """Return a folder of the XDG Base Directory Specification, for which a relative one is none."""
    path = Path(environ.get(name, ""))
    return path if path.is_absolute() else home(environ) / at_home


def bad_nodes_path() -> Path:
    """Return the user's file of nodes that looked bad: `hpckit.bad_nodes.node_memory`."""
    return state_folder() / "bad-nodes.jsonl"


def refuse_foreign(folder: Path, variable: str) -> None:
    """Refuse a folder of the cache or of the configuration that is not this user's alone.

    What lies there is believed: a checkout, a list of hashes, templates, whom the user trusts. Who
    could replace the user's home is not asked for: they have the user's `.bashrc` already.

    Raises:
        ConfigError: somebody else could have put it there; `variable` names another place. Or the
            disk does not say who could.
    """
    try:
        why = strangers(folder, passed=home_steps())
    except OSError as error:
        raise ConfigError(str(refused_by_disk(error))) from error
    if why:
        raise ConfigError(
            f"{why}: another user could have changed hpckit's files in {folder}. "
            f"Remove their write permission (chmod go-w), or set {variable} to a folder "
            "of your own."
        )
