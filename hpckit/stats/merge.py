"""One account of a job from all that is known: own samples, JS1, sacct, sstat. Pure.

Each figure is taken from the first source that has it, and its origin is kept. A mean is never
made of a peak: Slurm's gpuutil only fills `gpu_utilization_peak_percent`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from hpckit.stats.summary.figures import (
    JS1,
    LOCAL,
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

# sources in the order in which they are believed.
_RANKED = (SAMPLES, JS1, SACCT, SSTAT, SQUEUE, SCONTROL, RANKS, LOCAL, RUN)
# Shares of something that is all there is.
_SHARE = "percent"
# sacct rounds to seconds, and counters are read some milliseconds apart.
_TOLERANCE = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """What limits some figures of a source, or why it lacks them; `at_least`: they are as low."""

    figures: tuple[str, ...]
    note: SourceNote
    at_least: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
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
    for name in ("per_node", "per_gpu"):
        first = next((answer for answer in answers if getattr(answer, name)), None)
        if first:
            origins[name] = first.source
    merged = replace(
        job,
        summary=Summary(**figures),
        per_node=next((answer.per_node for answer in answers if answer.per_node), ()),
        per_gpu=next((answer.per_gpu for answer in answers if answer.per_gpu), ()),
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
        sources=tuple(sorted({*origins.values(), *job.sources}, key=_RANKED.index)),
        suspect=tuple(_suspects(merged)),
        at_least=tuple(
            f"summary.{name}"
            for remark in _remarks(answers, origins)
            for name in remark.figures
            if remark.at_least and getattr(merged.summary, name) is not None
        ),
        notes=(*merged.notes, *_suspect_notes(merged)),
    )


def utilization_coverage(job: JobUse) -> float | None:
    """Return for how much of their time GPUs were read, if utilization is of samples."""
    if job.origins.get("summary.gpu_utilization_percent") != SAMPLES:
        return None
    return job.summary.gpu_coverage_percent


def _remarks(answers: Sequence[Answer], origins: Mapping[str, str]) -> Iterator[Remark]:
    """Yield what is to be said of figures that are of this source, or of none."""
    for answer in answers:
        for remark in answer.remarks:
            names = tuple(
                name
                for name in remark.figures
                if origins.get(f"summary.{name}", answer.source) == answer.source
            )
            if names:
                yield replace(remark, figures=names)


def _suspects(job: JobUse) -> Iterator[str]:
    """Name every share over 100 %."""
    rows: list[tuple[str, Any]] = [("summary", job.summary)]
    rows += [(f"per_node.{at}", node) for at, node in enumerate(job.per_node)]
    rows += [(f"per_gpu.{at}", gpu) for at, gpu in enumerate(job.per_gpu)]
    for prefix, row in rows:
        for field in fields(row):
            value = getattr(row, field.name)
            if field.name.endswith(_SHARE) and value is not None and value > 100 + _TOLERANCE:
                yield f"{prefix}.{field.name}"


def _suspect_notes(job: JobUse) -> Iterator[SourceNote]:
    names = list(_suspects(job))
    if names:
        yield SourceNote(
            code="suspect",
            text=f"Over 100 %, which is impossible: {', '.join(names)}. "
            "No advice uses these figures.",
        )
