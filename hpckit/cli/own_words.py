"""Commands that take words of the user's own after `--`: how they are used, and mistaken."""

import difflib
import shlex

import typer
from typer.core import TyperCommand

from hpckit.errors import RequestError


class OwnWordsCommand(TyperCommand):
    """A command with more after its options than typer knows of; `more` ends its usage line."""

    more = "[-- ARG...]"

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # typer's Context is its public name
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), self.more]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read the options.

        Raises:
            RequestError: one is not hpckit's; the message says where it goes.
        """
        typed = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if not hasattr(error, "possibilities"):  # typer's mark of an unknown option
                raise
            option = str(getattr(error, "option_name", ""))
            known = [name for row in self.get_params(ctx) for name in row.opts]
            raise RequestError(self.unknown(option, typed, known)) from error

    def unknown(self, option: str, typed: tuple[str, ...], known: list[str]) -> str:
        """Return the error about an option that is not among the `known` ones."""
        raise NotImplementedError


class SubmitCommand(OwnWordsCommand):
    """`submit`: the script's own arguments come after `--`, a workload's by `--set`."""

    def unknown(self, option: str, typed: tuple[str, ...], known: list[str]) -> str:
        """Return the error, and both ways to give an argument."""
        words = [word for word in typed[:2] if not word.startswith("-")]
        line = " ".join(["hpckit submit", *map(shlex.quote, words)])
        value = _value(option, typed)
        name = option.lstrip("-")
        own = f"{line} -- {' '.join(part for part in (option, shlex.quote(value)) if part)}"
        if len(words) == 2:
            return (
                f"hpckit has no option {option}.{_nearest(option, known)} "
                f"Your script's own arguments go last, after `--`: {own}"
            )
        return (
            f"hpckit has no option {option}.{_nearest(option, known)} A workload's parameter is "
            f"given by --set, as in --set {name}={shlex.quote(value or 'VALUE')}; "
            "your own script's arguments go last, after `--`."
        )


class SampleCommand(OwnWordsCommand):
    """`sample`: the command comes after `--`."""

    more = "-- COMMAND [ARG...]"

    def unknown(self, option: str, typed: tuple[str, ...], known: list[str]) -> str:
        """Return the error, and where the command goes."""
        return (
            f"hpckit sample has no option {option}.{_nearest(option, known)} The command and its "
            "own options go last, after `--`: hpckit sample -- python train.py"
        )


def _value(option: str, typed: tuple[str, ...]) -> str:
    """Return what was typed as the option's value, if anything."""
    for number, word in enumerate(typed):
        if word == option and number + 1 < len(typed) and not typed[number + 1].startswith("-"):
            return typed[number + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _nearest(option: str, known: list[str]) -> str:
    close = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
    return f" Did you mean {close[0]}?" if close else ""
