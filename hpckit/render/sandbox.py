"""Jinja's sandbox, made to quote: what a template may do with values, and how they are printed."""

import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hpckit.errors import TemplateError
from hpckit.render.filters import counted_in, make_filters, plain
from hpckit.render.limits import Budget, refuse_huge
from hpckit.render.loader import Loader
from hpckit.render.quoting import shell_word

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

# Methods of Python's own values that give little more than they take; `format`, `center` and
# `zfill` make much of little.
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        {"count", "endswith", "find", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
         "islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip", "partition",
         "removeprefix", "removesuffix", "rpartition", "rsplit", "rstrip", "split", "startswith",
         "strip", "title", "upper"}
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
}  # fmt: skip


def make_environment(
    loader: "Loader",
    write: Callable[[Any], str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> "SandboxedEnvironment":
    """Return the environment of one text: strict, sandboxed, counted, quoting by itself.

    Args:
        loader: finds its templates.
        write: writes a value of a report; None: it is a job script.
        given: the variables that its limits grow with; those of a script are small.
    """
    from jinja2 import StrictUndefined, pass_context

    budget = Budget(given)
    written = _in_script if write is None else _or_nothing(write)
    environment = _environment_class(loader, budget)(
        loader=loader.as_jinja(),
        undefined=StrictUndefined,
        autoescape=True,  # so that super() and macros give Markup
        # With the context Jinja does not print constants by itself, by the rules of HTML.
        finalize=pass_context(lambda _, value: _finalize(value, budget, written)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters = make_filters(environment.filters, budget, script=write is None)
    environment.tests = {name: counted_in(test, budget) for name, test in environment.tests.items()}
    environment.globals = {"refuse": _refuse}
    return environment


def _environment_class(loader: "Loader", budget: Budget) -> "type[SandboxedEnvironment]":
    """Return Jinja's sandbox, whose templates are rewritten, and whose values are counted."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def join_path(self, template: str, parent: str) -> str:
            return loader.resolve(template, parent)

        def _parse(self, source: str, name: str | None, filename: str | None) -> Any:  # noqa: ANN401
            from hpckit.render.rewriting import rewrite  # noqa: PLC0415  # kept code needs it not

            return rewrite(super()._parse(source, name, filename), source, name)

        def _load_template(self, name: str, globals: Any) -> Any:  # noqa: ANN401
            budget.step()
            return super()._load_template(name, globals)

        def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
            return self._allowed(obj, attribute, super().getattr(plain(obj), attribute))

        def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401
            budget.worked(argument)
            return self._allowed(obj, argument, super().getitem(plain(obj), argument))

        def _allowed(self, obj: Any, name: Any, found: Any) -> Any:  # noqa: ANN401
            """Keep back methods of Python's own values that are not on the list."""
            # Jinja wraps str.format in a function; all other methods of such values are builtin.
            if not isinstance(found, types.BuiltinMethodType | types.FunctionType):
                return found
            kind = next((kind for kind in _METHODS if isinstance(obj, kind)), None)
            allowed = _METHODS[kind] if kind else ()
            if name in allowed or (kind is None and isinstance(found, types.FunctionType)):
                return found
            return self.unsafe_undefined(obj, str(name))

        def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401, N805
            budget.step()
            owner = getattr(__obj, "__self__", None)
            budget.worked(owner if isinstance(owner, tuple(_METHODS)) else None, args, named)
            return super().call(__context, __obj, *args, **named)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
            refuse_huge(operator, left, right, budget.most)
            result = super().call_binop(context, operator, plain(left), plain(right))
            budget.worked(result)
            return result

    return Environment


def _finalize(value: Any, budget: Budget, write: Callable[[Any], str]) -> Any:  # noqa: ANN401
    from jinja2 import StrictUndefined
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    if isinstance(value, StrictUndefined):
        return value  # it raises, with its name, when it is printed
    # Markup is what super() and macros give: text this function has already seen.
    text = value if isinstance(value, Markup) else Markup(write(value))  # noqa: S704  # quoted just here
    budget.printed(text)
    return text


def _in_script(value: Any) -> str:  # noqa: ANN401
    if value is None:
        raise ValueError("this value is none and cannot be printed; test it with `if` first")
    return shell_word(value)


def _or_nothing(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Let `{{ x if y }}` print nothing where y is not true, as in any template of Jinja's."""
    from jinja2 import Undefined

    return lambda value: "" if isinstance(value, Undefined) else write(value)


REFUSES = "The template refuses: "


def _refuse(message: str) -> None:
    """Let a template say no: `{{ refuse("two nodes at most here") }}`."""
    raise TemplateError(f"{REFUSES}{message}")
