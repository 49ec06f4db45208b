import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.slurm.states import JobState, is_finished, is_good, is_waiting, parse_state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("RUNNING", JobState.RUNNING),
        (" running\n", JobState.RUNNING),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("CANCELLE+", JobState.CANCELLED),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY),
        ("COMPLET+", JobState.UNKNOWN),  # COMPLETED or COMPLETING
        ("PD", JobState.PENDING),
        ("R", JobState.RUNNING),
        ("CG", JobState.COMPLETING),
        ("F", JobState.FAILED),
        ("TO", JobState.TIMEOUT),
        ("OOM", JobState.OUT_OF_MEMORY),
        ("NF", JobState.NODE_FAIL),
        ("FAILED|REQUEUED", JobState.REQUEUED),
        ("COMPLETED,COMPLETING", JobState.COMPLETING),
        ("FAILED,LAUNCH_FAILED", JobState.FAILED),
        ("LAUNCH_FAILED", JobState.LAUNCH_FAILED),
        ("SOMETHING_NEW", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
        ("+", JobState.UNKNOWN),
        ("?", JobState.UNKNOWN),
    ],
)
def test_each_spelling_is_read(text: str, state: JobState) -> None:
    assert parse_state(text) is state


@given(st.text())
def test_no_word_from_slurm_is_a_crash(text: str) -> None:
    assert parse_state(text) in JobState


def test_every_state_reads_itself() -> None:
    assert all(parse_state(state) is state for state in JobState)


# submitit (`is_done` in core.py) takes most of these for finished.
@pytest.mark.parametrize(
    "word",
    [
        "UNKNOWN",
        "SUSPENDED",
        "CONFIGURING",
        "RESIZING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "COMPLETING",
        "PENDING",
        "RUNNING",
    ],
)
def test_a_job_that_may_go_on_is_not_finished(word: str) -> None:
    assert not is_finished(JobState[word])


@pytest.mark.parametrize(
    "word",
    [
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    ],
)
def test_a_job_that_ended_is_finished_and_only_one_of_them_is_good(word: str) -> None:
    assert is_finished(JobState[word])
    assert is_good(JobState[word]) == (word == "COMPLETED")


def test_no_state_is_both_waiting_and_finished() -> None:
    assert not [state for state in JobState if is_waiting(state) and is_finished(state)]
    assert is_waiting(JobState.PENDING)
    assert not is_waiting(JobState.RUNNING)
