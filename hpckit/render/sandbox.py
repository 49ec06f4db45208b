"""Jinja's sandbox, made to quote: what a template may do with values, and how they are printed.

Jinja asks the sandbox about calls, attributes and some operators. Slices, `a ~ b`, comparisons,
lists, loops and plain text go by it; so `rewrite` leads each through a filter.
"""

import functools
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from hpckit.errors import TemplateError
from hpckit.quoting import ShellCode, shell_word
from hpckit.render.limits import Budget, refuse_huge, refuse_long_join, refuse_long_replace
from hpckit.render.loader import Loader

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment


_FILTERS = ("length", "first", "last", "sort", "unique", "replace", "lower", "upper", "default",
            "join", "trim", "reject", "select", "list", "int")  # fmt: skip
# What a report works on are rows of figures; a script's values have none.
_ALL_FILTERS = (*_FILTERS, "abs", "float", "map", "max", "min", "rejectattr", "reverse", "round",
                "selectattr", "sum")  # fmt: skip
_MOST_DIGITS = 99
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
    filters: Mapping[str, Callable[..., Any]] | None = None,
    given: Mapping[str, Any] | None = None,
) -> "SandboxedEnvironment":
    """Return the environment of one text: strict, sandboxed, counted, quoting by itself.

    Args:
        loader: finds its templates.
        write: writes a value; by default for a job script.
        filters: more of them, of plain values.
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
    # Only filters that give plain values: `safe` and the HTML ones would step round the quoting.
    known = environment.filters
    named = {name: known[name] for name in (_FILTERS if write is None else _ALL_FILTERS)}
    if write is not None:
        bounded = {"map": _by_attribute, "reverse": _as_list, "round": _few_digits, "sum": _numbers}
        named |= {name: bound(known[name]) for name, bound in bounded.items()}
    named |= filters or {}
    environment.filters = {name: _of_plain(row, budget) for name, row in named.items()}
    # Names with a blank: no template can name these.
    longest: dict[str, Callable[..., Any]] = {
        "join": refuse_long_join,
        "replace": refuse_long_replace,
    }
    environment.filters |= {
        name: _checked_first(functools.partial(check, most=budget.most), environment.filters[name])
        for name, check in longest.items()
    }
    environment.filters |= {
        "rewritten plain": _plain,
        "rewritten sbatch": _for_sbatch if write is None else _same,
        "rewritten text": pass_context(lambda _, text: _text(text)),
        "rewritten rounds": pass_context(lambda _, values: budget.rounds(values)),
        "rewritten weighed": pass_context(lambda _, value: _weighed(value, budget)),
    }
    environment.tests = {name: _counted(test, budget) for name, test in environment.tests.items()}
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
            return rewrite(super()._parse(source, name, filename), source, name)

        def _load_template(self, name: str, globals: Any) -> Any:  # noqa: ANN401
            budget.step()
            return super()._load_template(name, globals)

        def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
            return self._allowed(obj, attribute, super().getattr(_plain(obj), attribute))

        def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401
            budget.worked(argument)
            return self._allowed(obj, argument, super().getitem(_plain(obj), argument))

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
            result = super().call_binop(context, operator, _plain(left), _plain(right))
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


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _plain(value: Any) -> Any:  # noqa: ANN401
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
            _plain(value)
        # What is quoted may also have stood in a row, where `attribute` finds it.
        return _plain(_counted(function, budget)(*args, **named))

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


def _counted(function: Any, budget: Budget) -> Callable[..., Any]:  # noqa: ANN401
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


REFUSES = "The template refuses: "


def _refuse(message: str) -> None:
    """Let a template say no: `{{ refuse("two nodes at most here") }}`."""
    raise TemplateError(f"{REFUSES}{message}")


OPTION = "#SBATCH"


def rewrite(tree: Any, source: str, name: str | None) -> Any:  # noqa: ANN401
    """Return a template's tree with all of that led through filters."""
    return _rewriter()(source.splitlines(), name).visit(tree)


@cache
def _rewriter() -> Any:  # noqa: ANN401
    """Return the class of what goes through a tree: Jinja is imported when it is needed."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateSyntaxError
    from jinja2.visitor import NodeTransformer

    class Rewriter(NodeTransformer):
        def __init__(self, lines: list[str], name: str | None) -> None:
            self.lines, self.name = lines, name

        def visit_Concat(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            return _through("join", nodes.List(node.nodes, lineno=node.lineno))

        def visit_Getitem(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            if isinstance(node.arg, nodes.Slice):
                node.node = _weighed_node(_through("rewritten plain", node.node))
            return node

        def visit_Compare(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            for side in (node, *node.ops):
                side.expr = _weighed_node(side.expr)
            return node

        def visit_List(self, node: Any) -> Any:  # noqa: ANN401, N802
            return _weighed_node(self.generic_visit(node))

        visit_Dict = visit_List  # noqa: N815

        def visit_Tuple(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            return _weighed_node(node) if node.ctx == "load" else node

        def visit_For(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            node.iter = _through("rewritten rounds", node.iter)
            return node

        def visit_Output(self, node: Any) -> Any:  # noqa: ANN401, N802
            return _printed(node, self.visit, self.lines)

        def visit_ScopedEvalContextModifier(self, node: Any) -> Any:  # noqa: ANN401, N802
            raise TemplateSyntaxError("autoescape cannot be changed", node.lineno, self.name)

    return Rewriter


def _through(word: str, node: Any) -> Any:  # noqa: ANN401
    """Return a node's value led through a filter."""
    from jinja2 import nodes

    return nodes.Filter(node, word, [], [], None, None, lineno=node.lineno)


def _weighed_node(node: Any) -> Any:  # noqa: ANN401
    return _through("rewritten weighed", node)


def _printed(output: Any, visit: Callable[[Any], Any], lines: list[str]) -> Any:  # noqa: ANN401
    """Lead what is printed through filters: text, and values as their line takes them."""
    from jinja2 import nodes

    before = ""
    for index, part in enumerate(output.nodes):
        if isinstance(part, nodes.TemplateData):
            before = part.data.rpartition("\n")[2]
            literal = nodes.Const(part.data, lineno=part.lineno)
            output.nodes[index] = _through("rewritten text", literal)
            continue
        value = visit(part)
        here = lines[part.lineno - 1] if part.lineno <= len(lines) else ""
        if OPTION in here or OPTION in before:
            value = _through("rewritten sbatch", value)
        output.nodes[index] = value
    return output
