"""`hpckit logs -f`: what stands on stderr beside the log."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpckit.submission import waiting
from tests.conftest import Answer
from tests.unit.made import make_run
from tests.unit.played_slurm import answers, end_ranks, squeue_row

Cli = Callable[..., Answer]
BEGIN = squeue_row("11", "PENDING", start="N/A", reason="BeginTime")
WAITS = "11 PENDING: It may not start yet: it has a begin time, or was just requeued; wait"


@pytest.fixture
def play(fake_slurm: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what gives squeue's answers in turn, one per question."""

    def use(*rows: str) -> None:
        left: Iterator[str] = iter(rows)

        def turn(_seconds: float = 0) -> None:
            answers(fake_slurm, squeue_out=next(left))

        monkeypatch.setattr(waiting, "pauses", lambda _runs: itertools.repeat(0.0))
        monkeypatch.setattr("hpckit.run_folders.logs.time", SimpleNamespace(sleep=turn))
        turn()

    return use


def test_a_job_that_waits_and_is_cancelled_is_told_of(here: Path, play, cli: Cli) -> None:
    make_run(here / "runs")
    cancelled = squeue_row("11", "CANCELLED", start="N/A", elapsed="0:00", nodes="")
    play(BEGIN, BEGIN, BEGIN, cancelled)
    said = cli("logs", "11", "-f")
    assert (said.status, said.out) == (0, "")
    never = "11 is CANCELLED: it never started, and wrote nothing."
    assert said.err.splitlines() == [WAITS, never]
    assert cli("logs", "11").err.splitlines() == [never]


def test_each_wait_is_told_once_and_a_failure_after_the_log(here: Path, play, cli: Cli) -> None:
    run = make_run(here / "runs")
    (run.dir / "logs" / "0.out").write_text("step 1\n")
    end_ranks(run, 3)
    runs = squeue_row("11", "RUNNING")
    play(BEGIN, BEGIN, runs, runs, BEGIN, BEGIN, squeue_row("11", "FAILED"))
    said = cli("logs", "11", "-f")
    assert (said.status, said.out) == (0, "step 1\n")
    *waits, end = said.err.splitlines()
    assert waits == [f"{WAITS}, restarted 1x"] * 2
    assert end.startswith("11 FAILED: ")
    assert end.endswith("exit status 3. Why: hpckit logs 11 --errors")


def test_of_a_job_that_ended_well_there_is_the_log_alone(here: Path, play, cli: Cli) -> None:
    run = make_run(here / "runs")
    play(*[squeue_row("11", "COMPLETED")] * 5)
    end_ranks(run, 0, 0, 0, 0)
    assert cli("logs", "11", "-f").err == "11 has written nothing. See `hpckit status 11`.\n"
    (run.dir / "logs" / "0.out").write_text("step 1\n")
    said = cli("logs", "11", "-f")
    assert (said.status, said.out, said.err) == (0, "step 1\n", "")


def test_a_job_that_never_starts_is_told_of_once(here: Path, play, cli: Cli) -> None:
    make_run(here / "runs")
    play(*[squeue_row("11", "PENDING", reason="DependencyNeverSatisfied")] * 2)
    said = cli("logs", "11", "-f")
    assert (said.status, said.out, said.err.count("\n")) == (0, "", 1)
    assert "so it will never start, remove it from the queue: hpckit cancel 11" in said.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--all", "--rank", "1"), "--rank or --all"),
        (("--errors", "--rank", "1"), "--errors or --rank"),
        (("--errors", "--all"), "--errors or --all"),
        (("--errors", "-f"), "--errors or --follow"),
        (("--errors", "-f", "--all", "--rank", "0"), "--errors or --rank"),
    ],
)
def test_options_of_which_one_would_be_ignored_are_refused(
    here: Path, cli: Cli, words: tuple[str, ...], named: str
) -> None:
    make_run(here / "runs")
    said = cli("logs", "11", *words)
    assert (said.status, said.out) == (2, "")
    assert f"Give {named}, not both." in said.err


@pytest.mark.parametrize("words", [(), ("--rank", "1"), ("--all",)])
def test_each_choice_of_logs_can_be_followed(
    here: Path, play, cli: Cli, words: tuple[str, ...]
) -> None:
    run = make_run(here / "runs")
    end_ranks(run, 0, 0, 0, 0)
    play(*[squeue_row("11", "COMPLETED")] * 5)
    for rank in (0, 1):
        (run.dir / "logs" / f"{rank}.out").write_text(f"rank {rank}\n")
    shown = [row for row in cli("logs", "11", "-f", *words).out.splitlines() if row[:4] == "rank"]
    assert shown == {"--rank": ["rank 1"], "--all": ["rank 0", "rank 1"]}.get(
        words[0] if words else "", ["rank 0"]
    )
