"""Waiting jobs that can never start because of another that cannot.

Slurm has a reason for the first of them alone, DependencyNeverSatisfied. It keeps that job in the
queue (unless SchedulerParameters=kill_invalid_depend), so what waits for it shows Dependency for
ever.
"""

import os
import re
from collections.abc import Iterable, Mapping

from hpckit.frozen import frozen
from hpckit.slurm.client import ask, is_answer, refusal
from hpckit.slurm.reasons import NEVER, WAITS, code_of
from hpckit.slurm.rows import COLUMN, ROW, new_mark
from hpckit.slurm.states import expand_array

# What waits for how a job ends. `after` waits for its begin, `aftercorr` for tasks of an array.
ON_ITS_END = ("afterok", "afterany", "afternotok")
_COLUMNS = ("%i", "%r", "%E")
# As squeue prints them: `afterok:12(unfulfilled)`, `aftercorr:12_*(failed)`, `after:12+5(...)`.
_ON = r"(?P<kind>\w+):(?P<job>\d{1,20})(?:_(?P<task>\d{1,10}|\*))?"


@frozen(kw_only=True)
class Waiting:
    """A waiting job: why it waits, by Slurm's code, and for what, as squeue prints both."""

    job_id: str
    reason: str
    dependency: str


def ask_hopeless() -> dict[str, str]:
    """Return this user's jobs that can never start, each with the job that it is because of.

    Raises:
        CommandError: The controller does not answer, or there is no squeue.
    """
    return hopeless(_ask_waiting())


def _ask_waiting() -> list[Waiting]:
    mark = new_mark()
    form = ROW + mark + (COLUMN + mark).join(_COLUMNS)
    argv = ["squeue", "--noheader", "--states=PENDING", f"--user={os.getuid()}"]
    result = ask([*argv, f"--format={form}"])
    rows = parse_waiting(result.stdout, mark)
    if not is_answer(result, rows=bool(rows)):
        raise refusal(result)
    return rows


def ask_moved(job_id: str, to: str) -> dict[str, str]:
    """Return this user's jobs that wait for the end of a job, each with `moved`.

    An array is called by its own id.

    Raises:
        CommandError: The controller does not answer, or there is no squeue.
    """
    found = {}
    for row in _ask_waiting():
        if text := moved(row.dependency, job_id, to):
            found[row.job_id.partition("_")[0]] = text
    return found


def moved(dependency: str, job_id: str, to: str) -> str | None:
    """Return a dependency, as squeue prints it, on another job's end; None: it is not on this one.

    In the words of sbatch, without `(unfulfilled)` and its like. One on a whole array is not on a
    task of it.
    """
    words = re.split("([,?])", re.sub(r"\([^)]*\)", "", dependency))
    new = [f"{word.partition(':')[0]}:{to}" if _is_on(word, job_id) else word for word in words]
    return None if new == words else "".join(new)


def _is_on(word: str, job_id: str) -> bool:
    return word in {f"{kind}:{job_id}" for kind in ON_ITS_END}


def parse_waiting(text: str, mark: str = "") -> list[Waiting]:
    """Read what squeue printed in our format; waiting tasks of an array become a row each."""
    found = []
    for row in text.split(ROW + mark)[1:]:
        cells = row.removesuffix("\n").split(COLUMN + mark)
        if len(cells) == len(_COLUMNS):
            job_id, reason, dependency = cells
            found += [
                Waiting(job_id=task, reason=reason, dependency=dependency)
                for task in expand_array(job_id)
            ]
    return found


def hopeless(rows: Iterable[Waiting]) -> dict[str, str]:
    """Return which jobs can never start, each with the job that Slurm itself says this of."""
    waiting = [row for row in rows if code_of(row.reason) == WAITS]
    found = {row.job_id: row.job_id for row in rows if code_of(row.reason) == NEVER}
    while True:
        arrays = {job_id.partition("_")[0]: root for job_id, root in found.items()}
        new = {
            row.job_id: root
            for row in waiting
            if row.job_id not in found and (root := _root(row, found, arrays))
        }
        if not new:
            return found
        found |= new


def _root(row: Waiting, found: Mapping[str, str], arrays: Mapping[str, str]) -> str | None:
    """Return what keeps a job from ever starting; None: its dependencies may still be met."""
    roots = []
    for word in re.split("[,?]", row.dependency):
        on = re.match(_ON, word)  # not of `singleton`
        roots.append(_root_of(row.job_id, on, found, arrays) if on else None)
    bad = [root for root in roots if root]
    enough = len(roots) if "?" in row.dependency else 1  # sbatch(1): any of them, or all
    return bad[0] if len(bad) >= enough else None


def _root_of(
    job_id: str, on: re.Match[str], found: Mapping[str, str], arrays: Mapping[str, str]
) -> str | None:
    task = on["task"]
    if on["kind"] == "aftercorr":  # a task waits for the other array's of its own number
        task = job_id.partition("_")[2]
    if task and task != "*":
        return found.get(f"{on['job']}_{task}")
    return arrays.get(on["job"])
