"""One bad file of one run in a shared folder spoils nothing else: every command, every file.

Each kind of badness has a root of its own, with one bad run for every file of a run, and one good
run. The commands run in a child with little memory and an alarm.
"""

import contextlib
import io
import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpckit.cli import main
from hpckit.schedulers.local.state import LocalState
from hpckit.slurm.states import JobState
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import End, Header, Sample, file_name
from tests.unit.made import make_run, rank

pytestmark = pytest.mark.long

GOOD = "good-1"
SAMPLES = file_name("n0", 0, 7)
# The files of a run, in the folder's own words.
FILES = ("run.json", "ranks/0.json", "local.json", "metrics.jsonl", "job.out", "logs/0.out",
         "logs/0.err", f"samples/{SAMPLES}", "summary.json", "timeseries.json", "array.json",
         ".cancel", "job.sh")  # fmt: skip
# Endless work costs processor time, of which a busy machine's shared core gives less: the slowest
# case took 25 s of it where it takes 8 s alone. Who waits for ever has the alarm.
MEMORY_BYTES, CPU_S, ALARM_S = 400 << 20, 300, 500


def wide(count: int) -> bytes:
    return b"[" + b"[]," * count + b"[]]"


CONTENTS: Mapping[str, bytes] = {
    "nothing": b"",
    "half": b'{"run_id": "brok',
    "null": b"null",
    "a number": b"5",
    "a text": b'"run"',
    "an empty list": b"[]",
    "an empty mapping": b"{}",
    "deep lists": b"[" * 200_000,
    "deep mappings": b'{"a":' * 100_000,
    "closed, 900 deep": b"[" * 900 + b"]" * 900,
    "5000 digits": b'{"rank": ' + b"9" * 5000 + b"}",
    "a million digits": b"9" * 1_000_000,
    "a float of many digits": b"1" * 5000 + b".5",
    "too large a float": b'{"step": 1e999}',
    "no number": b'{"step": NaN, "run_id": -Infinity}',
    "no UTF-8": b"\xff\xfe\xfd" * 50,
    "NULs": bytes(5000),
    "UTF-16": '{"run_id": "x"}'.encode("utf-16"),
    "half letters": b'{"run_id": "\\ud800", "dir": "\\udcff"}',
    "escape sequences": b"\x1b[2J\x1b]0;owned\x07\r\n" * 20,
    "300,000 lists": wide(300_000),
    "six million lists": wide(6_000_000),
    "50,000 keys": json.dumps(dict.fromkeys(map(str, range(50_000)))).encode(),
    "one long line": b"x" * 3_000_000,
    "many lines": b"{}\n" * 500_000,
    "twice a key": b'{"plan": {}, "plan": []}',
    "another's lines": b'{"k":"header"} 00000000\n' * 1000,
}


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(6 << 30)


def sparse_with_an_end(path: Path) -> None:
    sparse(path)
    with path.open("ab") as stream:
        stream.write(b"the end\n")


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock, contextlib.chdir(path.parent):
        sock.bind(path.name)


SPECIAL: Mapping[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to zeros": lambda path: path.symlink_to("/dev/zero"),
    "a link to the terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to /proc": lambda path: path.symlink_to("/proc/self/mem"),
    "a link to a pipe": lambda path: (os.mkfifo(f"{path}.p"), path.symlink_to(f"{path}.p")),
    "a sparse file": sparse,
    "a sparse file with an end": sparse_with_an_end,
    "a socket": bound,
    "a device": lambda path: os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5)),  # /dev/zero
}


def good_files() -> dict[str, bytes]:
    """Return the files of a local run that COMPLETED, all but `run.json`."""
    state = LocalState(
        job_id="local-1", state=JobState.COMPLETED, host="n0", pid=1, pid_started=1,
        started=10.0, ended=20.0, exit_code=0,
    )  # fmt: skip
    ranks = [
        asdict(rank(n, ended=20.0, exit_code=1, error="ValueError: no", host="n0"))
        for n in range(4)
    ]
    encode = encoder(0)
    header = Header(
        host="n0", boot_id="b", pid=7, epoch_us=10_000_000, mono_us=0, interval_us=1_000_000
    )
    samples = [header, *(Sample(mono_us=n * 1_000_000, cpu_us=n * 500_000) for n in range(10))]
    return {
        "local.json": json.dumps(asdict(state)).encode(),
        **{f"ranks/{row['rank']}.json": json.dumps({"attempts": [row]}).encode() for row in ranks},
        "metrics.jsonl": b'{"step": 1, "time": 11.0, "loss": 0.5}\n',
        "job.out": b"begin\n",
        "logs/0.out": b"hello\n",
        "logs/0.err": b"ValueError: no\n",
        f"samples/{SAMPLES}": b"".join(map(encode, (*samples, End(mono_us=9_000_000, reason="x")))),
    }  # fmt: skip


def local_run(root: Path, run_id: str, changes: Mapping[str, bytes] | None = None) -> Path:
    folder = make_run(root, run_id, job_id=f"local-{run_id}", executor="local").dir
    for name, content in {**good_files(), **(changes or {})}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def plant(folder: Path, name: str, how: bytes | Callable[[Path], object]) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if isinstance(how, bytes):
        path.write_bytes(how)
    else:
        how(path)


_SHOWN = 11  # with the good one, so many runs have a line each


def every_command(root: Path, bad: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield commands over all runs at once, and over each where they take one."""
    for command in (["jobs", "-n0"], ["jobs", "--json", "--limit", "2"]):
        yield (*command, "--runs", str(root))
    words = (*bad, GOOD, "--runs", str(root))
    for command in (["status", "--all"], ["status", "--json"], ["stats"], ["stats", "--json"]):
        yield (*command, *words)
    for few in (bad[:_SHOWN], bad[_SHOWN:]):
        yield "wait", "--timeout", "0", *few, GOOD, "--runs", str(root)
        yield "cancel", *few, GOOD, "--runs", str(root)
    for run_id in bad:
        yield "logs", run_id, "--runs", str(root)
        yield "logs", run_id, "--errors", "--runs", str(root)
        yield "logs", run_id, "--all", "--runs", str(root)
    yield "status", "latest", "--runs", str(root)


def in_child(commands: Sequence[tuple[str, ...]], folder: Path) -> list[dict[str, Any]]:
    """Run commands in a child with little memory and an alarm; return what each said."""
    out = folder / "said.json"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(ALARM_S)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            out.write_text(json.dumps([answer(argv) for argv in commands]))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, "killed by the alarm, or out of memory or time"
    answers: list[dict[str, Any]] = json.loads(out.read_text())
    return answers


def answer(argv: Sequence[str]) -> dict[str, Any]:
    said, complained = io.StringIO(), io.StringIO()
    trouble = None
    status: object = None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            main(list(argv))
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test shows it
            trouble = f"{type(error).__name__}: {error!s:.300}"
    out, err = said.getvalue(), complained.getvalue()
    return {
        "argv": list(argv), "status": status, "out": out[-200_000:], "err": err[-200_000:],
        "size": len(out) + len(err), "trouble": trouble,
    }  # fmt: skip


def check_all(root: Path, bad: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    answers = in_child([*every_command(root, bad)], folder)
    for row in answers:
        assert row["trouble"] is None, (row["argv"], row["trouble"])
        assert row["status"] in (0, 1, 2, 3), row
        assert "Traceback (most recent" not in row["out"] + row["err"], row
        assert "\x1b[2J" not in row["err"], row
        assert row["size"] < 50_000_000
        if row["argv"][0] != "logs" and not {"latest", "--limit"} & {*row["argv"]}:
            assert GOOD in row["out"], (row["argv"], row["out"], row["err"])
    return answers


@pytest.mark.parametrize("how", [*CONTENTS, *SPECIAL])
def test_a_bad_file_of_one_run_is_no_end_of_any_command(here: Path, how: str) -> None:
    root = here / "runs"
    local_run(root, GOOD)
    bad = []
    for number, name in enumerate(FILES):
        folder = local_run(root, f"bad-{number}")
        plant(folder, name, CONTENTS[how] if how in CONTENTS else SPECIAL[how])
        bad.append(folder.name)
    if how in ("a link to nothing", "a loop of links"):  # a folder without a record is no run
        bad.remove("bad-0")
    answers = check_all(root, bad, here.parent)
    for row in answers:  # no command leaves a run out in silence
        if row["argv"][0] != "logs" and GOOD in row["argv"]:
            said = row["out"] + row["err"]
            assert [word for word in row["argv"] if "bad-" in word and word not in said] == []
