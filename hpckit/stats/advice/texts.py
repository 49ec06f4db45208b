"""Texts with expressions in them: `GPU {gpu.index} ran no kernel in {duration(job.elapsed_s)}`.

`{{` and `}}` stand for braces. Between backticks stands a command: there a job's own texts are
quoted for the shell, since people paste commands.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from hpckit.errors import ConfigError, Location
from hpckit.stats.advice.expressions import Expression, read_expression
from hpckit.stats.advice.functions import Kind, shown
from hpckit.stats.advice.parts import Names, Values

_TOKEN = re.compile(
    r"\{\{|\}\}|\{(?P<expression>[^{}]*)\}|(?P<stray>[{}])|(?P<text>[^{}]+)", re.DOTALL
)
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class _Field:
    expression: Expression
    in_command: bool

    def rendered(self, values: Values) -> str | None:
        value = self.expression.evaluate(values)
        if value is None:
            return None
        text = shown(value)
        is_text = self.expression.kind in (Kind.TEXT, Kind.LIST)
        return shlex.quote(text) if self.in_command and is_text else text


@dataclass(frozen=True, slots=True)
class Text:
    """A checked text: literal pieces and expressions in turn."""

    pieces: tuple[str | _Field, ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names its expressions use, up to the first dot."""
        fields = [piece for piece in self.pieces if isinstance(piece, _Field)]
        return frozenset(name for piece in fields for name in piece.expression.names)

    def render(self, values: Values) -> str:
        """Return the text; what is unknown reads `unknown`."""
        return "".join("unknown" if part is None else part for part in self._rendered(values))

    def render_if_known(self, values: Values) -> str | None:
        """Return the text, or None if any of its expressions is unknown."""
        parts = self._rendered(values)
        return None if None in parts else "".join(part or "" for part in parts)

    def _rendered(self, values: Values) -> Sequence[str | None]:
        return [
            piece.rendered(values) if isinstance(piece, _Field) else piece for piece in self.pieces
        ]


def read_text(text: str, names: Names, *, place: Location, what: str) -> Text:
    """Read one text; `what` says whose it is.

    Raises:
        ConfigError: a brace stands alone, or an expression is wrong.
    """
    if len(text) > _LONGEST:
        raise ConfigError(f"{what}: a text has at most {_LONGEST} characters.", at=place)
    text = " ".join(text.split())
    pieces: list[str | _Field] = []
    in_command = False
    for match in _TOKEN.finditer(text):
        if match["stray"]:
            raise ConfigError(
                f"{what}: a brace has no partner. To print a brace, write {{{{ or }}}}. "
                f"In: {text[:120]!r}.",
                at=place,
            )
        if match["expression"] is not None:
            expression = read_expression(match["expression"], names, place=place, what=what)
            pieces.append(_Field(expression, in_command))
        else:
            pieces.append(match["text"] or match.group()[0])
            in_command ^= match.group().count("`") % 2 == 1
    return Text(tuple(pieces))
