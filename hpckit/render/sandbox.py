"""Jinja's sandbox, made to quote: what a template may do with values, and how they are printed."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpckit.errors import TemplateError
from hpckit.quoting import shell_word
from hpckit.render.sources import Loader

if TYPE_CHECKING:  # jinja2 costs 50 ms, so it is imported where it is used
    from jinja2.sandbox import SandboxedEnvironment

# A plan renders to a few kilobytes; a megabyte is a runaway template.
MAX_OUTPUT_BYTES = 1_000_000
_FILTERS = ("length", "first", "last", "sort", "unique", "replace", "lower", "upper", "default",
            "join", "trim", "reject", "select", "list", "int")  # fmt: skip


def _finalize(value: Any) -> Any:  # noqa: ANN401
    from jinja2 import StrictUndefined
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    if isinstance(value, StrictUndefined):
        return value  # it raises, with its name, when it is printed
    # Markup is what super() and macros give: text this function has already seen.
    if isinstance(value, Markup):
        return value
    if value is None:
        raise ValueError("a value that is none cannot be printed; test it with `if` first")
    return Markup(shell_word(value))  # noqa: S704  # quoted for the shell just here


def make_environment(loader: "Loader") -> "SandboxedEnvironment":
    """Return the environment templates render in: strict, sandboxed, quoting by itself."""
    from jinja2 import StrictUndefined, nodes, pass_context
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.visitor import NodeTransformer

    class PlainValues(NodeTransformer):
        """Rewrites the two operations that ask nobody: `a ~ b` and slices."""

        def visit_Concat(self, node: Any) -> Any:  # noqa: ANN401, N802
            return _filtered(nodes, nodes.List(node.nodes), "join", node.lineno)

        def visit_Getitem(self, node: Any) -> Any:  # noqa: ANN401, N802
            if isinstance(node.arg, nodes.Slice):
                node.node = _filtered(nodes, node.node, "plain", node.lineno)
            return self.generic_visit(node)

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def join_path(self, template: str, parent: str) -> str:
            return loader.resolve(template, parent)

        def _parse(self, source: str, name: str | None, filename: str | None) -> Any:  # noqa: ANN401
            return PlainValues().visit(super()._parse(source, name, filename))

        def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
            return super().getattr(_plain(obj), attribute)

        def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401
            return super().getitem(_plain(obj), argument)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
            _refuse_huge(operator, left, right)
            return super().call_binop(context, operator, _plain(left), _plain(right))

    environment = Environment(
        loader=loader.as_jinja(),
        undefined=StrictUndefined,
        autoescape=True,  # so that super() and macros give Markup
        # With the context Jinja does not print constants by itself, by the rules of HTML.
        finalize=pass_context(lambda _, value: _finalize(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Only filters that give plain values: `safe` and the HTML ones would step round the quoting.
    environment.filters = {name: _of_plain(environment.filters[name]) for name in _FILTERS}
    environment.filters["plain"] = _plain
    environment.globals = {"refuse": _refuse}
    return environment


def _filtered(nodes: Any, value: Any, name: str, line: int) -> Any:  # noqa: ANN401
    return nodes.Filter(value, name, [], [], None, None, lineno=line)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value that may be worked on: not text quoted already, alone or in a list.

    Cutting or joining quoted text would open its quotes, or let an unquoted value through.
    """
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    items = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, Markup) for item in items):
        raise ValueError(
            "what a macro, a block or super() gives is quoted already: print it, do not change it"
        )
    return value


def _of_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)  # with the marks that tell Jinja what to pass
    def checked(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        for value in (*args, *named.values()):
            _plain(value)
        return function(*args, **named)

    return checked


def _refuse_huge(operator: str, left: object, right: object) -> None:
    """Refuse `'x' * 10 ** 10` before it takes the login node's memory."""
    sizes = [len(side) if isinstance(side, str | list | tuple) else side for side in (left, right)]
    if operator in ("*", "**") and any(
        isinstance(size, int) and size > MAX_OUTPUT_BYTES for size in sizes
    ):
        raise OverflowError(f"a number or text over {MAX_OUTPUT_BYTES} in a product")


def _refuse(message: str) -> None:
    """Let a template say no: `{{ refuse("two nodes at most here") }}`."""
    raise TemplateError(f"The template refuses: {message}")
