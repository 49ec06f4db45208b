"""Mistakes on the command line, told in one line: what is wrong, the value, what to do.

typer finds them. Its own text is a usage line, a pointer to --help and the fault in a
programmer's words.
"""

import contextlib
import re
import shlex
from collections.abc import Iterator
from copy import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

from hpckit.cli.front import front_page
from hpckit.errors import RequestError
from hpckit.units import is_ascii_number

_TYPED = "hpckit.typed"
# A word of a line to type that is longer, as an array's values may be, is cut.
_LONGEST_WORD = 80
# What typer calls a kind of number, which its versions spell differently, and what people do.
_PLAINER = {
    r"a valid int(eger)?( range)?\b": "a whole number",
    r"a valid float( range)?\b": "a number",
}


class OwnWordsCommand(TyperCommand):
    """A command that takes words of the user's own after `--`, which typer never sees."""

    more = "[-- ARG...]"

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  # typer's is private
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), self.more]


class SampleCommand(OwnWordsCommand):
    """`sample`, which is nothing without them."""

    more = "-- COMMAND [ARG...]"


class Commands(TyperGroup):
    """All of hpckit's commands; what typer refuses in any of them is told in one line."""

    def make_context(self, info_name: Any, args: list[str], **more: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Read the options before the command."""
        typed = tuple(args)
        with _told(typed, more["obj"]):
            context = super().make_context(info_name, args, **more)
        context.meta[_TYPED] = typed
        return context

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a command, whose options take what is meant as they look."""
        found = super().get_command(ctx, cmd_name)
        _let_be_strict(found)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the first page, the same as without typer."""
        from hpckit.cli import COMMANDS  # noqa: PLC0415  # it imports this module

        del ctx
        formatter.write(front_page(COMMANDS))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Read the command's options and run it."""
        with _told(ctx.meta[_TYPED], ctx.obj):
            return super().invoke(ctx)


def _let_be_strict(command: Any) -> None:  # noqa: ANN401
    """Refuse numbers that only Python takes, as `1_0`, and empty paths, as of an unset variable."""
    for row in getattr(command, "params", ()):
        # int, integer, float, or a range of them, by the version of typer.
        if row.type.name.startswith(("int", "float", "path")):
            row.type = _strict(row.type)
    for inner in getattr(command, "commands", {}).values():
        _let_be_strict(inner)


def _strict(kind: Any) -> Any:  # noqa: ANN401
    plain, name = kind.convert, kind.name.split()[0]
    strict = copy(kind)

    def convert(value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        if name == "path" and value == "":
            kind.fail("it is empty, as of a variable that the shell has not set", param, ctx)
        if name != "path" and isinstance(value, str) and not is_ascii_number(value):
            kind.fail(f"{value!r} is not a valid {name[:3].replace('flo', 'float')}.", param, ctx)
        return plain(value, param, ctx)

    strict.convert = convert
    return strict


@contextlib.contextmanager
def _told(typed: tuple[str, ...], own: tuple[str, ...]) -> Iterator[None]:
    """Turn what typer refuses into an error of ours; help that it prints as one stays help."""
    try:
        yield
    except Exception as error:
        said = getattr(error, "message", "")
        usage = hasattr(error, "format_message") and getattr(error, "exit_code", 0) == 2
        if not usage or said.startswith("Usage:"):
            raise
        raise RequestError(explain(error, typed, own)) from error


def explain(error: Exception, typed: tuple[str, ...], own: tuple[str, ...] = ()) -> str:
    """Return the line about a usage error of typer's.

    Args:
        error: typer's.
        typed: the words before `--`.
        own: those after it, of the user's program.
    """
    command = typed[0] if typed and not typed[0].startswith("-") else ""
    message = str(getattr(error, "message", ""))
    if hasattr(error, "possibilities"):
        return _unknown_option(error, command, typed, own)
    if message.startswith("Got unexpected extra argument"):
        return _too_many(error, message, command, typed, own)
    if message.startswith("No such command"):
        from hpckit.cli.other_programs import AS_OPTION, COMMANDS  # noqa: PLC0415  # as below

        of_group = getattr(getattr(error, "ctx", None), "parent", None) is not None
        if of_group:
            return f"{message} {_see(error, '')}"
        if command in AS_OPTION:
            option = "install-completion" if command == "completion" else command
            return f"No such command {command!r}. It is an option: hpckit --{option}."
        if meant := COMMANDS.get(command):
            message = f"No such command {command!r}. Did you mean {meant!r}?"
        return f"{message} To submit a workload or a program: hpckit submit NAME. {_see(error, '')}"
    said = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    for theirs, ours in _PLAINER.items():
        said = re.sub(theirs, ours, said)
    latest = " (`latest` is the newest run)" if "Missing argument 'JOBID" in said else ""
    return f"{said}{latest}. {_see(error, command)}"


def _path(error: Exception, command: str) -> str:
    """Return the command in its own words, as in `hpckit workloads show`."""
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context else f"hpckit {command}".rstrip()


def _see(error: Exception, command: str) -> str:
    return f"See `{_path(error, command)} --help`."


def _unknown_option(
    error: Exception, command: str, typed: tuple[str, ...], own: tuple[str, ...]
) -> str:
    option = str(getattr(error, "option_name", ""))
    context = getattr(error, "ctx", None)
    known = [name for row in context.command.params for name in row.opts] if context else []
    import difflib  # noqa: PLC0415  # no command needs these but for a mistake

    from hpckit.cli.other_programs import JOBS, LAUNCHERS, OPTIONS  # noqa: PLC0415

    by_itself = f"--no-{option.removeprefix('--')}"
    close = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
    name = option.partition("=")[0]
    other = OPTIONS.get(name) if command == "submit" else None
    meant = other or (close[0] if close else None)
    what = f"{_path(error, command)} has no option {option}."
    hint = f" Did you mean {meant}?" if meant else ""
    if by_itself in known:
        hint = f" It does that without one; {by_itself} switches it off."
    elif name in JOBS and context and _takes_a_job(context.command):
        job = _value(option, typed)
        hint = f" A job's id stands alone: {_path(error, command)} {shlex.quote(job or 'JOBID')}."
    elif command == "submit" and name.replace("_", "-") in LAUNCHERS:
        hint = f" {LAUNCHERS[name.replace('_', '-')]}"
    elif not other and "--sbatch" in known:
        from hpckit.api.options import of_sbatch  # noqa: PLC0415  # as above

        instead = of_sbatch(name, _value(option, typed) or None)
        # Of this command, not of submit: a shell has neither --nodes nor --wait.
        if instead and set(re.findall(r"(?<!\S)--[a-z][a-z-]*", instead)) <= set(known):
            hint = f" {instead}"
    if command == "submit":
        return f"{what}{hint} {_where_own_words_go(option, typed, own, sure=not hint)}"
    if command == "sample":
        last = "The command and its own options go last, after `--`: hpckit sample -- python x.py"
        return f"{what}{hint} {last}"
    if command == "resubmit" and name not in JOBS:
        return f"{what}{hint} {_by_set(option, typed)}"
    if not command and not hint:
        return f"{what} Write the command first, its options after it: hpckit COMMAND [OPTIONS]."
    return f"{what}{hint} {_see(error, command)}"


def _takes_a_job(command: Any) -> bool:  # noqa: ANN401
    return any(str(row.metavar).startswith("JOBID") for row in command.params)


def _where_own_words_go(
    option: str, typed: tuple[str, ...], own: tuple[str, ...], *, sure: bool
) -> str:
    """Say where an option of the user's program goes; `sure`: it can be nothing else."""
    words = [word for word in typed[1:3] if not word.startswith("-")]
    if len(words) < 2:
        return f"{_by_set(option, typed)} Your own program's arguments go last, after `--`."
    there, _ = _given(option, typed)
    rest = [*typed[1 : there.start], *typed[there.stop :], "--", *typed[there], *own]
    # Among other letters, as in -fn4, it is no word that could be moved.
    line = f": hpckit submit {shlex.join(map(_cut, rest))}" if typed[there] else "."
    if not sure:
        return f"If it is your program's, it goes last, after `--`{line}"
    return f"Your program's own arguments go last, after `--`{line}"


def _cut(word: str) -> str:
    return word if len(word) <= _LONGEST_WORD else f"{word[: _LONGEST_WORD - 3]}..."


def _by_set(option: str, typed: tuple[str, ...]) -> str:
    name, value = option.partition("=")[0].lstrip("-"), _value(option, typed) or "VALUE"
    setting = shlex.quote(value if "=" in value else f"{name}={value}")
    return f"A workload's parameter is given by --set, as in --set {setting}."


def _given(option: str, typed: tuple[str, ...]) -> tuple[slice, str]:
    """Return which words are an option and its value, and the value: `--lr 1`, `--lr=1`, `-n1`."""
    joint = "" if len(option) == 2 else "="
    for at, (word, after) in enumerate(zip(typed, (*typed[1:], ""), strict=True)):
        follows = bool(after) and (not after.startswith("-") or after[1:2].isdigit())
        if word == option:
            return slice(at, at + 1 + follows), after if follows else ""
        if word.startswith(f"{option}{joint}"):
            # One letter may be the first of a word of the program's, as in `-lr 0.1`.
            return slice(at, at + 1 + (follows and not joint)), word[len(option + joint) :]
    return slice(0), ""


def _value(option: str, typed: tuple[str, ...]) -> str:
    """Return what was typed as the option's value, if anything."""
    return _given(option, typed)[1]


def _too_many(
    error: Exception, message: str, command: str, typed: tuple[str, ...], own: tuple[str, ...]
) -> str:
    extra = message.partition("argument(s) (")[2].removesuffix(")")
    if command == "submit":
        more = [word for word in typed if word in extra.split()]
        rest = [word for word in typed if word not in more]
        # Unless a word stands there twice, say as an option's value, or has spaces.
        line = f": hpckit {shlex.join(map(_cut, [*rest, '--', *more, *own]))}"
        line = line if " ".join(more) == extra else "."
        return (
            f"submit takes a NAME and a PROGRAM, and there is more: {extra}. Put quotes round a "
            "path with spaces, commas between values of --array; your program's own arguments go "
            f"last, after `--`{line}"
        )
    if command == "sample":
        return f"Write the command after `--`: hpckit sample -- {extra}"
    if command == "resubmit" and "--" in typed:
        return (
            f"resubmit takes no arguments for the program, and there is: {extra}. A run keeps its "
            "own. Give others to hpckit submit; in Python: run.resubmit(args=[...])"
        )
    return f"{_path(error, command)} takes no such word: {extra}. {_see(error, command)}"
