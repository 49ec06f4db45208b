"""A shell that goes on without its terminal: the host's side, with real shells and ptys."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpckit.errors import HpckitError
from hpckit.files import DamagedFileError
from hpckit.session import terminal as terminal_module
from hpckit.session.attach import _open
from hpckit.session.folder import make_session_folder, read_private, write_private
from hpckit.session.frames import Frames, Kind, frame, mapping, message
from hpckit.session.link import socket_folder
from hpckit.session.shells import start_of, users_shell
from hpckit.session.terminal import PLACE, Terminal
from tests.patience import LONG_S

SIZE = {"rows": 24, "columns": 80}
OPEN: list[socket.socket] = []


class Client:
    """A terminal of the test's, while the host is served in between."""

    def __init__(self, host: Terminal, run_dir: Path, **size: int) -> None:
        self.host = host
        place = read_private(run_dir, PLACE)
        assert place
        self.socket = _open(place["socket"])
        OPEN.append(self.socket)
        self.socket.setblocking(False)
        self.frames, self.seen, self.end = Frames(), b"", None
        self.status: int | None = None
        self.socket.sendall(message(Kind.HELLO, {**SIZE, **size}))

    def type(self, text: str) -> None:
        self.socket.sendall(frame(Kind.INPUT, text.encode()))

    def until(self, what: bytes) -> bytes:
        """Serve until something was shown; give all up to it."""
        self._serve(lambda: what in self.seen)
        at = self.seen.index(what) + len(what)
        shown, self.seen = self.seen[:at], self.seen[at:]
        return shown

    def until_end(self) -> str:
        self._serve(lambda: self.end is not None)
        assert self.end is not None
        return self.end

    def _serve(self, done) -> None:
        limit = time.monotonic() + LONG_S
        while not done():
            assert time.monotonic() < limit, self.seen
            if self.status is None:
                self.status = self.host.serve(0.01)
            self._receive()

    def _receive(self) -> None:
        try:
            chunk = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            self.end = self.end or "gone"
        for kind, content in self.frames.feed(chunk):
            if kind is Kind.OUTPUT:
                self.seen += content
            else:
                self.end = mapping(content)["text"]


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    folder = tmp_path / "run"
    folder.mkdir()
    yield folder
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def host(run_dir: Path) -> Iterator[Terminal]:
    one = Terminal(run_dir, ("bash",))
    one.start()
    yield one
    one.stop("the test is over")
    one.serve(5)
    one.close()


def test_what_is_typed_is_done_and_leaving_is_no_failure(host: Terminal, run_dir: Path) -> None:
    client = Client(host, run_dir, rows=31, columns=99)
    client.until(b"(job 77 ")
    client.type("stty size; tty; exit 3\r")
    assert b"31 99" in client.until(b"/dev/pts/")
    assert client.until_end() == "the shell has ended with status 3"
    assert client.status == 0


def test_who_comes_back_sees_what_was_done_meanwhile(host: Terminal, run_dir: Path) -> None:
    first = Client(host, run_dir)
    first.type(f"while [ ! -e {run_dir}/go ]; do sleep 0.01; done; echo do$((1+1))ne\r")
    first.until(b"done")  # the echo of what was typed has another word
    first.socket.close()
    host.serve(0.02)
    (run_dir / "go").touch()
    second = Client(host, run_dir)
    second.until(b"do2ne")


def test_another_terminal_takes_over(host: Terminal, run_dir: Path) -> None:
    first = Client(host, run_dir)
    first.until(b"(job 77 ")
    second = Client(host, run_dir, columns=70)
    second.type("echo $COLUMNS se$((1+1))\r")
    second.until(b"70 se2")
    first.status = 0  # it is not served for
    assert first.until_end() == "another terminal has come to this session"


def test_a_program_never_waits_for_a_terminal_that_is_stuck(
    host: Terminal, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.session.link._STUCK_S", 0.05)
    monkeypatch.setattr(terminal_module, "_POLL_S", 0.02)
    client = Client(host, run_dir)
    client.until(b"(job 77 ")
    client.type(f"head -c 700000 /dev/zero | tr '\\0' x; touch {run_dir}/through\r")
    limit = time.monotonic() + LONG_S
    while not (run_dir / "through").exists():  # it reads nothing
        assert time.monotonic() < limit
        host.serve(0.02)
    client.type("echo th$((1+1))re\r")
    client.until(b"th2re")


def test_an_error_before_any_key_is_a_failure(run_dir: Path, capfdbinary) -> None:
    one = Terminal(run_dir, ("sh", "-c", "echo no such image; exit 7", "bash"))
    one.start()
    status = None
    while status is None:
        status = one.serve(0.05)
    one.close()
    assert status == 7
    assert b"no such image" in capfdbinary.readouterr().out


def test_a_shell_that_is_not_there_is_said(run_dir: Path) -> None:
    one = Terminal(run_dir, ("fish",))
    os.environ["PATH"], before = "/nowhere", os.environ["PATH"]
    try:
        with pytest.raises(HpckitError, match="fish"):
            one.start()
    finally:
        os.environ["PATH"] = before
        one.close()


def test_stopping_ends_also_what_does_not_listen(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_module, "_GRACE_S", 0.1)
    one = Terminal(run_dir, ("bash",))
    one.start()
    client = Client(one, run_dir)
    client.type("trap '' HUP; echo tr$((1+1))p; sleep 1000\r")
    client.until(b"tr2p")
    one.stop("the job is being ended")
    assert client.until_end() == "the job is being ended"
    one.close()
    assert read_private(run_dir, PLACE) is None


def test_the_jobs_environment_wins_over_the_users_files(run_dir: Path) -> None:
    Path("~/.bashrc").expanduser().write_text(
        "PATH=/other:/usr/bin:/bin VIRTUAL_ENV=/other\n"
        "alias mine='echo m$((1+1))ne'; PS1='mine> '\n"
    )
    environ = {**os.environ, "PATH": "/job bin's:/usr/bin:/bin", "VIRTUAL_ENV": "/job"}
    start = start_of(("bash",), environ, run_dir, "(job) ")
    told = subprocess.run(
        start.argv,
        env=start.environ,
        input=b'echo "$PATH $VIRTUAL_ENV $PS1"; mine\n',
        capture_output=True,
        check=True,
        timeout=LONG_S,
        start_new_session=True,  # no terminal of pytest's
    ).stdout.decode()
    assert "/job bin's:/usr/bin:/bin:/other:/usr/bin:/bin /job (job) mine> " in told
    assert "m2ne" in told


def test_a_container_has_its_own_environment(run_dir: Path) -> None:
    command = ("apptainer", "exec", "x.sif", "bash")
    environ = {"PATH": "/bin", "TERM": "dumb", "SLURM_MEM_PER_CPU": "9", "PYTHONUNBUFFERED": "1"}
    start = start_of(command, environ, run_dir, "(job) ")
    assert start.argv == (*command, "--norc", "-i")
    assert start.environ == {"PATH": "/bin", "TERM": "xterm-256color", "SLURM_OVERLAP": "1"}


def test_a_long_way_to_temporary_files_is_no_place_for_a_socket(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = run_dir / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    found = socket_folder()
    found.rmdir()
    assert found.parent == Path("/tmp")
    assert [*long.iterdir()] == []


def test_the_users_shell() -> None:
    assert users_shell({"SHELL": "/usr/bin/zsh"}) == "zsh"
    assert users_shell({"SHELL": "/bin/tcsh"}) == users_shell({}) == "bash"


@pytest.mark.parametrize("wrong", ["folder", "file", "mapping"])
def test_what_others_could_have_written_is_not_believed(run_dir: Path, wrong: str) -> None:
    write_private(run_dir, PLACE, {"socket": "/tmp/x"})
    folder = make_session_folder(run_dir)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "place.json").stat().st_mode & 0o777 == 0o600
    match wrong:
        case "folder":
            folder.chmod(0o755)
        case "file":
            (folder / "place.json").chmod(0o620)
        case "mapping":
            (folder / "place.json").write_text(json.dumps(["/tmp/x"]))
    with pytest.raises(DamagedFileError):
        read_private(run_dir, PLACE)


def test_a_socket_in_an_open_folder_is_not_connected_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(DamagedFileError, match="only you may open"):
            _open(str(tmp_path / "socket"))


@pytest.mark.long
def test_the_client_leaves_its_terminal_as_it_was(host: Terminal, run_dir: Path) -> None:
    """The real client, in a terminal: keys, size, leaving by keys and by losing the terminal."""
    for way in ("keys", "hangup"):
        pid, master = pty.fork()
        if pid == 0:
            code = (
                "import sys, termios; from pathlib import Path; "
                "from hpckit.session.attach import attach; before = termios.tcgetattr(0); "
                f"attach(Path({str(run_dir)!r}), '77'); "
                "print('same', termios.tcgetattr(0) == before)"
            )
            os.execv(sys.executable, [sys.executable, "-c", code])
        os.set_blocking(master, False)
        seen = b""

        def until(what: bytes) -> None:
            nonlocal seen
            limit = time.monotonic() + LONG_S
            while what not in seen:
                assert time.monotonic() < limit, seen
                host.serve(0.02)
                try:
                    seen += os.read(master, 1 << 16)  # noqa: B023
                except BlockingIOError:
                    continue
                except OSError:
                    break
            assert what in seen

        until(b"(job 77 ")
        os.write(master, b"echo ty$((1+1))d\r")
        until(b"ty2d")
        if way == "keys":
            os.write(master, b"kept=1\r\x1d\x1d\x1d")
            until(b"Come back: hpckit shell 77")
            until(b"same True")
        else:
            os.write(master, b"echo ke$kept\r")
            until(b"ke1")
            os.kill(pid, signal.SIGHUP)
        os.waitpid(pid, 0)
        os.close(master)


def test_another_users_process_is_shown_nothing(
    host: Terminal, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_module, "peer_uid", lambda _connection: os.getuid() + 1)
    stranger = Client(host, run_dir)
    stranger.type("echo secret\r")
    assert stranger.until_end() == "gone"
    assert stranger.seen == b""
    monkeypatch.setattr("hpckit.session.attach.peer_uid", lambda _connection: os.getuid() + 1)
    with pytest.raises(DamagedFileError, match="another user's"):
        Client(host, run_dir)
