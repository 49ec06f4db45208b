"""Parts of an expression: their kinds, checked when they are put together, and their programs.

What a program gives is said by `evaluation`.
"""

import ast
from collections.abc import Mapping
from typing import Any

from hpckit.documents import nearest
from hpckit.frozen import frozen
from hpckit.stats.advice.evaluation import NEGATION, NEGATIVE, Program
from hpckit.stats.advice.functions import FUNCTIONS, Function, Kind, Names, kind_of
from hpckit.text import counted


class RefusedError(Exception):
    """The expression is not one of the language; the text says why."""


@frozen()
class Part:
    """A checked part of an expression."""

    kind: Kind
    program: Program


ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_ORDER: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SAME: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!="}
_MEMBER: dict[type[ast.cmpop], str] = {ast.In: "in", ast.NotIn: "not in"}


def constant(value: Any) -> Part:  # noqa: ANN401  # whatever Python's parser found
    """Make a constant."""
    kind = kind_of(value)
    if kind is None:
        raise RefusedError(
            f"a constant {type(value).__name__} of this size or kind is not supported."
        )
    return Part(kind, ("constant", value))


def lookup(path: list[str], names: Names) -> Part:
    """Make the value of a dotted name."""
    kind = _promised(path, names)
    return Part(kind, ("lookup", tuple(path), kind.value))


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
    return Part(Kind.TRUTH, ("logic", is_and, _programs(parts)))


def _programs(parts: list[Part]) -> tuple[Program, ...]:
    return tuple(part.program for part in parts)


def negation(part: Part) -> Part:
    """Make `not`."""
    need(part, Kind.TRUTH, "the operand of not")
    return _computed(NEGATION, [part], Kind.TRUTH)


def negative(part: Part) -> Part:
    """Make `-`, of one number."""
    return numeric(NEGATIVE, [part])


def numeric(sign: str, parts: list[Part]) -> Part:
    """Make arithmetic."""
    for part in parts:
        need(part, Kind.NUMBER, "an operand of arithmetic")
    return _computed(sign, parts, Kind.NUMBER)


def _computed(name: str, parts: list[Part], kind: Kind) -> Part:
    return Part(kind, ("computed", name, _programs(parts), kind.value))


def comparisons(parts: list[Part], words: list[ast.cmpop]) -> Part:
    """Make a comparison, or a chain of them."""
    tests = tuple(_test(type(word), *parts[at : at + 2]) for at, word in enumerate(words))
    return Part(Kind.TRUTH, ("compared", tests, _programs(parts)))


def _test(word: type[ast.cmpop], left: Part, right: Part) -> str:
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
    kind = _common([body, other], "a choice")
    return Part(kind, ("choice", test.program, body.program, other.program))


def call(name: str, parts: list[Part]) -> Part:
    """Make the call of a function of the table."""
    if name not in FUNCTIONS:
        raise RefusedError(f"there is no function {name!r}. {nearest(name, FUNCTIONS)}")
    function = FUNCTIONS[name]
    kind = _checked_arguments(name, function, parts)
    if not function.sees_unknown:
        return _computed(name, parts, kind)
    return Part(kind, ("called", name, _programs(parts)))


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
