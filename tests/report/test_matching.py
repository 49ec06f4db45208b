"""Samples and attempts are matched by time and host; a number alone says nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.report.attempt_spans import spans
from hpckit.report.changed_sizes import cut_at_changes
from hpckit.report.job_samples import cut_to_attempts, match
from hpckit.report.known_job import KnownJob
from hpckit.slurm.jobs import by_job
from hpckit.slurm.resized import places
from hpckit.slurm.states import JobRecord, JobState, SlurmSource
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.curves import read_drawn
from hpckit.stats.summary.figures import SourceNote
from hpckit.stats.summary.summarise import summarise
from tests.report.made import START, write_samples

HOUR = [50.0] * 361


def samples(folder: Path, restart: int, late_s: float = 0.0, host: str = "n1") -> Columns:
    """An hour's samples of two GPUs; the file's name says which attempt it is of."""
    path = write_samples(folder, [HOUR, HOUR], restart=restart, late_s=late_s, host=host)
    found = read_columns(path, restart)
    assert found is not None
    return found


def span(restart: int, late_s: float = 0.0, *hosts: str, seconds: float = 3600) -> Span:
    begin = START + late_s
    end = begin + seconds
    return Span(restart=restart, start=begin, end=end, hosts=hosts or ("n1",), gpus=2)


LATER = 7200.0


@pytest.mark.parametrize(
    ("files", "spans", "numbers", "hours", "codes"),
    [
        # (restart, start of its samples), (restart, start of accounting's row)
        ([(0, 0)], [(0, 0)], [(0, True)], 2, []),
        ([(1, 0)], [(0, 0)], [(1, True)], 2, []),
        ([(1, 100)], [(0, 0)], [(1, True)], 2, []),
        ([(0, 0), (1, LATER)], [(0, 0), (1, LATER)], [(0, True), (1, True)], 4, []),
        # Accounting lost the first row, or took it for another job's: nothing lies on another.
        ([(0, 0), (1, LATER)], [(0, LATER)], [(0, True), (1, True)], 4, ["unmatched"]),
        ([(1, LATER)], [(0, 0), (1, LATER)], [(0, False), (1, True)], 4, []),
        ([(1, LATER)], [(0, LATER), (1, 2 * LATER)], [(1, True), (2, False)], 4, []),
        ([(2, 14400)], [(0, 0), (1, LATER)], [(0, False), (1, False), (2, True)], 6, ["unmatched"]),
        # Both say 0: the node forgot the number.
        ([(0, 0), (0, LATER)], [(0, 0), (1, LATER)], [(0, True), (1, True)], 4, []),
    ],
)  # fmt: skip
def test_attempts_are_matched_by_time(
    tmp_path: Path,
    files: list[tuple[int, float]],
    spans: list[tuple[int, float]],
    numbers: list[tuple[int, bool]],
    hours: float,
    codes: list[str],
) -> None:
    read = [samples(tmp_path / str(at), *row) for at, row in enumerate(files)]
    found = match(read, [span(*row) for row in spans])
    account = summarise(found.files, found.spans)
    sampled = [(row.restart, row.gpu_utilization_percent == 50) for row in account.attempts]
    assert sampled == numbers
    assert account.summary.gpu_hours == pytest.approx(hours, abs=0.01)
    assert account.summary.gpu_utilization_percent == pytest.approx(50)
    assert [note.code for note in found.notes] == codes


def test_samples_of_a_node_that_the_job_had_not_are_left_out(tmp_path: Path) -> None:
    read = [samples(tmp_path, 0), samples(tmp_path, 0, host="n9")]
    found = match(read, [span(0, 0.0, "n1", "n2")])
    assert [file.header.host for file in found.files] == ["n1"]
    assert [(note.code, note.host) for note in found.notes] == [("unmatched", "n9")]
    whole = match([samples(tmp_path, 0, host="n1.cluster.example")], [span(0)])
    assert len(whole.files) == 1


def test_a_node_is_its_attempts_where_two_are_close(tmp_path: Path) -> None:
    read = [samples(tmp_path, 0), samples(tmp_path, 1, 3605, host="n2")]
    found = match(read, [span(0, 0.0, "n1"), span(1, 3602, "n2")])
    assert [(file.restart, file.header.host) for file in found.files] == [(0, "n1"), (1, "n2")]


def test_samples_of_another_job_are_left_out(tmp_path: Path) -> None:
    file = samples(tmp_path, 0, LATER)
    other = replace(file, header=replace(file.header, ids={"job_id": "8"}))
    found = match([other], [span(0)], job_ids=["7"])
    assert (found.files, [note.code for note in found.notes]) == ((), ["unmatched"])
    assert match([other], [span(0)], job_ids=["8"]).files


@pytest.mark.parametrize(
    ("ids", "is_its"),
    [
        ({"job_id": "7"}, True),
        ({"job_id": "8"}, False),
        ({"job_id": "8", "run_id": "ddp-1"}, True),  # a later job of a chain
        ({"job_id": "8", "het_job_id": "7", "het_offset": "1"}, True),
        ({"job_id": "8", "array_job_id": "5", "array_task_id": "2"}, True),
        # The array's own id is that of its last task, too.
        ({"job_id": "6", "array_job_id": "7", "array_task_id": "1"}, False),
        ({"run_id": "ddp-2"}, False),
        ({}, True),
    ],
)
def test_what_a_file_says_of_its_job_comes_before_time_and_node(
    tmp_path: Path, ids: dict[str, str], is_its: bool
) -> None:
    """Two jobs at one time on one node, with one folder: each had the samples of both."""
    file = samples(tmp_path, 0)
    said = replace(file, header=replace(file.header, ids=ids))
    for spans_ in ([span(0)], []):
        found = match([file, said], spans_, job_ids=["7", "5_2", "ddp-1"])
        assert len(found.files) == 1 + is_its
        assert [note.text for note in found.notes] == (
            []
            if is_its
            else [f"1 file of other jobs' samples left out: of job {ids.get('job_id', '?')}."]
        )


def test_the_newest_attempt_of_a_running_job_is_not_over(tmp_path: Path) -> None:
    read = [samples(tmp_path, 0), samples(tmp_path, 1, LATER)]
    found = match(read, [span(0)], running=True)
    assert [row.over for row in found.spans] == [True, False]


def test_without_slurm_the_files_numbers_count(tmp_path: Path) -> None:
    read = [samples(tmp_path, 0), samples(tmp_path, 1, LATER)]
    assert match(read, []).files == tuple(read)


def row(name: str, submit: float, end: float | None, user: str = "me") -> JobRecord:
    return JobRecord(
        job_id="7", raw_id="7", state=JobState.COMPLETED, source=SlurmSource.SACCT, name=name,
        user=user, submit_time=submit, end_time=end,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "attempts"),
    [
        ([row("a", 100, 200), row("a", 200, 300)], 2),
        # Renamed between two attempts, or a job of the same number long after.
        ([row("a", 100, 200), row("b", 200, 300)], 2),
        ([row("a", 100, 200), row("b", 201, 300), row("b", 300, 400)], 3),
        ([row("a", 100, 200), row("b", 900, 999)], 1),
        ([row("a", 100, None), row("b", 900, 999)], 1),
        ([row("a", 100, 200, user="you"), row("b", 200, 300)], 1),
    ],
)
def test_a_renamed_job_keeps_its_attempts(rows: list[JobRecord], attempts: int) -> None:
    found = by_job(rows)["7"]
    assert [record.restarts for record in found] == list(range(attempts))


def test_a_file_over_two_changes_is_cut_in_three(tmp_path: Path) -> None:
    file = samples(tmp_path, 0)
    held = [
        replace(span(0, seconds=1200), state="RESIZING"),
        replace(span(1, 1200, seconds=1200), state="RESIZING"),
        span(2, 2400, seconds=1200),
    ]
    notes: list[SourceNote] = []
    parts = cut_at_changes([file, samples(tmp_path, 1, LATER)], held, notes)
    assert (len(parts), notes) == (4, [])
    found = match(parts[:3], held)
    assert [(one.restart, len(one), one.first_epoch) for one in found.files] == [
        (0, 121, START), (1, 121, START + 1200), (2, 121, START + 2400),
    ]  # fmt: skip
    account = summarise(found.files, found.spans)
    assert [one.energy_joules for one in account.attempts] == [pytest.approx(2 * 350 * 1200)] * 3
    assert account.summary.coverage_percent == pytest.approx(100)
    # What is drawn is read once more, and the same.
    drawn = read_drawn([one.place for one in found.files], found.spans)
    assert [one.times for one in drawn] == [one.times for one in found.files]
    assert cut_to_attempts(found.files, found.spans, notes) == found.files


def test_a_change_of_size_is_no_restart_and_each_row_has_a_place_of_its_own() -> None:
    states = [JobState.RESIZING, JobState.RESIZING, JobState.NODE_FAIL, JobState.COMPLETED]
    rows = [
        replace(row("train", at, at + 1), state=state, start_time=float(min(at, 2) if at else 0))
        for at, state in enumerate(states)
    ]
    (found,) = by_job(rows).values()
    assert [one.restarts for one in found] == [0, 0, 0, 1]
    assert places(found) == [0, 1, 2, 3]


def test_an_attempt_that_was_killed_ends_before_the_next_begins(tmp_path: Path) -> None:
    # Its ranks wrote no end.
    known = KnownJob(ranks=((0, START, None), (1, START + LATER, START + LATER + 3600)))
    first, second = spans(known, now=START + 10 * LATER)
    assert (first.end, second.end) == (START + LATER, START + LATER + 3600)
    read = [samples(tmp_path, 0), samples(tmp_path, 1, LATER)]
    assert [file.restart for file in match(read, (first, second)).files] == [0, 1]
