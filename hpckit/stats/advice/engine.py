"""From the account of a job and the rules to advice. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from hpckit.frozen import frozen
from hpckit.sites import Site
from hpckit.stats.advice.evaluation import Values
from hpckit.stats.advice.marks import Device, Stretch, devices_of, stretches_of
from hpckit.stats.advice.namespace import Subject, job_values, leaves, subjects_of, where
from hpckit.stats.advice.rules import DRIVER, SAMPLES, Rule, Severity, in_order
from hpckit.stats.samples.records import SHARED
from hpckit.stats.summary.coverage import ENOUGH_PERCENT
from hpckit.stats.summary.figures import JobUse
from hpckit.stats.summary.timeline import Timeline

# Of a GPU or node that was read for less of its time, samples say too little for any advice: what
# looks idle may be a GPU that could not be read (facts 7.1, after job_defense_shield issue 13).
LEAST_PERCENT = 50
_ORDER = list(Severity)


@frozen(kw_only=True)
class Advice:
    """One finding, for one or several GPUs or nodes, or for the job.

    Attributes:
        id: the rule's.
        message: what was found, in a sentence.
        evidence: the figures and times it rests on; of the worst GPU or node, if of several.
        action: what to do; None if the rule knows nothing exact.
        lost_gpu_hours: of all places together; None if unknown. Hours of two findings may be the
            same hours: do not add them up.
        where: the places as text; None for the whole job.
        places: the GPUs or nodes it speaks of, as values; none: the whole job.
        stretches: the times it speaks of, where the rule knows them; else it is of all the time.
        downgraded: why it is yellow although the rule says red.
        rests_on: samples, slurm or driver.
    """

    id: str
    severity: Severity
    title: str
    message: str
    evidence: str
    action: str | None = None
    lost_gpu_hours: float | None = None
    where: str | None = None
    places: tuple[Subject, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    downgraded: str | None = None
    rests_on: str = SAMPLES


@frozen(kw_only=True)
class _Finding:
    rule: Rule
    subject: Subject
    severity: Severity
    values: Values = field(repr=False)
    lost_gpu_hours: float | None
    downgraded: str | None


def advise(
    job: JobUse,
    rules: Sequence[Rule],
    site: Site | None = None,
    timelines: Sequence[Timeline] = (),
) -> tuple[Advice, ...]:
    """Return what the rules find: worst first, what the driver says before the rest.

    `timelines` are the job's: they tell when a finding was so.
    """
    subjects = _subjects(job, site)
    found: list[_Finding] = []
    for rule in in_order(tuple(rules)):
        if rule.off is None:
            new = [
                finding
                for subject, values in subjects[rule.for_each]
                if (finding := _find(rule, subject, values))
            ]
            found += [finding for finding in new if not _is_silenced(finding, found, job)]
    counts = {kind: len(found) for kind, found in subjects_of(job).items()}
    advice = [
        _advice(group, counts, _marked(group, subjects), job, timelines) for group in _groups(found)
    ]
    return tuple(sorted(advice, key=_worst_first))


def _subjects(job: JobUse, site: Site | None) -> dict[str, list[tuple[Subject, Values]]]:
    whole, nodes, gpus = job_values(job, site)
    by_host = {row["host"]: row for row in nodes}
    subjects = subjects_of(job)
    per_node = [{**whole, "node": row} for row in nodes]
    per_gpu = [{**whole, "node": by_host.get(row["host"], {}), "gpu": row} for row in gpus]
    return {
        "job": [(subjects["job"][0], whole)],
        "node": list(zip(subjects["node"], per_node, strict=True)),
        "gpu": list(zip(subjects["gpu"], per_gpu, strict=True)),
    }


def _find(rule: Rule, subject: Subject, values: Values) -> _Finding | None:
    known: dict[str, Any] = {**values, **rule.variables}
    for name, figure in rule.figures.items():
        known[name] = figure.evaluate(known)
    if rule.when is not None and rule.when.evaluate(known) is not True:
        return None
    read = _own_percent(rule, known)
    if rule.rests_on == SAMPLES and read is not None and read < LEAST_PERCENT:
        return None
    for severity, condition in rule.levels.items():
        if condition.evaluate(known) is True:
            reason = _too_little_for_red(rule, known) if severity is Severity.RED else None
            return _Finding(
                rule=rule,
                subject=subject,
                severity=Severity.YELLOW if reason else severity,
                values=known,
                lost_gpu_hours=_lost(rule, known),
                downgraded=reason,
            )
    return None


def _lost(rule: Rule, known: Values) -> float | None:
    hours = rule.lost_gpu_hours.evaluate(known) if rule.lost_gpu_hours else None
    return float(hours) if isinstance(hours, int | float) and hours > 0 else None


def _too_little_for_red(rule: Rule, known: Values) -> str | None:
    """Say why a finding may not be red; None if it may."""
    if rule.rests_on != SAMPLES:
        return None
    if known.get("gpu", {}).get("confidence") == SHARED:
        return "other jobs' processes used this GPU too"
    own = _own_percent(rule, known)
    if own is not None:
        return None if own >= ENOUGH_PERCENT else f"only {math.floor(own)} % of its time was read"
    coverage = known["job"]["summary"].get("coverage_percent")
    on_node = known.get("node", {}).get("covered_percent")
    if coverage is None:
        return "it is unknown how much of the job was sampled"
    for percent, what in ((coverage, "the job"), (on_node, "the job's time on this node")):
        if percent is not None and percent < ENOUGH_PERCENT:
            return f"only {math.floor(percent)} % of {what} was sampled"
    return None


def _own_percent(rule: Rule, known: Values) -> float | None:
    """Return for how much of its time the GPU (for a job: all of them) was read, if known."""
    found = None
    if rule.for_each == "gpu":
        found = known["gpu"].get("covered_percent")
    if rule.for_each == "job":
        found = known["job"]["summary"].get("gpu_coverage_percent")
    return None if found is None else float(found)


def _is_silenced(finding: _Finding, found: Iterable[_Finding], job: JobUse) -> bool:
    """Tell whether what a finding is about has been found by rules that silence it."""
    covered: dict[str, set[object]] = {}
    for other in found:
        if finding.rule.id in other.rule.silences:
            covered.setdefault(other.rule.id, set()).update(leaves(other.subject, job))
    return any(leaves(finding.subject, job) <= parts for parts in covered.values())


def _groups(found: Iterable[_Finding]) -> list[list[_Finding]]:
    """Put the findings of a rule and severity together, each group's worst first."""
    groups: dict[tuple[str, Severity, bool], list[_Finding]] = {}
    for finding in found:
        key = (finding.rule.id, finding.severity, finding.downgraded is None)
        groups.setdefault(key, []).append(finding)
    return [
        sorted(group, key=lambda finding: -(finding.lost_gpu_hours or 0))
        for group in groups.values()
    ]


def _marked(group: list[_Finding], subjects: Mapping[str, Sequence[Device]]) -> list[Device]:
    """Return the devices that findings of a rule speak of, with what is known of each."""
    rule = group[0].rule
    if rule.for_each != "job":
        return [(finding.subject, finding.values) for finding in group]
    return devices_of(rule, group[0].values, subjects)


def _advice(
    group: list[_Finding],
    counts: dict[str, int],
    marked: list[Device],
    job: JobUse,
    timelines: Sequence[Timeline],
) -> Advice:
    worst = group[0]
    places = sorted((finding.subject for finding in group), key=lambda subject: subject.gpu or 0)
    place = where(places, counts[worst.rule.for_each])
    values = {**worst.values, "where": place, "hits": len(group)}
    lost = [finding.lost_gpu_hours for finding in group]
    evidence = worst.rule.evidence.render(values)
    return Advice(
        id=worst.rule.id,
        severity=worst.severity,
        title=worst.rule.title,
        message=worst.rule.message.render(values),
        evidence=evidence if len(group) == 1 else f"{worst.subject.label()}: {evidence}",
        action=_action(worst.rule, values),
        lost_gpu_hours=None if None in lost else sum(hours or 0 for hours in lost),
        where=None if worst.rule.for_each == "job" else place,
        places=tuple(sorted((device for device, _ in marked), key=lambda it: it.gpu or 0)),
        stretches=tuple(
            stretches_of(worst.rule, marked or [(worst.subject, worst.values)], job, timelines)
        ),
        downgraded=worst.downgraded,
        rests_on=worst.rule.rests_on,
    )


def _action(rule: Rule, values: Values) -> str | None:
    job = values["job"]
    exact = rule.action if job["submitted_by_hpckit"] else rule.action_sbatch
    is_session = job["submitted_by_hpckit"] and job["interactive"]  # no `hpckit resubmit` for these
    text = exact.render_if_known(values) if exact and not is_session else None
    if text is None and rule.action_otherwise:
        return rule.action_otherwise.render(values)
    return text


def _worst_first(advice: Advice) -> tuple[int, bool, float, str, str]:
    lost, driver = advice.lost_gpu_hours or 0, advice.rests_on == DRIVER
    return _ORDER.index(advice.severity), not driver, -lost, advice.id, advice.where or ""
