"""A template's tree made to quote and count.

Jinja asks the sandbox about calls, attributes and some operators. Slices, `a ~ b`, comparisons,
lists, loops and plain text go by it; so each is led through a filter here. The filters have names
with a blank, which no template can name.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

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
