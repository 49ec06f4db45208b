"""The only module that knows Jinja: strict, sandboxed, and values quoted for the shell by itself.

Every `{{ value }}` is quoted as the environment prints it, so a template's author cannot forget it.
An author who writes quotes round an expression would undo that (`"{{ x }}"` lets `$(…)` run), so
such a template is refused when it is loaded.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hpckit.collections import Collection, Found, content_hash, find_all
from hpckit.documents import nearest
from hpckit.errors import TemplateError
from hpckit.quoting import quoted_expression

if TYPE_CHECKING:  # jinja2 costs 50 ms, so it is imported where it is used
    from jinja2.sandbox import SandboxedEnvironment

# A plan renders to a few kilobytes; a megabyte is a runaway template.
MAX_OUTPUT_BYTES = 1_000_000
_FILTERS = ("length", "first", "last", "sort", "unique", "replace", "lower", "upper", "default",
            "join", "trim", "reject", "select", "list", "int")  # fmt: skip


class ShellCode(str):
    """Text a site's or collection's author wrote as shell code; it is printed as it is."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A script, and every template file that went into it."""

    text: str
    templates: tuple[Found, ...]


def list_templates(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return every template on the search path by its name under `templates/`."""
    return find_all("**/*.j2", "templates", collections)


def find_template(name: str, collections: tuple[Collection, ...]) -> Found:
    """Return the template `name`: a full name, or the short one of `--template` (`base`).

    Raises:
        TemplateError: there is no such template.
    """
    known = list_templates(collections)
    for candidate in (name, f"slurm/{name}.sh.j2", f"{name}.sh.j2"):
        if candidate in known:
            return known[candidate]
    short = [key.removeprefix("slurm/").removesuffix(".sh.j2") for key in known]
    raise TemplateError(
        f"Unknown template {name!r}. {nearest(name, short)} See `hpckit templates list`."
    )


def render(name: str, context: Mapping[str, Any], collections: tuple[Collection, ...]) -> Rendered:
    """Render the template `name` with `context`.

    Raises:
        TemplateError: unknown template or variable, a syntax error, a value that cannot be quoted,
            or a forbidden operation; with template and line.
    """
    import jinja2

    loader = _Loader(collections)
    environment = _environment(loader)
    found = find_template(name, collections)
    try:
        template = environment.get_template(found.name)
        text = _limited(template.generate(dict(context)), found)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{_shown(error.name)}:{error.lineno}: {error.message}.") from error
    except jinja2.TemplateNotFound as error:
        raise TemplateError(
            f"Template {found.path} needs {error.name!r}, which no collection has. "
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
    return Rendered(text=text, templates=tuple(loader.used.values()))


def _limited(chunks: Any, found: Found) -> str:  # noqa: ANN401
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_OUTPUT_BYTES:
            raise TemplateError(f"{found.path}: the script grows over {MAX_OUTPUT_BYTES} bytes.")
        parts.append(chunk)
    return "".join(parts)


def shell_word(value: object) -> str:
    """Quote one value for bash; lists become several words.

    Raises:
        ValueError: the value holds a control character, which no quoting makes safe in a comment
            or an #SBATCH line.
    """
    if isinstance(value, ShellCode):
        return str(value)
    if isinstance(value, list | tuple):
        return " ".join(shell_word(item) for item in value)
    text = str(value)
    if not all(character.isprintable() or character == "\t" for character in text):
        raise ValueError(f"value {text!r} holds a control character, which a script cannot hold")
    return shlex.quote(text)


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


def _environment(loader: "_Loader") -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Environment(ImmutableSandboxedEnvironment):
        def join_path(self, template: str, parent: str) -> str:
            return loader.resolve(template, parent)

    environment = Environment(
        loader=loader.as_jinja(),
        undefined=StrictUndefined,
        autoescape=True,  # so that super() and macros give Markup
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Only filters that give plain values: `safe` and the HTML ones would step round the quoting.
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.globals = {"refuse": _refuse}
    return environment


def _refuse(message: str) -> None:
    """Let a template say no: `{{ refuse("two nodes at most here") }}`."""
    raise TemplateError(f"The template refuses: {message}")


@dataclass(slots=True)
class _Loader:
    """Finds templates on the search path, and remembers which were used.

    A template that extends its own name gets the next one down the path; `NAME:path` reaches into
    the collection called NAME. Inside Jinja such a template is called `NAME:path`.
    """

    collections: tuple[Collection, ...]
    used: dict[str, Found] = field(default_factory=dict)

    def as_jinja(self) -> Any:  # noqa: ANN401
        from jinja2 import FunctionLoader

        return FunctionLoader(self._load)

    def resolve(self, template: str, parent: str) -> str:
        """Return the name `template` stands for when `parent` extends or includes it."""
        if ":" in template:
            return template
        _, _, parent_path = parent.rpartition(":")
        if template != parent_path or parent not in self.used:
            return template
        shadowed = self.used[parent].shadows
        if not shadowed:
            raise TemplateError(
                f"{self.used[parent].path}: extends itself, and no collection further down the "
                f"search path has {template!r}."
            )
        return f"{shadowed[0].name}:{template}"

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        owner, _, path = name.rpartition(":")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise TemplateError(f"Template name {path!r} leads out of the collections.")
        names = [collection.name for collection in self.collections]
        if owner and owner not in names:
            raise TemplateError(f"Unknown collection {owner!r}. {nearest(owner, names)}")
        start = names.index(owner) if owner else 0
        found = list_templates(self.collections[start:]).get(path)
        if found is None or (owner and found.collection.name != owner):
            return None
        source = read_template(found)
        self.used[name] = found
        return source, str(found.path), lambda: True


def read_template(found: Found) -> str:
    """Read a template's source, and refuse expressions inside quotes.

    Raises:
        TemplateError: unreadable, or an expression inside quotes or a here-document.
    """
    try:
        source = found.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"{found.path}: cannot be read: {error}.") from error
    if fault := quoted_expression(source):
        line, expression = fault
        raise TemplateError(
            f"{found.path}:{line}: {expression} stands inside quotes or a here-document. "
            "Take the quotes away: hpckit quotes every value."
        )
    return source


def _place(error: Exception, found: Found) -> str:
    """Return file:line of the innermost template frame of an error."""
    place, frame = str(found.path), error.__traceback__
    while frame:
        filename = frame.tb_frame.f_code.co_filename
        if filename.endswith(".j2"):
            place = f"{filename}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


def _shown(name: str | None) -> str:
    return name or "template"


def template_record(found: Found) -> dict[str, str]:
    """Describe a template for `run.json` and the script's first lines."""
    return {
        "name": found.name,
        "collection": found.collection.name,
        "path": str(Path(found.path)),
        "hash": content_hash(found.path),
    }
