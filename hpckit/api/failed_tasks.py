"""The failed tasks of an array, and the request that submits them again as an array of these."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from hpckit.api.run import Run, handle
from hpckit.api.run_status import status_of
from hpckit.errors import OutsideError, RequestError
from hpckit.frozen import frozen
from hpckit.job_spec.option_words import array_values, joined_values
from hpckit.job_spec.spec import JobSpec
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.submission.after import read_after
from hpckit.submission.resubmitted import last_try, one_at_a_time
from hpckit.submission.status import RunStatus
from hpckit.text import counted, listed, settings_text

# So many tasks are named, and so many columns of what one was given.
_NAMED, _GIVEN = 12, 40
# Options that say which tasks an array has.
_WHICH = ("array", "zip")


@frozen(kw_only=True)
class FailedTasks:
    """What became of an array, for who submits its failed tasks again.

    Attributes:
        array: the id that means all tasks.
        count: how many tasks were looked at.
        failed: those that are over and did not end well, in order.
        left: the others.
        latest: of tasks that were submitted again, by `--retry` or by the user, what became of the
            last run in their place. Such a task is in `failed` or in `left` by that.
    """

    array: str
    count: int
    failed: tuple[RunStatus, ...]
    left: tuple[RunStatus, ...]
    latest: Mapping[str, RunStatus]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the failed tasks."""
        return tuple(row.run.task for row in self.failed)

    @property
    def lines(self) -> list[str]:
        """Which tasks failed, and which are left alone, for people."""
        count = f"{len(self.failed)} of {counted(self.count, 'task')}"
        head = f"{count} of array {self.array} did not end well:"
        named = [
            f"  {self._named(row)}, task {number} of the new array"
            for number, row in enumerate(self.failed[:_NAMED])
        ]
        if len(self.failed) > _NAMED:
            named.append(f"  and {len(self.failed) - _NAMED} more")
        return [head, *named, *([f"Left alone: {self.rest}"] if self.left else [])]

    @property
    def rest(self) -> str:
        """How many tasks are left alone in which state; those that are not over with their ids."""
        good = sum(map(self._is_good, self.left))
        said = [f"{good} COMPLETED"] if good else []
        others: dict[str, list[str]] = {}
        for row in self.left:
            if not self._is_good(row):
                others.setdefault(str(self.last(row).state), []).append(self.last(row).run.job_id)
        said += [f"{len(ids)} {state} ({listed(ids, 4)})" for state, ids in others.items()]
        return ", ".join(said)

    def document(self) -> dict[str, Any]:
        """Return what `hpckit resubmit --failed --json` adds: old tasks in the new one's order."""
        return {
            "failed": [self._said(row) for row in self.failed],
            "left": [self._said(row) for row in self.left],
        }

    def _named(self, row: RunStatus) -> str:
        values = settings_text(row.run.parameters, _GIVEN)
        last = self.latest.get(row.run.run_id)
        again = f", and {last.state} again as {last.run.job_id}" if last else ""
        return f"{row.run.job_id} {row.state}{f' ({values})' if values else ''}{again}"

    def _said(self, row: RunStatus) -> dict[str, Any]:
        run, last = row.run, self.latest.get(row.run.run_id)
        again = {"job_id": last.run.job_id, "state": str(last.state)} if last else None
        said = {"job_id": run.job_id, "state": str(row.state), "parameters": run.parameters}
        return {**said, "again": again}

    def last(self, row: RunStatus) -> RunStatus:
        """Return what became of the last run in a task's place: mostly the task itself."""
        return self.latest.get(row.run.run_id, row)

    def _is_good(self, row: RunStatus) -> bool:
        return self.last(row).good


def one_array_at_a_time(runs: Sequence[Run]) -> AbstractContextManager[None]:
    """Let one command or program at a time look which tasks of an array failed, and submit them.

    Raises:
        OutsideError: another is at it, and does not come to its end.
    """
    if not runs:
        return nullcontext()
    first = runs[0]._folder
    return one_at_a_time(first, f"failed tasks of array {first.whole}")


def failed_tasks(runs: Sequence[Run], word: str | None = None) -> FailedTasks:
    """Return which of an array's tasks failed; `word` is what the user called the array.

    Raises:
        RequestError: it is not one array, or no task of it failed. OutsideError: what became of it
            is not known.
    """
    folders = [run._folder for run in runs]
    _refuse_other(folders, word)
    found = status_of(runs)
    latest = _latest([row for row in found if _failed(row)])
    failed = [row for row in found if _failed(row) and _failed(latest.get(row.run.run_id, row))]
    dirs = {row.run.dir for row in failed}
    tasks = FailedTasks(
        array=str(folders[0].whole),
        count=len(found),
        failed=tuple(failed),
        left=tuple(row for row in found if row.run.dir not in dirs),
        latest=latest,
    )
    if not failed:
        _refuse_none(tasks, found)
    return tasks


def _refuse_other(folders: Sequence[RunFolder], word: str | None) -> None:
    """Refuse what is not tasks of one array."""
    if not folders:
        raise RequestError("There is no run in this list: give the tasks of an array.")
    first = folders[0]
    if first.array_job_id is None:
        raise RequestError(
            f"Job {first.job_id} is not an array, so it has no failed tasks. Submit the job again: "
            f"hpckit resubmit {first.job_id}"
        )
    if word in first.names:
        raise RequestError(
            f"{first.job_id} is one task of array {first.whole}. Submit this task again: hpckit "
            f"resubmit {first.job_id}. All failed tasks: hpckit resubmit {first.whole} --failed"
        )
    others = {(run.dir.parent, run.run_id.rpartition("_")[0]) for run in folders}
    if len(others) > 1:
        raise RequestError(
            f"These runs are of {len(others)} submissions: give the tasks of one array."
        )


def _refuse_none(tasks: FailedTasks, found: Sequence[RunStatus]) -> None:
    silent = next((row for row in found if row.unanswered and not row.finished), None)
    if silent:
        raise OutsideError(
            f"Which tasks of array {tasks.array} failed is not known: {silent.silence}"
        )
    last = map(tasks.last, found)
    going = dict.fromkeys(row.run.whole or row.run.job_id for row in last if not row.finished)
    todo = (
        f"Wait until all are over: hpckit wait {' '.join(going)}"
        if going
        else f"Submit all of its tasks again: hpckit resubmit {tasks.array}"
    )
    raise RequestError(
        f"Array {tasks.array} has no failed task to submit again: {tasks.rest}. {todo}"
    )


def _failed(status: RunStatus) -> bool:
    return status.finished and not status.good


def _latest(failed: Sequence[RunStatus]) -> dict[str, RunStatus]:
    """Return what became of the last run in the place of each of these, where there is one."""
    last = {row.run.run_id: run for row in failed if (run := last_try(row.run)) != row.run}
    found = status_of([handle(run) for run in last.values()])
    return dict(zip(last, found, strict=True))


def only_tasks(spec: JobSpec, numbers: Sequence[int]) -> JobSpec:
    """Return an array's request with these of its tasks only, in their order.

    A part of a product is no product: the values stand in pairs, as with `--zip`.

    Raises:
        RequestError: the request has no such task.
    """
    axes = [array_values(text) for text in spec.array]
    points = [_point([values for _, values in axes], number, spec) for number in numbers]
    columns = zip(*points, strict=True)
    texts = (joined_values(key, column) for (key, _), column in zip(axes, columns, strict=True))
    return replace(spec, array=tuple(texts), zip=len(axes) > 1)


def _point(lists: Sequence[Sequence[str]], number: int, spec: JobSpec) -> tuple[str, ...]:
    """Return the values of a task: of a product the last list changes first."""
    rest, places = number, [number] * len(lists)
    if not spec.zip:
        for at in reversed(range(len(lists))):
            rest, places[at] = divmod(rest, len(lists[at]))
    known = all(place < len(values) for place, values in zip(places, lists, strict=True))
    if not known or (rest and not spec.zip):
        raise RequestError(f"The recorded request has no task {number}: is its record damaged?")
    return tuple(values[place] for place, values in zip(places, lists, strict=True))


def refuse_beside_failed(spec: JobSpec, changes: Mapping[str, Any], unset: Sequence[str]) -> None:
    """Refuse what cannot go together with `--failed`: other tasks, or tasks matched by number.

    Raises:
        RequestError: `spec`, in which `changes` and `unset` are made, is no array of these tasks.
    """
    given = [f"--{name}" for name in _WHICH if name in changes]
    given += [f"--unset {word}" for word in unset if word.lstrip("-").partition(":")[0] in _WHICH]
    if given:
        raise RequestError(
            f"{given[0]} and --failed cannot be combined: the new array has the values of the "
            f"failed tasks. Leave {given[0]} out."
        )
    matching = next((word for word in spec.after if read_after(word)[0] == "aftercorr"), None)
    if matching and "after" not in changes:
        raise RequestError(
            f"--after {matching} matches tasks by their numbers, and the new array counts the "
            "failed tasks from 0. Leave it out: --unset after"
        )
