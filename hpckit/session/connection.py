"""Where a notebook server is, as the job tells its user's commands: `RUN/session/connection.json`.

It has the token, so only the run's owner may read it; and only what nobody else can have written is
believed, because a browser is sent there.
"""

import re
from pathlib import Path
from urllib.parse import quote

from hpckit.errors import DamagedRunError, refused_by_disk
from hpckit.files import DamagedFileError
from hpckit.frozen import frozen
from hpckit.session.folder import read_patiently, remove_private, session_folder, write_private
from hpckit.values import rebuild

_NAME = "connection"
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._~%/@+-]{0,500}", re.ASCII)


@frozen(kw_only=True)
class Connection:
    """A server on the loopback of a node. `path` is the page to open; no `token`: a password."""

    node: str
    port: int
    token: str
    path: str = "/"

    def url(self, port: int | None = None) -> str:
        """Return the address of its page, where the server's port is this one here."""
        secret = f"?token={quote(self.token, safe='')}" if self.token else ""
        return f"http://127.0.0.1:{port or self.port}{self.path}{secret}"


def write_connection(run_dir: Path, found: Connection) -> None:
    """Tell the user's commands where the server is.

    Raises:
        OSError, DamagedFileError: it cannot be written.
    """
    row = {"node": found.node, "port": found.port, "token": found.token, "path": found.path}
    write_private(run_dir, _NAME, row)


def forget(run_dir: Path) -> None:
    """The server is no longer there."""
    remove_private(run_dir, _NAME)


def read_connection(run_dir: Path) -> Connection | None:
    """Return where the server is; None: it is not there, or not there yet.

    Raises:
        DamagedRunError: what is written there is not the user's own, or not hpckit's.
        OutsideError: it cannot be read now.
    """
    try:
        row = read_patiently(run_dir, _NAME)
        if row is None:
            return None
        found = rebuild(Connection, row)
        if not (_NODE.fullmatch(found.node) and _PATH.fullmatch(found.path)):
            raise DamagedFileError("a node or a path in it is not one")
        if not 0 < found.port < 1 << 16:
            raise DamagedFileError(f"{found.port} is not a port")
    except OSError as error:
        raise refused_by_disk(error, str(session_folder(run_dir))) from error
    except DamagedFileError as error:
        raise DamagedRunError(
            f"Where the session of {run_dir.name} is cannot be read: {error}. "
            "End it (hpckit cancel), and start another."
        ) from error
    return found
