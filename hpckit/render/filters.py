"""The filters that a template has: Jinja's that give plain values, bounded, and hpckit's own."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from hpckit.render.limits import Budget, refuse_long_join, refuse_long_replace
from hpckit.render.quoting import ShellCode

_FILTERS = ("length", "first", "last", "sort", "unique", "replace", "lower", "upper", "default",
            "join", "trim", "reject", "select", "list", "int")  # fmt: skip
# What a report works on are rows of figures; a script's values have none.
ALL_FILTERS = (*_FILTERS, "abs", "float", "map", "max", "min", "rejectattr", "reverse", "round",
                "selectattr", "sum")  # fmt: skip
_MOST_DIGITS = 99


def make_filters(
    known: Mapping[str, Callable[..., Any]],
    budget: Budget,
    *,
    script: bool,
) -> dict[str, Callable[..., Any]]:
    """Return the filters of one text; `safe` and the HTML ones would step round the quoting.

    Args:
        known: Jinja's.
        budget: what they count in.
        script: else it is a report, which has more of Jinja's, and hpckit's own.
    """
    from jinja2 import pass_context

    named = {name: known[name] for name in (_FILTERS if script else ALL_FILTERS)}
    if not script:
        from hpckit.render.writers import FILTERS  # noqa: PLC0415  # no job script needs it

        bounded = {"map": _by_attribute, "reverse": _as_list, "round": _few_digits, "sum": _numbers}
        named |= {name: bound(known[name]) for name, bound in bounded.items()}
        named |= FILTERS
    found = {name: _of_plain(row, budget) for name, row in named.items()}
    for name, check in (("join", refuse_long_join), ("replace", refuse_long_replace)):
        found[name] = _checked_first(functools.partial(check, most=budget.most), found[name])
    return found | {
        "rewritten plain": plain,
        "rewritten sbatch": _for_sbatch if script else _same,
        "rewritten text": pass_context(lambda _, text: _text(text)),
        "rewritten rounds": pass_context(lambda _, values: budget.rounds(values)),
        "rewritten weighed": pass_context(lambda _, value: _weighed(value, budget)),
    }


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value that may be worked on: not text quoted already, alone or in a list.

    Cutting or joining quoted text would open its quotes, or let an unquoted value through.
    """
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    items = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, Markup) for item in items):
        raise ValueError(
            "the result of a macro, a block or super() is already quoted: print it unchanged"
        )
    return value


def _text(text: str) -> Any:  # noqa: ANN401
    """Mark the template's own text as such; printed as a value it is counted."""
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    return Markup(text)  # noqa: S704  # the author's


def _weighed(value: Any, budget: Budget) -> Any:  # noqa: ANN401
    budget.worked(value)
    return value


def _for_sbatch(value: Any) -> Any:  # noqa: ANN401
    """Return a value as it must stand in an `#SBATCH` line before it is quoted.

    sbatch takes a backslash for an escape even between single quotes, unlike the shell: a value
    could end its quotes there and give options of its own.
    """
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    if isinstance(value, list | tuple):
        return [_for_sbatch(item) for item in value]
    if not isinstance(value, str) or "\\" not in value or isinstance(value, ShellCode):
        return value
    if isinstance(value, Markup):
        raise ValueError(
            "a backslash from a macro or a block in an #SBATCH line: print the value itself there"
        )
    return value.replace("\\", "\\\\")


def _of_plain(function: Callable[..., Any], budget: Budget) -> Callable[..., Any]:
    @functools.wraps(function)  # with the marks that tell Jinja what to pass
    def checked(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        for value in (*args, *named.values()):
            plain(value)
        # What is quoted may also have stood in a row, where `attribute` finds it.
        return plain(counted_in(function, budget)(*args, **named))

    return checked


def _by_attribute(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `map` take an attribute alone: it knows filters, the ones that quote among them."""

    @functools.wraps(function)
    def checked(context: Any, values: Any, *words: Any, attribute: Any = None, **more: Any) -> Any:  # noqa: ANN401
        if words or more or attribute is None:
            raise ValueError("`map` takes an attribute alone here: map(attribute='name')")
        return function(context, values, attribute=attribute)

    return checked


def _as_list(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `reverse` give a list: Python's own iterator over one is not a value."""

    @functools.wraps(function)
    def checked(value: Any) -> Any:  # noqa: ANN401
        found = function(value)
        return found if isinstance(found, str) else list(found)

    return checked


def _few_digits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep `round` from 10 ** digits with many digits, which would never end."""

    @functools.wraps(function)
    def checked(value: Any, precision: int = 0, method: str = "common") -> Any:  # noqa: ANN401
        return function(value, min(max(precision, -_MOST_DIGITS), _MOST_DIGITS), method)

    return checked


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `sum` begin with 0 alone: with a list it would copy all before each item."""

    @functools.wraps(function)
    def checked(own: Any, values: Any, attribute: Any = None) -> Any:  # noqa: ANN401
        return function(own, values, attribute)

    return checked


def counted_in(function: Any, budget: Budget) -> Callable[..., Any]:  # noqa: ANN401
    """Return a filter or test of Jinja's that counts what it takes and gives."""

    @functools.wraps(function)
    def counted(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        budget.worked(*_of_the_template(args), *named.values())
        result = function(*args, **named)
        budget.worked(result)
        return result

    return counted


def _of_the_template(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a filter's arguments without the first, where Jinja itself has put that there."""
    from jinja2 import Environment
    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

    return args[1:] if args and isinstance(args[0], Environment | EvalContext | Context) else args


def _checked_first(check: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `check` see a filter's arguments after Jinja's own first one; it returns the value."""

    @functools.wraps(function)
    def checked(own: Any, value: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        return function(own, check(value, *args, **named), *args, **named)

    return checked
