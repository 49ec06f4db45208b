"""`hpckit sample` says why it records nothing; the command runs, and its exit status stays."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hpckit
from hpckit.api import sample as api
from hpckit.stats.sampler import start
from tests.patience import LONG_S
from tests.stats.conftest import mounted

pytestmark = pytest.mark.long

COMMAND = ("--", "sh", "-c", "exit 5")
OTHER = "choose another folder with --dir"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk answer late: others may keep it busy."""
    monkeypatch.setattr(api, "_ANSWER_S", LONG_S)


def refused(folder: Path | str, why: str, todo: str = OTHER) -> str:
    return f"nothing can be written in {folder} ({why}): {todo}"


@pytest.mark.parametrize(
    ("name", "shown", "why"),
    [
        ("/proc/nowhere", "/proc/nowhere", "No such file or directory"),
        ("file", "{here}/file", "it is not a folder"),
        ("file/x", "{here}/file/x", "Not a directory"),
        ("file\n", "{here}/file\\n", "it is not a folder"),
    ],
)
def test_a_folder_that_cannot_be_made(here: Path, cli, name: str, shown: str, why: str) -> None:
    for file in ("file", "file\n"):
        (here / file).touch()
    answer = cli("sample", "--dir", name, *COMMAND)
    text = refused(shown.format(here=here), why)
    assert (answer.status, answer.err) == (5, f"hpckit: note: no GPU samples: {text}\n")


def test_a_runs_own_folder_that_cannot_be_made(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setenv("HPCKIT_RUN_DIR", "/proc/nowhere")
    answer = cli("sample", *COMMAND)
    assert refused("/proc/nowhere/samples", "No such file or directory") in answer.err
    assert answer.status == 5


@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_a_disk_that_takes_nothing(here: Path, cli, options: str) -> None:
    disk = here / "disk"
    disk.mkdir()
    text = refused(disk, "Read-only file system")
    with mounted(disk, options):
        if options != "ro":
            (disk / "full").write_bytes(bytes(4096))
            text = refused(disk, "No space left on device", f"free space there, or {OTHER}")
        answer = cli("sample", "--dir", "disk", *COMMAND)
    assert (answer.status, answer.err) == (5, f"hpckit: note: no GPU samples: {text}\n")


def test_it_says_so_before_the_command_starts(here: Path) -> None:
    heard: list[tuple[str, bool]] = []
    began = here / "began"
    status = hpckit.sample(
        ["touch", began],
        folder="/proc/nowhere",
        tell=lambda text: heard.append((text, began.exists())),
    )
    [(text, late)] = heard
    assert text.startswith("no GPU samples: nothing can be written in /proc/nowhere")
    assert (status, late, began.exists()) == (0, False, True)


def test_a_disk_that_is_full_at_the_end(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setattr(start, "_STOP_S", LONG_S)  # on a busy machine its end takes longer
    disk = here / "disk"
    disk.mkdir()
    fills = "while [ $(cat disk/*.jsonl 2>/dev/null | wc -c) -lt 4096 ]; do sleep 0.05; done"
    with mounted(disk, "size=4k"):
        words = ("--interval", "0.05", "--dir", "disk", "--", "sh", "-c", f"{fills}; exit 6")
        answer = cli("sample", *words)
    text = refused(disk, "No space left on device", f"free space there, or {OTHER}")
    said = f"hpckit: note: the last GPU samples are missing: {text}\n"
    assert (answer.status, answer.err) == (6, said)


@pytest.mark.parametrize(
    ("python", "what"),
    [
        ("exit 3", "ended with status 3"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("exec sleep 1000", "did not end within 0 s and was killed"),
    ],
)
@pytest.mark.parametrize("begins", [False, True])
def test_a_sampler_that_ends_before_its_time(
    here: Path, cli, monkeypatch, python: str, what: str, begins: bool
) -> None:
    monkeypatch.setattr(start, "_STOP_S", 0.0 if "exec" in python else LONG_S)
    monkeypatch.setattr(start, "_START_S", 0.0)
    begin = "mkdir -p new; touch new/host.r0.$$.jsonl; " if begins else ""
    # A shell may clear the mask of blocked signals that it inherits.
    told = f"trap '' TERM; {begin}touch begun; {python}"
    monkeypatch.setattr(start, "own_python", lambda: ("sh", "-c", told, "sh"))
    waits = "while [ ! -e begun ]; do sleep 0.02; done; exit 5"
    answer = cli("sample", "--dir", "new", "--", "sh", "-c", waits)
    text = f"no GPU samples in new: the sampler {what} before it wrote one"
    if begins:
        text = f"the last GPU samples are missing: the sampler {what}"
    assert (answer.status, answer.err) == (5, f"hpckit: note: {text}\n")


def test_a_folder_that_takes_samples_keeps_nothing_else(here: Path, cli, monkeypatch) -> None:
    monkeypatch.setattr(start, "_START_S", LONG_S)
    answer = cli("sample", "--dir", "new/samples", *COMMAND)
    assert (answer.status, "no GPU samples" in answer.err) == (5, False)
    assert [path for path in (here / "new/samples").iterdir() if path.suffix != ".jsonl"] == []


def test_a_folder_that_does_not_answer(here: Path, monkeypatch) -> None:
    answers = threading.Event()

    def hangs(_folder: Path) -> str:
        answers.wait()
        return ""

    monkeypatch.setattr(api, "_refusal", hangs)
    monkeypatch.setattr(api, "_ANSWER_S", 0.0)
    heard: list[str] = []
    started: list[Path] = []
    monkeypatch.setattr(api, "start_sampler", lambda folder, *_: started.append(folder))
    try:
        for folder in ("given", None):
            assert hpckit.sample(["sh", "-c", "exit 5"], folder=folder, tell=heard.append) == 5
    finally:
        answers.set()
    assert f"no GPU samples: given did not answer within 0 s: {OTHER}" in heard
    # One of which nobody knows yet whose it is gets no files of ours.
    assert started == [Path("given")]


def test_a_log_on_a_full_disk_keeps_no_command_from_starting(here: Path) -> None:
    argv = [sys.executable, "-m", "hpckit", "sample", "--dir", "/proc/nowhere", *COMMAND]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stderr=full, check=False, timeout=LONG_S)
    assert done.returncode == 5
