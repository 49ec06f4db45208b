"""A study's runs on their way: all sizes worked out and checked, then submitted, all or none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from hpckit.api import log
from hpckit.api.cancel import cancel
from hpckit.api.options import JobSpec
from hpckit.api.prepare import Submission, preflight, prepare
from hpckit.api.run_list import RunList
from hpckit.api.submit import send
from hpckit.errors import HpckitError, PlanError, RequestError, StoppedError
from hpckit.interrupts import interrupts
from hpckit.run_folders.run_record import StudyPart
from hpckit.run_folders.runs import new_run_id
from hpckit.scaling.sizes import Lists, growing, grown, order_of_runs, read_sizes
from hpckit.submission.after import dependency
from hpckit.submission.code_plan import same_code
from hpckit.text import counted


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is about to be submitted.

    Attributes:
        sizes: one submission of each size, the smallest first.
        order: for each run, which size it has and in which round it is, both from 0.
        part: what the runs' records will say of the study.
    """

    sizes: tuple[Submission, ...]
    order: tuple[tuple[int, int], ...]
    part: StudyPart


def plan_study(
    spec: JobSpec,
    lists: Lists,
    *,
    repeat: int,
    weak: bool,
    grow: Sequence[str],
    in_turn: bool | None,
    runs: Path | None,
    preview: bool = False,
    tell: Callable[[str], None] = log,
) -> StudyPlan:
    """Work a study out to the point of submitting; Slurm is asked about each size.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses a size, or does not answer.
    """
    if spec.array:
        raise RequestError("A study has no --array: submit one study for each value.")
    wanted = read_sizes(lists)
    order = order_of_runs(len(wanted), repeat)
    plain = [_prepared(size.of(spec), runs, preview, tell) for size in wanted]
    plain.sort(key=_count)
    _refuse_same(plain)
    names: tuple[str, ...] = ()
    if weak or grow:
        workload = plain[0].job.workload
        names = growing(grow, workload)
        smallest = _count(plain[0])
        specs = [grown(row.spec, workload, names, Fraction(_count(row), smallest)) for row in plain]
        plain = [_prepared(row, runs, preview, lambda _text: None) for row in specs]
    one_machine = plain[0].job.scheduler.one_machine
    for row in plain:
        _ = row.rendered
        if not (preview or one_machine):
            preflight(row, code=row is plain[0])  # all sizes have the same
    part = StudyPart(
        id=new_run_id(f"{plain[0].job.name}-scale"),
        sizes=len(plain),
        repeats=repeat,
        repeat=0,
        weak=bool(names),
        grow=names,
        in_turn=one_machine if in_turn is None else in_turn,
    )
    return StudyPlan(sizes=tuple(plain), order=tuple(order), part=part)


def _prepared(
    spec: JobSpec, runs: Path | None, preview: bool, tell: Callable[[str], None]
) -> Submission:
    try:
        return prepare(spec, runs, preview=preview, tell=tell)
    except PlanError as error:
        names = ("nodes", "gpus", "tasks_per_node")
        asked = {f"--{name.replace('_', '-')}": getattr(spec, name) for name in names}
        words = " ".join(f"{flag} {value}" for flag, value in asked.items() if value is not None)
        raise PlanError(
            f"The study's size with {words} cannot be submitted, so nothing is: {error}"
            + (" Two nodes of 4 GPUs are written as 2x4." if spec.gpus else "")
        ) from error


def _count(submission: Submission) -> int:
    return submission.job.total_gpus or submission.job.ranks


def _refuse_same(plain: Sequence[Submission]) -> None:
    if len({bool(row.job.total_gpus) for row in plain}) > 1:
        raise RequestError("Some sizes have GPUs and some have none: compare them by themselves.")
    counts = [_count(row) for row in plain]
    unit = "GPU" if plain[0].job.total_gpus else "rank"
    for one, other in pairwise(counts):
        if one == other:
            raise RequestError(f"Two sizes have {counted(one, unit)}: leave one out.")


def send_runs(plan: StudyPlan, tell: Callable[[str], None]) -> RunList:
    """Submit a study's runs; where one cannot be, those that were are cancelled.

    Raises:
        OutsideError: Slurm refuses or does not answer. KeyboardInterrupt: the user has.
    """
    sent = RunList()
    try:
        with interrupts(tell) as taken:
            for size, number in plan.order:
                with taken.held():  # what was submitted is known before anything ends this
                    sent += send(_one_run(plan, size, number, sent), tell=tell)
    except BaseException as error:
        if sent:
            _take_back(sent, tell, by_user=isinstance(error, KeyboardInterrupt | StoppedError))
        raise
    return sent


def _one_run(plan: StudyPlan, size: int, number: int, sent: RunList) -> Submission:
    submission = plan.sizes[size]
    place = submission.place
    run_id = new_run_id(submission.job.name)
    root = place.dir.parent
    part: StudyPart = {**plan.part, "repeat": number + 1}
    after, dirs = place.after, submission.after_dirs
    if plan.part["in_turn"] and sent:
        word, folders = dependency(
            f"afterany:{sent[-1].job_id}", submission.job.scheduler.name, root
        )
        after, dirs = (*after, word), (*dirs, *folders)
    first = same_code(sent[0]._folder) if sent else None  # all sizes run the same
    return replace(
        submission,
        code=first or submission.code,
        place=replace(place, run_id=run_id, dir=root / run_id, after=after),
        after_dirs=dirs,
        study=part,
    )


def _take_back(sent: RunList, tell: Callable[[str], None], *, by_user: bool) -> None:
    why = "you have interrupted it" if by_user else "a later run could not be submitted"
    try:
        cancel(sent)
    except HpckitError as error:
        tell(f"{len(sent)} runs of the study were submitted and could not all be ended: {error}")
    else:
        tell(f"{len(sent)} runs of the study were submitted, and are cancelled: {why}")
