"""Rendering: a template and a context to text, or to one error with template and line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpckit.collections import Collection, Found
from hpckit.errors import TemplateError
from hpckit.render.sandbox import make_environment
from hpckit.render.sources import Loader, find_template
from hpckit.render.tracing import Origin, add_marks, take_marks


@dataclass(frozen=True, kw_only=True, slots=True)
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
    files = add_marks(environment) if trace else []
    found = find_template(name, collections)
    try:
        template = environment.get_template(found.name)
        text = "".join(template.generate(dict(context)))
    except jinja2.TemplateSyntaxError as error:
        place = error.filename or error.name or found.path
        why = (error.message or "").rstrip(".")
        raise TemplateError(f"{place}:{error.lineno}: {why}.") from error
    except jinja2.TemplateNotFound as error:
        raise TemplateError(
            f"Template {found.path} needs {error.name!r}, but no collection has this template. "
            "See `hpckit templates list`."
        ) from error
    except jinja2.UndefinedError as error:
        raise TemplateError(
            f"{_place(error, found)}: {error.message}. See `hpckit templates vars`."
        ) from error
    except jinja2.TemplateRuntimeError as error:  # the sandbox's SecurityError is one
        raise TemplateError(f"{_place(error, found)}: {error}.") from error
    except (TypeError, ValueError, OverflowError, ZeroDivisionError, RecursionError) as error:
        raise TemplateError(f"{_place(error, found)}: {error}.") from error
    except (SyntaxError, MemoryError) as error:  # Python's, of what Jinja makes of the template
        why = getattr(error, "msg", "") or type(error).__name__
        raise TemplateError(f"{found.path}: the template is nested too deeply: {why}.") from error
    text, origins = take_marks(text, files) if trace else (text, ())
    return Rendered(text=text, templates=tuple(loader.used.values()), origins=origins)


def _place(error: Exception, found: Found) -> str:
    """Return file:line of the innermost template frame of an error."""
    place, frame = str(found.path), error.__traceback__
    while frame:
        filename = frame.tb_frame.f_code.co_filename
        if filename.endswith(".j2"):
            place = f"{filename}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
