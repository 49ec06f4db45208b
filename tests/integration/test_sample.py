"""`hpckit sample` in a script, and then the line that shows what it recorded; Slurm is silent."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.api import sample as api
from hpckit.stats.sampler import start
from tests.conftest import Answer
from tests.patience import LONG_S
from tests.unit.played_slurm import OFF, answers

Cli = Callable[..., Answer]

# Ends when the sampler has written its first line and a sample, however busy the machine is.
PROGRAM = """\
import pathlib, sys, time
while not any(path.read_bytes().count(b"\\n") > 1 for path in pathlib.Path().rglob("*.jsonl")):
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def patient(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sampler begin and end by itself, also on a busy machine."""
    monkeypatch.setattr(start, "_STOP_S", LONG_S)
    monkeypatch.setattr(start, "_START_S", LONG_S)
    monkeypatch.setattr(api, "_ANSWER_S", LONG_S)  # of a disk that others keep busy


def sample(cli: Cli, *words: str) -> str:
    answer = cli("sample", "--interval", "0.2", *words, "--", sys.executable, "-c", PROGRAM)
    assert (answer.status, answer.out) == (0, "")
    return answer.err


@pytest.mark.parametrize("words", [(), ("--dir", "my samples")])
def test_outside_slurm_it_says_what_to_type(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    said = sample(cli, *words)
    before, _, line = said.partition("hpckit: note: show what it used: hpckit ")
    assert (before, said.count("\n")) == ("", 1)
    if words:  # the line is right in any folder
        monkeypatch.chdir(here.parent / "tmp")
    typed = shlex.split(line)
    assert typed[2:] == (["--samples", str(here / "my samples")] if words else [])
    found = json.loads(cli(*typed, "--json").out)
    assert (found["job_id"], found["state"], found["nodes"]) == (typed[1], "UNKNOWN", 1)
    assert found["elapsed_s"] > 0
    assert found["summary"]["samples"] >= 1


@pytest.mark.parametrize("words", [(), ("--samples", "hpckit-samples/555")])
def test_in_a_job_of_a_cluster_without_accounting(
    fake_slurm: Path,
    here: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """There the job's own id is the word, and stderr is the command's alone."""
    answers(fake_slurm, sacct_rc="1", sacct_err=OFF)
    monkeypatch.setenv("SLURM_JOB_ID", "555")
    assert sample(cli) == ""
    monkeypatch.delenv("SLURM_JOB_ID")
    answer = cli("stats", "555", *words)
    assert answer.status == 0
    assert answer.out.startswith("Job 555  UNKNOWN\n")
    assert "accounting storage is disabled" in answer.out.replace("\n  ", " ")
    other = next((here / "hpckit-samples").iterdir())
    assert cli("stats", "556", "--samples", str(other)).status == 2


def test_in_a_run_of_hpckit_samples_are_the_runs(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCKIT_RUN_DIR", str(here / "run"))
    assert sample(cli) == ""
    (file,) = (here / "run" / "samples").iterdir()
    assert '"job_id"' not in file.read_text()


def test_a_command_that_did_not_start_has_nothing_to_show(here: Path, cli: Cli) -> None:
    answer = cli("sample", "--", "no-such-program")
    assert (answer.status, "show what it used" in answer.err) == (127, False)
