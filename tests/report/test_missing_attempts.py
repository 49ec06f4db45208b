"""Attempts of which accounting has no row, half of one, or none yet: the ranks' files tell."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from hpckit.report.attempt_spans import lost_rows, spans
from hpckit.report.known_job import KnownJob
from hpckit.report.missing_attempts import with_all_attempts
from hpckit.slurm.jobs import by_job
from hpckit.slurm.states import JobState
from hpckit.slurm.usage_rows import FIXED, FREE, JobUsage, parse_usage
from hpckit.submission.status import RunStatus
from tests.unit.made import make_run

MARK = "\x1f%\x1f"
START = 1_790_000_000
# From the first submission: when each attempt was submitted, began and ended, and how.
ATTEMPTS = ((-9, 0, 20, "PREEMPTED"), (20, 45, 60, "NODE_FAIL"), (60, 90, 100, "COMPLETED"))
RANKS = ((0, START + 0.5, START + 19.5), (1, START + 45.5, None), (2, START + 90.5, START + 99.5))
NO_TIMES = {"Start": "Unknown", "End": "Unknown", "ElapsedRaw": "0", "NodeList": "None assigned"}
# What a job's first step has told of it. Without associations its user is root.
STEPS = {"JobName": "allocation", "Partition": "", "AllocTRES": "", "TimelimitRaw": ""}
KINDS: Mapping[str, Mapping[str, str] | None] = {
    "whole": {},
    "no row": None,
    "its step's": STEPS,
    "its step's, of root": {**STEPS, "User": "root"},
    "its step's, no end": {**STEPS, "State": "PENDING", "End": "Unknown"},
    "no end": {"State": "RUNNING", "End": "Unknown"},
    "no start": {"Start": "Unknown", "ElapsedRaw": "0"},
    "no times": NO_TIMES,
    "a waiting job's": {**NO_TIMES, "State": "PENDING"},
    "a requeued job's": {**NO_TIMES, "State": "REQUEUED"},
}


def cells(number: int, kind: str) -> str:
    change = KINDS[kind]
    if change is None:
        return ""
    submit, start, end, state = ATTEMPTS[number]
    row = {
        "JobID": "7", "JobIDRaw": "7", "User": "me", "Partition": "gpu", "State": state,
        "NodeList": "n[1-2]", "ElapsedRaw": str(end - start), "Submit": str(START + submit),
        "Start": str(START + start), "End": str(START + end), "ExitCode": "0:0", "NNodes": "2",
        "AllocTRES": "cpu=4,gres/gpu=4,node=2", "JobName": "ddp", **change,
    }  # fmt: skip
    return MARK.join(row.get(name, "") for name in (*FIXED, *FREE)) + "\n"


def accounted(kinds: Sequence[str]) -> tuple[JobUsage, ...]:
    text = "".join(cells(number, kind) for number, kind in enumerate(kinds))
    rows = parse_usage(text, (*FIXED, *FREE), MARK)
    numbered = by_job(row.record for row in rows).get("7", ())
    whole = {row.record.submit_time: row for row in rows}
    return tuple(replace(whole[record.submit_time], record=record) for record in numbered)


def known_job(folder: Path, kinds: Sequence[str], source: str = "squeue") -> KnownJob:
    run = make_run(folder, job_id="7", submitted_at=START - 9.0)
    status = RunStatus(
        run=run,
        state=JobState.COMPLETED,
        source=source,
        nodes=("n1", "n2"),
        start_time=START + 90.0,
        elapsed_s=10.0,
        restarts=2,
    )
    return with_all_attempts(
        KnownJob(run=run, status=status, attempts=accounted(kinds), ranks=RANKS)
    )


def found(known: KnownJob) -> list[tuple[int, int]]:
    held = spans(known, START + 200.0)
    assert lost_rows(known, held) == []
    return [(span.restart, int(span.start) - START) for span in held]


@pytest.mark.parametrize("source", ["squeue", "sacct"])
def test_each_attempt_is_there_whatever_accounting_has_of_it(tmp_path: Path, source: str) -> None:
    """Of each attempt anything, but at most one of them is without any time and any row."""
    every = [(0, 0), (1, 45), (2, 90)]
    unplaced = {"no row", "no times", "a waiting job's", "a requeued job's"}
    tried = 0
    for number, kinds in enumerate(product(KINDS, repeat=3)):
        if sum(kind in unplaced for kind in kinds) > 1:
            continue
        tried += 1
        known = known_job(tmp_path / str(number), kinds, source)
        assert found(known) == every, kinds
        assert known.attempts[-1].record.restarts in (1, 2)
    assert tried == 6**3 + 3 * 4 * 6**2


def test_an_attempt_without_a_row_has_the_time_of_its_ranks(tmp_path: Path) -> None:
    known = known_job(tmp_path, ("no row", "whole", "whole"))
    first, second, third = spans(known, START + 200.0)
    assert (first.start, first.end, first.gpus) == (START + 0.5, START + 19.5, 4)
    assert (first.state, first.over) == ("UNKNOWN", True)
    assert (second.start, second.end, second.state) == (START + 45, START + 60, "NODE_FAIL")
    assert third.state == "COMPLETED"


def test_ranks_that_contradict_the_rows_change_nothing(tmp_path: Path) -> None:
    known = known_job(tmp_path, ("whole", "whole", "whole"))
    swapped = tuple((2 - number, start, end) for number, start, end in RANKS)
    odd = replace(known, ranks=swapped)
    assert with_all_attempts(odd) == odd


def test_a_job_that_never_had_ranks_keeps_its_rows(tmp_path: Path) -> None:
    known = replace(known_job(tmp_path, ("whole", "whole", "whole")), ranks=())
    assert with_all_attempts(known) == known
