"""What a template that extends another one says in vain: Jinja leaves it out without a word.

Of such a template only blocks that the other one has come into the text, and what they hold. A
misspelt block, or a line outside all blocks, is a group's set-up that no job gets.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hpckit.documents import nearest

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment


def left_out(environment: "SandboxedEnvironment", name: str) -> Iterator[tuple[int, str]]:
    """Yield line and message of each part of a template that comes into no text.

    What of it is right only by the template that it extends is passed over if that one is missing,
    or known only when it is rendered.

    Raises:
        TemplateSyntaxError: Jinja's, of this template or one that it extends.
    """
    from jinja2 import nodes

    tree = _parsed(environment, name)
    extends = _extends(tree)
    if extends is None:
        return
    known = _blocks_above(environment, name, extends)
    begun = tree.body.index(extends)  # what is printed before it comes into the text
    every = (part for at, node in enumerate(tree.body) for part in _parts(node, late=at > begun))
    for part in every:
        if not isinstance(part, nodes.Block):
            yield _place(part), _stray(part)
        elif known is not None and part.name not in known:
            yield (
                part.lineno,
                f"block {part.name!r} is left out, because no template that this one extends has "
                f"it. {nearest(part.name, known)}",
            )


def _parsed(environment: "SandboxedEnvironment", name: str) -> Any:  # noqa: ANN401
    """Return a template as it stands; `environment.parse` puts hpckit's quoting into it."""
    from jinja2.parser import Parser

    load = environment.loader.get_source  # type: ignore[union-attr]  # ours has one
    source, path, _ = load(environment, name)
    return Parser(environment, source, name, path).parse()


def _extends(tree: Any) -> Any:  # noqa: ANN401
    """Return the statement `extends` of a template, if it stands in no branch."""
    from jinja2 import nodes

    return next((node for node in tree.body if isinstance(node, nodes.Extends)), None)


def _blocks_above(
    environment: "SandboxedEnvironment",
    name: str,
    extends: Any,  # noqa: ANN401
) -> set[str] | None:
    """Return the names of all blocks of the templates that one extends; None if not known."""
    from jinja2 import TemplateNotFound, nodes

    found: set[str] = set()
    seen = {name}
    while extends is not None:
        if not isinstance(extends.template, nodes.Const):
            return None
        name = environment.join_path(str(extends.template.value), name)
        if name in seen:
            return None  # a circle, which rendering refuses
        seen.add(name)
        try:
            tree = _parsed(environment, name)
        except TemplateNotFound:
            return None
        found |= {node.name for node in tree.find_all(nodes.Block)}
        extends = _extends(tree)
        if extends is None and any(tree.find_all(nodes.Extends)):
            return None  # in a branch
    return found


def _parts(node: Any, *, late: bool) -> Iterator[Any]:  # noqa: ANN401
    """Yield a node if it is a block or, where `late`, prints something; of branches, such in it."""
    from jinja2 import nodes

    if isinstance(node, nodes.Block):
        yield node
    elif isinstance(node, nodes.If | nodes.For | nodes.With | nodes.Scope):
        for child in node.iter_child_nodes():
            yield from _parts(child, late=late)
    elif late and isinstance(node, nodes.Output):
        yield from (part for part in node.nodes if not _is_blank(part))
    elif late and isinstance(node, nodes.Include | nodes.CallBlock | nodes.FilterBlock):
        yield node


def _is_blank(node: Any) -> bool:  # noqa: ANN401
    from jinja2 import nodes

    return isinstance(node, nodes.TemplateData) and not node.data.strip()


def _place(node: Any) -> int:  # noqa: ANN401
    """Return the line of a node; of text, of its first word."""
    text = getattr(node, "data", "")
    blank = text[: len(text) - len(text.lstrip())]
    return int(node.lineno) + blank.count("\n")


def _stray(node: Any) -> str:  # noqa: ANN401
    from jinja2 import nodes

    what = "what is printed here"
    if isinstance(node, nodes.TemplateData):
        what = repr(node.data.strip().splitlines()[0])
    return (
        f"{what} is left out, because it stands in no block of the template that this one extends."
    )
