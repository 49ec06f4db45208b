"""Parts of an expression: their kinds, checked when they are put together, and their evaluation.

Logic has three values (Kleene's): what is computed from an unknown is unknown, except where the
other side decides: `unknown or True` is true. Division by zero is unknown. Each part is evaluated
at most once, so the time is linear in the length of the text.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpckit.documents import nearest
from hpckit.frozen import frozen
from hpckit.stats.advice.functions import FUNCTIONS, LARGEST, Function, Kind, Value
from hpckit.text import counted

# What names there are: a kind, or the names behind a dot. And the values they stand for.
Names = Mapping[str, Any]
Values = Mapping[str, Any]
Evaluate = Callable[[Values], Value]


class RefusedError(Exception):
    """The expression is not one of the language; the text says why."""


@frozen()
class Part:
    """A checked part of an expression."""

    kind: Kind
    evaluate: Evaluate


ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SAME: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_MEMBER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


def kind_of(value: object) -> Kind | None:
    """Return the kind a value has in the language; None if it cannot stand there."""
    match value:
        case None:
            return Kind.UNKNOWN
        case bool():
            return Kind.TRUTH
        case int() | float():
            return Kind.NUMBER if abs(value) <= LARGEST else None  # NaN is not, either
        case str():
            return Kind.TEXT
        case tuple():
            return Kind.LIST
    return None


def constant(value: Any) -> Part:  # noqa: ANN401  # whatever Python's parser found
    """Make a constant."""
    kind = kind_of(value)
    if kind is None:
        raise RefusedError(
            f"a constant {type(value).__name__} of this size or kind is not supported."
        )
    return Part(kind, lambda _: value)


def lookup(path: list[str], names: Names) -> Part:
    """Make the value of a dotted name. Of another kind than promised, it is unknown."""
    kind = _promised(path, names)

    def evaluate(values: Values) -> Value:
        value: Any = values
        for word in path:
            value = value.get(word) if isinstance(value, Mapping) else None
        return value if kind_of(value) is kind else None

    return Part(kind, evaluate)


def _promised(path: list[str], names: Names) -> Kind:
    found: Any = names
    for count, word in enumerate(path):
        if not isinstance(found, Mapping):
            raise RefusedError(f"{'.'.join(path[:count])} is a {found} and has no .{word}.")
        if word not in found:
            raise RefusedError(
                f"there is no {'.'.join(path[: count + 1])!r}. {nearest(word, found)}"
            )
        found = found[word]
    if not isinstance(found, Kind):
        raise RefusedError(
            f"{'.'.join(path)!r} has parts: choose one of them. {nearest('', found)}"
        )
    return found


def logic(is_and: bool, parts: list[Part]) -> Part:
    """Make `and` or `or`."""
    for part in parts:
        need(part, Kind.TRUTH, "an operand of and/or")
    return Part(
        Kind.TRUTH,
        lambda values: _decided(is_and, (part.evaluate(values) for part in parts)),
    )


def _decided(is_and: bool, truths: Iterable[Value]) -> bool | None:
    result: bool | None = is_and
    for truth in truths:
        if truth is (not is_and):
            return not is_and
        if truth is None:
            result = None
    return result


def negation(part: Part) -> Part:
    """Make `not`."""
    need(part, Kind.TRUTH, "the operand of not")
    return _computed(operator.not_, [part], Kind.TRUTH)


def numeric(compute: Callable[..., Any], parts: list[Part]) -> Part:
    """Make arithmetic."""
    for part in parts:
        need(part, Kind.NUMBER, "an operand of arithmetic")
    return _computed(compute, parts, Kind.NUMBER)


def _computed(compute: Callable[..., Any], parts: list[Part], kind: Kind) -> Part:
    def evaluate(values: Values) -> Value:
        arguments = [part.evaluate(values) for part in parts]
        if None in arguments:
            return None
        try:
            result: Value = compute(*arguments)
        except (ZeroDivisionError, OverflowError):
            return None
        return result if kind_of(result) is kind else None

    return Part(kind, evaluate)


def comparisons(parts: list[Part], words: list[ast.cmpop]) -> Part:
    """Make a comparison, or a chain of them."""
    tests = [_test(type(word), *parts[at : at + 2]) for at, word in enumerate(words)]

    def evaluate(values: Values) -> Value:
        sides = [part.evaluate(values) for part in parts]
        return _decided(
            True,
            (
                None if None in sides[at : at + 2] else test(*sides[at : at + 2])
                for at, test in enumerate(tests)
            ),
        )

    return Part(Kind.TRUTH, evaluate)


def _test(word: type[ast.cmpop], left: Part, right: Part) -> Callable[[Any, Any], bool]:
    if word in _ORDER:
        need(left, Kind.NUMBER, "an operand of < or >")
        need(right, Kind.NUMBER, "an operand of < or >")
        return _ORDER[word]
    if word in _SAME:
        _common([left, right], "a comparison")
        return _SAME[word]
    if word in _MEMBER:
        need(right, Kind.LIST, "the operand after in")
        if left.kind is Kind.LIST:
            raise RefusedError("a list cannot be in a list.")
        return _MEMBER[word]
    raise RefusedError("is and is not are not part of the language: write == or known().")


def choice(test: Part, body: Part, other: Part) -> Part:
    """Make `body if test else other`; unknown when the test is."""
    need(test, Kind.TRUTH, "the condition after if")

    def evaluate(values: Values) -> Value:
        value = test.evaluate(values)
        if value is None:
            return None
        return body.evaluate(values) if value else other.evaluate(values)

    return Part(_common([body, other], "a choice"), evaluate)


def call(name: str, parts: list[Part]) -> Part:
    """Make the call of a function of the table."""
    if name not in FUNCTIONS:
        raise RefusedError(f"there is no function {name!r}. {nearest(name, FUNCTIONS)}")
    function = FUNCTIONS[name]
    kind = _checked_arguments(name, function, parts)
    if not function.sees_unknown:
        return _computed(function.call, parts, kind)
    return Part(kind, lambda values: function.call(*(part.evaluate(values) for part in parts)))


def _checked_arguments(name: str, function: Function, parts: list[Part]) -> Kind:
    wanted = list(function.takes)
    if function.repeats:
        wanted += wanted[-1:] * (len(parts) - len(wanted))
    if len(parts) != len(wanted):
        least = "at least " if function.repeats else ""
        raise RefusedError(f"{name}() takes {least}{counted(len(function.takes), 'argument')}.")
    for part, kind in zip(parts, wanted, strict=True):
        if kind is not None:
            need(part, kind, f"an argument of {name}()")
    return function.gives or _common(parts, f"{name}()")


def need(part: Part, kind: Kind, what: str) -> None:
    """Refuse a part of another kind."""
    if part.kind not in (kind, Kind.UNKNOWN):
        raise RefusedError(f"{what} is a {part.kind}, must be a {kind}.")


def _common(parts: list[Part], what: str) -> Kind:
    kinds = {part.kind for part in parts} - {Kind.UNKNOWN}
    if len(kinds) > 1:
        raise RefusedError(f"{what} mixes {' and '.join(sorted(kinds))}.")
    return kinds.pop() if kinds else Kind.UNKNOWN
