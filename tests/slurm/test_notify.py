"""Who is told of what, on a real Slurm: each event once, by any sink, and no job waits for one.

All jobs are submitted at once: one of 2 x 2 ranks that is requeued once, one that fails, one under
mpirun and a chain (which take the job script's place), an array with a bad task, one that ends
before a rank begins, and one whose GPUs do nothing, by the stub NVML.
"""

import json
import re
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurm.conftest import SCRIPTS, Desk, Record, add_site, desk_in, eventually, processes_of
from tests.slurm.playing import NODES, Theatre, gpu
from tests.slurmbox.fixture import Slurm
from tests.stats.stub.script import build_library

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]
SECRET = "T0PS3CRET"
ARRAY = "import sys\nassert '2' not in sys.argv, 'two is too much'\n"
TELL = '#!/bin/sh\necho "$HPCKIT_EVENT $HPCKIT_EVENT_NAME" >> "$HOME/told"\n'
# Its GPUs do nothing, and it waits until somebody was told so.
WAITS = """\
import os, time
while not os.path.exists(os.environ["HPCKIT_RUN_DIR"] + "/notify/idle-0.json"):
    time.sleep(0.1)
"""
CONFIG = """\
notify:
  events: [start, restart, error, end, idle]
  idle: 2s
  mail: {{to: me@example.org, events: [failure]}}
  webhooks:
    good: {{url: "{url}/good/{secret}", token_file: "{token}"}}
    failures: {{url: "{url}/failures/{secret}", events: [failure], body: slack}}
    refuses: {{url: "{url}/500/{secret}", events: [start, end]}}
    elsewhere: {{url: "{url}/moved/{secret}", events: [start, end]}}
    silent: {{url: "{url}/silent/{secret}", events: [start, end]}}
    drips: {{url: "{url}/drips/{secret}", events: [start, end]}}
    down: {{url: "http://127.0.0.1:{closed}/{secret}", events: [start, end]}}
  commands:
    file: {{run: [~/tell]}}
"""


class Chat(ThreadingHTTPServer):
    """Keeps what it is told; some of its addresses answer as no server should."""

    daemon_threads = True
    # Seven jobs tell seven sinks in the same seconds: of more than wait here, some are reset.
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[tuple[str, Record]] = []
        self.tokens: set[str | None] = set()
        self.release = threading.Event()
        self.answered: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of(self, way: str) -> list[Record]:
        return [event for name, event in list(self.told) if name == way]


class _Handler(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        way = self.path.split("/")[1]
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((way, json.loads(content)))
        if way == "good":
            self.server.tokens.add(self.headers["Authorization"])
        try:
            self._answer(way)
        except OSError:
            return  # nobody waits any more

    def _answer(self, way: str) -> None:
        if way == "drips":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.server.release.wait(0.05):
                self.wfile.write(b"a")
        elif way == "silent":
            self.server.release.wait()
        self.server.answered.append(way)
        self.send_response({"500": 500, "moved": 302}.get(way, 200))
        if way == "moved":
            self.send_header("Location", f"{self.server.url}/stolen/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@dataclass
class Told:
    """The jobs, and what was told of them; `mail` is Slurm's record of the one that fails."""

    desk: Desk
    chat: Chat
    jobs: dict[str, Record]
    ends: dict[str, Record] = field(default_factory=dict)
    mail: dict[str, str] = field(default_factory=dict)

    def events(self, job: str, way: str = "good") -> Counter[str]:
        """How often each event of a job was told."""
        return Counter(row["event"] for row in self.rows(job, way))

    def rows(self, job: str, way: str = "good") -> list[Record]:
        found = [row for row in self.chat.of(way) if row.get("name") == job]
        return sorted(found, key=lambda row: row["at"])

    def log(self, job: str) -> str:
        return Path(self.jobs[job]["run_dir"], "job.out").read_text()


@contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port at which nobody listens: of one that is let go, an srun may soon do."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def configure(desk: Desk, chat: Chat, closed: int) -> None:
    folder, token = desk.home / ".config/hpckit", desk.home / "token"
    folder.mkdir(parents=True)
    token.write_text("a-token\n")
    token.chmod(0o600)
    (desk.home / "tell").write_text(TELL)
    (desk.home / "tell").chmod(0o755)
    text = CONFIG.format(url=chat.url, secret=SECRET, token=token, closed=closed)
    (folder / "config.yaml").write_text(text)
    (folder / "config.yaml").chmod(0o600)


def submitted(desk: Desk, library: Path) -> dict[str, Record]:
    theatre = Theatre(desk=desk, library=library)
    add_site(desk, "setup: ['exit 7']\n", name="broken")
    # Not from where they are: this file would be in the copy of their project.
    patient, fail = (shutil.copy(SCRIPTS / name, desk.work) for name in ("patient.py", "fail.py"))
    (desk.work / "array.py").write_text(ARRAY)
    (desk.work / "quick.py").write_text("print('done')\n")
    two = ("--nodes", "2", "--gpus", "2", "--name", "requeued")
    jobs = {
        "requeued": desk.submit("ddp", patient, *two, "--max-requeues", "1"),
        "failing": desk.submit(
            "ddp", fail, "--launcher", "torchrun", "--gpus", "0",
            "--tasks-per-node", "2", "--name", "failing", "--", "--rank", "1",
        ),
        "array": desk.submit("serial", "array.py", "--gpus", "0", "--name", "array",
                             "--array", "x=1,2,3"),
        # In these two, others take the job script's place.
        "mpirun": desk.submit(
            "mpi", "quick.py", "--launcher", "mpirun", "--gpus", "0",
            "--tasks-per-node", "2", "--name", "mpirun",
        ),
        "chain": desk.submit("serial", "quick.py", "--gpus", "0", "--name", "chain",
                             "--chain", "1"),
        "broken": desk.submit("serial", "array.py", "--gpus", "0", "--name", "broken",
                              "--site", "broken"),
    }  # fmt: skip
    (desk.work / "waits.py").write_text(WAITS)
    nothing = {host: [gpu(host, index, ((0, 0),)) for index in range(4)] for host in NODES}
    idle = desk.submit(
        "serial", "waits.py", "--site", "box", "--gpus", "2", "--name", "idle",
        "--sample-interval", "0.2", env=theatre.environment("idle", nothing),
    )  # fmt: skip
    return {**jobs, "idle": idle}


@pytest.fixture(scope="module")
def told(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Run all jobs; no server answers that is slow, before all jobs are over."""
    chat = Chat()
    thread = threading.Thread(target=chat.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    library = build_library(tmp_path_factory.mktemp("nvml"))
    try:
        folder = tmp_path_factory.mktemp("desk")
        with closed_port() as closed, desk_in(folder, slurm) as desk:
            configure(desk, chat, closed)
            found = Told(desk=desk, chat=chat, jobs=submitted(desk, library))
            # Now: Slurm forgets a job some minutes after its end.
            found.mail |= desk.scontrol(found.jobs["failing"]["job_id"])
            run_dir = Path(found.jobs["requeued"]["run_dir"])
            assert eventually((run_dir / "port-0").exists, LONG_S)
            assert processes_of(run_dir)
            assert [line for line in processes_of(run_dir) if SECRET in line] == []
            assert eventually(lambda: found.events("requeued")["start"] == 1, LONG_S)
            slurm.run("scontrol", "requeue", found.jobs["requeued"]["job_id"])
            for name, job in found.jobs.items():
                job_id = job.get("array_job_id") or job.get("job_id") or job["jobs"][0]["job_id"]
                found.ends[name] = desk.over(job_id.partition("_")[0], 400)
            assert "drips" not in chat.answered
            assert "silent" not in chat.answered
            chat.release.set()
            yield found
    finally:
        chat.release.set()
        chat.shutdown()
        thread.join()
        chat.server_close()


def test_each_event_is_told_once(told: Told) -> None:
    assert told.events("requeued") == {"start": 1, "restart": 1, "end": 1}
    assert [row["event"] for row in told.rows("requeued")] == ["start", "restart", "end"]
    assert [row.get("state") for row in told.rows("requeued")] == [None, None, "COMPLETED"]
    assert told.events("failing") == {"start": 1, "error": 1, "failure": 1}
    assert told.events("idle") == {"start": 1, "idle": 1, "end": 1}
    for name in ("mpirun", "chain"):
        assert told.events(name) == {"start": 1, "end": 1}
        assert told.rows(name)[-1]["state"] == "COMPLETED"
    # It was over at once: its end waits 5 s at most for messages that are on their way.
    assert told.events("broken") in ({"start": 1, "failure": 1}, {"failure": 1})
    # Of an array once, with the first task that fails; and its end, after all tasks.
    assert told.events("array")["start"] == told.events("array")["error"] == 1
    assert told.rows("array")[-1]["detail"] == "3 tasks: 2 COMPLETED, 1 FAILED"
    assert told.events("array")["failure"] in (1, 2)  # the bad task may be the last to end
    assert told.chat.tokens == {"Bearer a-token"}
    lines = Path(told.desk.home, "told").read_text().split("\n")
    assert Counter(lines)["restart requeued"] == Counter(lines)["idle idle"] == 1


def test_they_say_what_happened(told: Told) -> None:
    error, failure = told.rows("failing")[1:]
    assert "rank 1 on c" in error["detail"]
    assert "ValueError: no luck on rank 1" in failure["detail"]
    assert failure["job_id"] == told.jobs["failing"]["job_id"]
    idle = told.rows("idle")[1]["detail"]
    assert idle.startswith("all GPUs ran nothing for ")
    assert re.search(r"\(c[12]:\d, c[12]:\d\)$", idle)
    assert "before a rank began" in told.rows("broken")[-1]["detail"]
    assert "status 7" in told.rows("broken")[-1]["detail"]
    texts = [row["text"] for row in told.chat.of("failures")]
    assert any("(failing) has FAILED" in text for text in texts)
    assert not [text for text in texts if "(requeued)" in text or "(idle)" in text]


def test_no_sink_changes_how_a_job_ends(told: Told) -> None:
    assert told.ends["requeued"]["state"] == told.ends["idle"]["state"] == "COMPLETED"
    assert (told.ends["requeued"]["restarts"], told.ends["requeued"]["exit_code"]) == (1, 0)
    assert (told.ends["failing"]["state"], told.ends["failing"]["exit_code"]) == ("FAILED", 1)
    assert (told.ends["broken"]["state"], told.ends["broken"]["exit_code"]) == ("FAILED", 7)
    assert Counter(row["state"] for row in told.ends["array"]["jobs"]) == {
        "COMPLETED": 2,
        "FAILED": 1,
    }
    # They were asked, and nobody was sent on.
    assert {"500", "moved", "silent", "drips"} <= {way for way, _ in told.chat.told}
    assert "stolen" not in {way for way, _ in told.chat.told}
    log = told.log("requeued")
    assert "'refuses' was not told of 'end': it answers HTTP 500" in log
    assert "'elsewhere' was not told of 'end': it sends us on (HTTP 302)" in log
    assert "'silent' has not answered, and the job does not wait for it" in log
    assert "'drips' has not answered, and the job does not wait for it" in log
    assert "'down' cannot be told of this job from here now: it cannot be reached" in log


def test_secrets_stay_in_the_users_file(told: Told) -> None:
    desk, job_id = told.desk, told.jobs["requeued"]["job_id"]
    places = [told.desk.runs, desk.home / ".cache", Path(desk.env["XDG_STATE_HOME"])]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert any(path.name == "job.sh" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    asked = (
        ("scontrol", "show", "job", "-dd", job_id),
        ("sacct", "-j", job_id, "--batch-script"),
        ("sacct", "-j", job_id, "--env-vars"),
    )
    for words in asked:
        assert SECRET not in desk.slurm.run(*words).stdout
    said = desk.call("doctor", "notify", expect=1).out
    assert SECRET not in said
    assert "ok   webhook 'good' (http://127.0.0.1/...) was told" in said
    assert "bad  webhook 'refuses' (http://127.0.0.1/...) was not told: it answers HTTP 500" in said


def test_slurm_sends_the_mail(told: Told) -> None:
    assert (told.mail["MailUser"], told.mail["MailType"]) == ("me@example.org", "FAIL")
