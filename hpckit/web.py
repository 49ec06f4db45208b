"""Connections to servers of others: bounded in time, each trouble in half a sentence.

Used for a site's Prometheus and for a user's webhooks. Redirects are for nobody to follow: what is
sent may be a secret. `http.client` follows none.
"""

import os
import queue
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from hpckit.errors import OutsideError, UnsetVariableError
from hpckit.files import DamagedFileError, read_text, reason
from hpckit.paths import users_path
from hpckit.text import in_line

Value = TypeVar("Value")
WORDS = 160
_LONGEST_SECRET = 64 << 10
_TODO = "log in as the site's page says"


def within(seconds: float, work: Callable[[], Value]) -> Value:
    """Wait for work in another thread: a name server, or a server that drips, has no other limit.

    Raises:
        OutsideError: it took longer, or its own.
    """
    said: queue.SimpleQueue[Value | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            said.put(work())
        except Exception as error:  # noqa: BLE001  # it is raised again where it is waited for
            said.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        result = said.get(timeout=seconds)
    except queue.Empty:
        raise OutsideError(f"it did not answer within {seconds:.3g} s") from None
    if isinstance(result, BaseException):
        raise result
    return result


def connect(
    address: SplitResult, ca_file: str | None, timeout_s: float, *, proxy: str | None = None
) -> HTTPConnection:
    """Return a connection, not opened yet; through a proxy only if encrypted from end to end.

    Raises:
        OutsideError: `ca_file` cannot be used.
    """
    host, port = address.hostname or "", address.port
    if address.scheme == "http":
        return HTTPConnection(host, port, timeout=timeout_s)
    try:
        trusted = ssl.create_default_context(cafile=ca_file and path_of(ca_file, "ca_file"))
    except OSError as error:
        raise OutsideError(f"ca_file {ca_file!r} cannot be used ({error})") from error
    if proxy is None:
        return HTTPSConnection(host, port, timeout=timeout_s, context=trusted)
    through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = HTTPSConnection(
        through.hostname or "", through.port or 3128, timeout=timeout_s, context=trusted
    )
    connection.set_tunnel(host, port or 443)
    return connection


@contextmanager
def talking(timeout_s: float, what: str) -> Iterator[None]:
    """Say in half a sentence what goes wrong; `what` the server should be.

    Raises:
        OutsideError: it did.
    """
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        why = in_line(error.verify_message)[:WORDS]
        raise OutsideError(f"its certificate is not trusted ({why}): see ca_file") from error
    except TimeoutError as error:
        raise OutsideError(f"it did not answer within {timeout_s:.3g} s") from error
    except OSError as error:
        why = in_line(error.strerror or str(error) or type(error).__name__)
        raise OutsideError(f"it cannot be reached ({why})") from error
    except (HTTPException, ValueError) as error:
        why = in_line(str(error) or type(error).__name__)[:WORDS]
        raise OutsideError(f"it does not speak HTTP as {what} does ({why})") from error


def path_of(text: str, setting: str) -> str:
    """Return a path of a file of settings, as this user means it.

    Raises:
        OutsideError: a variable in it is not set; in half a sentence, as all troubles here.
    """
    try:
        return users_path(text, setting)
    except UnsetVariableError as error:
        raise OutsideError(error.why) from error


def secret_of_file(name: str, what: str, todo: str = _TODO) -> str:
    """Return the text of a file that has one secret.

    Raises:
        OutsideError: it cannot be read, or has none.
    """
    path = Path(path_of(name, what))
    try:
        return usable(read_text(path, most=_LONGEST_SECRET), f"{what} {path}", todo)
    except (OSError, DamagedFileError) as error:
        raise OutsideError(f"{what} {str(path)!r} cannot be read ({reason(error)})") from error


def secret_of_variable(name: str, todo: str = _TODO) -> str:
    """Return the value of a variable that has one secret.

    Raises:
        OutsideError: it is not set, or empty.
    """
    return usable(os.environ.get(name), f"the variable {name}", todo)


def usable(text: str | None, what: str, todo: str = _TODO) -> str:
    """Return a secret that may stand in a header.

    Raises:
        OutsideError: it may not.
    """
    value = (text or "").strip()
    if not value:
        raise OutsideError(f"{what} has no value: {todo}")
    if not value.isascii() or not value.isprintable():
        raise OutsideError(f"{what} has characters that no header may have")
    return value
