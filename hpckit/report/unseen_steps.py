"""Steps whose processes no sampler saw: where no cgroup has the job's use, samples lack theirs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hpckit.report.job_samples import step_of
from hpckit.report.peaks import EXTERN
from hpckit.slurm.usage_rows import JobUsage, StepUsage
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.figures import NodeUse, SourceNote, Summary
from hpckit.stats.summary.summarise import Account

Figures = TypeVar("Figures", NodeUse, Summary)
# CPU seconds, and of all: what a script does beside its steps is less.
_LEAST_S, _SHARE = 5.0, 0.1
_NAMED = 3


def unseen_steps(
    attempts: Sequence[JobUsage], files: Sequence[Columns], live: Sequence[StepUsage] = ()
) -> tuple[str, ...]:
    """Return the steps without samples that did more than a little of the job's work.

    The counters of a cgroup are all of the job's: none is unseen.
    """
    if all(file.header.summed is None for file in files):
        return ()
    seen = {step_of(file.header.ids) for file in files}
    steps = [*(step for usage in attempts for step in usage.steps), *live]
    used: dict[str, float] = {}
    for step in steps:
        if step.cpu_s and step.step != EXTERN:
            used[step.step] = used.get(step.step, 0.0) + step.cpu_s
    unseen = {name: cpu_s for name, cpu_s in used.items() if name not in seen}
    whole = sum(unseen.values())
    if whole <= max(_LEAST_S, _SHARE * sum(used.values())):
        return ()
    return tuple(name for name in unseen if unseen[name] >= _SHARE * whole) or tuple(unseen)


def without_unseen(
    account: Account | None,
    attempts: Sequence[JobUsage],
    files: Sequence[Columns],
    live: Sequence[StepUsage] = (),
) -> tuple[Account | None, tuple[SourceNote, ...]]:
    """Leave out what samples say of CPU and memory, with a note, where steps are unseen.

    `live` is what sstat says of steps that run.
    """
    unseen = unseen_steps(attempts, files, live)
    if account is None or not unseen:
        return account, ()
    bare = replace(
        account,
        summary=_bare(account.summary),
        per_node=tuple(replace(_bare(node), cores_used=None) for node in account.per_node),
        attempts=tuple(
            replace(row, cpu_efficiency_percent=None, memory_peak_bytes=None)
            for row in account.attempts
        ),
    )
    return bare, (_note(unseen),)


def _bare(figures: Figures) -> Figures:
    return replace(
        figures,
        cpu_s=None,
        cpu_efficiency_percent=None,
        memory_peak_bytes=None,
        memory_efficiency_percent=None,
    )


def _note(steps: Sequence[str]) -> SourceNote:
    named = ", ".join([*steps[:_NAMED], *["..."] * (len(steps) > _NAMED)])
    text = (
        f"No samples are of step {named}, and no cgroup is the job's: CPU time and memory in the "
        "samples are not all of the job's. A step is sampled by srun hpckit sample -- COMMAND."
    )
    return SourceNote(code="unseen_steps", text=text)
