"""Write hpckit/cli/words.json, all commands and their options, from the commands: `make docs`."""

import json
from pathlib import Path
from typing import Any

import click
import typer

import hpckit.cli
from hpckit.cli import COMMANDS, make_app

PAGE = Path(hpckit.cli.__file__).with_name("words.json")


def words() -> str:
    """Return the file's text: for each command its help and its options."""
    found: dict[str, Any] = {}
    for name, line in COMMANDS.items():
        group = typer.main.get_command(make_app([name]))
        _walk(group.commands[name], name, line, found)  # type: ignore[attr-defined]
    rows = (f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _walk(command: click.Command, name: str, line: str, found: dict[str, Any]) -> None:
    options = {}
    context = click.Context(command, info_name=name)
    for row in command.params:
        if row.param_type_name == "option":
            value = "" if row.is_flag else row.make_metavar(context)  # type: ignore[attr-defined]
            word = next(flag for flag in row.opts if flag.startswith("--"))
            known = {"word": word, "value": value, "help": _first_sentence(row.help)}  # type: ignore[attr-defined]
            options.update(dict.fromkeys(row.opts, known))
    found[name] = {"help": line, "options": options}
    for below, one in getattr(command, "commands", {}).items():
        _walk(one, f"{name} {below}", one.get_short_help_str(100), found)


def _first_sentence(text: str | None) -> str:
    return (text or "").partition(". ")[0].rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(words())
