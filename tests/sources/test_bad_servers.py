"""Servers that are down, slow, strange or hostile: the page says so in a line, and goes on."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import OutsideError
from hpckit.sites.prometheus import Prometheus
from hpckit.sources.client import Client
from tests.conftest import Answer
from tests.sources.conftest import Site

Cli = Callable[..., Answer]
Accounts = Callable[..., Path]
EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


class Server(ThreadingHTTPServer):
    """One that answers each question alike, and keeps what it was asked."""

    daemon_threads = True
    status = 200
    body = EMPTY
    hangs: threading.Event | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.asked.append((self.path, dict(self.headers)))
        if server.hangs:
            server.hangs.wait()
            return
        self.send_response(server.status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        if server.hangs:
            server.hangs.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as found:
        yield found


def why(cli: Cli, job: str = "77") -> str:
    """What the page says of the server; all else is as without it."""
    answer = cli("stats", job, "--json")
    assert (answer.status, answer.err) == (0, "")
    found: dict[str, Any] = json.loads(answer.out)
    assert found["summary"]["gpu_hours"] == 2
    assert found["summary"]["gpu_utilization_percent"] is None
    assert "Prometheus" not in found["sources"]
    [text] = [note["text"] for note in found["notes"] if note["code"] == "no_prometheus"]
    return str(text)


def test_nothing_listens(cli: Cli, site: Site, accounts: Accounts) -> None:
    accounts({"job_id": "77"})
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # held, and not listened to
        site(f"http://127.0.0.1:{held.getsockname()[1]}")
        text = "The site's Prometheus does not tell: it cannot be reached (Connection refused)."
        assert why(cli) == text
        assert text in " ".join(cli("stats", "77").out.split())


def test_nobody_of_that_name(cli: Cli, site: Site, accounts: Accounts) -> None:
    accounts({"job_id": "77"})
    site("https://prometheus.invalid", "timeout_s: 2")
    # Some name servers say so, others keep silent.
    assert re.search("does not tell: it (cannot be reached|did not answer within)", why(cli))


def test_no_answer_costs_its_patience_once(
    server: Server, cli: Cli, site: Site, accounts: Accounts
) -> None:
    server.hangs = threading.Event()
    accounts(*({"job_id": str(job)} for job in (77, 78, 79)))
    site(server.url, "timeout_s: 0.3")
    answer = cli("stats", "77", "78", "79", "--json")
    found = json.loads(answer.out)["jobs"]
    said = [
        note["text"] for one in found for note in one["notes"] if note["code"] == "no_prometheus"
    ]
    assert said == ["The site's Prometheus does not tell: it did not answer within 0.3 s."] * 3
    assert len(server.asked) <= 1


def test_an_answer_in_drops(cli: Cli, site: Site, accounts: Accounts) -> None:
    """Each byte comes in time, the whole never."""
    accounts({"job_id": "77"})
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 200 OK\r\n")
                while not done.wait(0.02):
                    try:
                        peer.sendall(b"X")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        site(f"http://127.0.0.1:{listening.getsockname()[1]}", "timeout_s: 0.5")
        answer = cli("stats", "77", "--json")
        done.set()
        thread.join()
    assert "it did not answer within 0.5 s" in answer.out


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, EMPTY, "The site's Prometheus has no series of this job (see hpckit doctor stats)."),
        (200, b"<html>Log in</html>", "its answer is not JSON: '<html>Log in</html>'"),
        (200, b'{"status":"success","data":{"resultType":"matrix"}}', "is not a vector"),
        (200, b'{"status":"success","data":[1]}', "is not a vector"),
        (200, b"[]", "its answer is not one of a Prometheus"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":7}}', "has no result"),
        (
            200,
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":[]}]}}',
            "a series without labels",
        ),
        (
            200,
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
            "a value that is not a pair",
        ),
        (200, b'{"status":' * 2000 + b"1" + b"}" * 2000, "its answer is not JSON"),
        (
            400,
            b'{"status":"error","error":"query \\u001b[31mtoo heavy"}',
            "query \\x1b[31mtoo heavy",
        ),
        (401, b"", "it refuses us (HTTP 401): see token_env and token_file"),
        (403, b"", "it refuses us (HTTP 403)"),
        (500, b"", "it answers HTTP 500"),
        (503, b"Service Unavailable", "its answer is not JSON"),
    ],
)
def test_strange_answers(
    server: Server,
    cli: Cli,
    site: Site,
    accounts: Accounts,
    status: int,
    body: bytes,
    said: str,
) -> None:
    accounts({"job_id": "77"})
    server.status, server.body = status, body
    site(server.url)
    assert said in why(cli)


def test_a_redirect_is_not_followed(
    server: Server, cli: Cli, site: Site, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts({"job_id": "77"})
    monkeypatch.setenv("LAB_TOKEN", "s3cret")
    with running(Server()) as other:
        server.status, server.headers = 302, {"Location": other.url + "/\x1b[2J"}
        site(server.url, "token_env: LAB_TOKEN")
        text = why(cli)
        assert f"it sends us on to {other.url}/\\x1b[2J: write the right address" in text
        assert "s3cret" not in text
        assert server.asked
        assert other.asked == []


def test_an_endless_answer_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpckit.sources.client._MOST_BYTES", 1000)
    server.body = b" " * 100_000
    client = Client(settings=Prometheus(url=server.url, timeout_s=300))
    with pytest.raises(OutsideError, match="its answer is larger than"):
        client.instant("up", 0.0)


def test_tokens_and_headers_come_from_variables_and_files(
    here: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TOKEN", " abc \n")
    monkeypatch.setenv("LAB_ORG", "physics")
    (here / "token").write_text("from-file\n")

    def sent(**words: Any) -> dict[str, str]:
        client = Client(settings=Prometheus(url=server.url + "/prom", timeout_s=300, **words))
        client.instant("up", 1.5)
        path, headers = server.asked[-1]
        assert path == "/prom/api/v1/query?query=up&time=1.500"
        return headers

    own = sent(token_env="LAB_TOKEN", headers_env={"X-Scope-OrgID": "LAB_ORG"})
    assert own["Authorization"] == "Bearer abc"
    assert own["X-Scope-OrgID"] == "physics"
    assert sent(token_file=str(here / "token"))["Authorization"] == "Bearer from-file"
    assert "Authorization" not in sent()
    for words, said in (
        ({"token_env": "NOWHERE"}, "the variable NOWHERE has no value"),
        ({"token_file": "/nowhere"}, "token_file '/nowhere' cannot be read"),
        ({"token_file": "~nobody-here/t"}, "token_file '~nobody-here/t' cannot be read"),
        ({"token_file": str(here)}, "cannot be read"),
        ({"headers_env": {"X-Org": "EMPTY"}}, "the variable EMPTY has no value"),
    ):
        before = len(server.asked)
        with pytest.raises(OutsideError, match=said):
            sent(**words)
        assert len(server.asked) == before
    monkeypatch.setenv("LAB_TOKEN", "a\r\nX-Evil: 1")
    with pytest.raises(OutsideError, match="characters that no header may have"):
        sent(token_env="LAB_TOKEN")


def test_a_certificate_must_be_trusted(server: Server) -> None:
    client = Client(settings=Prometheus(url=server.url.replace("http", "https"), timeout_s=300))
    with pytest.raises(OutsideError, match="it cannot be reached"):
        client.instant("up", 0.0)
    wrong = Client(
        settings=Prometheus(url="https://127.0.0.1:1", timeout_s=300, ca_file="/nowhere.pem")
    )
    with pytest.raises(OutsideError, match=r"ca_file '/nowhere.pem' cannot be used"):
        wrong.instant("up", 0.0)
