"""`-` as the name of a file that a command writes: standard output, as elsewhere."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.report.html import read_html
from tests.report.made import make_run, write_samples

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
HPCKIT = (sys.executable, "-m", "hpckit")
BEGINS = {"html": b"<!doctype html>", "svg": b"<?xml ", "png": b"\x89PNG"}


@pytest.fixture
def job(here: Path) -> str:
    folder = make_run(here / "runs", seconds=600)
    write_samples(folder / "samples", [[90.0] * 61])
    return str(folder)


@pytest.mark.parametrize("kind", ["html", "svg", "png"])
def test_a_file_of_a_job_goes_to_stdout_byte_by_byte(job: str, here: Path, kind: str) -> None:
    words = (*HPCKIT, "stats", job, f"--{kind}")
    done = subprocess.run([*words, "-"], capture_output=True, check=True)
    subprocess.run([*words, f"a.{kind}"], check=True, capture_output=True)
    assert done.stdout.lower().startswith(BEGINS[kind].lower())
    assert len(done.stdout) == (here / f"a.{kind}").stat().st_size
    assert b" is in " not in done.stderr
    assert not (here / "-").exists()


def test_the_group_report_goes_there_too(here: Path, fake_slurm: Path, cli: Cli) -> None:
    answer = cli("report", "--html", "-")
    assert (answer.status, "is in" in answer.err) == (0, False)
    (here / "copy.html").write_text(answer.out)
    assert "GPU" in read_html(here / "copy.html").text
    assert not (here / "-").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stats", "{job}", "--html", "-", "--svg", "-"), "--html -, --svg - would all go to"),
        (("stats", "{job}", "--textfile", "-"), "To print the same: hpckit stats --openmetrics"),
        (("scale", "--from", "x", "--html", "-", "--png", "-"), "--png -, --html - would all go"),
        (("scale", "--from", "x", "--json", "--svg", "-"), "--svg -, --json would all go"),
        (("scale", "--from", "x", "--csv", "--html", "-"), "--html -, --csv would all go"),
        (("code", "latest", "--restore", "-"), "cannot take a folder"),
        (("jobs", "--runs", "-"), "cannot take a folder"),
        (("templates", "schema", "--write", "-"), "cannot take a folder"),
        (("sample", "--dir", "-", "--", "true"), "cannot take a folder"),
        (("collections", "new", "-"), "cannot take a folder"),
    ],
)
def test_what_stdout_cannot_take_is_refused(
    job: str, here: Path, cli: Cli, words: tuple[str, ...], said: str
) -> None:
    answer = cli(*(word.format(job=job) for word in words))
    assert (answer.status, answer.out) == (2, "")
    assert said in " ".join(answer.err.split())
    assert not (here / "-").exists()


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_terminal_gets_text_alone(job: str, kind: str) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [*HPCKIT, "stats", job, f"--{kind}", "-"],
            stdout=theirs if kind == "png" else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == (2 if kind == "png" else 0)
    assert (b"--png - is not for a terminal" in done.stderr) == (kind == "png")


def test_a_reader_that_leaves_is_no_error(job: str) -> None:
    with subprocess.Popen(
        [*HPCKIT, "stats", job, "--html", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.read(1)
        done.stdout.close()
        said = done.stderr.read()
    assert b"Traceback" not in said
    assert b"error" not in said


def test_a_full_disk_is_one_error(job: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*HPCKIT, "stats", job, "--png", "-"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 3
    assert done.stderr.count(b"error: The result cannot be written to stdout: No space") == 1
