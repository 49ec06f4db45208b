"""Templates that are parts of others: `{% include %}` hands them what the other one has set."""

from collections.abc import Collection as Names
from typing import Any

from hpckit.collections import Collection, Found
from hpckit.errors import TemplateError
from hpckit.render.loader import list_templates, read_template
from hpckit.render.writers import FILTERS


def names_given(name: str, collections: tuple[Collection, ...]) -> set[str]:
    """Return the names that templates which include this one set: of loops, and of `set`."""
    from jinja2 import nodes

    given: set[str] = set()
    for other in list_templates(collections).values():
        tree = _parsed(other)
        if tree and name in _included(tree):
            given |= {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    return given


def is_part(found: Found, known: Names[str], collections: tuple[Collection, ...]) -> bool:
    """Say whether a template cannot be rendered alone: it uses names of those that include it."""
    from jinja2 import TemplateSyntaxError, meta

    tree = _parsed(found)
    try:
        own = meta.find_undeclared_variables(tree) - {*known} if tree else set()
    except TemplateSyntaxError:  # an unknown filter is one, too
        return False
    return bool(own and own & names_given(found.name, collections))


def is_piece(found: Found, collections: tuple[Collection, ...]) -> bool:
    """Say whether others include a template that alone is no whole script."""
    from jinja2 import nodes

    tree = _parsed(found)
    if tree is None or tree.find(nodes.Extends) or "#!" in read_template(found, script=False):
        return False
    trees = (_parsed(other) for other in list_templates(collections).values())
    return any(found.name in _included(other) for other in trees if other)


def _included(tree: Any) -> set[str]:  # noqa: ANN401
    from jinja2 import nodes

    found: set[str] = set()
    for use in tree.find_all(nodes.Include):
        words = use.template.items if isinstance(use.template, nodes.List) else [use.template]
        named = [word.value for word in words if isinstance(word, nodes.Const)]
        found |= {str(word).rpartition(":")[2] for word in named}
    return found


def _parsed(found: Found) -> Any:  # noqa: ANN401
    """Return a template's tree; None if it cannot be read, which is told elsewhere."""
    from jinja2 import Environment, TemplateSyntaxError

    environment = Environment(autoescape=True)
    environment.filters |= FILTERS
    try:
        return environment.parse(read_template(found, script=False))
    except (TemplateError, TemplateSyntaxError, RecursionError):
        return None
