"""`notify:`: what may stand in whose file, what is told, to whom, how often, and of which end."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.api.prepare import prepare
from hpckit.errors import ConfigError, OutsideError
from hpckit.job_spec.spec import JobSpec
from hpckit.notify.claims import Claims
from hpckit.notify.event import Event, body, plain
from hpckit.notify.idling import IdleGpus
from hpckit.notify.in_job import attempt_number, parse
from hpckit.notify.outbox import Outbox
from hpckit.notify.sending import send, shown
from hpckit.notify.watching import Ending, Errors, ending
from hpckit.run_folders.ranks import RankRecord, write_rank
from hpckit.sinks import (
    EVENTS,
    Command,
    Mail,
    Notify,
    Sink,
    Webhook,
    find_notify,
    mail_options,
    read_config,
)
from hpckit.sites import read_site
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import GpuInfo, GpuSample, Header, Sample, file_name

SECRET = "T0PS3CRET"
EVENT = Event(event="failure", at=1.0, job_id="42", name="train", run_id="train-1", state="FAILED")


def config(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "hpckit" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def notify(folder: Path, text: str) -> Notify | None:
    return read_config(config(folder, f"notify:\n{text}"))


ALL_OF_IT = f"""\
  events: [end, idle]
  idle: {{for: 90m, gpus: any}}
  mail: {{to: me@example.org, by: mail, events: [failure]}}
  webhooks:
    chat: {{url: "https://chat.example.org/hook/{SECRET}?a=b", body: slack, token_env: TOKEN}}
  commands:
    bell: {{run: [~/bin/bell, -l], events: [error]}}
"""


def test_all_that_may_be_said(tmp_path: Path) -> None:
    usual = ("end", "idle")
    url = f"https://chat.example.org/hook/{SECRET}?a=b"
    assert notify(tmp_path, ALL_OF_IT) == Notify(
        idle_s=5400,
        idle_gpus="any",
        sinks=(
            Mail(events=("failure",), by="mail", to="me@example.org"),
            Webhook(name="chat", events=usual, url=url, body="slack", token_env="TOKEN"),
            Command(name="bell", events=("error",), argv=("~/bin/bell", "-l")),
        ),
    )
    found = notify(tmp_path, "  mail: {}\n")
    assert found
    assert (found.sinks, found.idle_s) == ((Mail(events=usual),), 1800)
    assert SECRET not in repr(notify(tmp_path, ALL_OF_IT).public)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  events: [ends]", "there is no event 'ends'. Did you mean 'end'?"),
        ("  idle: soon", "'idle' is 'soon', must be a time as 20m"),
        ("  idle: {for: 20m, gpus: some}", "must be one of all, any"),
        ("  mail: {to: -oProxy@x}", "must be one address"),
        ("  mail: {to: 'a@b.org,c@d.org'}", "must be one address"),
        ("  mail: {by: pigeon}", "must be one of slurm, mail"),
        ("  webhooks: {x: {}}", "webhook 'x' needs one of url, url_env, url_file; it has 0"),
        (f"  webhooks: {{x: {{url: {SECRET}}}}}", "is not an address as https://HOST/PATH"),
        (f"  webhooks: {{x: {{url: 'https://u:{SECRET}@h/'}}}}", "has a password in it"),
        (f"  webhooks: {{x: {{url: 'file:///etc/{SECRET}'}}}}", "is not an address"),
        ("  webhooks: {x: {url_env: A-B}}", "must be the name of a variable"),
        ("  webhooks: {x: {url: 'https://h', body: fax}}", "must be one of json, slack, teams"),
        ("  webhooks: {x: {url: 'https://h', colour: red}}", "unknown key 'colour'"),
        ("  commands: {x: {run: []}}", "needs 'run:'"),
        ("  pager: {}", "unknown key 'pager'"),
    ],
)
def test_mistakes_are_told_without_secrets(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        notify(tmp_path, text)
    assert said in str(error.value)
    assert "config.yaml:" in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = config(tmp_path, f"notify:\n{ALL_OF_IT}", mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        read_config(path)


def test_nothing_is_kept_of_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    notify(tmp_path, ALL_OF_IT)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def site(tmp_path: Path, text: str) -> Notify | None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"description: a lab\nnotify:\n{text}\n")
    return read_site(path).notify


def test_a_site_only_asks_for_mail_to_the_user(tmp_path: Path) -> None:
    found = site(tmp_path, "  mail: {by: slurm, events: [start, failure]}")
    assert found == Notify(sinks=(Mail(events=("start", "failure")),), of_site=True)
    assert mail_options(found.sinks[0]) == ("mail-type=BEGIN,FAIL",)  # type: ignore[arg-type]
    for text in (
        "  webhooks: {x: {url: 'https://h/'}}",
        "  commands: {x: {run: [sh, -c, id]}}",
    ):
        with pytest.raises(ConfigError, match="a site's file may not have"):
            site(tmp_path, text)
    with pytest.raises(ConfigError, match="unknown key 'to'"):
        site(tmp_path, "  mail: {to: thief@example.org}")


def test_the_users_own_file_comes_before_the_sites(tmp_path: Path) -> None:
    of_site = Notify(sinks=(Mail(events=("end",)),), of_site=True)
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert find_notify(of_site, environ) is of_site
    config(tmp_path, "notify: {}\n")
    assert find_notify(of_site, environ) == Notify()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # no bad node of the user's
    monkeypatch.setenv("HPCKIT_RUNS", str(tmp_path / "runs"))
    return tmp_path


def script(**options: Any) -> str:
    spec = JobSpec(target="serial", program="/bin/true", executor="slurm", gpus=0, **options)
    return prepare(spec, None, preview=True).rendered.text


def test_a_script_has_no_secret_and_no_word_of_it_unasked(home: Path) -> None:
    before = script(name="x")
    assert "notify" not in before
    config(home, f"notify:\n{ALL_OF_IT}")
    text = script(name="it's -- $(odd)")
    assert SECRET not in text
    assert "hpckit.notify.in_job" in text
    assert """--name=it'"'"'s -- $(odd)'""" in text
    assert "mail-type" not in text  # the program `mail` sends it
    assert "notify" not in script(skip_checks=("notify",))
    config(home, "notify:\n  mail: {to: me@example.org}\n")
    text = script(sbatch=("mail-type=BEGIN",))
    assert "#SBATCH --mail-type=BEGIN\n" in text
    assert "#SBATCH --mail-user=me@example.org\n" in text
    assert "in_job" not in text.replace("submission.in_job", "")


def test_a_file_at_fault_stops_a_submission(home: Path) -> None:
    config(home, "notify: {}\n", 0o644)
    with pytest.raises(ConfigError, match=r"chmod 600.*--skip-check notify submits it anyway"):
        script()
    assert "notify" not in script(skip_checks=("notify",))


def test_texts_of_others_give_no_orders() -> None:
    odd = replace(
        EVENT, name="<!channel> @here\n~!touch /tmp/x", detail="~!id\n\x1b[2J" + "x" * 2000
    )
    text = json.loads(body(plain(odd), "slack")[0])["text"]
    assert "<!channel>" not in text
    assert "@here" not in text
    discord = json.loads(body(plain(odd), "discord")[0])
    assert discord["allowed_mentions"] == {"parse": []}
    assert len(discord["content"]) < 2000
    for line in plain(odd).lines:  # a mailer may obey a line that begins with a tilde
        assert line.isprintable()
        assert not line.startswith("~")
    content, headers = body(plain(odd), "ntfy")
    assert content.decode().startswith("Job 42 (<!channel>")
    assert (headers["Title"], headers["Priority"]) == ("hpckit: failure", "high")
    card = json.loads(body(plain(odd), "teams")[0])["attachments"][0]["content"]
    assert card["type"] == "AdaptiveCard"
    assert json.loads(body(EVENT, "json")[0])["text"] == "Job 42 (train) has FAILED"
    of_array = replace(EVENT, task=0, tasks=2)
    assert of_array.title == "Job 42 (train, task 0 of an array of 2) has FAILED"


def test_a_command_gets_the_event_and_no_shell(tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text(
        f'#!/bin/sh\nenv > {tmp_path}/env; cat > {tmp_path}/said; echo "$@" > {tmp_path}/argv\n'
    )
    program.chmod(0o755)
    odd = replace(EVENT, name="a; touch hacked $(id)\nb")
    send(Command(name="x", events=EVENTS, argv=(str(program), "$HOME;")), odd, 60)
    assert json.loads((tmp_path / "said").read_text())["name"] == "a; touch hacked $(id)\\nb"
    assert (tmp_path / "argv").read_text() == "$HOME;\n"
    assert "HPCKIT_EVENT_NAME=a; touch hacked $(id)\\nb\n" in (tmp_path / "env").read_text()
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(OutsideError, match="tell ended with status 3"):
        send(Command(name="x", events=EVENTS, argv=(str(program),)), odd, 60)


def test_mail_by_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mail"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/argv; cat > {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    send(Mail(events=EVENTS, by="mail", to="me@example.org"), EVENT, 60)
    argv = (tmp_path / "argv").read_text().splitlines()
    assert argv == ["-s", "hpckit: Job 42 (train) has FAILED", "me@example.org"]
    assert (tmp_path / "said").read_text() == "Job 42 (train) has FAILED\nrun: train-1\n"


def test_a_secret_of_a_file_or_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "url"
    file.write_text(f"https://chat.example.org/{SECRET}\n")
    file.chmod(0o644)
    sink = Webhook(name="x", events=EVENTS, url_file=str(file))
    with pytest.raises(OutsideError, match="has mode 644"):
        send(sink, EVENT, 5)
    file.chmod(0o600)
    assert shown(sink) == "https://chat.example.org/..."
    sink = Webhook(name="x", events=EVENTS, url_env="HOOK")
    with pytest.raises(OutsideError, match="the variable HOOK has no value"):
        send(sink, EVENT, 5)
    monkeypatch.setenv("HOOK", f"https:/{SECRET}")
    with pytest.raises(OutsideError, match="its address is not an address") as error:
        send(sink, EVENT, 5)
    assert SECRET not in str(error.value)


def test_the_home_of_nobody_is_a_reason_and_no_traceback() -> None:
    with pytest.raises(OutsideError, match="nobody-here"):
        send(Command(name="x", events=EVENTS, argv=("~nobody-here/tell",)), EVENT, 5)
    with pytest.raises(OutsideError, match="url_file ~nobody-here/url cannot be read"):
        send(Webhook(name="x", events=EVENTS, url_file="~nobody-here/url"), EVENT, 5)


def outbox(
    claims: Claims, deliver: Callable[[Sink, Event, float], None], lines: list[str]
) -> Outbox:
    sinks = [Command(name=name, events=("end", "start"), argv=("x",)) for name in ("a", "b")]
    return Outbox(sinks, claims, deliver=deliver, tell=lines.append)


def test_a_command_that_is_nowhere_is_said_in_one_sentence(tmp_path: Path) -> None:
    lines: list[str] = []
    nowhere = Command(name="a", events=("failure",), argv=("no-such-program",))
    box = Outbox([nowhere], Claims(tmp_path), deliver=send, tell=lines.append)
    box.post(EVENT, "end")
    box.finish(60)
    (line,) = lines
    assert line.startswith("notify: 'a' was not told of 'failure': Program 'no-such-program' was")
    assert line.endswith("or run this where it exists.")


def test_each_event_once_whoever_tells(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    lines: list[str] = []

    def deliver(sink: Sink, event: Event, _seconds: float) -> None:
        told.append((sink.name, event.event))

    for _ in range(3):  # as other attempts and other tasks do
        box = outbox(Claims(tmp_path), deliver, lines)
        box.post(EVENT, "end")
        box.post(replace(EVENT, event="idle"), "idle-0")  # nobody wants it
        box.finish(60)
    assert sorted(told) == [("a", "failure"), ("b", "failure")]
    assert lines == []
    written = json.loads((tmp_path / "notify" / "end.json").read_text())
    assert written["sinks"] == {"a": "told", "b": "told"}
    assert not (tmp_path / "notify" / "idle-0.json").exists()


def test_a_folder_that_cannot_be_written_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "notify").write_text("")  # no folder can be here
    claims = Claims(tmp_path)
    box = outbox(claims, lambda sink, _event, _seconds: told.append(sink.name), [])
    for _ in range(2):
        box.post(EVENT, "end")
        box.finish(60)
    assert sorted(told) == ["a", "b"]


def test_a_sink_that_was_down_is_not_waited_for(tmp_path: Path) -> None:
    """It hangs for ever at the end, and `finish` is back: no clock decides, but what is known."""
    lines: list[str] = []
    calls: list[str] = []
    never = threading.Event()

    def deliver(_sink: Sink, event: Event, _seconds: float) -> None:
        calls.append(event.event)
        if event.event == "start":
            raise OutsideError("it cannot be reached (No route to host)")
        never.wait()

    box = outbox(Claims(tmp_path), deliver, lines)
    box.post(replace(EVENT, event="start"), "start")
    box.finish(3600)
    box.post(EVENT, "end")
    box.finish(3600)  # as good as for ever
    never.set()
    assert sorted(calls) == ["failure", "failure", "start", "start"]
    assert "notify: 'a' was not told of 'start': it cannot be reached (No route to host)." in lines
    assert "notify: 'a' has not answered, and the job does not wait for it." in lines


def rank(number: int, *, code: int | None, restart: int = 0, **words: Any) -> RankRecord:
    values = {"host": f"n{number}", "device": "cpu", "pid": 1, "started": 1.0}
    ended = None if code is None else words.pop("ended", 50.0)
    return RankRecord(
        rank=number, restart=restart, exit_code=code, ended=ended, **values, **words
    )  # fmt: skip


BAD = rank(1, code=1, error="Traceback (most recent call last):\nValueError: no")
GOOD, CUT = rank(0, code=0), rank(0, code=143, consequence=True, error="ended by SIGTERM")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"status": 0, "ranks": [GOOD]}, ("COMPLETED", False)),
        ({"status": 1, "ranks": [GOOD, BAD]}, ("FAILED", False)),
        ({"status": 1, "ranks": [CUT, BAD]}, ("FAILED", False)),
        ({"status": 7, "ranks": []}, ("FAILED", False)),
        ({"status": 137, "ranks": [rank(0, code=None)]}, ("FAILED", False)),
        ({"status": None, "stopped_at": 60.0, "ranks": [CUT]}, ("STOPPED", False)),
        ({"status": None, "stopped_at": 60.0, "ranks": [CUT], "left": True}, ("STOPPED", True)),
        # The shell dies of the same signal, and its last status says nothing.
        ({"status": 0, "stopped_at": 60.0, "ranks": [rank(0, code=None)]}, ("STOPPED", False)),
        ({"status": 0, "ranks": [rank(0, code=None)]}, ("STOPPED", False)),
        ({"status": None, "stopped_at": 9.0, "ranks": [CUT], "s": 3600.0}, ("TIMEOUT", False)),
        # A rank may answer the signal with a status of its own; one that failed before has failed.
        ({"status": None, "stopped_at": 51.0, "ranks": [BAD]}, ("STOPPED", False)),
        ({"status": None, "stopped_at": 500.0, "ranks": [BAD]}, ("FAILED", False)),
        ({"status": 1, "ranks": [BAD], "left": True}, ("FAILED", False)),
        ({"status": 1, "ranks": [BAD], "left": True, "away": True}, ("FAILED", True)),
        ({"status": 255, "ranks": [rank(0, code=None)], "left": True, "away": True},
         ("FAILED", True)),
        # In a grace time, whose signal does not go to the job script.
        ({"status": 143, "ranks": [CUT], "preempted": True}, ("STOPPED", False)),
        ({"status": 1, "ranks": [GOOD], "preempted": True}, ("STOPPED", False)),
        ({"status": 1, "ranks": [CUT], "preempted": True, "left": True}, ("STOPPED", False)),
        ({"status": 1, "ranks": [GOOD, BAD], "preempted": True}, ("FAILED", False)),
        ({"status": 0, "ranks": [GOOD], "preempted": True}, ("COMPLETED", False)),
        ({"status": 85, "ranks": [GOOD]}, ("STOPPED", True)),
        ({"status": 144, "ranks": [GOOD]}, ("STOPPED", True)),
        ({"status": 0, "ranks": []}, ("COMPLETED", False)),  # a template of its own
        ({"status": 0, "ranks": [], "why": "srun gave up"}, ("FAILED", False)),
    ],
)  # fmt: skip
def test_how_an_end_is_judged(words: dict[str, Any], expected: tuple[str, bool]) -> None:
    found: Ending = ending(
        words["status"],
        stopped_at=words.get("stopped_at"),
        ranks=words["ranks"],
        elapsed_s=words.get("s", 100.0),
        limit_min=60,
        attempts_left=words.get("left", False),
        preempted=words.get("preempted", False),
        taken_away=lambda: words.get("away", False),
        never_begun=lambda: words.get("why"),
    )
    assert (found.state, found.goes_on) == expected


def test_the_first_error_is_this_attempts(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "3.err"
    old = "Traceback (most recent call last):\n  File\nKeyError: 'old'\n"
    log.write_text(old)
    write_rank(tmp_path, BAD)
    errors = Errors(tmp_path)
    assert errors.first() is None
    log.write_text(old + "all is well\nTraceback (most rec")
    assert errors.first() is None
    log.write_text(old + "all is well\nTraceback (most recent call last):\n  File\nOSError: new\n")
    found = errors.first()
    assert str(found) == "rank 3: OSError: new"
    assert errors.first() is None
    write_rank(tmp_path, replace(BAD, restart=1))
    assert str(errors.first()) == "rank 1 on n1: ValueError: no"


class Node:
    """A node's sampler, a second at a time."""

    def __init__(self, folder: Path, host: str, gpus: int = 2) -> None:
        folder.mkdir(exist_ok=True)
        table = tuple(GpuInfo(index=at, uuid=f"GPU-{host}-{at}") for at in range(gpus))
        self.path = folder / file_name(host, 0, 7)
        self.encode = encoder(gpus)
        self.now = 10**9
        header = Header(host=host, boot_id="b", pid=7, epoch_us=1, mono_us=self.now,
                        interval_us=10**6, gpus=table)  # fmt: skip
        self.write(self.encode(header))

    def write(self, line: bytes) -> None:
        with self.path.open("ab") as stream:
            stream.write(line)

    def run(self, seconds: int, *permille: int | None) -> None:
        for _ in range(seconds):
            self.now += 10**6
            gpus = tuple(GpuSample(utilization_permille=value) for value in permille)
            self.write(self.encode(Sample(mono_us=self.now, gpus=gpus)))


def test_idle_is_what_all_samples_say(tmp_path: Path) -> None:
    look = IdleGpus(tmp_path)
    assert look.look(5, "all", 2) is None
    one, two = Node(tmp_path, "n1"), Node(tmp_path, "n2")
    one.run(10, 0, 0)
    assert look.look(5, "all", 2) is None  # of n2 nothing is known yet
    two.run(10, 0, 900)
    assert look.look(5, "all", 2) is None
    assert str(look.look(5, "any", 2)) == "3 of 4 GPUs ran nothing for 9 s (n1:0, n1:1, n2:0)"
    two.run(1, 0, 0)
    two.write(b'{"s":"half a li')
    assert look.look(5, "all", 2) is None  # not for so long
    two.path.write_bytes(two.path.read_bytes().removesuffix(b'{"s":"half a li'))
    two.run(6, 0, 0)
    found = look.look(5, "all", 2)
    assert found
    assert (len(found.gpus), found.of, found.seconds) == (4, 4, 6.0)
    one.run(1, None, 0)  # unknown is not idle
    assert look.look(5, "all", 2) is None
    assert IdleGpus(tmp_path).look(1, "any", 2) is None  # another attempt's


def test_a_time_without_samples_is_not_idle(tmp_path: Path) -> None:
    """A job that is suspended has none; its GPUs were another's meanwhile."""
    look = IdleGpus(tmp_path)
    node = Node(tmp_path, "n1", gpus=1)
    node.run(10, 0)
    node.now += 3600 * 10**6
    node.run(2, 0)
    assert look.look(5, "all", 1) is None
    node.run(9, 0)
    assert str(look.look(5, "all", 1)) == "all GPUs ran nothing for 10 s (n1:0)"
    node.now += 59 * 10**6  # a busy node
    node.run(1, 0)
    found = look.look(5, "all", 1)
    assert found
    assert found.seconds == 70


def test_it_says_when_ranks_may_begin_and_misses_none_that_begins_then(home: Path) -> None:
    """A rank's sampler writes at once: what came before that word was another attempt's."""
    told, samples = home / "told", home / "run" / "samples"
    samples.mkdir(parents=True)
    Node(samples, "n1").run(10, 0, 0)
    bell = home / "bell"
    bell.write_text(
        f'#!/bin/sh\nprintf %s "$HPCKIT_EVENT_DETAIL" >{told}.new && mv {told}.new {told}\n'
    )
    bell.chmod(0o755)
    config(
        home, f"notify:\n  events: [idle]\n  idle: 2s\n  commands: {{bell: {{run: [{bell}]}}}}\n"
    )
    words = ["--name=x", "--nodes=1", "--limit-min=5", "--max-requeues=0", "--ready"]
    argv = [sys.executable, "-m", "hpckit.notify.in_job", str(home / "run"), *words]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as teller:
        assert teller.stdout
        assert teller.stdout.readline() == b"\n"
        Node(samples, "n2").run(4, 0, 0)
        while not told.exists():
            assert teller.poll() is None
            time.sleep(0.02)
        assert teller.communicate(b"0\n") == (b"", None)
    assert told.read_text() == "all GPUs ran nothing for 3 s (n2:0, n2:1)"


def test_a_script_waits_for_that_word_before_its_launch(home: Path) -> None:
    config(home, f"notify:\n{ALL_OF_IT}")
    lines = script().splitlines()
    waits = next(at for at, line in enumerate(lines) if line.startswith("IFS= read -r -t "))
    launches = next(at for at, line in enumerate(lines) if "hpckit.submission.in_job" in line)
    assert waits < launches
    assert any(line.startswith("coproc ") and line.endswith(" --ready; }") for line in lines)


def test_attempts_are_counted_where_the_scheduler_does_not(tmp_path: Path) -> None:
    numbers = [attempt_number(Claims(tmp_path), {}, "") for _ in range(3)]
    assert numbers == [0, 1, 2]
    assert attempt_number(Claims(tmp_path), {"SLURM_RESTART_COUNT": "7"}, "") == 7


def test_what_a_script_says_of_its_job(tmp_path: Path) -> None:
    words = ["--name=-x y", "--nodes=2", "--limit-min=5", "--max-requeues=1"]
    job = parse([str(tmp_path / "run"), *words], {})
    assert (job.name, job.nodes, job.folder, job.of_site) == ("-x y", 2, tmp_path / "run", None)
    more = ["--first=1000", "--tasks=1500", "--site-mail=end,idle", "--idle-s=60"]
    job = parse([str(tmp_path / "run"), *words, *more], {"SLURM_ARRAY_TASK_ID": "7"})
    assert (job.task, job.folder) == (1007, tmp_path / "run_1007")
    assert job.of_site == Notify(
        sinks=(Mail(events=("end", "idle"), by="mail"),), idle_s=60, of_site=True
    )
