"""A page on one rule: what it looks at, its thresholds, where it comes from, how to change it."""

import textwrap
from collections.abc import Iterator

from hpckit.stats.advice.functions import shown
from hpckit.stats.advice.parsing import fill_in
from hpckit.stats.advice.rules import SAMPLES, Rule
from hpckit.stats.summary.coverage import ENOUGH_PERCENT

_WIDTH = 88
_RESTS_ON = {
    SAMPLES: f"the samples; red only when they cover {ENOUGH_PERCENT:g} % of the job",
    "slurm": "what Slurm or the kernel reports, with or without samples",
    "driver": "what the GPU's driver reports, with or without samples",
}


def explain(rule: Rule) -> str:
    """Return a page on one rule."""
    return "\n".join(_lines(rule))


def _lines(rule: Rule) -> Iterator[str]:
    yield f"{rule.id}: {rule.title}"
    if rule.off:
        yield f"  switched off by {rule.off}"
    yield ""
    yield from textwrap.wrap(rule.why, _WIDTH)
    yield ""
    yield f"Checked for each {rule.for_each}. Based on {_RESTS_ON[rule.rests_on]}."
    yield from _conditions(rule)
    yield from _marks(rule)
    yield from _thresholds(rule)
    if rule.silences:
        yield f"\nThis rule hides: {', '.join(rule.silences)}"
    yield "\nSources"
    yield from (f"  {source}" for source in rule.sources)
    yield from _place(rule)


def _conditions(rule: Rule) -> Iterator[str]:
    yield "\nConditions"
    conditions = {"always": rule.when} if rule.when else {}
    conditions |= {str(severity): text for severity, text in rule.levels.items()}
    for name, expression in conditions.items():
        yield f"  {name:<8}{fill_in(expression, rule.variables)}"
    if rule.lost_gpu_hours:
        yield f"  GPU-hours lost: {fill_in(rule.lost_gpu_hours, rule.variables)}"
    for name, expression in rule.figures.items():
        yield f"  where {name} = {fill_in(expression, rule.variables)}"


def _marks(rule: Rule) -> Iterator[str]:
    names = ("devices", "during", "since", "until")
    said = {name: found for name in names if (found := getattr(rule.marks, name))}
    if said:
        yield "\nMarked in the pictures of --html"
    for name, expression in said.items():
        yield f"  {name:<8}{fill_in(expression, rule.variables)}"


def _thresholds(rule: Rule) -> Iterator[str]:
    if rule.variables:
        yield "\nThresholds"
    for name, value in rule.variables.items():
        origin = f"   (set by {rule.changed[name]})" if name in rule.changed else ""
        text = str(value) if isinstance(value, float) else shown(value)  # exactly
        yield f"  {name} = {text}{origin}"


def _place(rule: Rule) -> Iterator[str]:
    yield f"\nFrom {rule.found.collection.label()}: {rule.found.path}"
    for collection in rule.found.shadows:
        yield f"  shadows {collection.label()}: {collection.path}/templates/{rule.found.name}"
    yield "\nTo change this rule"
    example = next(iter(rule.variables), None)
    change = f"{rule.id}: {{{example}: …}}, or " if example else ""
    yield f"  in the site's file, under advice:   {change}{rule.id}: off"
    yield f"  in your own collection: a file templates/{rule.found.name} replaces it"
