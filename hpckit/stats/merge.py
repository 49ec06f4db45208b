"""One account of a job from all that is known: own samples, JS1, Prometheus, sacct, sstat. Pure.

Each figure is taken from the first source that has it, and its origin is kept. A mean is never
made of a peak: Slurm's gpuutil only fills `gpu_utilization_peak_percent`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from hpckit.frozen import frozen
from hpckit.slurm.nodes import is_slice
from hpckit.stats.summary.coverage import enough_of_each
from hpckit.stats.summary.figures import (
    JS1,
    LOCAL,
    PROMETHEUS,
    RANKS,
    RUN,
    SACCT,
    SAMPLES,
    SCONTROL,
    SQUEUE,
    SSTAT,
    GpuUse,
    JobUse,
    NodeUse,
    SourceNote,
    Summary,
)
from hpckit.stats.summary.summarise import Account

# Sources in the order in which they are believed.
RANKED = (SAMPLES, JS1, PROMETHEUS, SACCT, SSTAT, SQUEUE, SCONTROL, RANKS, LOCAL, RUN)
# Shares of something that is all there is.
_SHARE = "percent"
# What rows of one source are worth nothing without: a sampler may see GPUs that it cannot read.
_TELLING = {"per_node": "cpu_efficiency_percent", "per_gpu": "utilization_percent"}
# What a job and a node have of their GPUs. No GPU does more than it can, so one above
# 100 % makes these wrong, too; cores and memory may be more than the cluster gave.
_OF_GPUS = {
    "gpu_utilization_percent": "utilization_percent",
    "gpu_memory_used_percent": "memory_used_percent",
}
# sacct rounds to seconds, and counters are read some milliseconds apart.
_TOLERANCE = 1.0
_COVERAGE = "summary.gpu_coverage_percent"


@frozen(kw_only=True)
class Remark:
    """What limits some figures of a source, or why it lacks them; `at_least`: they are as low.

    `of_known`: it says nothing of figures that nobody knows.
    """

    figures: tuple[str, ...]
    note: SourceNote
    at_least: bool = False
    of_known: bool = False


@frozen(kw_only=True)
class Answer:
    """What one source says; `summary` holds the figures it knows."""

    source: str
    summary: Mapping[str, Any]
    per_node: tuple[NodeUse, ...] = ()
    per_gpu: tuple[GpuUse, ...] = ()
    remarks: tuple[Remark, ...] = ()


def merge(job: JobUse, account: Account | None, answers: Sequence[Answer]) -> JobUse:
    """Return the job with the figures of its samples and of other sources, best first."""
    if account:
        known = {
            field.name: value
            for field in fields(Summary)
            if (value := getattr(account.summary, field.name)) is not None
        }
        own = Answer(
            source=SAMPLES, summary=known, per_node=account.per_node, per_gpu=account.per_gpu
        )
        answers = (own, *answers)
    figures: dict[str, Any] = {}
    origins = dict(job.origins)
    for answer in answers:
        for name, value in answer.summary.items():
            if value is not None and name not in figures:
                figures[name] = value
                origins[f"summary.{name}"] = answer.source
    rows = {name: _with_rows(answers, name, figure) for name, figure in _TELLING.items()}
    origins |= {name: answer.source for name, answer in rows.items() if answer}
    merged = replace(
        job,
        summary=Summary(**figures),
        per_node=rows["per_node"].per_node if rows["per_node"] else (),
        per_gpu=tuple(_gpus(job, rows["per_gpu"])) if rows["per_gpu"] else (),
        attempts=account.attempts if account else job.attempts,
        notes=(
            *job.notes,
            *(account.notes if account else ()),
            *dict.fromkeys(remark.note for remark in _remarks(answers, origins)),
        ),
        origins=origins,
    )
    return replace(
        merged,
        sources=tuple(sorted({*origins.values(), *job.sources}, key=RANKED.index)),
        suspect=tuple(_suspects(merged)),
        at_least=tuple(
            f"summary.{name}"
            for remark in _remarks(answers, origins)
            for name in remark.figures
            if remark.at_least and getattr(merged.summary, name) is not None
        ),
        # Each attempt has its own samplers, which may note the same.
        notes=tuple(dict.fromkeys((*merged.notes, *_suspect_notes(merged)))),
    )


def _with_rows(answers: Sequence[Answer], name: str, figure: str) -> Answer | None:
    """Return whose rows of nodes or GPUs are shown: the first that tell something, else any."""
    there = [answer for answer in answers if getattr(answer, name)]
    telling = (
        answer
        for answer in there
        if any(getattr(row, figure) is not None for row in getattr(answer, name))
    )
    return next(telling, there[0] if there else None)


def _gpus(job: JobUse, answer: Answer) -> Iterator[GpuUse]:
    """Yield a source's GPUs: where it does not know of slices, the type that Slurm gave tells."""
    told = answer.source != SAMPLES and is_slice(job.requested.gpu_type)
    for gpu in answer.per_gpu:
        yield replace(gpu, mig=True) if told and not gpu.mig else gpu


def too_little_read(job: JobUse) -> float | None:
    """Return for how much of their time GPUs were read, if this is too little for their mean.

    None also where their utilization is not of readings, but of a record.
    """
    summary, origins = job.summary, job.origins
    origin = origins.get("summary.gpu_utilization_percent")
    if origin not in (SAMPLES, PROMETHEUS) or origins.get(_COVERAGE) != origin:
        return None
    read, lowest = summary.gpu_coverage_percent, summary.gpu_coverage_lowest_percent
    return None if enough_of_each(read, lowest, job.elapsed_s) else read


def _remarks(answers: Sequence[Answer], origins: Mapping[str, str]) -> Iterator[Remark]:
    """Yield what is to be said of figures that are of this source, or of none."""
    for answer in answers:
        for remark in answer.remarks:
            names = tuple(
                name
                for name in remark.figures
                if origins.get(f"summary.{name}", None if remark.of_known else answer.source)
                == answer.source
            )
            if names:
                yield replace(remark, figures=names)


def _suspects(job: JobUse) -> Iterator[str]:
    """Name every share over 100 %, and every mean that is made of such a share of a GPU."""
    yield from _over(job)
    yield from _made_of_over(job)


def _over(job: JobUse) -> Iterator[str]:
    rows: list[tuple[str, Any]] = [("summary", job.summary)]
    rows += [(f"per_node.{at}", node) for at, node in enumerate(job.per_node)]
    rows += [(f"per_gpu.{at}", gpu) for at, gpu in enumerate(job.per_gpu)]
    for prefix, row in rows:
        for field in fields(row):
            if field.name.endswith(_SHARE) and _is_over(getattr(row, field.name)):
                yield f"{prefix}.{field.name}"


def _is_over(share: float | None) -> bool:
    return share is not None and share > 100 + _TOLERANCE


def _made_of_over(job: JobUse) -> Iterator[str]:
    """Name what is itself not over 100 %, but of the same source as the GPUs' rows."""
    origins = job.origins
    for name, of_gpus in _OF_GPUS.items():
        hosts = {gpu.host for gpu in job.per_gpu if _is_over(getattr(gpu, of_gpus))}
        made: list[tuple[str, str, Any]] = []
        if hosts:
            made.append((f"summary.{name}", f"summary.{name}", job.summary))
            made += [
                (f"per_node.{at}.{name}", "per_node", node)
                for at, node in enumerate(job.per_node)
                if node.host in hosts
            ]
        for path, origin, row in made:
            value = getattr(row, name, None)
            same = origins.get(origin) == origins.get("per_gpu")
            if value is not None and same and not _is_over(value):
                yield path


def _suspect_notes(job: JobUse) -> Iterator[SourceNote]:
    names, made = list(_over(job)), list(_made_of_over(job))
    if names:
        these = f"these figures, or what is made of them ({', '.join(made)})"
        yield SourceNote(
            code="suspect",
            text=f"Over 100 %: {', '.join(names)}. Either this cluster does not hold jobs to the "
            "cores and memory that they asked for, or a source is wrong. No advice uses "
            f"{these if made else 'these figures'}.",
        )
