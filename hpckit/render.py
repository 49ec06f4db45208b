"""The only module that knows Jinja: strict, sandboxed, and values quoted for the shell by itself.

Every `{{ value }}` is quoted as the environment prints it, so a template's author cannot forget it.
An author who writes quotes round an expression would undo that (`"{{ x }}"` lets `$(…)` run), so
such a template is refused when it is loaded.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hpckit.collections import Collection, Found, content_hash, find_all
from hpckit.documents import nearest
from hpckit.errors import TemplateError
from hpckit.quoting import quoted_expression, shell_word

if TYPE_CHECKING:  # jinja2 costs 50 ms, so it is imported where it is used
    from jinja2.sandbox import SandboxedEnvironment

# A plan renders to a few kilobytes; a megabyte is a runaway template.
MAX_OUTPUT_BYTES = 1_000_000
_FILTERS = ("length", "first", "last", "sort", "unique", "replace", "lower", "upper", "default",
            "join", "trim", "reject", "select", "list", "int")  # fmt: skip


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
