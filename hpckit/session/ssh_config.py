"""Entries of OpenSSH's configuration that reach the node of a job, as text; pure.

A job's own entry goes through the login node to the node's sshd, where the site lets its users in
there. The lasting entry, `Host hpckit`, goes to whichever session is the newest: hpckit on the
login node starts an sshd for that one connection as a step of the job (`own_sshd`), whose host key
is the user's own and stays, so that ssh's check of it is never switched off.
"""

import re
import shlex
from collections.abc import Sequence

from hpckit.errors import RequestError
from hpckit.frozen import frozen

LASTING = "hpckit"
# ssh, and whoever reads its files, take these apart at spaces, commas, `#`, `%` and `*`.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,60}\$?", re.ASCII)
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", re.ASCII)


@frozen(kw_only=True)
class Login:
    """How the login node is reached from outside; `user` is the same on the node."""

    user: str
    host: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}"


def read_login(text: str, user: str) -> Login:
    """Understand `[USER@]HOST`; `user` is who it is where it does not say.

    Raises:
        RequestError: no host or user has such a name.
    """
    given, at, host = text.rpartition("@")
    name = given if at else user
    if not _HOST.fullmatch(host) or not _USER.fullmatch(name):
        raise RequestError(
            f"{text!r} is not a login node: give --login HOST or --login USER@HOST. For a port or "
            "a key, give the name of your own entry in ~/.ssh/config."
        )
    return Login(user=name, host=host)


def entry(alias: str, node: str, login: Login, *, direct: bool = False) -> str:
    """Return the entry of one job's node; `direct` is for use on the login node itself.

    Raises:
        RequestError: a name in it could change what the entry means.
    """
    rows = [("HostName", _checked(_HOST, node)), ("User", _checked(_USER, login.user))]
    if not direct:
        rows.append(("ProxyCommand", f"ssh -W %h:%p {login}"))
    return _text(_checked(_ALIAS, alias), rows)


def lasting_entry(
    login: Login, proxy: Sequence[str], alias: str = LASTING, *, direct: bool = False
) -> str:
    """Return the entry whose node `proxy`, a command on the login node, finds each time.

    Raises:
        RequestError: a name in it could change what the entry means.
    """
    command = shlex.join(proxy)
    line = command if direct else shlex.join(("ssh", str(login), command))
    if not line.isprintable():
        raise RequestError(f"{line!r} cannot stand in a line of a configuration of ssh.")
    rows = [
        ("HostName", alias),
        ("User", _checked(_USER, login.user)),
        # A step of Slurm's takes a moment to begin; a job may just have.
        ("ConnectTimeout", "60"),
        ("ProxyCommand", line.replace("%", "%%")),
    ]
    return _text(_checked(_ALIAS, alias), rows)


def known_host(alias: str, public_key: str) -> str:
    """Return the line of known_hosts for a lasting entry, of the text of a `.pub` file."""
    return " ".join((alias, *public_key.split()[:2]))


def tunnel_words(port: int, node_port: int, node: str, login: Login) -> tuple[str, ...]:
    """Return the command that brings a node's loopback port here, through the login node.

    Raises:
        RequestError: a name in it is not one.
    """
    forward = f"{port}:127.0.0.1:{node_port}"
    target = f"{login.user}@{_checked(_HOST, node)}"
    return ("ssh", "-N", "-L", forward, "-J", str(login), target)


def _checked(allowed: re.Pattern[str], word: str) -> str:
    if not allowed.fullmatch(word):
        raise RequestError(f"{word!r} cannot stand in a configuration of ssh.")
    return word


def _text(alias: str, rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join([f"Host {alias}", *(f"    {key} {value}" for key, value in rows)]) + "\n"
