"""`--retry oom:mem*2,timeout:time*2`: its language. Pure.

A rule is a kind of failure and a change of what was asked for: `hpckit.submission.retry` applies
it.
"""

import re
from collections.abc import Iterable

from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.units import is_ascii_number, parse_minutes

OOM, TIMEOUT, FAIL = "oom", "timeout", "fail"
KINDS = {
    OOM: "ran out of memory",
    TIMEOUT: "reached its time limit",
    FAIL: "failed",
}
_FIELDS = {"mem": "mem_gb", "time": "time_min"}
# Slurm's words for what a requeue is for, NODE_FAIL and PREEMPTED, as users write them.
_OTHERS = {
    "node": "Slurm itself starts a job again whose node failed, with --max-requeues N",
    "preempt": "Slurm itself starts a job again that was preempted, with --max-requeues N",
}
_RULE = re.compile(r"(?P<kind>[^:]+)(?::(?P<what>[^*=]*)(?P<sign>[*=])(?P<value>.*))?")
_MOST_FACTOR = 100.0


@frozen(kw_only=True)
class Rule:
    """One kind of failure and one change; `field` of `JobSpec` is None where nothing changes.

    `factor` multiplies what the job had; `value` stands in its place.
    """

    kind: str
    field: str | None = None
    factor: float | None = None
    value: int | None = None

    @property
    def text(self) -> str:
        """The rule as it is written."""
        if self.field is None:
            return self.kind
        word = next(word for word, field in _FIELDS.items() if field == self.field)
        change = f"*{self.factor:g}" if self.value is None else f"={self.value}"
        return f"{self.kind}:{word}{change}"


def read_rules(given: object) -> tuple[str, ...]:
    """Read `oom:mem*2,timeout:time*2`, or several such texts, as rules' texts.

    Raises:
        ValueError: one is no rule.
    """
    texts = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    rules = tuple(word.strip() for text in texts for word in str(text).split(","))
    parse_rules(rules)
    return rules


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    """Return rules of their texts.

    Raises:
        ValueError: one is no rule, or two of a kind change the same.
    """
    rules = tuple(map(_rule, texts))
    seen: set[tuple[str, str | None]] = set()
    for rule in rules:
        if (rule.kind, rule.field) in seen:
            raise ValueError(f"it has two rules of {rule.kind} for the same")
        seen.add((rule.kind, rule.field))
    return rules


def _rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None or match["kind"] not in KINDS:
        word = match["kind"] if match else text
        for begin, why in _OTHERS.items():
            if word.lower().startswith(begin):
                raise ValueError(why)
        raise ValueError(
            f"{text!r} is not a rule: write KIND, as in fail, or KIND:CHANGE, as in oom:mem*2, "
            f"with a KIND of {', '.join(KINDS)}"
        )
    kind, what = match["kind"], match["what"]
    if what is None:
        if kind == OOM:
            raise ValueError("'oom' needs a change, or it fails again: oom:mem*2")
        return Rule(kind=kind)
    if what not in _FIELDS:
        raise ValueError(f"{text!r} changes {what!r}; what can be changed is mem and time")
    field = _FIELDS[what]
    if match["sign"] == "*":
        return Rule(kind=kind, field=field, factor=_factor(text, match["value"]))
    return Rule(kind=kind, field=field, value=_value(text, field, match["value"]))


def _factor(text: str, word: str) -> float:
    try:
        factor = float(word) if is_ascii_number(word) else 0.0
    except ValueError:
        factor = 0.0
    if not 1.0 < factor <= _MOST_FACTOR:
        raise ValueError(
            f"{text!r}: the factor must be a number above 1, at most {_MOST_FACTOR:g}, as in mem*2"
        )
    return factor


def _value(text: str, field: str, word: str) -> int:
    if field == "time_min":
        try:
            return parse_minutes(word)
        except RequestError as error:
            why = str(error).removeprefix("Time ").rstrip(".")
            raise ValueError(f"{text!r}: {why}") from error
    number = re.fullmatch(r"([1-9]\d{0,6})(?:G(?:i?B)?)?", word, re.ASCII)
    if number is None:
        raise ValueError(f"{text!r}: memory is a whole number of GiB, as in mem=64")
    return int(number[1])
