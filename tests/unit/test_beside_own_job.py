"""A submission from inside a job says that it is another job."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer

SAID = (
    "note: you are in job 4242. This is a new job: it waits in the queue, and does not use the "
    "nodes of job 4242"
)
HOW = ". A program runs on those with: srun hpckit sample -- PROGRAM"


@pytest.mark.parametrize("more", [("--dry-run",), ("--check",), ()])
def test_it_is_said_on_stderr_alone(
    cli: Callable[..., Answer], fake_slurm: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str]
) -> None:
    line = ("submit", "ddp", "--executor", "slurm", "--json", *more)
    plain = cli(*line)
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    said = cli(*line)
    assert (plain.status, said.status) == (0, 0)
    assert SAID not in plain.err
    assert said.err.splitlines().count(SAID + HOW) == 1
    assert json.loads(said.out).keys() == json.loads(plain.out).keys()
    assert "4242" not in said.out


def test_a_rank_and_a_session_are_not_told_to_start_a_step(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    monkeypatch.setenv("HPCKIT_RUN_ID", "ddp-1")
    said = cli("submit", "ddp", "--executor", "slurm", "--dry-run")
    assert SAID in said.err.splitlines()


def test_a_run_on_this_machine_is_no_new_job(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    said = cli("submit", "ddp", "--executor", "local", "--dry-run")
    assert said.status == 0
    assert "4242" not in said.err
