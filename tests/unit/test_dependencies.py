"""Jobs that wait for a job that can never start: Slurm goes on to say `Dependency` of them."""

import pytest

from hpckit.slurm.dependencies import Waiting, hopeless, parse_waiting
from hpckit.slurm.rows import COLUMN, ROW

NEVER, WAITS = "DependencyNeverSatisfied", "Dependency"


def found(*rows: tuple[str, str, str]) -> dict[str, str]:
    text = "".join(ROW + "ab" + (COLUMN + "ab").join(row) + "\n" for row in rows)
    return hopeless(parse_waiting(text, "ab"))


STUCK = ("12", NEVER, "afterok:11(failed)")


def test_it_is_found_however_far_away() -> None:
    rows = [(str(job), WAITS, f"afterok:{job - 1}(unfulfilled)") for job in range(20, 12, -1)]
    assert found(*rows, STUCK) == {str(job): "12" for job in range(12, 21)}


@pytest.mark.parametrize("kind", ["afterok", "afterany", "afternotok", "after"])
def test_a_job_that_never_starts_ends_in_no_way(kind: str) -> None:
    assert "13" in found(STUCK, ("13", WAITS, f"{kind}:12(unfulfilled)"))


@pytest.mark.parametrize(
    "dependency",
    [
        "afterok:112(unfulfilled)", "afterok:1(unfulfilled)", "afterok:9_12(unfulfilled)",
        "singleton(unfulfilled)", "(null)", "", "afterok:9(unfulfilled)?afterok:12(unfulfilled)",
        "singleton(unfulfilled)?afterok:12(unfulfilled)",
    ],
)  # fmt: skip
def test_what_may_still_come_is_waited_for(dependency: str) -> None:
    assert found(STUCK, ("13", WAITS, dependency)) == {"12": "12"}


def test_all_are_needed_but_of_any_one_is_enough() -> None:
    both = ("13", WAITS, "afterok:9(unfulfilled),afterany:12(unfulfilled)")
    none = ("14", WAITS, "afterok:12(unfulfilled)?after:12+5(unfulfilled)")
    assert found(STUCK, both, none) == {"12": "12", "13": "12", "14": "12"}


def test_only_who_waits_for_others_is_looked_at() -> None:
    assert found(STUCK, ("13", "JobHeldUser", "afterok:12(unfulfilled)")) == {"12": "12"}


def test_of_arrays_all_tasks_are_needed_and_of_aftercorr_the_one() -> None:
    arrays = (
        ("30_[0-1]", WAITS, "aftercorr:20_*(unfulfilled)"),
        ("30_[2,4]", WAITS, "aftercorr:20_*(unfulfilled)"),
        ("20_[2]", NEVER, "aftercorr:10_*(failed)"),
        ("31", WAITS, "afterok:20_*(unfulfilled)"),
        ("32", WAITS, "afterok:20_2(unfulfilled)"),
        ("33", WAITS, "afterok:20_3(unfulfilled)"),
        ("34", WAITS, "afterok:30_2(unfulfilled)"),
    )
    roots = dict.fromkeys(("20_2", "30_2", "31", "32", "34"), "20_2")
    assert found(*arrays) == roots


def test_jobs_that_wait_for_each_other_are_left_to_slurm() -> None:
    assert found(("1", WAITS, "afterok:2(unfulfilled)"), ("2", WAITS, "afterok:1(x)")) == {}


def test_other_rows_are_left_out() -> None:
    assert parse_waiting("slurm_load_jobs error: x\n" + ROW + COLUMN.join("abcd")) == []
    assert parse_waiting(ROW + COLUMN.join(("5", WAITS, "afterok:4(unfulfilled)"))) == [
        Waiting(job_id="5", reason=WAITS, dependency="afterok:4(unfulfilled)")
    ]
