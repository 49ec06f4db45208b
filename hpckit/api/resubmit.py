"""A run's request again, with some of it changed: what is about to be submitted, and what differs.

The code is what the script's folder holds now.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.api import log
from hpckit.api.earlier_request import asked, changed, refuse_other_arguments
from hpckit.api.lookup import runs_folder
from hpckit.api.prepare import Submission, preflight, prepare
from hpckit.api.run import Run
from hpckit.api.twins import claim, tell_of_twins
from hpckit.code.project import Source
from hpckit.errors import OutsideError, RequestError
from hpckit.frozen import frozen
from hpckit.job_spec.recorded_spec import with_changes
from hpckit.job_spec.spec import JobSpec
from hpckit.paths import standing_in
from hpckit.render import Rendered
from hpckit.run_folders.run_record import ResubmitOf
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.schedulers.base import AUTO
from hpckit.submission.code_plan import CodePlan
from hpckit.submission.code_plan import same_code as kept_plan
from hpckit.submission.record import asked_otherwise, differences, make_record
from hpckit.submission.resubmitted import followers, replaced_by
from hpckit.submission.task_numbers import first_numbers, renumbered
from hpckit.text import counted, in_line, settings_text

if TYPE_CHECKING:
    from hpckit.bad_nodes.node_memory import NodeEvent
    from hpckit.stats.sizing import Sizing

# Of what a task of an array was given, so many columns.
_GIVEN = 60
# What a field of `JobSpec` is called in the plan, where it is called otherwise.
_PLANNED = {"gpus": "gpus_per_node"}


@frozen(kw_only=True)
class Again:
    """What would be submitted again.

    Attributes:
        what: what is submitted again, in words.
        differences: a line for each thing that is not as it was.
        whose: what in a colleague's job would be whose; empty for one's own.
        right_size: what each resource was, is and why, if that was asked for.
        sized_by: the ids of the jobs that this rests on, newest first.
        run: what is submitted again, of an array any task.
        known: the runs that followed it when this was worked out.
    """

    submission: Submission = field(repr=False)  # all of it is long
    what: str
    differences: tuple[str, ...]
    run: RunFolder
    known: frozenset[str] = field(repr=False)
    whose: str = ""
    right_size: "tuple[Sizing, ...]" = ()
    sized_by: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The job script."""
        return self.submission.rendered.text

    def claim(self, held: ExitStack) -> None:
        """Keep other commands from submitting the same until `held` is closed.

        That is short: those who submit many, each with options of its own, wait for each other. The
        failed tasks of an array are kept by who looked which they are.

        Raises:
            RequestError: another command has just submitted the same. OutsideError: another is at
                it, and does not come to its end.
        """
        if self.submission.again:
            claim(self.run, self.what, self.known, self.submission.spec, held)

    def check(self) -> str:
        """Ask Slurm whether and when it would start; return what it says.

        Raises:
            OutsideError: Slurm would refuse it, or does not answer.
        """
        return preflight(self.submission)


def asked_again(
    run: Run,
    changes: Mapping[str, Any],
    root: Path | None,
    *,
    alone: bool,
    unset: Sequence[str] = (),
    right_size: bool = False,
    same_code: bool = False,
    preview: bool = False,
    failed: Sequence[int] = (),
    tell: Callable[[str], None] | None = None,
) -> Again:
    """Work a run's request out again. `changes` are fields of `JobSpec`, `unset` words of options.

    `right_size` asks for what the last runs of the kind used, `same_code` for the code that the run
    has in place of what the project holds now. Relative paths start from where the run was
    submitted. `root` is the folder of runs, None that of the run; `alone` makes a job of one task
    of an array, and `failed`, numbers of its tasks, an array of these. Without `tell`, as inside
    the job itself, nobody is asked whether it is over.

    Raises:
        RequestError: the request is wrong, or others could have written it. OutsideError: the
            folder it was submitted from cannot be entered, or Slurm does not answer.
    """
    old = run._folder
    before, known = asked(old, alone=alone, failed=failed), followers(old)
    refuse_other_arguments(old, changes)
    spec = changed(before, changes, unset, failed=bool(failed))
    same_tasks = (spec.array, spec.zip) == (before.array, before.zip)
    again = replaced_by(old, alone=alone, failed=failed) if same_tasks else ()
    if tell and not failed:
        tell_of_twins(old, again, None if preview else spec.after, tell, alone=alone)
    root = root or (old.dir.parent if old.mine else runs_folder(None))  # no colleague's
    numbers = _numbers(old, alone=alone, failed=failed)
    rows: tuple[Sizing, ...] = ()
    jobs: tuple[str, ...] = ()
    heard = tell or log
    code = _kept_code(old) if same_code else None
    with _standing_where(old, kept=same_code):
        ready = partial(_prepared, old, preview=preview, bad=_events(old), code=code)
        submission = ready(spec, root, tell=heard)
        if right_size:
            sizes, rows, jobs = _sizes(old, spec, submission, changes)
            if sizes:  # what is to be told has been told
                submission = ready(with_changes(spec, sizes), root, tell=lambda _text: None)
        submission = _in_place(submission, old, again, numbers, heard)
        rendered = submission.rendered
    differs = _differs(old, before, submission, _told(rows, alone=alone, failed=failed), same_code)
    differs += renumbered(submission.job.program.file, numbers, alone=not failed)
    return Again(
        submission=submission,
        run=old,
        known=known,
        what=_what(old, alone=alone, failed=failed),
        differences=tuple(differs),
        whose="" if old.mine else _whose(old, rendered),
        right_size=rows,
        sized_by=jobs,
    )


def _in_place(
    submission: Submission,
    run: RunFolder,
    again: tuple[ResubmitOf, ...],
    numbers: tuple[int, ...],
    tell: Callable[[str], None],
) -> Submission:
    """Return a submission that says which runs its own take the place of, and their numbers."""
    if len(again) != len(submission.job.tasks):  # a damaged record may count others
        return submission
    return replace(submission, again=again, numbers=first_numbers(run, again, numbers, tell))


def _sizes(
    old: RunFolder, spec: JobSpec, submission: Submission, changes: Mapping[str, Any]
) -> "tuple[dict[str, Any], tuple[Sizing, ...], tuple[str, ...]]":
    """Return the fields that the last runs of the kind would change, why, and these runs' ids."""
    # Accounting and samples: seldom asked for.
    from hpckit.api.evidence import sizings, with_sizes  # noqa: PLC0415

    rows, jobs = sizings(old, submission, frozenset(changes))
    return with_sizes(spec, submission.job, rows), rows, jobs


def _what(run: RunFolder, *, alone: bool, failed: Sequence[int]) -> str:
    """Say what is submitted again: an array is not called by its first task's name."""
    if run.array_job_id is None:
        return run.run_id
    if failed:
        return f"{counted(len(failed), 'failed task')} of array {run.whole}"
    if alone:
        values = settings_text(run.parameters, _GIVEN)
        given = f" ({values})" if values else ""
        return f"task {run.task} of array {run.whole}{given}"
    tasks = run.record["plan"].get("array_size")
    return f"array {run.whole}" + (f" with all its {tasks} tasks" if tasks else "")


def _prepared(
    run: RunFolder,
    spec: JobSpec,
    root: Path | None,
    *,
    bad: "Sequence[NodeEvent]",
    preview: bool,
    code: CodePlan | None,
    tell: Callable[[str], None],
) -> Submission:
    """Work a request of a run's out; a job of Slurm's is Slurm's again.

    Where Slurm does not answer for a moment, `auto` would run it on this login node.
    """
    of_slurm = run.scheduler.name == AUTO[0] and spec.executor == "auto"
    settled = replace(spec, executor=AUTO[0]) if of_slurm else spec
    found = prepare(
        settled, root, bad=bad, sources=_sources(run), again=True, preview=preview, code=code,
        tell=tell,
    )  # fmt: skip
    return replace(found, spec=spec)


def _events(run: RunFolder) -> "Sequence[NodeEvent]":
    """Return what a run tells of its nodes, once that is written down."""
    if run.scheduler.one_machine or not run.mine:
        return ()
    from hpckit.api.bad_nodes import learn_of_run  # noqa: PLC0415  # of Slurm's jobs alone

    return learn_of_run(run)


def _sources(run: RunFolder) -> tuple[Source, ...]:
    """Return the file whose project a run of a function keeps, where it kept one."""
    code = run.record.get("code") or {}
    root, source = Path(str(code.get("root"))), code.get("source")
    return (Source(root / str(source), root),) if source else ()


def _numbers(run: RunFolder, *, alone: bool, failed: Sequence[int]) -> tuple[int, ...]:
    """Return which tasks of an array are submitted again; () for all of them, or for no array."""
    if alone and run.array_job_id is not None:
        return (run.task,)
    return tuple(failed)


def _told(rows: "Sequence[Sizing]", *, alone: bool, failed: Sequence[int]) -> list[str]:
    """Return the names in the plan of which the reader knows already why they differ."""
    told = [_PLANNED.get(row.field, row.field) for row in rows]  # `right_size` gives its reasons
    return told + (["array_size", "parallel"] if alone else ["array_size"] if failed else [])


def _differs(
    run: RunFolder, before: JobSpec, submission: Submission, told: Sequence[str], same_code: bool
) -> list[str]:
    """Return what differs from what a run was asked for and its record, and which files changed.

    Where the run's own code is taken, no change of it counts.
    """
    record = make_record(submission, submission.rendered)
    lines = asked_otherwise(before, submission.spec, record["plan"])
    lines += differences(run.record, record, told)
    if same_code:
        return [line for line in lines if not line.startswith("code: ")]
    from hpckit.api.code import code_changed  # noqa: PLC0415  # a submission needs none of it

    return [*map(in_line, lines), *code_changed(run)]


@contextmanager
def _standing_where(run: RunFolder, *, kept: bool) -> Iterator[None]:
    """Let relative paths start from where a run was submitted; `kept`: it runs a copy of its code.

    The job works there, too.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(standing_in(Path(run.record["cwd"])))
        except OSError as error:
            raise _closed(run, error, kept=kept) from error
        yield


def _closed(run: RunFolder, error: OSError, *, kept: bool) -> OutsideError:
    old = str(run.record["cwd"])
    todo = ""
    if isinstance(error, FileNotFoundError):
        link = shlex.join(["ln", "-s", "NEW", old])
        todo = f" If it was moved to NEW, lead there by a link ({link}), or submit anew from there."
        if kept:
            folder = shlex.join(["mkdir", "-p", old])
            todo = (
                f" Its code is kept, but the job works in that folder: create it again ({folder}); "
                f"or, if it was moved to NEW, lead there by a link ({link})."
            )
    return OutsideError(
        f"The run was submitted from {old}, but this folder cannot be entered: "
        f"{error.strerror}.{todo}"
    )


def _kept_code(run: RunFolder) -> CodePlan:
    """Return the plan that takes the code which a run has.

    Raises:
        RequestError: it has no copy of its code.
    """
    plan = kept_plan(run)
    if plan is None:
        why = (run.record.get("code") or {}).get("not_kept") or "it was submitted without one"
        raise RequestError(
            f"Run {run.run_id} has no copy of its code ({why}): leave --same-code out."
        )
    return plan


def _whose(run: RunFolder, rendered: Rendered) -> str:
    names = dict.fromkeys(found.collection.label() for found in rendered.templates)
    return (
        f"run {run.run_id} is of {run.owner}, and so are its script and its settings; its "
        f"templates are those your search path gives in {run.record['cwd']}, of {', '.join(names)}"
    )
