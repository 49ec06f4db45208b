"""Numbers of an array's tasks, where Slurm counts them otherwise than hpckit.

Slurm gives each array its own numbers, from 0 on, and a job that is none has no number at all. A
task that is tried again, and one of an array in several of Slurm's, keep HPCKIT_ARRAY_INDEX; a
program that reads Slurm's variable would do another task's work.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hpckit.errors import HpckitError
from hpckit.files import DamagedFileError, open_regular
from hpckit.run_folders.run_record import ResubmitOf
from hpckit.run_folders.runs import Run, read_run

SLURMS = "SLURM_ARRAY_TASK_ID"
_INSTEAD = "read HPCKIT_ARRAY_INDEX instead"
_PROGRAM_BYTES = 4 << 20  # so much of a program is searched for it


def first_numbers(
    run: Run, again: Sequence[ResubmitOf], numbers: tuple[int, ...], tell: Callable[[str], None]
) -> tuple[int, ...]:
    """Return what numbers tasks had in the array that was asked for first; () for other jobs.

    Args:
        run: any of those that are submitted again.
        again: all of them, as `resubmitted.replaced_by` gives them.
        numbers: those of tasks of `run`'s array; () for all of them, or of a job that is none.
        tell: gets a line if it is not known.
    """
    if "task_number" not in run.record:
        return numbers
    try:
        runs = [run if row["of"] == run.run_id else read_run(Path(row["dir"])) for row in again]
        return tuple(one.record["task_number"] for one in runs)
    except (HpckitError, KeyError) as error:
        tell(f"the tasks are counted from 0 anew: {error}")
        return ()


def asks_slurm(program: Path | None) -> bool:
    """Say whether a program's file names Slurm's variable for the number of an array's task."""
    if program is None:
        return False
    try:
        with open_regular(program) as file:
            return SLURMS.encode() in file.read(_PROGRAM_BYTES)
    except (OSError, DamagedFileError):
        return False  # the submission says what is wrong with its program


def lost_by_retry(program: Path | None) -> Iterator[str]:
    """Say that a program asks Slurm for its task's number, which its retry will not have."""
    if program and asks_slurm(program):
        yield f"{program.name} reads {SLURMS}, which a retry of a task does not have: {_INSTEAD}"


def counted_in_parts(program: Path | None, parts: int) -> Iterator[str]:
    """Say so where the tasks of one array are in several of Slurm's."""
    if program and asks_slurm(program):
        begins = f"begins at 0 in each of the {parts} arrays"
        yield f"{program.name} reads {SLURMS}, which {begins}: {_INSTEAD}"


def renumbered(program: Path | None, numbers: Sequence[int], *, alone: bool) -> Iterator[str]:
    """Say so where tasks that are submitted again will not have their numbers.

    `numbers` are those of tasks that become an array, or `alone` that of one that becomes a job; ()
    where none changes.
    """
    changed = alone or list(numbers) != [*range(len(numbers))]
    if program and numbers and changed and asks_slurm(program):
        new = "a job of one task does not have" if alone else f"is 0 where it was {numbers[0]}"
        more = ", and so on" if len(numbers) > 1 else ""
        yield (
            f"task numbers: {program.name} reads {SLURMS}, which {new}{more}. "
            "HPCKIT_ARRAY_INDEX stays what it was: read that"
        )
