"""What is changed in a template's tree before it runs: the operations that ask nobody get a filter.

Jinja asks the sandbox about calls, attributes and some operators. Slices, `a ~ b`, comparisons,
lists, loops and plain text go by it; so each is led through a filter of `sandbox.py`.
"""

from typing import Any

OPTION = "#SBATCH"


def rewrite(tree: Any, source: str, name: str | None) -> Any:  # noqa: ANN401
    """Return a template's tree with all of that led through filters."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateSyntaxError
    from jinja2.visitor import NodeTransformer

    lines = source.splitlines()

    def through(word: str, node: Any) -> Any:  # noqa: ANN401
        return nodes.Filter(node, word, [], [], None, None, lineno=node.lineno)

    class Rewriter(NodeTransformer):
        def visit_Concat(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            return through("join", nodes.List(node.nodes, lineno=node.lineno))

        def visit_Getitem(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            if isinstance(node.arg, nodes.Slice):
                node.node = through("rewritten_weighed", through("rewritten_plain", node.node))
            return node

        def visit_Compare(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            for side in (node, *node.ops):
                side.expr = through("rewritten_weighed", side.expr)
            return node

        def visit_List(self, node: Any) -> Any:  # noqa: ANN401, N802
            return through("rewritten_weighed", self.generic_visit(node))

        visit_Dict = visit_List  # noqa: N815

        def visit_Tuple(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            return through("rewritten_weighed", node) if node.ctx == "load" else node

        def visit_For(self, node: Any) -> Any:  # noqa: ANN401, N802
            self.generic_visit(node)
            node.iter = through("rewritten_rounds", node.iter)
            return node

        def visit_Output(self, node: Any) -> Any:  # noqa: ANN401, N802
            before = ""
            for index, part in enumerate(node.nodes):
                if isinstance(part, nodes.TemplateData):
                    before = part.data.rpartition("\n")[2]
                    literal = nodes.Const(part.data, lineno=part.lineno)
                    node.nodes[index] = through("rewritten_text", literal)
                    continue
                value = self.visit(part)
                here = lines[part.lineno - 1] if part.lineno <= len(lines) else ""
                if OPTION in here or OPTION in before:
                    value = through("rewritten_sbatch", value)
                node.nodes[index] = value
            return node

        def visit_ScopedEvalContextModifier(self, node: Any) -> Any:  # noqa: ANN401, N802
            raise TemplateSyntaxError("autoescape cannot be changed", node.lineno, name)

    return Rewriter().visit(tree)
