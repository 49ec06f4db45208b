"""Which devices and which times a finding speaks of: what pictures mark. Pure.

A rule of one GPU or node speaks of that one; a rule of the job says in `devices` which it means.
When it was so is said by `since` and `until`, by `during`, or not at all: it is the whole time.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from hpckit.frozen import frozen
from hpckit.stats.advice.evaluation import Values
from hpckit.stats.advice.expressions import Expression
from hpckit.stats.advice.namespace import Subject
from hpckit.stats.advice.rules import Rule
from hpckit.stats.summary.figures import JobUse
from hpckit.stats.summary.timeline import Line, Timeline

Device = tuple[Subject, Values]  # with what is known of it
# A break that nobody sees in a picture of the whole job.
_SEEN_SHARE = 0.01


@frozen(kw_only=True)
class Stretch:
    """From when to when a finding was so, in epoch seconds; of one GPU, node, or the whole job."""

    host: str | None = None
    uuid: str | None = None
    start: float
    end: float


def devices_of(rule: Rule, known: Values, subjects: Mapping[str, Sequence[Device]]) -> list[Device]:
    """Return the devices that a rule of the job means; none: the whole job.

    Args:
        rule: of the job.
        known: what is known of the job, with the rule's own names.
        subjects: the job's GPUs and nodes, with what is known of each.
    """
    wanted = rule.marks.devices
    if wanted is None:
        return []
    every: list[Device] = [
        (subject, {**values, **known}) for subject, values in subjects[rule.marks.kind]
    ]
    found = [(subject, values) for subject, values in every if wanted.evaluate(values) is True]
    return [] if len(found) == len(every) and rule.marks.during is None else found


def stretches_of(
    rule: Rule, devices: Sequence[Device], job: JobUse, timelines: Sequence[Timeline]
) -> Iterator[Stretch]:
    """Yield when it was so of each device."""
    for subject, values in devices:
        since, until = _number(rule.marks.since, values), _number(rule.marks.until, values)
        if rule.marks.during is not None:
            yield from _during(rule.marks.during, (subject, values), job, timelines)
        elif since is not None and until is not None and since < until:
            yield Stretch(host=subject.host, uuid=subject.uuid, start=since, end=until)


def _number(expression: Expression | None, values: Values) -> float | None:
    value = expression.evaluate(values) if expression else None
    return float(value) if isinstance(value, int | float) else None


def _during(
    condition: Expression, device: Device, job: JobUse, timelines: Sequence[Timeline]
) -> Iterator[Stretch]:
    """Yield the times in which a condition on readings was true; unseen breaks are bridged."""
    subject, values = device
    least_s = _SEEN_SHARE * (job.elapsed_s or 0)
    ends = {row.restart: row.end for row in job.attempts}
    for timeline in timelines:
        readings = _readings(subject, timeline)
        true = [condition.evaluate({**values, "now": now}) is True for now in readings]
        last = ends.get(timeline.restart)
        for start, end in _joined(_runs(true, timeline), least_s):
            until = end if last is None else min(end, last)
            if start < until:
                yield Stretch(host=subject.host, uuid=subject.uuid, start=start, end=until)


def _readings(subject: Subject, timeline: Timeline) -> Iterator[dict[str, float | None]]:
    """Yield what a device did in each bin, and meanwhile the others of its kind."""

    def is_its(line: Line) -> bool:
        of_it = subject.gpu is None or line.gpu in (subject.uuid, None)
        return of_it and line.host == subject.host

    lines = {
        "gpu_utilization_percent": timeline.gpu_utilization,
        "gpu_memory_bytes": timeline.gpu_memory_bytes if subject.gpu is not None else (),
        "throttled_percent": timeline.gpu_throttled if subject.gpu is not None else (),
        "cores_used": timeline.cores_used,
        "memory_bytes": timeline.memory_bytes,
    }
    found = {name: _mean([line for line in every if is_its(line)]) for name, every in lines.items()}
    for name in ("gpu_utilization_percent", "cores_used"):
        found[f"others_{name}"] = _mean([line for line in lines[name] if not is_its(line)])
    count = max(map(len, found.values()))
    for row in zip(*(values or (None,) * count for values in found.values()), strict=True):
        yield dict(zip(found, row, strict=True))


def _mean(lines: Sequence[Line]) -> Sequence[float | None]:
    """Return the mean over lines in each bin: of a GPU it is its own line."""
    if len(lines) == 1:
        return lines[0].values
    rows = zip(*(line.values for line in lines), strict=True)
    known = ([value for value in row if value is not None] for row in rows)
    return [sum(row) / len(row) if row else None for row in known]


def _runs(true: Sequence[bool], timeline: Timeline) -> Iterator[tuple[float, float]]:
    """Yield from when to when it was true without a break."""
    for is_true, group in groupby(range(len(true)), key=true.__getitem__):
        if is_true:
            bins = list(group)
            yield tuple(  # type: ignore[misc]
                timeline.start + number * timeline.width_s for number in (bins[0], bins[-1] + 1)
            )


def _joined(runs: Iterator[tuple[float, float]], least_s: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in runs:
        if found and start - found[-1][1] < least_s:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
