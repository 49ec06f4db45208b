"""Which number a task of an array keeps, and what is said where Slurm's is another."""

import shutil
from pathlib import Path

import pytest

from hpckit.run_folders.runs import Run
from hpckit.submission.resubmitted import replaced_by
from hpckit.submission.task_numbers import first_numbers, renumbered
from tests.unit.made import PLAN, make_run


def test_tasks_keep_their_numbers_in_the_array_that_was_asked_for_first(tmp_path: Path) -> None:
    plan = {**PLAN, "array_size": 3}
    old = [
        make_run(
            tmp_path, f"a-1_{index}", job_id=f"20_{index}", plan=plan,
            array={"job_id": "20", "index": index, "whole": "20"},
        )
        for index in range(3)
    ]  # fmt: skip
    told: list[str] = []

    def numbers(run: Run, *, alone: bool = False, failed: tuple[int, ...] = ()) -> tuple[int, ...]:
        own = failed or ((run.task,) if alone and run.array_job_id else ())
        return first_numbers(run, replaced_by(run, alone=alone, failed=failed), own, told.append)

    assert numbers(old[1]) == ()
    assert (numbers(old[1], alone=True), numbers(old[0], failed=(1, 2))) == ((1,), (1, 2))
    plan = {**PLAN, "array_size": 2}
    new = [
        make_run(
            tmp_path, f"b-1_{index}", job_id=f"30_{index}", plan=plan, task_number=index + 1,
            array={"job_id": "30", "index": index, "whole": "30"},
        )
        for index in range(2)
    ]  # fmt: skip
    assert (numbers(new[0]), numbers(new[0], failed=(1,))) == ((1, 2), (2,))
    alone = make_run(tmp_path, "c-1", job_id="40", task_number=2)
    assert (numbers(alone, alone=True), numbers(make_run(tmp_path, "d-1", job_id="50"))) == (
        (2,),
        (),
    )
    assert told == []
    shutil.rmtree(new[1].dir)
    assert numbers(new[0]) == ()
    assert "counted from 0 anew" in told[0]


@pytest.mark.parametrize(
    ("text", "numbers", "alone", "said"),
    [
        ("i=$SLURM_ARRAY_TASK_ID", (2,), False, "which is 0 where it was 2. HPCKIT_ARRAY_INDEX"),
        ("SLURM_ARRAY_TASK_ID", (1, 3), False, "which is 0 where it was 1, and so on. "),
        ("SLURM_ARRAY_TASK_ID", (0,), True, "which a job of one task does not have. HPCKIT_"),
        ("SLURM_ARRAY_TASK_ID", (0, 1), False, None),
        ("HPCKIT_ARRAY_INDEX", (2,), False, None),
    ],
)
def test_a_program_that_asks_for_its_tasks_number_is_named(
    text: str, numbers: tuple[int, ...], alone: bool, said: str | None, tmp_path: Path
) -> None:
    program = tmp_path / "fit.sh"
    program.write_text(text)
    found = list(renumbered(program, numbers, alone=alone))
    assert len(found) == (said is not None)
    for line in found:
        assert line.startswith("task numbers: fit.sh reads SLURM_ARRAY_TASK_ID, ")
        assert str(said) in line
    assert list(renumbered(tmp_path / "gone", (2,), alone=False)) == []
    assert list(renumbered(None, (2,), alone=False)) == []
