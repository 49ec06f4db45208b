"""How this machine is reached from outside, and hpckit on it."""

import shlex
import sys
from pathlib import Path

from hpckit.collections import search_path
from hpckit.owners import user_name
from hpckit.session.ssh_config import Login, read_login
from hpckit.sites import find_site, full_hostname


def login_node(option: str | None = None) -> Login:
    """Return the login node: as asked for, else the site's `login:`, else this machine.

    Raises:
        RequestError: no machine has such a name.
    """
    host = option or find_site(None, search_path()).login or full_hostname()
    return read_login(host, user_name())


def own_words(*words: str) -> tuple[str, ...]:
    """Return a command of this very hpckit, as a shell of this machine without PATH finds it."""
    program = Path(sys.executable).with_name("hpckit")
    start = (str(program),) if program.is_file() else (sys.executable, "-m", "hpckit")
    return (*start, *words)


def own_command(*words: str) -> str:
    """Return the same as one text for a shell."""
    return shlex.join(own_words(*words))
