"""Expressions and texts of advice rules, once they were read and checked (`parsing`).

A text is `GPU {gpu.index} ran no kernel in {duration(job.elapsed_s)}`. Between backticks stands a
command: there a job's own texts are quoted for the shell, since people paste commands.
"""

import shlex
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from hpckit.frozen import frozen
from hpckit.stats.advice.evaluation import Evaluate, Program, Values, evaluator
from hpckit.stats.advice.functions import Kind, shown


@frozen(kw_only=True, slots=False)
class Expression:
    """A checked expression. `names` are those it uses, up to the first dot."""

    text: str
    kind: Kind
    names: frozenset[str]
    program: Program = field(repr=False, compare=False)

    @cached_property
    def evaluate(self) -> Evaluate:
        """What it gives for a job's figures; made when it is first asked."""
        return evaluator(self.program)


@frozen()
class Field:
    """An expression in a text; `in_command`: between backticks."""

    expression: Expression
    in_command: bool

    def rendered(self, values: Values) -> str | None:
        """Return its value as text; None if it is unknown."""
        value = self.expression.evaluate(values)
        if value is None:
            return None
        text = shown(value)
        is_text = self.expression.kind in (Kind.TEXT, Kind.LIST)
        return shlex.quote(text) if self.in_command and is_text else text


@frozen()
class Text:
    """A checked text: literal pieces and expressions in turn."""

    pieces: tuple[str | Field, ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names its expressions use, up to the first dot."""
        fields = [piece for piece in self.pieces if isinstance(piece, Field)]
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
            piece.rendered(values) if isinstance(piece, Field) else piece for piece in self.pieces
        ]
