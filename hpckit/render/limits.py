"""How much a template may do. Work is counted, not timed: a template ends alike on every machine.

A plan renders to a few kilobytes in a few hundred rounds. What goes far beyond is a mistake or an
attack, and would take the login node's memory or never end. What a report has to tell may be
larger, and allows as much more.
"""

import re
import sys
from collections.abc import Generator, Mapping, MappingView, Sized
from typing import Any

MAX_SOURCE_BYTES = 200_000
MAX_OUTPUT_BYTES = 1_000_000
# Rounds of loops, calls of macros and blocks, includes; all of a script together.
MAX_STEPS = 50_000
# Letters and items of one value, those of the lists in it counted too.
MAX_VALUE = 200_000
# The same of all values that operators, comparisons, tests and filters read or give.
MAX_WORK = 5_000_000
# 4300 digits is the most Python prints (sys.set_int_max_str_digits).
MAX_BITS = 4096
_MAX_WIDTH = 999
_WIDE = r"\d{4,}|\*"


class Budget:
    """What one rendering has used so far.

    Raises, in all its methods:
        OverflowError: a limit is passed, with the limit in the message.

    Attributes:
        most: letters and items of one value.
    """

    def __init__(self, given: object = None) -> None:
        """Begin; `given` is what hpckit gives the template, and each limit grows with its size."""
        self._times = 1 + weight(given, sys.maxsize) // MAX_VALUE
        self.most = MAX_VALUE * self._times
        self._steps = self._text = self._work = 0

    def step(self, count: int = 1) -> None:
        """Count rounds of a loop, or a call."""
        self._steps += count
        if self._steps > (most := MAX_STEPS * self._times):
            raise OverflowError(f"more than {most} loop rounds, calls and includes")

    def printed(self, text: str) -> None:
        """Count text, also what a macro or a block prints that is printed again later."""
        self._text += len(text)
        if self._text > (most := MAX_OUTPUT_BYTES * self._times):
            raise OverflowError(f"the text is larger than {most} bytes")

    def worked(self, *values: object) -> None:
        """Count values an operation reads or gives."""
        self._work += sum(weight(value, self.most) for value in values)
        if self._work > (most := MAX_WORK * self._times):
            raise OverflowError(f"more than {most} letters and items processed")

    def rounds(self, values: Any) -> Any:  # noqa: ANN401
        """Count the rounds of a loop before it starts; return what it goes through."""
        values = values if isinstance(values, Sized) else list(values)
        self.step(len(values))
        return values


def weight(value: object, most: int) -> int:
    """Return how many letters and items a value holds, lists within it included.

    Raises:
        OverflowError: over `most`, and not counted further, or a number over MAX_BITS.
        ValueError: it is, or holds, what is no value: a function, a macro, a loop. As text it
            would be an address in memory.
    """
    total, left = 0, [value]
    while left:
        item = left.pop()
        total += 1
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, Mapping):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            left += item
        elif isinstance(item, int):
            _refuse_long(item.bit_length())
        elif not isinstance(item, float | None | Generator | MappingView):
            _refuse_object(item)
        refuse_large(total, most)
    return total


def _refuse_object(item: object) -> None:
    from jinja2 import Undefined

    if not isinstance(item, Undefined):  # it has its own word when it is used
        raise ValueError(f"a {type(item).__name__} is not a value: call it, or leave it out")


def refuse_huge(operator: str, left: object, right: object, most: int) -> None:
    """Refuse `'x' * 10 ** 10` and its kin before they take the memory.

    Raises:
        OverflowError: the result would be too large.
    """
    if operator == "%" and isinstance(left, str):
        if wide := re.search(_WIDE, left):
            raise OverflowError(
                f"{wide[0]!r} in a pattern for %: the largest width is {_MAX_WIDTH}"
            )
        refuse_large(left.count("%") * (weight(right, most) + _MAX_WIDTH), most)
    elif operator == "*" and isinstance(left, int) and isinstance(right, int):
        _refuse_long(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _refuse_long(left.bit_length() * min(abs(right), MAX_BITS + 1))
    elif operator == "*" and isinstance(right, int):
        refuse_large(weight(left, most) * right, most)
    elif operator == "*" and isinstance(left, int):
        refuse_large(weight(right, most) * left, most)


def _refuse_long(bits: int) -> None:
    if bits > MAX_BITS:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")


def refuse_large(size: int, most: int) -> None:
    """Refuse a value of this weight.

    Raises:
        OverflowError: it is over `most`.
    """
    if size > most:
        raise OverflowError(f"a value of more than {most} letters and items")


def refuse_long_join(
    values: Any,  # noqa: ANN401
    d: object = "",
    attribute: object = None,
    *,
    most: int,
) -> list[Any]:
    """Refuse a join that gives too much: the separator is in it once per value."""
    del attribute
    parts = list(values)
    refuse_large(weight(parts, most) + weight(d, most) * len(parts), most)
    return parts


def refuse_long_replace(
    text: Any,  # noqa: ANN401
    old: object,
    new: object,
    count: object = None,
    *,
    most: int,
) -> Any:  # noqa: ANN401
    """Refuse a replacement that makes much of little."""
    del count
    refuse_large(weight(text, most) + str(text).count(str(old)) * weight(new, most), most)
    return text
