"""Notebook sessions without Slurm: where a server is, its secret, its use, and what is refused."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpckit.api.jupyter import Notebook as Found
from hpckit.api.jupyter import carry, open_browser
from hpckit.errors import DamagedRunError, JobError, OutsideError
from hpckit.session import notebook
from hpckit.session.connection import Connection, forget, read_connection, write_connection
from hpckit.session.folder import session_folder, write_private
from hpckit.session.forward import listen, ssh_argv
from hpckit.session.idle import now_s
from hpckit.session.notebook import Notebook, connection, lets_everybody_in, options, server_argv
from hpckit.session.ssh_config import Login
from hpckit.slurm.states import JobState
from tests.conftest import Answer, add_program

PLACE = Connection(node="c1", port=21_000, token="s3cr3t&", path="/lab")


@contextmanager
def server(pages: Mapping[str, object]) -> Iterator[int]:
    """Answer as a notebook server does who has the token; for `open`, who has none, too."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "token s3cr3t&" or "open" in pages
            self.send_response(200 if known and self.path in pages else 403)
            self.end_headers()
            self.wfile.write(json.dumps(pages.get(self.path)).encode())

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, args=(0.01,)).start()
        yield served.server_port
        served.shutdown()


def test_where_a_server_is_stays_its_owners_own(tmp_path: Path) -> None:
    assert read_connection(tmp_path) is None
    write_connection(tmp_path, PLACE)
    file = session_folder(tmp_path) / "connection.json"
    assert [row.stat().st_mode & 0o777 for row in (file, file.parent)] == [0o600, 0o700]
    assert read_connection(tmp_path) == PLACE
    assert PLACE.url(8888) == "http://127.0.0.1:8888/lab?token=s3cr3t%26"
    file.chmod(0o644)
    with pytest.raises(DamagedRunError, match="others may read"):
        read_connection(tmp_path)
    forget(tmp_path)
    assert read_connection(tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [{"node": "-oProxyCommand=x"}, {"path": "//elsewhere:1/\n"}, {"port": 0}, {"port": "a"}],
)
def test_a_place_that_is_none_is_damage(tmp_path: Path, change: dict[str, object]) -> None:
    row = {"node": "c1", "port": 1, "token": "", "path": "/"}
    write_private(tmp_path, "connection", row | change)
    with pytest.raises(DamagedRunError, match="cannot be read"):
        read_connection(tmp_path)


def test_what_jupyter_is_told_holds_no_secret_and_opens_no_port_to_others() -> None:
    words = options()
    assert "--ServerApp.ip=127.0.0.1" in words
    assert not [word for word in words if "token" in word.lower()]
    assert words != options()  # its port


def test_a_servers_own_file_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "c1")
    info = {"port": 21_000, "token": "s3cr3t&", "base_url": "/me/", "sock": ""}
    assert connection(info, "lab") == Connection(
        node="c1", port=21_000, token="s3cr3t&", path="/me/lab"
    )
    assert connection({"port": 1}, "").path == "/"


def python_with(folder: Path, *modules: str) -> tuple[str, ...]:
    """Give a Python that has these modules of Jupyter's."""
    add_program(folder / "python", f"#!/bin/sh\necho '{json.dumps(modules)}'\n")
    return (str(folder / "python"),)


def test_the_best_server_of_an_environment_is_taken(here: Path, monkeypatch) -> None:
    bin_ = here.parent / "bin"
    monkeypatch.setenv("PATH", f"{bin_}:/bin")
    python = python_with(bin_, "jupyterlab", "notebook", "jupyter_server")
    assert server_argv(python) == ((*python, "-m", "jupyterlab"), "lab")
    assert server_argv(python_with(bin_, "jupyter_server")) == (
        (*python, "-m", "jupyter_server"),
        "",
    )
    for old in (("notebook",), ()):  # of version 6, which stands on no jupyter_server
        with pytest.raises(JobError, match="pip install jupyterlab"):
            server_argv(python_with(bin_, *old))
    add_program(bin_ / "jupyter-lab", "#!/bin/sh\n")
    assert server_argv(python) == ((str(bin_ / "jupyter-lab"),), "lab")
    with pytest.raises(JobError, match="no Jupyter"):  # it is not the container's
        server_argv(("env", *python))
    with pytest.raises(JobError, match="does not start: /nowhere/python"):
        server_argv(("/nowhere/python",))


def test_use_is_what_kernels_terminals_and_files_do(here: Path) -> None:
    ago = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - 100))
    old = {"last_activity": "2020-01-01T00:00:00Z"}
    pages = {"/api/kernels": [old, {"last_activity": ago}, 7], "/api/terminals": [{"no": 1}, old]}
    served = Notebook(here, ("python",))
    assert served.last_use() is None
    with server(pages) as port:
        served._found = Connection(node="c1", port=port, token="s3cr3t&")
        used = served.last_use()
        assert used is not None
        assert now_s() - used == pytest.approx(100, abs=60)
    assert served.last_use() == used  # it does not answer: what was known stays
    with (here / "log").open("wb") as log:
        log.write(
            b"[I] 200 GET /lab?token=" + served._token.encode() + b"\n[I] Saving file at /a\n"
        )
    served._copy_log((here / "log").open("rb"))
    newer = served.last_use()
    assert newer is not None
    assert now_s() - newer < 60
    served.close()
    assert not served._folder.exists()


def test_no_token_gets_into_the_log(here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    served = Notebook(here, ("python",))
    (here / "log").write_bytes(b"http://127.0.0.1:1/?token=" + served._token.encode() + b"\n")
    served._copy_log((here / "log").open("rb"))
    assert capfdbinary.readouterr().err == b"http://127.0.0.1:1/?token=[token]\n"
    served.close()


def test_a_server_that_asks_for_no_secret_is_ended(here: Path, monkeypatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "c1")
    served = Notebook(here, ("python",))
    for pages, ended in (({"/api/status": {}}, False), ({"/api/status": {}, "open": 1}, True)):
        with server(pages) as port:
            place = Connection(node="c1", port=port, token="")
            assert lets_everybody_in(place) == ended
            (served._folder / "jpserver-1.json").write_text(json.dumps({"port": port}))
            if ended:
                served._found = None
                with pytest.raises(JobError, match="no server without a secret"):
                    served._look()
            else:
                served._look()
                assert read_connection(here) == place
    served.close()
    assert read_connection(here) is None


def test_a_deaf_server_is_killed_and_its_folder_removed(here: Path, monkeypatch) -> None:
    monkeypatch.setattr(notebook, "_ENDS_WITHIN_S", 0.05)
    deaf = here.parent / "bin" / "jupyter-lab"
    add_program(deaf, "#!/bin/sh\ntrap '' TERM\ntouch deaf\nwhile :; do sleep 0.01; done\n")
    served = Notebook(here, python_with(here.parent / "bin"))
    served.start()
    while not (here / "deaf").exists():
        assert served.serve(0.01) is None
    served.stop("idle")
    assert served.serve(20) == 137
    served.close()
    assert not served._folder.exists()


def test_a_browser_is_given_a_file_and_no_token(here: Path, monkeypatch) -> None:
    class Run:
        dir, job_id = here, "12"

    found = Found(run=Run(), connection=PLACE, login=Login(user="a", host="l"), here=False)
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not open_browser(found, 8888)
    given: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: given.append(url) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    write_connection(here, PLACE)
    assert open_browser(found, 8888)
    page = session_folder(here) / "open.html"
    assert given == [page.as_uri()]
    assert page.stat().st_mode & 0o777 == 0o600
    assert "http://127.0.0.1:8888/lab?token=s3cr3t%26" in page.read_text()
    assert found.through_login[:4] == ("ssh", "-t", "-L", "21000:127.0.0.1:21000")


@pytest.mark.parametrize(
    ("words", "here_at", "expected"),
    [
        ((), 8888, "port 21000 of this machine is taken: 8888 instead"),
        (("--port", "8888"), 8888, ""),
        ((), 21_000, ""),
    ],
)
def test_another_port_is_explained_unless_it_was_asked_for(
    here: Path,
    cli: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    here_at: int,
    expected: str,
) -> None:
    import hpckit.cli.jupyter as command  # it takes the names when it is imported

    over = SimpleNamespace(state=JobState.COMPLETED)
    run = SimpleNamespace(dir=here, job_id="12", status=lambda: over)
    found = Found(run=run, connection=PLACE, login=Login(user="a", host="l"), here=False)
    monkeypatch.setattr(command, "find_notebook", lambda *_a, **_k: run)
    monkeypatch.setattr(command, "notebook_when_up", lambda *_a, **_k: found)
    monkeypatch.setattr(command, "open_browser", lambda *_a: True)
    monkeypatch.setattr(command, "carry", lambda *_a, ready, **_k: ready(here_at, "srun"))
    said = cli("jupyter", "12", "--open", *words).err
    assert [row for row in said.splitlines() if "taken" in row] == (
        [f"note: {expected}"] if expected else []
    )


def test_who_stays_hears_that_the_job_failed_or_lost_its_node(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.api.jupyter.forward", lambda *_a, **_k: None)
    monkeypatch.setattr("hpckit.api.jupyter.over_by_and_by", lambda _runs: lambda: True)
    status = SimpleNamespace(
        finished=True, never_starts=False, elsewhere=False, never_started=False, reason_text=None
    )
    run = SimpleNamespace(_folder=None, job_id="12", status=lambda: status, errors=lambda _s: "why")
    found = Found(run=run, connection=PLACE, login=Login(user="a", host="l"), here=False)
    for status.state in (JobState.COMPLETED, JobState.CANCELLED, JobState.TIMEOUT):
        status.good = status.state is JobState.COMPLETED
        carry(found, ready=lambda _port, _way: None)
    for status.state in (JobState.FAILED, JobState.NODE_FAIL):
        with pytest.raises(JobError, match=rf"Notebook 12 is over \({status.state}\)\. why"):
            carry(found, ready=lambda _port, _way: None)
    status.never_started = True
    with pytest.raises(JobError, match=r"^Notebook 12 is NODE_FAIL: it never started\.$"):
        carry(found, ready=lambda _port, _way: None)


def test_a_port_that_is_taken_is_another_or_an_error() -> None:
    with listen(0, other=False) as taken:
        port = taken.getsockname()[1]
        with listen(port, other=True) as free:
            assert free.getsockname()[1] != port
        with pytest.raises(OutsideError, match="choose another with --port"):
            listen(port, other=False)


def test_ssh_asks_nothing_and_checks_host_keys_as_ever() -> None:
    words = " ".join(ssh_argv(8888, PLACE))
    assert "BatchMode=yes" in words
    assert words.endswith("-L 127.0.0.1:8888:127.0.0.1:21000 c1")
    assert "HostKey" not in words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--via", "rsh"), "none of auto, ssh, srun"),
        (("12", "--gpus", "1"), "options of a new notebook"),
        (("12", "--dry-run"), "options of a new notebook"),
        (("12", "--detach"), "options of a new notebook"),
        (("--open", "--json"), "leave one of them out"),
        (("--open", "--detach"), "leave one of them out"),
        (("12", "--port", "3000"), "add --open"),
        (("--via", "srun"), "add --open"),
        (("--login", "a b"), "not a login node"),
        (("--idle", "soon"), "not a duration"),
        (("--idle", "30m", "--sample-interval", "0"), "sampler"),
    ],
)
def test_requests_that_mean_nothing_are_refused(
    cli: Callable[..., Answer], here: Path, words: tuple[str, ...], said: str
) -> None:
    answer = cli("jupyter", "--executor", "local", *words)
    assert (answer.status, said in answer.err) == (2, True), answer.err


def test_a_dry_run_shows_a_script_without_a_token(cli: Callable[..., Answer], here: Path) -> None:
    said = cli("jupyter", "--dry-run", "--gpus", "1", "--time", "2h", "--idle", "30m")
    assert said.status == 0, said.err
    assert "#SBATCH --job-name=jupyter" in said.out
    assert "hpckit.session.host jupyter --idle=1800" in said.out
    assert "token" not in said.out.lower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--via", "rsh"), "neither ssh nor srun"),
        (("--via", "ssh"), "needs a JOBID"),
        (("12",), "no run '12'"),
        (("--login", "a b"), "not a login node"),
        (("--name", "*"), "cannot stand"),
        (("--name", ""), "cannot stand"),
        (("--direct", "--login", "l"), "leave one of them out"),
        (("--proxy", "--write"), "and nothing else"),
        (("--proxy", "12", "--via", "srun"), "and nothing else"),
    ],
)
def test_entries_that_mean_nothing_are_refused(
    cli: Callable[..., Answer], here: Path, words: tuple[str, ...], said: str
) -> None:
    answer = cli("ssh-config", *words)
    assert (answer.status, said in answer.err) == (2, True), answer.err
