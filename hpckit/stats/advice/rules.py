"""Advice rules, once they were read (`reading`): what each says, and in which order they go."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from hpckit.collections import Found
from hpckit.documents import nearest
from hpckit.errors import ConfigError
from hpckit.frozen import frozen
from hpckit.stats.advice.expressions import Expression, Text
from hpckit.stats.advice.functions import Kind, Value

# What a rule may rest on. Samples can miss things, so red needs many of them; Slurm's and the
# driver's own words stand by themselves.
SAMPLES, SLURM, DRIVER = "samples", "slurm", "driver"
# Names that only texts may use: which GPUs or nodes a finding is about, and how many they are.
DEVICES = ("gpu", "node")
TEXT_NAMES = {"where": Kind.TEXT, "hits": Kind.NUMBER}


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    RED = "red"
    YELLOW = "yellow"
    INFO = "info"


@frozen(kw_only=True)
class Marks:
    """Which devices and times a finding speaks of: what pictures mark.

    Attributes:
        kind: what devices they are, gpu or node; job where the rule names none.
        devices: of a rule for each job: which of them; None: all of the job.
        since, until: epoch seconds between which it was so; None: the whole time.
        during: what was so then, of readings over time (`now`).
    """

    kind: str
    devices: Expression | None = None
    since: Expression | None = None
    until: Expression | None = None
    during: Expression | None = None


@frozen(kw_only=True)
class Rule:
    """One rule.

    Attributes:
        id: the file's name without `.yaml`.
        for_each: job, node or gpu: what it is evaluated for.
        rests_on: SAMPLES, SLURM or DRIVER.
        variables: thresholds; a site may change them. `changed` names those one did.
        figures: named expressions that the others use, in order.
        when: what must be true at any severity.
        levels: the condition of each severity.
        lost_gpu_hours: GPU-hours lost for one GPU (or node, or the job).
        marks: which devices and times it speaks of.
        action: what to do, for jobs `hpckit resubmit` knows; `action_sbatch` for others; and
            `action_otherwise` where a value in those is unknown, and for sessions.
        silences: rules not shown for what this one has found.
        off: who switched it off; None if it is on.
    """

    id: str
    found: Found
    title: str
    why: str
    for_each: str
    rests_on: str
    variables: Mapping[str, Value]
    figures: Mapping[str, Expression]
    when: Expression | None
    levels: Mapping[Severity, Expression]
    message: Text
    evidence: Text
    lost_gpu_hours: Expression | None
    marks: Marks
    action: Text | None
    action_sbatch: Text | None
    action_otherwise: Text | None
    sources: tuple[str, ...]
    silences: tuple[str, ...]
    off: str | None = None
    changed: Mapping[str, str] = field(default_factory=dict)


def switched_off(found: Found) -> str:
    """Say what switched a rule off by its own file."""
    return f"enabled: false in {found.path}"


def in_order(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules so that each comes after those that silence it.

    Raises:
        ConfigError: a rule silences one there is not, or two silence each other.
    """
    known = {rule.id: rule for rule in rules}
    after: dict[str, set[str]] = {rule.id: set() for rule in rules}
    for rule in rules:
        for name in rule.silences:
            if name not in known:
                raise ConfigError(
                    f"silences {name!r}, which is not a rule. {nearest(name, known)}",
                    at=rule.found.path,
                )
            after[name].add(rule.id)
    try:
        return tuple(known[name] for name in TopologicalSorter(after).static_order())
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise ConfigError(f"These advice rules silence each other: {circle}.") from error
