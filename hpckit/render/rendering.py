"""A template and a context to text, or to one error with template and line.

And what can be said of a template without rendering it: its syntax, its names, what it includes.
"""

import re
from collections.abc import Collection as Names
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hpckit.collections import Collection, Found
from hpckit.documents import nearest
from hpckit.errors import Location, TemplateError
from hpckit.frozen import frozen
from hpckit.render.compiled import keep_compiled
from hpckit.render.loader import Loader, list_templates, read_template
from hpckit.render.sandbox import make_environment

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment


Origin = tuple[str, int]
# Characters for private use stand in no template; each mark is a file's number and a line.
_MARK = "\ue000(\\d+):(\\d+)\ue001"


@frozen(kw_only=True)
class Rendered:
    """A script, and every template file that went into it.

    `origins`, only where asked for: the template's file and line for each line of the text.
    """

    text: str
    templates: tuple[Found, ...]
    origins: tuple[Origin | None, ...] = ()


def render(
    name: str,
    context: Mapping[str, Any],
    collections: tuple[Collection, ...],
    *,
    trace: bool = False,
) -> Rendered:
    """Render the template `name` with `context`; `trace` asks for each line's origin.

    Raises:
        TemplateError: unknown template or variable, a syntax error, a value that cannot be quoted,
            or a forbidden operation; with template and line.
    """
    import jinja2

    loader = Loader(collections)
    environment = make_environment(loader)
    if trace:
        files = add_marks(environment)
    else:
        files = []
        keep_compiled(environment)
    found = loader.find(name)
    try:
        template = environment.get_template(found.name)
        text = "".join(template.generate(dict(context)))
    except jinja2.TemplateSyntaxError as error:
        place = error.filename or error.name or found.path
        why = (error.message or "").rstrip(".")
        raise TemplateError(f"{why}.", at=Location(place, error.lineno)) from error
    except jinja2.TemplateNotFound as error:
        raise TemplateError(
            f"Template {found.path} needs {error.name!r}, but no collection has this template. "
            "See `hpckit templates list`."
        ) from error
    except jinja2.UndefinedError as error:
        raise TemplateError(
            f"{error.message}. See `hpckit templates vars`.", at=_location(error, found)
        ) from error
    except jinja2.TemplateRuntimeError as error:  # the sandbox's SecurityError is one
        raise TemplateError(f"{str(error).rstrip('.')}.", at=_location(error, found)) from error
    except (TypeError, ValueError, OverflowError, ZeroDivisionError, RecursionError) as error:
        raise TemplateError(f"{error}.", at=_location(error, found)) from error
    except (SyntaxError, MemoryError) as error:  # Python's, of what Jinja makes of the template
        why = getattr(error, "msg", "") or type(error).__name__
        raise TemplateError(f"the template is nested too deeply: {why}.", at=found.path) from error
    text, origins = take_marks(text, files) if trace else (text, ())
    return Rendered(text=text, templates=tuple(loader.used.values()), origins=origins)


def _location(error: Exception, found: Found) -> Location:
    """Return file and line of the innermost template frame of an error."""
    place, frame = Location(found.path), error.__traceback__
    while frame:
        filename = frame.tb_frame.f_code.co_filename
        if filename.endswith(".j2"):
            place = Location(filename, frame.tb_lineno)
        frame = frame.tb_next
    return place


def add_marks(environment: Any) -> list[str]:  # noqa: ANN401
    """Make an environment mark the end of each line of its templates; return their files."""
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream

    files: list[str] = []

    class Marks(Extension):
        def filter_stream(self, stream: TokenStream) -> Any:  # noqa: ANN401
            files.append(stream.filename or stream.name or "")
            number = len(files) - 1
            for token in stream:
                if token.type != "data":
                    yield token
                    continue
                lines = token.value.split("\n")
                marked = [
                    f"{text}\ue000{number}:{token.lineno + index}\ue001"
                    for index, text in enumerate(lines[:-1])
                ]
                yield Token(token.lineno, "data", "\n".join([*marked, lines[-1]]))

    environment.add_extension(Marks)
    return files


def load() -> None:
    """Import Jinja, which `render` would do later."""
    import jinja2.sandbox  # noqa: F401


def take_marks(text: str, files: list[str]) -> tuple[str, tuple[Origin | None, ...]]:
    """Return the text without marks, and for each of its lines where it comes from."""
    origins: list[Origin | None] = []
    for line in text.split("\n"):
        mark = re.search(_MARK, line)
        origins.append((files[int(mark[1])], int(mark[2])) if mark else None)
    return re.sub(_MARK, "", text), tuple(origins)


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

    source = read_template(found)
    environment = make_environment(Loader(collections))
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
    for node in tree.find_all(nodes.Name):
        if node.name in unknown:
            yield node.lineno, f"unknown variable {node.name!r}. {nearest(node.name, known)}"
    for use in tree.find_all((nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
        template = getattr(use, "template", None)
        if isinstance(template, nodes.Const):
            for message in _missing(str(template.value), found, collections):
                yield use.lineno, message


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
