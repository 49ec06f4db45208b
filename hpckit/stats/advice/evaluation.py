"""What a checked expression gives for a job: its program as a function of the job's figures.

A program is plain nested tuples, so that it can be kept; `parts` makes it, and has checked kinds
and names. Logic has three values (Kleene's): what is computed from an unknown is unknown, except
where the other side decides: `unknown or True` is true. Division by zero is unknown. Each part is
evaluated at most once, so the time is linear in the length of the text.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hpckit.stats.advice.functions import FUNCTIONS, Kind, Value, kind_of

Values = Mapping[str, Any]
Evaluate = Callable[[Values], Value]
# What it is made by (a name in `_MAKERS`), and with what.
Program = tuple[Any, ...]
Compute = Callable[..., Any]

NEGATION, NEGATIVE = "not", "negative"
COMPUTED: Mapping[str, Compute] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    NEGATION: operator.not_,
    NEGATIVE: operator.neg,
    **{name: row.call for name, row in FUNCTIONS.items() if not row.sees_unknown},
}
COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda item, items: item in items,
    "not in": lambda item, items: item not in items,
}


def evaluator(program: Program) -> Evaluate:
    """Return what evaluates a program; it never raises."""
    word, *parts = program
    return _MAKERS[word](*parts)


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _lookup(path: Sequence[str], kind: str) -> Evaluate:
    """Find the value of a dotted name. Of another kind than promised, it is unknown."""
    wanted = Kind(kind)

    def evaluate(values: Values) -> Value:
        value: Any = values
        for word in path:
            value = value.get(word) if isinstance(value, Mapping) else None
        return value if kind_of(value) is wanted else None

    return evaluate


def _logic(is_and: bool, programs: Iterable[Program]) -> Evaluate:
    sides = [evaluator(program) for program in programs]
    return lambda values: _decided(is_and, (side(values) for side in sides))


def _decided(is_and: bool, truths: Iterable[Value]) -> bool | None:
    result: bool | None = is_and
    for truth in truths:
        if truth is (not is_and):
            return not is_and
        if truth is None:
            result = None
    return result


def _computed(name: str, programs: Iterable[Program], kind: str) -> Evaluate:
    compute, wanted = COMPUTED[name], Kind(kind)
    parts = [evaluator(program) for program in programs]

    def evaluate(values: Values) -> Value:
        arguments = [part(values) for part in parts]
        if None in arguments:
            return None
        try:
            result: Value = compute(*arguments)
        except (ZeroDivisionError, OverflowError):
            return None
        return result if kind_of(result) is wanted else None

    return evaluate


def _compared(words: Sequence[str], programs: Iterable[Program]) -> Evaluate:
    tests = [COMPARED[word] for word in words]
    parts = [evaluator(program) for program in programs]

    def evaluate(values: Values) -> Value:
        sides = [part(values) for part in parts]
        return _decided(
            True,
            (
                None if None in sides[at : at + 2] else test(*sides[at : at + 2])
                for at, test in enumerate(tests)
            ),
        )

    return evaluate


def _choice(test: Program, body: Program, other: Program) -> Evaluate:
    """Take `body if test else other`; unknown when the test is."""
    asked, yes, no = evaluator(test), evaluator(body), evaluator(other)

    def evaluate(values: Values) -> Value:
        value = asked(values)
        if value is None:
            return None
        return yes(values) if value else no(values)

    return evaluate


def _called(name: str, programs: Iterable[Program]) -> Evaluate:
    """Call a function that sees unknown arguments, too."""
    call, parts = FUNCTIONS[name].call, [evaluator(program) for program in programs]
    return lambda values: call(*(part(values) for part in parts))


_MAKERS: Mapping[str, Callable[..., Evaluate]] = {
    "constant": _constant,
    "lookup": _lookup,
    "logic": _logic,
    "computed": _computed,
    "compared": _compared,
    "choice": _choice,
    "called": _called,
}
