"""A notebook server in the job: found in the environment, started on the node's loopback, watched.

Its token is in a file that only the user reads, in a folder of this node that only the user enters,
beside Jupyter's own file of where it listens. Neither the token nor anything made of it stands in
arguments, variables, the job's script or its logs. What `hpckit jupyter` needs goes into the run's
`session/`, likewise closed.
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hpckit import shell
from hpckit.errors import CommandError, JobError
from hpckit.files import DamagedFileError, parse_json, read_json, replace_file
from hpckit.payload.children import prepare_script, shell_status, stop_all
from hpckit.session.connection import Connection, forget, write_connection
from hpckit.session.idle import now_s
from hpckit.session.served import put

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

LOOPBACK = "127.0.0.1"
# In the order of preference: module of the environment's Python, program, page to open.
_SERVERS = (
    ("jupyterlab", "jupyter-lab", "lab"),
    ("notebook", "jupyter-notebook", "tree"),
    ("jupyter_server", "jupyter-server", ""),
)
# Under the environment's Python: which of these it has. All of them stand on jupyter_server: an
# older notebook (6) does not, and knows none of the options below.
_PROBE = """\
import importlib.util, json, sys
has = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps(has))
"""
_SETTINGS = "jupyter_server_config.json"
_TOKENS = ("JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE")
# What it logs when a browser saves what its user typed.
_SAVED = b"Saving file at"
_PORTS = range(20_000, 32_000)  # below those that the kernel gives away: ip_local_port_range
_STARTS_WITHIN_S = 600.0  # Python's imports, from a busy file system
_ENDS_WITHIN_S = 10.0
_LAST_WORDS_S = 2.0
_LOOK_S = 0.25
_ANSWERS_WITHIN_S = 10.0
_MOST = 1 << 20  # bytes of an answer


class Notebook:
    """One server. `command` starts the environment's Python; its folder is where Jupyter begins."""

    def __init__(self, run_dir: Path, command: tuple[str, ...]) -> None:
        self._run_dir, self._python = run_dir, command
        # What a container shows inside is /tmp, whatever TMPDIR is.
        self._folder = Path(tempfile.mkdtemp(prefix="hpckit-", dir=_shown_folder(command)))
        self._token = secrets.token_urlsafe(32)
        self._child: Popen[bytes] | None = None
        self._began = time.monotonic()
        self._found: Connection | None = None
        self._page = ""
        self._used: float | None = None
        self._kill_at: float | None = None
        self._log: threading.Thread | None = None

    def start(self) -> None:
        """Start the server.

        Raises:
            JobError: the environment has none.
        """
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        forget(self._run_dir)  # of an attempt before this one, whose node was lost
        argv, self._page = server_argv(self._python)
        settings = {"IdentityProvider": {"token": self._token}}
        replace_file(self._folder / _SETTINGS, json.dumps(settings), mode=0o600)
        environ = {name: text for name, text in os.environ.items() if name not in _TOKENS}
        before = [text for text in [os.environ.get("JUPYTER_CONFIG_PATH", "")] if text]
        environ |= {
            "JUPYTER_RUNTIME_DIR": str(self._folder),
            # The first folder counts before the user's own, which may switch the token off.
            "JUPYTER_CONFIG_PATH": os.pathsep.join([str(self._folder), *before]),
        }
        reading, writing = os.pipe()
        try:
            self._child = shell.spawn(
                (*argv, *options()),
                env=environ,
                stdout=writing,
                stderr=writing,
                new_session=True,
                prepare=prepare_script,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        said = os.fdopen(reading, "rb")
        self._log = threading.Thread(target=self._copy_log, args=(said,), daemon=True)
        self._log.start()

    def _copy_log(self, said: IO[bytes]) -> None:
        """Copy what Jupyter says into the log; an older one may print its token."""
        with said:
            for line in said:
                if _SAVED in line:
                    self._used = now_s()
                put(2, line.replace(self._token.encode(), b"[token]"))

    def serve(self, seconds: float) -> int | None:
        """Wait at most so long; return its exit status once it is over.

        Raises:
            JobError: it does not come up, or would let everybody in.
        """
        child, end = self._running(), time.monotonic() + seconds
        while child.poll() is None and (now := time.monotonic()) < end:
            if self._kill_at and now > self._kill_at:
                os.killpg(child.pid, signal.SIGKILL)
            if self._found is None:
                self._look()
            time.sleep(min(_LOOK_S, end - now))
        return None if child.returncode is None else shell_status(child.returncode)

    def _running(self) -> "Popen[bytes]":
        if self._child is None:
            raise RuntimeError("start() comes first")
        return self._child

    def _look(self) -> None:
        """Find out whether it listens, and write down where."""
        if time.monotonic() - self._began > _STARTS_WITHIN_S:
            raise JobError(f"Jupyter did not start within {_STARTS_WITHIN_S:.0f} s: see its log.")
        try:
            files = [read_json(path) for path in self._folder.glob("jpserver-*.json")]
            found = connection(files[0], self._page)
            open_to_all = lets_everybody_in(found)
        except (OSError, http.client.HTTPException, DamagedFileError, LookupError, ValueError):
            return  # not there, half written, or busy
        if open_to_all:
            raise JobError(
                "Jupyter lets everybody in: your Jupyter configuration has an identity provider "
                "that asks for no secret (`jupyter --paths` names its folders). hpckit opens no "
                "server without a secret: remove c.ServerApp.identity_provider_class from it."
            )
        self._found = found
        write_connection(self._run_dir, found)
        _say(f"Jupyter listens on {found.node}, {LOOPBACK}:{found.port}; without token: 403")

    def last_use(self) -> float | None:
        """Return when a kernel or terminal did something last, or a file was saved; None: unknown.

        A browser's page that asks again and again is no use, nor is a cell that only waits.
        """
        if self._found is None:
            return None
        moments = [row["last_activity"] for row in self._rows("kernels", "terminals")]
        ages = [age for text in moments if (age := _age_s(text)) is not None]
        newest = [now_s() - min(ages)] if ages else []
        known = [*newest, *([] if self._used is None else [self._used])]
        self._used = max(known, default=None)
        return self._used

    def _rows(self, *kinds: str) -> Iterator[dict[str, Any]]:
        for kind in kinds:
            try:
                rows = parse_json(ask(self._found, f"api/{kind}")[1]) if self._found else []
            except (OSError, http.client.HTTPException, DamagedFileError):
                continue  # terminals are an extension; a busy server answers the next time
            if isinstance(rows, list):
                yield from (r for r in rows if isinstance(r, dict) and "last_activity" in r)

    def warn(self, text: str) -> None:
        """Write it into the job's log: Jupyter shows its users no words of others."""
        _say(f"{text.partition(' Press ')[0]} Run a cell, or save a file, to keep it")

    def stop(self, why: str) -> None:
        """Ask the server to end with its kernels; a deaf one is killed."""
        del why
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _ENDS_WITHIN_S
            if self._child and self._child.poll() is None:
                self._child.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Forget where the server was; one that is still there ends."""
        with contextlib.suppress(OSError):
            forget(self._run_dir)
        if self._child:
            stop_all([self._child], grace_s=0 if self._kill_at else _ENDS_WITHIN_S)
        if self._log:
            self._log.join(_LAST_WORDS_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _say(text: str) -> None:
    put(2, f"hpckit: {text}\n".encode(errors="replace"))


def _shown_folder(command: tuple[str, ...]) -> str:
    return "/tmp" if len(command) > 1 else tempfile.gettempdir()  # noqa: S108  # mkdtemp: mode 700


def server_argv(python: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the argv of the environment's best server, and the page that it opens.

    Raises:
        JobError: it has none.
    """
    found = servers_of(python)
    if found is None:
        raise JobError(f"The environment's Python does not start: {' '.join(python)}")
    if not found:
        raise JobError(NO_JUPYTER.format(python=" ".join(python)))
    return found[0]


def servers_of(python: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], str], ...] | None:
    """Return the servers of an environment, the best first, each with the page that it opens.

    Those of its Python, else those on PATH, which are not a container's. None: its Python says
    nothing.
    """
    names = [name for name, _, _ in _SERVERS]
    try:
        has = parse_json(shell.run((*python, "-c", _PROBE, *names), timeout_s=300).stdout)
    except (CommandError, DamagedFileError):
        return None
    if "jupyter_server" in has:
        rows = (((*python, "-m", name), page) for name, _, page in _SERVERS if name in has)
        return tuple(rows)
    on_path = _SERVERS if len(python) == 1 else ()
    return tuple(((at,), page) for _, name, page in on_path if (at := shell.which(name)))


NO_JUPYTER = (
    "The environment has no Jupyter: `{python} -m jupyterlab` does not start. Install it there "
    "(pip install jupyterlab, or load the module that brings it), or choose another with --env."
)


def options() -> tuple[str, ...]:
    """Return what any server of Jupyter's is told, whatever its user's own files say."""
    words = {
        "ip": LOOPBACK,
        "port": secrets.choice(_PORTS),  # the next ones, where it is taken
        "open_browser": False,
        "sock": "",
        "certfile": "",
        "keyfile": "",
        "root_dir": Path.cwd(),
        "allow_remote_access": False,
        **({"allow_root": True} if os.getuid() == 0 else {}),
    }
    return tuple(f"--ServerApp.{name}={value}" for name, value in words.items())


def connection(info: Any, page: str) -> Connection:  # noqa: ANN401  # Jupyter's own JSON
    """Return where a server is, by the file that it writes when it listens."""
    base = f"/{str(info.get('base_url', '')).strip('/')}/".replace("//", "/")
    return Connection(
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        port=int(info["port"]),
        token=str(info.get("token") or ""),
        path=base + page,
    )


def ask(found: Connection, path: str, *, secret: bool = True) -> tuple[int, bytes]:
    """Ask the server; return status and answer.

    Raises:
        OSError, HTTPException: it does not answer.
    """
    base = found.path.rpartition("/")[0]
    head = {"Authorization": f"token {found.token}"} if secret and found.token else {}
    server = http.client.HTTPConnection(LOOPBACK, found.port, timeout=_ANSWERS_WITHIN_S)
    with contextlib.closing(server):
        server.request("GET", f"{base}/{path}", headers=head)
        answer = server.getresponse()
        return answer.status, answer.read(_MOST)


def lets_everybody_in(found: Connection) -> bool:
    """Say whether it answers one who has no secret."""
    return ask(found, "api/status", secret=False)[0] == http.HTTPStatus.OK


def _age_s(text: object) -> float | None:
    """Return how long ago a moment of Jupyter's was, as 2026-11-23T07:00:00.000000Z."""
    try:
        return max(0.0, time.time() - datetime.fromisoformat(str(text)).timestamp())
    except ValueError:
        return None
