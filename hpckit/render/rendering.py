"""A template and a context to text, or to one error with template and line."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.collections import Collection, Found
from hpckit.documents import nearest
from hpckit.errors import Location, TemplateError
from hpckit.frozen import frozen
from hpckit.kept import kept, stamp
from hpckit.render import sandbox
from hpckit.render.loader import Loader

if TYPE_CHECKING:
    from jinja2.exceptions import TemplateSyntaxError
    from jinja2.sandbox import SandboxedEnvironment

Origin = tuple[str, int]
# A file's number and a line, between characters for private use, which stand in no template.
_MARK = "\ue000(\\d+):(\\d+)\ue001"
# With marks: the number of each file, and the code of each template. Lint renders the same ones for
# many plans.
_MARKED: dict[str, int] = {}
_COMPILED: dict[tuple[str, ...], Any] = {}
# What Python says of values that do not fit: `1 / 0`, `"%(a)s" % {}`, `1e999`.
_OF_VALUES = (TypeError, ValueError, ArithmeticError, LookupError, NameError, RecursionError)


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
    write: Callable[[Any], str] | None = None,
) -> Rendered:
    """Render the template `name` with `context`.

    Args:
        name: of the template.
        context: its variables.
        collections: the search path.
        trace: ask for each line's origin.
        write: writes a value of a report; None: it is a job script.

    Raises:
        TemplateError: unknown template or variable, a syntax error, a value that cannot be quoted,
            or a forbidden operation; with template and line.
    """
    import jinja2

    loader = Loader(collections, script=write is None)
    environment = sandbox.make_environment(loader, write, context if write else None)
    if trace:
        _add_marks(environment)
    if write is None:  # constants in kept code were written for a script
        _compile_once(environment, _made_before if trace else _kept_on_disk)
    found = loader.find(name)
    try:
        template = environment.get_template(found.name)
        text = "".join(template.generate(dict(context)))
        if not trace:
            _refuse_left_out(environment, loader)
    except jinja2.TemplateSyntaxError as error:
        place = error.filename or error.name or found.path
        why = _syntax(error, environment.filters)
        raise TemplateError(why, at=Location(place, error.lineno)) from error
    except jinja2.TemplateNotFound as error:
        raise TemplateError(
            f"Template {found.path} needs {error.name!r}, but no collection has this template. "
            "See `hpckit templates list`."
        ) from error
    except jinja2.UndefinedError as error:
        raise TemplateError(
            f"{(error.message or '').rstrip('.')}. See `hpckit templates vars`.",
            at=_location(error, found),
        ) from error
    except jinja2.TemplateRuntimeError as error:  # the sandbox's SecurityError is one
        raise TemplateError(f"{str(error).rstrip('.')}.", at=_location(error, found)) from error
    except _OF_VALUES as error:
        raise TemplateError(f"{_why(error)}.", at=_location(error, found)) from error
    except (SyntaxError, MemoryError) as error:  # Python's, of what Jinja makes of the template
        why = getattr(error, "msg", "") or type(error).__name__
        raise TemplateError(f"the template is nested too deeply: {why}.", at=found.path) from error
    text, origins = take_marks(text, list(_MARKED)) if trace else (text, ())
    return Rendered(text=text, templates=tuple(loader.used.values()), origins=origins)


def _syntax(error: "TemplateSyntaxError", filters: Iterable[str]) -> str:
    """Say what is wrong; of a misspelt filter, also which there are."""
    why = f"{(error.message or '').rstrip('.')}."
    if wrong := re.fullmatch(r"No filter named '(\w+)'\.", why):
        why += f" {nearest(wrong[1], filter(str.isidentifier, filters))}"
    return why


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "recursion too deep: templates, blocks or macros may use one another in a circle"
    if isinstance(error, TypeError) and "NoneType" in str(error):
        return f"{error}: what is not known is none, so ask `{{% if … is not none %}}` first"
    return f"{error} is not there" if isinstance(error, KeyError) else str(error)


def _refuse_left_out(environment: "SandboxedEnvironment", loader: Loader) -> None:
    """Refuse what Jinja left out of people's own templates, as a misspelt block.

    Raises:
        TemplateError: the first such part.
    """
    for name, found in tuple(loader.used.items()):
        if found.collection.origin == "built-in":
            continue
        from hpckit.render.left_out import left_out  # noqa: PLC0415  # hpckit's own need it not

        for line, message in left_out(environment, name):
            raise TemplateError(message, at=Location(found.path, line))


def _location(error: Exception, found: Found) -> Location:
    """Return file and line of the innermost template frame of an error."""
    place, frame = Location(found.path), error.__traceback__
    while frame:
        filename = frame.tb_frame.f_code.co_filename
        if filename.endswith(".j2"):
            place = Location(filename, frame.tb_lineno)
        frame = frame.tb_next
    return place


def _compile_once(environment: "SandboxedEnvironment", once: Callable[..., Any]) -> None:
    """Let an environment take templates that were compiled before: `once` finds them, or makes."""
    compiled = environment.compile

    def compile_or_take(source: str, name: str, filename: str) -> Any:  # noqa: ANN401
        return once(lambda: compiled(source, name, filename), source, name, filename)

    environment.compile = compile_or_take  # type: ignore[method-assign,assignment]


def _kept_on_disk(make: Callable[[], Any], *made_of: str) -> Any:  # noqa: ANN401
    return kept(make, *made_of, *_compilers())


def _made_before(make: Callable[[], Any], *made_of: str) -> Any:  # noqa: ANN401
    """As `kept`, in this process alone: the files' numbers in marked code are this process's."""
    if made_of not in _COMPILED:
        _COMPILED[made_of] = make()
    return _COMPILED[made_of]


@cache
def _compilers() -> tuple[str, ...]:
    """Return the versions of what turns a template into code."""
    import jinja2

    here, theirs = Path(__file__), Path(jinja2.__file__)
    files = [here.with_name(f"{name}.py") for name in ("sandbox", "filters", "rewriting")]
    return tuple(stamp(str(path)) for path in (*files, theirs.with_name("compiler.py")))


def _add_marks(environment: "SandboxedEnvironment") -> None:
    """Make an environment mark the end of each line of its templates."""
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream

    class Marks(Extension):
        def filter_stream(self, stream: TokenStream) -> Any:  # noqa: ANN401
            number = _MARKED.setdefault(stream.filename or stream.name or "", len(_MARKED))
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


def load() -> None:
    """Import Jinja now; `render` would do it later."""
    import jinja2.sandbox  # noqa: F401


def take_marks(text: str, files: list[str]) -> tuple[str, tuple[Origin | None, ...]]:
    """Return the text without marks, and for each of its lines where it comes from."""
    origins: list[Origin | None] = []
    for line in text.split("\n"):
        mark = re.search(_MARK, line)
        origins.append((files[int(mark[1])], int(mark[2])) if mark else None)
    return re.sub(_MARK, "", text), tuple(origins)
