"""The fields of `JobSpec` as options of a command."""

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer

from hpckit.api.options import OPTIONS, TYPES, Option, check_names

# What a command gets of them all: what was typed, by the options' words.
_TYPED = "typed"
_PLAIN = (int, float, bool)


def with_options(
    command: Callable[..., None], *, without: Collection[str] = ()
) -> Callable[..., None]:
    """Give a command an option for each field of `JobSpec`, instead of its parameter `typed`.

    `typed` is then a mapping of words to what was typed; None where nothing was. `without` are
    fields that the command has no option for, or one of its own.
    """
    names = [name for name in OPTIONS if name not in without]
    words = [OPTIONS[name].word for name in names]

    def called(**given: Any) -> None:  # noqa: ANN401
        typed = {word: given.pop(_keyword(word)) for word in words}
        command(**given, **{_TYPED: {word: _given(value) for word, value in typed.items()}})

    signature = inspect.signature(command)
    own = [row for row in signature.parameters.values() if row.name != _TYPED]
    parameters = [
        *map(_parameter, names),
        *(row.replace(kind=row.KEYWORD_ONLY) for row in own),
    ]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called


def help_of(row: Option) -> str:
    """Return the line of an option for people."""
    shown = f" [default: {row.shown_default}]" if row.shown_default else ""
    return row.help.replace("{checks}", ", ".join(check_names())) + shown


def _given(value: Any) -> Any:  # noqa: ANN401
    """Return what was typed; None where nothing was. 0 is something."""
    return None if value is False or value == [] else value


def _keyword(word: str) -> str:
    """Return what the parameter of an option is called: `name` and `site` may be a command's."""
    return f"{word}_option"


def _parameter(name: str) -> inspect.Parameter:
    row = OPTIONS[name]
    annotation = TYPES[name]
    kind: Any = next((one for one in _PLAIN if annotation in (one, one | None)), str)
    if row.read is not None:
        kind = list[str] if annotation == tuple[str, ...] else str
    default = None
    if kind is bool:
        default, declared = False, row.flags
    else:
        kind, declared = kind | None, row.flags
    info = typer.Option(
        *declared,
        metavar=row.metavar,
        help=help_of(row),
        show_default=False,
    )
    return inspect.Parameter(
        _keyword(row.word),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )
