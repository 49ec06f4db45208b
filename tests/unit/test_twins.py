"""What is submitted again while it still runs or waits: the user hears of it, and how to end it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from hpckit.api.twins import tell_of_unfinished
from hpckit.run_folders.runs import Run
from hpckit.submission.resubmitted import write_notes
from tests.conftest import Answer
from tests.unit.made import PLAN, make_run
from tests.unit.played_slurm import answers, down, end_ranks, sacct_row, squeue_row

Cli = Callable[..., Answer]
BESIDE = (
    "What is submitted now works beside {}, and in the same folders if the script writes to fixed "
    "ones. To end what is there: hpckit cancel "
)


def told(*runs: Run, after: tuple[str, ...] = ()) -> list[str]:
    said: list[str] = []
    tell_of_unfinished(runs, after, said.append)
    return said


@pytest.mark.parametrize(
    ("state", "is_told"),
    [
        ("RUNNING", True),
        ("PENDING", True),
        ("SUSPENDED", True),
        ("REQUEUED", True),
        ("COMPLETING", False),
        ("COMPLETED", False),
        ("FAILED", False),
        ("CANCELLED", False),
    ],
)
def test_of_a_job_that_is_not_over_it_is_told(
    fake_slurm: Path, tmp_path: Path, state: str, is_told: bool
) -> None:
    run = make_run(tmp_path)
    if state == "COMPLETED":
        end_ranks(run, 0, 0, 0, None)
    answers(fake_slurm, squeue_out=squeue_row("11", state))
    words = [f"job 11 is {state}. {BESIDE.format('it')}11"]
    assert told(run) == (words if is_told else [])
    # Whoever waits for its end does not work beside it.
    for word in ("11", "afterany:11", "ddp-1"):
        assert told(run, after=(word,)) == []
    assert told(run, after=("afterany:12",)) == (words if is_told else [])


def test_a_run_whose_ranks_have_ended_is_over_without_a_question(
    fake_slurm: Path, tmp_path: Path
) -> None:
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    over = make_run(tmp_path)
    end_ranks(over, 0, 1, 0, 0)
    assert told(over) == []
    again = make_run(tmp_path, "ddp-2", plan={**PLAN, "max_requeues": 2})
    end_ranks(again, 0, 1, 0, 0)
    assert len(told(again)) == 1


def test_tasks_of_an_array_are_told_in_one_line(fake_slurm: Path, tmp_path: Path) -> None:
    tasks = [
        make_run(tmp_path, f"ddp_{at}", job_id=f"11_{at}", array={"job_id": "11", "index": at})
        for at in range(8)
    ]
    states = ["RUNNING", "RUNNING", "FAILED", *["PENDING"] * 5]
    rows = (squeue_row(f"11_{at}", state) for at, state in enumerate(states))
    answers(fake_slurm, squeue_out="".join(rows))
    assert told(*tasks) == [
        "7 jobs (11_0, 11_1, 11_3, 11_4 and 3 more) are not over: 5 PENDING, 2 RUNNING. "
        f"{BESIDE.format('them')}11"
    ]
    assert told(*tasks, after=("afterany:11",)) == []
    assert told(tasks[1]) == [f"job 11_1 is RUNNING. {BESIDE.format('it')}11_1"]


def test_what_took_its_place_is_told_too(fake_slurm: Path, tmp_path: Path) -> None:
    old = make_run(tmp_path, "old", job_id="20")
    before = {"of": old.run_id, "job_id": old.job_id, "dir": str(old.dir)}
    new = make_run(tmp_path, "new", job_id="30", resubmit=before)
    write_notes([new], pytest.fail)
    states = squeue_row("20", "FAILED") + squeue_row("30", "RUNNING")
    answers(fake_slurm, squeue_out=states)
    assert told(old) == [f"job 30 is RUNNING. {BESIDE.format('it')}30"]
    answers(fake_slurm, squeue_out=states.replace("FAILED", "RUNNING"))
    assert told(old) == [f"2 jobs (20, 30) are not over: 2 RUNNING. {BESIDE.format('them')}20 30"]


def test_where_slurm_is_silent_it_is_not_known(fake_slurm: Path, tmp_path: Path) -> None:
    runs = [make_run(tmp_path), make_run(tmp_path, "ddp-2", job_id="12")]
    down(fake_slurm, accounting=True)
    [said] = told(*runs)
    assert said.startswith("whether job 11 is over is not known: squeue: ")
    # What Slurm has forgotten is over.
    answers(fake_slurm, squeue_rc="0", squeue_err="", sacct_rc="0", sacct_err="")
    assert told(*runs) == []
    answers(fake_slurm, sacct_out=sacct_row("11", "FAILED"))
    assert told(runs[0]) == []


def test_the_command_and_python_say_it_and_submit(
    here: Path, cli: Cli, fake_slurm: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (here / "train.py").write_text("print('hello')\n")
    assert cli("submit", "serial", "train.py", "--gpus", "0").status == 0
    answers(fake_slurm, squeue_out=squeue_row("1001", "RUNNING", name="train"))
    sentence = "job 1001 is RUNNING. What is submitted now works beside it"
    assert sentence not in cli("resubmit", "1001", "--dry-run").err  # which needs no Slurm
    said = cli("resubmit", "1001")
    assert (said.status, said.err.count(sentence)) == (0, 1)
    assert said.out.startswith("Submitted ")
    caplog.set_level("INFO", logger="hpckit")
    run = hpckit.find("1001")
    run.preview()
    assert sentence not in caplog.text
    run.resubmit()
    assert sentence in caplog.text
