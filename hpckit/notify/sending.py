"""One event to one sink: a webhook, a command, or the program `mail`. Each says why it failed."""

import json
import os
import shlex
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from hpckit import shell
from hpckit.errors import HpckitError, OutsideError
from hpckit.notify.event import Event, body, plain, variables
from hpckit.owners import user_name
from hpckit.sinks import Command, Mail, Sink, Webhook, wrong_url
from hpckit.web import connect, path_of, secret_of_file, secret_of_variable, talking, within

# A server's answer is its status; of the rest no more than this is read.
_MOST_BYTES = 64 << 10
_TODO = "set it where you run hpckit submit"


def send(sink: Sink, event: Event, seconds: float) -> None:
    """Tell a sink; takes at most so many seconds.

    Raises:
        OutsideError: why it was not told, in half a sentence, without a secret.
    """
    told = plain(event)
    try:
        if isinstance(sink, Webhook):
            within(seconds, lambda: _post(sink, told, seconds))
        elif isinstance(sink, Command):
            _run(_argv(sink), json.dumps(told.document()), variables(told), seconds)
        else:
            _mail(sink, told, seconds)
    except OutsideError:
        raise
    except HpckitError as error:
        raise OutsideError(str(error)) from error


def address_of(sink: Webhook) -> SplitResult:
    """Return a webhook's address.

    Raises:
        OutsideError: it cannot be read, or is none.
    """
    url = _secret(sink.url, sink.url_env, sink.url_file, "url_file") or ""
    if why := wrong_url(url):
        raise OutsideError(f"its address {why}")
    return urlsplit(url)


def shown(sink: Sink) -> str:
    """Return what may be said of where a sink is: of a webhook no more than its host."""
    if isinstance(sink, Webhook):
        try:
            parts = address_of(sink)
        except OutsideError:
            return "an unknown address"
        return f"{parts.scheme}://{parts.hostname}/..."
    if isinstance(sink, Command):
        return sink.argv[0]
    return sink.to or user_name()


def reach(sink: Sink, seconds: float) -> None:
    """Open a connection to a webhook and close it: it tells whether this node has a way there.

    Raises:
        OutsideError: it has none.
    """
    if not isinstance(sink, Webhook):
        return

    def knock() -> None:
        with talking(seconds, "a webhook"):
            parts = address_of(sink)
            way = urlsplit(f"//{proxy}") if (proxy := _proxy(parts)) else parts
            port = way.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((way.hostname or "", port), timeout=seconds).close()

    within(seconds, knock)


def _proxy(address: SplitResult) -> str | None:
    """Return the proxy that the environment names for an encrypted address, as `host:port`."""
    if address.scheme != "https":
        return None
    # urllib's own rules of https_proxy and no_proxy.
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  # of webhooks alone

    known = getproxies()
    if "https" not in known or proxy_bypass(address.hostname or ""):
        return None
    parts = urlsplit(known["https"] if "//" in known["https"] else f"//{known['https']}")
    return f"{parts.hostname}:{parts.port or 3128}"


def _post(sink: Webhook, event: Event, seconds: float) -> None:
    parts = address_of(sink)
    content, headers = body(event, sink.body)
    token = _secret(sink.token, sink.token_env, sink.token_file, "token_file")
    more = {"Authorization": f"Bearer {token}"} if token else {}
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connection = connect(parts, sink.ca_file, seconds, proxy=_proxy(parts))
    try:
        with talking(seconds, "a webhook"):
            connection.request(
                "POST", path, body=content, headers={"User-Agent": "hpckit", **headers, **more}
            )
            with connection.getresponse() as response:
                status = response.status
                response.read(_MOST_BYTES)
    finally:
        connection.close()
    if status in range(300, 400):  # where to is not said: it may have the secret in it
        raise OutsideError(f"it sends us on (HTTP {status}), and hpckit follows nobody")
    if status not in range(200, 300):
        raise OutsideError(f"it answers HTTP {status}")


def _secret(text: str | None, variable: str | None, file: str | None, what: str) -> str | None:
    if variable is not None:
        return secret_of_variable(variable, _TODO)
    if file is not None:
        path = Path(path_of(file, what))
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            raise OutsideError(f"{what} {path} cannot be read ({error.strerror})") from error
        if mode & 0o077:
            todo = f"chmod 600 {shlex.quote(str(path))}"
            raise OutsideError(f"{what} {path} has mode {mode:o}: {todo}")
        return secret_of_file(file, what, "it is empty")
    return text


def _argv(sink: Command) -> tuple[str, ...]:
    return (path_of(sink.argv[0], "run"), *sink.argv[1:])


def _mail(sink: Mail, event: Event, seconds: float) -> None:
    """Hand a mail to the program `mail`: no line may begin with `~`, some mailers' escape."""
    lines, to = "\n".join(event.lines), sink.to or event.user or user_name()
    _run(("mail", "-s", f"hpckit: {event.title}", to), lines, {}, seconds)


def _run(argv: tuple[str, ...], text: str, more: Mapping[str, str], seconds: float) -> None:
    done = shell.run(
        argv,
        timeout_s=seconds,
        env={**os.environ, **more},
        check=False,
        input=f"{text}\n",
        own_locale=True,
        own_group=True,
    )
    if done.returncode:
        raise OutsideError(f"{Path(argv[0]).name} ended with status {done.returncode}")
