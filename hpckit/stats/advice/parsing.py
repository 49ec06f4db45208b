"""Reads the language of advice rules: expressions over a job's figures, without `eval`, and texts.

Python's parser reads an expression; only what `_compile` lists is accepted, checked for kinds
(`parts`), and evaluated as `evaluation` says. There is no attribute access (a dot looks up nested
mappings), no call but of `functions.FUNCTIONS`, no power, no loop. So evaluation always ends, and
never raises. In a text `{{` and `}}` stand for braces.

Rules that have not changed are kept as they were read (`keeping`): then nothing here is imported.
"""

import ast
import re
import warnings
from collections.abc import Mapping

from hpckit.errors import ConfigError, Location
from hpckit.stats.advice import parts
from hpckit.stats.advice.expressions import Expression, Field, Text
from hpckit.stats.advice.functions import Kind, Names, Value
from hpckit.stats.advice.parts import Part, RefusedError

LONGEST, DEEPEST = 1000, 30


def read_expression(
    text: str, names: Names, *, place: Location, what: str, kind: Kind | None = None
) -> Expression:
    """Read one expression; `what` says whose it is, `kind` what it has to give.

    Raises:
        ConfigError: it is not one of the language, uses an unknown name, or gives another kind.
    """
    text = " ".join(text.split("\n")).strip()
    used: set[str] = set()
    try:
        tree = _parse(text)
        part = _compile(tree, names, used)
        if kind is not None:
            parts.need(part, kind, "it")
    except RefusedError as error:
        cut = text if len(text) <= 120 else f"{text[:120]}…"
        raise ConfigError(f"{what}: {error} In: {cut!r}.", at=place) from error
    return Expression(text=text, kind=part.kind, names=frozenset(used), program=part.program)


def fill_in(expression: Expression, values: Mapping[str, Value]) -> str:
    """Return the text of an expression with names replaced by their values, to explain it."""
    return ast.unparse(_FillIn(values).visit(_parse(expression.text)))


class _FillIn(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.values:
            return node
        return ast.parse(repr(self.values[node.id]), mode="eval").body


def _parse(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise RefusedError(f"an expression has at most {LONGEST} characters, not {len(text)}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # doubtful Python: `"\d"`, `1if x else 2`
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, Warning) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RefusedError(f"this is not an expression ({reason}).") from error


def _compile(node: ast.expr, names: Names, used: set[str], depth: int = 0) -> Part:
    """Make a part of a node and those below it; put the names that they use into `used`."""
    if depth > DEEPEST:
        raise RefusedError(f"the expression is nested more than {DEEPEST} deep.")

    def part(inner: ast.expr) -> Part:
        return _compile(inner, names, used, depth + 1)

    match node:
        case ast.Constant(value=value):
            return parts.constant(value)
        case ast.Name() | ast.Attribute():
            path = _path(node)
            used.add(path[0])
            return parts.lookup(path, names)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return parts.constant(tuple(_item(item) for item in items))
        case ast.BoolOp(op=word, values=sides):
            return parts.logic(isinstance(word, ast.And), [part(side) for side in sides])
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return parts.negation(part(inner))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return parts.negative(part(inner))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in parts.ARITHMETIC:
            return parts.numeric(parts.ARITHMETIC[type(sign)], [part(left), part(right)])
        case ast.Compare(left=left, ops=words, comparators=others):
            return parts.comparisons([part(side) for side in (left, *others)], words)
        case ast.IfExp(test=test, body=body, orelse=other):
            return parts.choice(part(test), part(body), part(other))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return parts.call(name, [part(argument) for argument in arguments])
    raise RefusedError(f"{type(node).__name__} is not part of the language.")


def _item(node: ast.expr) -> str | float | bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | float | int):
        return node.value
    raise RefusedError("a list may contain only numbers and texts.")


def _path(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    if isinstance(node, ast.Name):
        return [node.id]
    raise RefusedError("a dot may only follow a name.")


_PIECE = r"(?s)\{\{|\}\}|\{(?P<expression>[^{}]*)\}|(?P<stray>[{}])|(?P<text>[^{}]+)"
_LONGEST = 4000


def read_text(text: str, names: Names, *, place: Location, what: str) -> Text:
    """Read one text; `what` says whose it is.

    Raises:
        ConfigError: a brace stands alone, or an expression is wrong.
    """
    if len(text) > _LONGEST:
        raise ConfigError(f"{what}: a text has at most {_LONGEST} characters.", at=place)
    text = " ".join(text.split())
    pieces: list[str | Field] = []
    in_command = False
    for match in re.finditer(_PIECE, text):
        if match["stray"]:
            raise ConfigError(
                f"{what}: a brace has no partner. To print a brace, write {{{{ or }}}}. "
                f"In: {text[:120]!r}.",
                at=place,
            )
        if match["expression"] is not None:
            expression = read_expression(match["expression"], names, place=place, what=what)
            pieces.append(Field(expression, in_command))
        else:
            pieces.append(match["text"] or match.group()[0])
            in_command ^= match.group().count("`") % 2 == 1
    return Text(tuple(pieces))
