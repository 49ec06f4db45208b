"""What is wrong with a template, told without rendering it: its syntax, names and includes."""

from collections.abc import Collection as Names
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from hpckit.collections import Collection, Found
from hpckit.documents import nearest
from hpckit.errors import TemplateError
from hpckit.render.included import names_given
from hpckit.render.left_out import left_out
from hpckit.render.loader import Loader, is_report, list_templates, read_template
from hpckit.render.sandbox import make_environment
from hpckit.render.writers import writer_of

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_PAIRED = ("if", "for", "block", "macro", "call", "filter")


def template_faults(
    found: Found, known: Names[str], collections: tuple[Collection, ...]
) -> Iterator[tuple[int, str]]:
    """Yield line and message of each fault: syntax, names not in `known`, files that are not there.

    Raises:
        TemplateError: the file cannot be read, or has an expression inside quotes.
    """
    import jinja2
    from jinja2 import meta, nodes

    script = not is_report(found.name)
    source = read_template(found, script=script)
    loader = Loader(collections, script=script)
    environment = make_environment(loader, None if script else writer_of(found))
    try:
        tree = environment.parse(source, found.name, str(found.path))
        environment.compile(source, found.name, str(found.path))
    except jinja2.TemplateSyntaxError as error:  # an unknown filter is one, too
        ended = "end of template" in (error.message or "")
        opened = _left_open(environment, source) if ended else None
        yield opened or error.lineno, f"{(error.message or '').rstrip('.')}."
        return
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise TemplateError(
            f"the template is nested too deeply: {error}.", at=found.path
        ) from error
    unknown = meta.find_undeclared_variables(tree) - {*known, *environment.globals}
    unknown -= names_given(found.name, collections) if unknown else set()
    for node in tree.find_all(nodes.Name):
        if node.name in unknown:
            yield node.lineno, f"unknown variable {node.name!r}. {nearest(node.name, known)}"
    for use in tree.find_all((nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
        template = getattr(use, "template", None)
        if isinstance(template, nodes.Const) and not getattr(use, "ignore_missing", False):
            for message in _missing(str(template.value), found, collections):
                yield use.lineno, message
    yield from _left_out(environment, loader, found)


def _left_out(
    environment: "SandboxedEnvironment", loader: Loader, found: Found
) -> Iterator[tuple[int, str]]:
    import jinja2

    name = f"{found.collection.name}:{found.name}"
    loader.used[name] = found
    try:
        yield from left_out(environment, name)
    except (jinja2.TemplateSyntaxError, TemplateError):
        return  # in one that it extends, whose own faults are told with that one


def _left_open(environment: "SandboxedEnvironment", source: str) -> int | None:
    """Return the line of the innermost statement that nothing ends; Jinja names the file's end."""
    stack: list[tuple[str, int]] = []
    words = [row for row in environment.lex(source) if row[1] != "whitespace"]
    for (line, kind, _), (_, _, word) in pairwise(words):
        if kind == "block_begin" and word in _PAIRED:
            stack.append((word, line))
        elif kind == "block_begin" and stack and word == f"end{stack[-1][0]}":
            stack.pop()
    return stack[-1][1] if stack else None


def _missing(used: str, found: Found, collections: tuple[Collection, ...]) -> Iterator[str]:
    owner, _, name = used.rpartition(":")
    places = {row.name: index for index, row in enumerate(collections)}
    if owner and owner not in places:
        yield f"unknown collection {owner!r}. {nearest(owner, places)}"
        return
    after = places[owner] if owner else 0
    if not owner and name == found.name:  # it extends what it shadows
        after = places[found.collection.name] + 1
    rows = collections[after : after + 1] if owner else collections[after:]
    if name not in (there := list_templates(rows)):
        yield f"there is no template {name!r} to use. {nearest(name, there)}"
