import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.slurm.jobs import by_job, parse_ends
from hpckit.slurm.rows import COLUMN, ROW, parse_sacct, parse_squeue
from hpckit.slurm.states import JobRecord, JobState, SlurmSource, expand_array, parse_exit
from tests.unit.recorded import slurm_said


def squeue(name: str = "squeue-22.05.8.txt") -> dict[str, JobRecord]:
    return {record.job_id: record for record in parse_squeue(slurm_said(name))}


def sacct(name: str = "sacct-22.05.8.txt") -> dict[str, tuple[JobRecord, ...]]:
    text = slurm_said(name)
    return by_job(parse_sacct(text.replace("|", COLUMN) if "documented" in name else text))


# squeue -O JobID,exit_code,RestartCnt of Slurm 22.05.8: the status is wait(2)'s.
ENDS = "".join(
    "".join(word.rjust(24) for word in row) + "\n" for row in (("2", "768", "0"), ("8", "9", "1"))
)

# What accounting has of a new job until slurmctld's first message of it (Slurm 22.05, within 5 s).
BEGUN = "5|5|root|lab||Unknown|{state}|None|{node}|0||{submit}|{start}|{end}|3:0|{name}"
MOMENTS = {"submit": "1795233320", "start": "1795233323"}


@pytest.mark.parametrize(
    ("state", "node", "end", "found"),
    [
        ("PENDING", "c1", "Unknown", JobState.RUNNING),
        ("FAILED", "c1", "1795233324", JobState.FAILED),
        ("PENDING", "None assigned", "Unknown", JobState.PENDING),
    ],
)
def test_a_row_of_a_steps_start_alone_is_of_a_job_that_began(
    state: str, node: str, end: str, found: JobState
) -> None:
    cells = {"state": state, "node": node, "end": end, **MOMENTS}
    (record,) = parse_sacct(BEGUN.format(name="allocation", **cells).replace("|", COLUMN))
    assert (record.name, record.partition, record.qos, record.user) == (None,) * 4
    assert (record.state, record.time_limit_min) == (found, None)
    assert record.start_time == 1795233323
    (other,) = parse_sacct(BEGUN.format(name="mine", **cells).replace("|", COLUMN))
    assert (other.name, other.state) == ("mine", JobState(state))


@pytest.mark.parametrize(("ended", "attempts"), [("1795233319", 2), ("1795000000", 1)])
def test_a_row_of_a_steps_start_alone_follows_what_ended_as_it_was_submitted(
    ended: str, attempts: int
) -> None:
    """It names nobody, and an id may have been another user's job before."""
    earlier = f"5|5|ann|lab|gpu|normal|PREEMPTED|None|c1|9|60|1794999990|1794999991|{ended}|0:0|x"
    cells = {"state": "PENDING", "node": "c1", "end": "Unknown", **MOMENTS}
    text = "\n".join((earlier, BEGUN.format(name="allocation", **cells), ""))
    (rows,) = by_job(parse_sacct(text.replace("|", COLUMN))).values()
    assert [row.user for row in rows] == ["ann", None][-attempts:]


def test_squeue_gives_all_of_a_running_job() -> None:
    assert squeue()["1"] == JobRecord(
        job_id="1",
        raw_id="1",
        state=JobState.RUNNING,
        source=SlurmSource.SQUEUE,
        name="we|ird name",
        user="root",
        account="lab",
        partition="gpu",
        qos="normal",
        nodes=("c1", "c2"),
        elapsed_s=3,
        time_limit_min=60,
        submit_time=1795233328.0,
        start_time=1795233329.0,
    )


def test_sacct_gives_the_same_job_the_same_way() -> None:
    (record,) = sacct()["1"]
    assert (record.source, record.restarts) == ("sacct", 0)
    assert (record.name, record.nodes, record.elapsed_s) == ("we|ird name", ("c1", "c2"), 3)
    assert (record.start_time, record.end_time) == (1795233329.0, None)
    assert (record.exit_code, record.reason) == (None, None)


def test_a_name_of_two_lines_is_one_name_for_each_reader() -> None:
    assert squeue()["2"].name == "new\nline"
    assert sacct()["2"][0].name == "new\nline"


def test_a_failed_job_has_its_exit_code_where_slurm_says_it() -> None:
    assert squeue()["2"].exit_code is None
    assert squeue()["2"].reason == "NonZeroExitCode"
    assert sacct()["2"][0].exit_code == 3
    (status, restarts) = parse_ends(ENDS)["2"]
    assert (parse_exit(status, JobState.FAILED), restarts) == (3, 0)


def test_a_job_ended_by_a_signal_has_the_shells_exit_code() -> None:
    assert sacct()["8"][0].exit_code == 137
    assert parse_exit(parse_ends(ENDS)["8"][0], JobState.FAILED) == 137


def test_a_completed_job_has_zero_and_a_cancelled_one_has_none() -> None:
    assert sacct()["10"][0].exit_code == 0
    assert sacct()["9"][0].exit_code is None
    assert sacct()["9"][0].state is JobState.CANCELLED


def test_waiting_tasks_of_an_array_are_a_record_each() -> None:
    for records in (squeue(), {name: rows[-1] for name, rows in sacct().items()}):
        tasks = [record.job_id for record in records.values() if record.array_job_id == "3"]
        assert sorted(tasks) == [f"3_{task}" for task in range(10)]
        assert records["3_9"].state is JobState.PENDING
        assert (records["3_9"].raw_id, records["3_1"].raw_id) == (None, "16")


def test_a_heterogeneous_job_is_read_by_its_components() -> None:
    assert squeue()["12+1"].raw_id == sacct()["12+1"][0].raw_id == "13"


@pytest.mark.parametrize(
    ("job_id", "reason", "start"),
    [
        ("4", "Resources", 1795236929.0),
        ("5", "JobHeldUser", None),
        ("6", "BeginTime", 1795236928.0),
        ("7", "PartitionTimeLimit", None),
        ("17", "DependencyNeverSatisfied", None),
    ],
)
def test_a_waiting_job_says_why_and_perhaps_until_when(
    job_id: str, reason: str, start: float | None
) -> None:
    record = squeue()[job_id]
    assert (record.state, record.reason, record.start_time) == (JobState.PENDING, reason, start)
    assert (record.nodes, record.end_time) == (None, None)


def test_a_job_cancelled_in_the_queue_never_started_and_waits_for_nothing() -> None:
    for record in (
        squeue("squeue-after-22.05.8.txt")["5"],
        sacct("sacct-after-22.05.8.txt")["5"][0],
        sacct("sacct-after-22.05.8.txt")["14_3"][0],
        squeue("squeue-after-22.05.8.txt")["14_3"],
    ):
        assert (record.state, record.start_time, record.reason) == (JobState.CANCELLED, None, None)
    assert squeue("squeue-after-22.05.8.txt")["17"].reason == "DependencyNeverSatisfied"


def test_each_attempt_is_kept_and_counted() -> None:
    first, second = sacct("sacct-requeued-22.05.8.txt")["11"]
    assert (first.state, first.restarts) == (JobState.REQUEUED, 0)
    assert (second.state, second.restarts, second.reason) == (JobState.RUNNING, 1, None)
    states = [record.state for record in sacct("sacct-22.05-documented.txt")["52"]]
    assert states == [JobState.NODE_FAIL, JobState.PREEMPTED, JobState.COMPLETED]


def test_a_job_id_that_was_used_before_is_not_an_attempt() -> None:
    (record,) = sacct("sacct-22.05-documented.txt")["53"]
    assert (record.user, record.restarts) == ("alice", 0)


def test_a_row_of_which_the_controller_sent_only_a_part_is_still_an_attempt() -> None:
    first, second = sacct("sacct-22.05-documented.txt")["56"]
    assert (first.name, second.name, second.partition) == ("mine", None, None)
    assert (second.restarts, second.time_limit_min) == (1, None)


def test_rare_ends_are_read_as_what_they_are() -> None:
    records = sacct("sacct-22.05-documented.txt")
    assert records["50"][0].state is JobState.OUT_OF_MEMORY
    assert records["50"][0].exit_code == 253
    assert (records["51"][0].state, records["51"][0].exit_code) == (JobState.TIMEOUT, None)
    assert [record.time_limit_min for record in records["52"]] == [None, None, 1440]
    assert records["54"][0].state is JobState.UNKNOWN
    assert "50.batch" not in records


def test_an_array_range_that_slurm_cut_short_gives_what_it_names() -> None:
    tasks = [name for name in sacct("sacct-22.05-documented.txt") if name.startswith("55")]
    assert tasks == ["55_1", "55_3", "55_5"]


@pytest.mark.parametrize(
    ("job_id", "ids"),
    [
        ("7", ["7"]),
        ("7_3", ["7_3"]),
        ("7+1", ["7+1"]),
        ("7_[1-3]", ["7_1", "7_2", "7_3"]),
        ("7_[1-7:3,9%2]", ["7_1", "7_4", "7_7", "7_9"]),
    ],
)
def test_an_id_is_expanded(job_id: str, ids: list[str]) -> None:
    assert list(expand_array(job_id)) == ids


@pytest.mark.parametrize("text", ["", "x", "-1:0", "1:2:3"])
def test_an_exit_status_that_cannot_be_read_is_none(text: str) -> None:
    assert parse_exit(text, JobState.FAILED) is None


@pytest.mark.parametrize("text", ["0:1", "1:0", "0:0"])
def test_a_lost_node_is_no_exit_status(text: str) -> None:
    assert parse_exit(text, JobState.NODE_FAIL) is None


def test_no_answer_is_no_job() -> None:
    assert parse_squeue("") == parse_sacct("") == []
    assert parse_ends("") == {}
    assert parse_squeue("CLUSTER: box\nslurm_load_jobs error") == []


@given(st.text(alphabet=ROW + COLUMN + "1_[]-:\n aR"))
def test_no_text_from_slurm_is_a_crash(text: str) -> None:
    parse_squeue(ROW + text)
    parse_squeue(ROW + COLUMN.join([text] * 15))
    parse_sacct(COLUMN.join([text] * 16))
    parse_ends(text)
