"""`hpckit stats` of a run while accounting or the queue does not answer: no wrong figure."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.run_folders.ranks import write_rank
from tests.conftest import Answer, add_program, document
from tests.report.accounting import keep_accounts, row
from tests.report.made import START, write_samples
from tests.unit.made import PLAN, make_run, rank
from tests.unit.played_slurm import OFF, answers, down, end_ranks, squeue_row

Cli = Callable[..., Answer]


def note(found: dict[str, Any], code: str) -> str:
    (text,) = [str(row["text"]) for row in found["notes"] if row["code"] == code]
    return text


def codes(found: dict[str, Any]) -> set[str]:
    return {row["code"] for row in found["notes"]}


@pytest.mark.parametrize("total_gpus", [0, 4])
def test_without_accounting_the_queue_says_how_long_a_job_ran(
    fake_slurm: Path, here: Path, cli: Cli, total_gpus: int
) -> None:
    """The ranks of a job begin later than the job: they would call it 20 s shorter."""
    run = make_run(here / "runs", plan={**PLAN, "total_gpus": total_gpus})
    end_ranks(run, 0, 0, 0, 0)
    answers(fake_slurm, sacct_rc="1", sacct_err=OFF)
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED", elapsed="1:00", end="170"))
    found = document(cli, "11")
    assert (found["elapsed_s"], found["start"], found["end"]) == (60, 110, 170)
    assert found["gpus"] == total_gpus
    assert "accounting storage is disabled" in note(found, "no_accounting")
    assert "rank_times" not in codes(found)


def test_times_by_the_ranks_alone_are_said_to_be_that(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    end_ranks(make_run(here / "runs"), 0, 0, 0, 0)
    answers(fake_slurm, sacct_rc="1", sacct_err=OFF)
    found = document(cli, "11")
    assert found["elapsed_s"] == pytest.approx(13)
    assert "from the first rank's start to the last rank's end" in note(found, "rank_times")


@pytest.mark.parametrize("executor", ["local", "slurm"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_job_whose_end_nobody_recorded_does_not_go_on_until_now(
    fake_slurm: Path, here: Path, cli: Cli, executor: str, sampled: bool
) -> None:
    """A local run's machine was restarted; or Slurm has forgotten a job whose ranks were killed."""
    job_id = "local-11" if executor == "local" else "11"
    run = make_run(here / "runs", job_id=job_id, executor=executor, submitted_at=START - 5)
    write_rank(run.dir, rank(0, started=START, ended=None))
    if executor == "local":
        state = {"job_id": job_id, "state": "RUNNING", "host": os.uname().nodename}
        state |= {"pid": 2**22 + 1, "pid_started": 1, "started": START - 1}
        (run.dir / "local.json").write_text(json.dumps(state))
    if sampled:
        write_samples(run.dir / "samples", [[None, *[50.0] * 60]], host="n0")
    found = document(cli, job_id)
    assert found["start"] == pytest.approx(START)
    assert found["end"] is None
    assert found["elapsed_s"] == (pytest.approx(600) if sampled else None)
    assert [row["elapsed_s"] for row in found["attempts"]] == [600] * sampled
    assert ("of its samples" if sampled else "is unknown") in note(found, "attempt_lost")
    assert "not_started" not in codes(found)


def test_a_start_that_accounting_lost_is_the_queues_or_the_ranks(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    run = make_run(here / "runs", job_id="77")
    end_ranks(run, 0, 0, 0, 0)
    lost = row("77", Submit="100", Start="Unknown", End="170", ElapsedRaw="0")
    keep_accounts(here.parent / "bin", [lost])
    by_ranks = document(cli, "77")
    assert by_ranks["end"] == 170
    assert by_ranks["elapsed_s"] == pytest.approx(170 - by_ranks["start"])
    assert "the start of attempt 0: its time is from the first rank's" in note(
        by_ranks, "rank_times"
    )
    (here.parent / "bin" / "squeue").unlink()
    answers(fake_slurm, squeue_out=squeue_row("77", "COMPLETED", elapsed="1:00", end="170"))
    found = document(cli, "77")
    assert (found["start"], found["end"], found["elapsed_s"]) == (110, 170, 60)
    assert "rank_times" not in codes(found)


@pytest.mark.parametrize(
    "begun", [{"State": "RUNNING"}, {"State": "PENDING", "JobName": "allocation", "Partition": ""}]
)
def test_a_job_that_is_over_for_the_queue_alone_took_as_long_as_that_says(
    fake_slurm: Path, here: Path, cli: Cli, begun: dict[str, str]
) -> None:
    """Accounting counts on until it hears of the end."""
    end_ranks(make_run(here / "runs", job_id="77"), 0, 0, 0, 0)
    goes_on = row("77", Submit="100", Start="110", End="Unknown", ElapsedRaw="7200", **begun)
    keep_accounts(here.parent / "bin", [goes_on])
    (here.parent / "bin" / "squeue").unlink()
    answers(fake_slurm, squeue_out=squeue_row("77", "COMPLETED", elapsed="1:00", end="170"))
    found = document(cli, "77")
    assert (found["start"], found["end"], found["elapsed_s"]) == (110, 170, 60)
    (attempt,) = found["attempts"]
    assert (attempt["state"], attempt["elapsed_s"]) == ("COMPLETED", 60)


def test_a_new_job_of_which_accounting_knows_a_step_alone_runs(here: Path, cli: Cli) -> None:
    """Of a job that hpckit did not submit: nothing else is known, and none of it is made up."""
    begun = {"State": "PENDING", "JobName": "allocation", "Partition": "", "End": "Unknown"}
    nothing = {"AllocTRES": "", "NNodes": "0", "AllocCPUS": "0", "ElapsedRaw": "2"}
    keep_accounts(here.parent / "bin", [row("88", **begun, **nothing)])
    found = document(cli, "88")
    assert (found["state"], found["running"], found["name"]) == ("RUNNING", True, None)
    assert (found["gpus"], found["requested"]["cores"]) == (None, None)
    assert found["summary"]["gpu_hours"] is None
    assert "does not know yet in which folder this job works" in note(found, "no_samples")
    held = "mem=221240K"
    steps = f"88.batch|1|221240K|cpu=00:00:02,{held}|cpu=00:00:02,{held}"
    add_program(here.parent / "bin" / "sstat", f"#!/bin/sh\necho '{steps}'\n")
    found = document(cli, "88")
    assert (found["nodes"], found["summary"]["cpu_s"]) == (1, 2)
    assert found["summary"]["memory_peak_bytes"] == 221240 << 10


def test_a_new_jobs_nodes_are_those_of_all_its_steps_or_the_queues(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    """In the row of a job that is as new, accounting has those of its first step: the batch's."""
    begun = {"State": "PENDING", "JobName": "allocation", "Partition": "", "End": "Unknown"}
    nothing = {"AllocTRES": "", "NNodes": "0", "AllocCPUS": "0", "ElapsedRaw": "2"}
    first, batch = row("88", **begun, **nothing), row("88.batch", JobName="batch")
    rows = [first, batch, row("88.0", JobName="train", NodeList="n[1-3]")]
    keep_accounts(here.parent / "bin", rows)
    found = document(cli, "88")
    assert (found["nodes"], found["attempts"][0]["hosts"]) == (3, ["n1", "n2", "n3"])
    keep_accounts(here.parent / "bin", [first, batch])
    (here.parent / "bin" / "squeue").unlink()
    answers(fake_slurm, squeue_out=squeue_row("88", "RUNNING", nodes="n[1-2]"))
    found = document(cli, "88")
    assert (found["nodes"], found["attempts"][0]["hosts"]) == (2, ["n1", "n2"])


def test_a_new_job_of_ours_has_what_it_asked_for_and_the_queues_times(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    """Seen while slurmdbd was away for a moment: its first step's row says none of it."""
    run = make_run(here / "runs", job_id="77", plan={**PLAN, "nodes": 2, "total_gpus": 4})
    end_ranks(run, 0, 0, 0, 0)
    first = {"JobName": "allocation", "Partition": "", "Start": "111", "End": "170"}
    nothing = {"AllocTRES": "", "NNodes": "0", "AllocCPUS": "0", "ElapsedRaw": "59"}
    keep_accounts(here.parent / "bin", [row("77", Submit="100", **first, **nothing)])
    found = document(cli, "77")
    assert (found["gpus"], found["nodes"], found["start"]) == (4, 2, 111)
    assert found["summary"]["gpu_hours"] == pytest.approx(4 * 59 / 3600, abs=1e-6)
    (here.parent / "bin" / "squeue").unlink()
    answers(fake_slurm, squeue_out=squeue_row("77", "COMPLETED", elapsed="1:00", end="170"))
    found = document(cli, "77")
    assert (found["start"], found["end"], found["elapsed_s"]) == (110, 170, 60)
    assert found["attempts"][0]["hosts"] == ["n1", "n2"]


def test_what_a_new_jobs_row_lacks_is_the_queues(fake_slurm: Path, here: Path, cli: Cli) -> None:
    """Of a job that hpckit did not submit."""
    begun = {"State": "PENDING", "JobName": "allocation", "Partition": "", "End": "Unknown"}
    nothing = {"AllocTRES": "", "NNodes": "0", "AllocCPUS": "0", "ElapsedRaw": "2"}
    keep_accounts(here.parent / "bin", [row("88", **begun, **nothing)])
    (here.parent / "bin" / "squeue").unlink()
    answers(fake_slurm, squeue_out=squeue_row("88", "RUNNING"))
    found = document(cli, "88")
    assert (found["name"], found["partition"], found["qos"]) == ("x", "p", "q")
    assert found["requested"]["time_limit_s"] == 3600
    assert "does not know yet in which folder this job works" in note(found, "no_samples")


def test_a_state_that_may_be_old_is_said_to_be_that(fake_slurm: Path, here: Path, cli: Cli) -> None:
    make_run(here / "runs", job_id="77")
    down(fake_slurm)
    running = row("77", State="RUNNING", End="Unknown", JobName="ddp")
    keep_accounts(here.parent / "bin", [running])
    (here.parent / "bin" / "squeue").unlink()
    found = document(cli, "77")
    assert found["state"] == "RUNNING"
    said = note(found, "no_queue")
    assert "the state may be old: squeue: " in said
    assert "Unable to contact slurm controller" in said
    (fake_slurm / "squeue.rc").write_text("0")
    (fake_slurm / "squeue.err").unlink()
    answers(fake_slurm, squeue_out=squeue_row("77", "RUNNING"))
    assert "no_queue" not in codes(document(cli, "77"))


@pytest.mark.parametrize("waiting", [[], ["78", "79"]])
def test_an_attempt_that_accounting_has_not_heard_of_is_the_queues(
    fake_slurm: Path, here: Path, cli: Cli, waiting: list[str]
) -> None:
    """Seen of a chain whose last job is over before slurmdbd knows that it began."""
    run = make_run(here / "runs", job_id="77", chain=["77", "78", "79"])
    for restart in (0, 1):
        ended = {"started": 111.0 + 90 * restart, "ended": 160.0 + 90 * restart}
        for number in range(4):
            write_rank(run.dir, rank(number, restart=restart, exit_code=1 - restart, **ended))
    goes_on = row("77", Submit="100", Start="110", End="Unknown", ElapsedRaw="7200")
    never = {"State": "PENDING", "Start": "Unknown", "End": "Unknown", "NodeList": "None assigned"}
    rows = [row(job, Submit="100", ElapsedRaw="0", AllocTRES="", **never) for job in waiting]
    keep_accounts(here.parent / "bin", [goes_on | {"State": "RUNNING"}, *rows])
    (here.parent / "bin" / "squeue").unlink()
    queue = [
        squeue_row("77", "FAILED", start="110"),
        squeue_row("78", "COMPLETED", start="200"),
        squeue_row("79", "CANCELLED", start="N/A", elapsed="0:00"),
    ]
    answers(fake_slurm, squeue_out="".join(queue))
    found = document(cli, "77")
    assert found["state"] == "COMPLETED"
    attempts = [(one["restart"], one["start"], one["end"]) for one in found["attempts"]]
    assert attempts == [(0, 110, 200), (1, 200, 260)]
    assert found["elapsed_s"] == 150


@pytest.mark.parametrize(
    ("limit", "listed", "answers_", "said"),
    [
        ("60", False, True, True),
        ("UNLIMITED", False, True, False),
        ("60", True, True, False),  # sites may let jobs go on
        ("60", False, False, False),
    ],
)
def test_an_end_that_accounting_lost_is_said(
    fake_slurm: Path, here: Path, cli: Cli, limit: str, listed: bool, answers_: bool, said: bool
) -> None:
    """Of a job that hpckit did not submit: it is RUNNING in accounting for ever."""
    words = {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "90000", "TimelimitRaw": limit}
    keep_accounts(here.parent / "bin", [row("88", **words)])
    if listed:
        (here.parent / "bin" / "squeue").unlink()
        answers(fake_slurm, squeue_out=squeue_row("88", "RUNNING"))
    if not answers_:
        add_program(here.parent / "bin" / "squeue", "#!/bin/sh\nexit 1\n")
    found = document(cli, "88")
    assert ("end_lost" in codes(found)) is said
    if said:
        assert "sacctmgr show runawayjobs" in note(found, "end_lost")
