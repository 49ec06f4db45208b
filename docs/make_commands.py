"""Write docs/commands.md and the man page docs/hpckit.1 from the commands: `make pages`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import typer

from hpckit.cli import COMMANDS, make_app
from hpckit.cli.front import HELP
from hpckit.cli.front import OPTIONS as FRONT
from hpckit.cli.options import help_of
from hpckit.job_spec.spec import OPTIONS
from hpckit.version import __version__

PAGE = Path(__file__).with_name("commands.md")
MAN = Path(__file__).with_name("hpckit.1")
ENVIRONMENT = {
    "HPCKIT_RUNS": "The folder of runs, where --runs is not given.",
    "HPCKIT_SITE": "The site, where --site is not given.",
    "HPCKIT_COLLECTIONS": "Folders of templates, workloads and sites, separated by colons.",
    "HPCKIT_PATIENCE": "For how many seconds one command may wait for Slurm's answers.",
    "HPCKIT_SHARE_GPUS": "If it is set, this machine's jobs may share GPUs with one another.",
    "NO_COLOR": "If it is set, nothing is coloured.",
}
EXITS = {
    "0": "Good.",
    "1": "The job, or the operation, failed; or the reader of stdout has left, as `| head` does.",
    "2": "The request is wrong.",
    "3": "Something outside hpckit is missing or refused, or stdout is full or closed.",
    "130": "Stopped by Ctrl-C, SIGTERM or SIGHUP.",
}
FILES = {
    "~/.config/hpckit/": "The user's own sites, templates, workloads and config.yaml.",
    "/etc/hpckit/": "The same, for all users of a machine.",
    "./runs/": "A folder for each run, if nothing names another place.",
    "~/.local/state/hpckit/runs.jsonl": "Where the user's runs are.",
}
# As many options of a job as must be in a command before they are named in one line.
FEW = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """An argument or an option: as it is typed, and what it says."""

    typed: str
    about: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What `--help` says of a command; `of_job` are options that stand in options.md."""

    name: str
    usage: str
    about: str
    rows: tuple[Row, ...]
    of_job: tuple[str, ...]


def commands() -> Iterator[Command]:
    """Yield each command and those below it."""
    for name in COMMANDS:
        group = typer.main.get_command(make_app([name]))
        yield from _walk(group.commands[name], name)  # type: ignore[attr-defined]


def _walk(command: click.Command, name: str) -> Iterator[Command]:
    context = click.Context(command, info_name=name)
    job = {row.flags[0]: sorted(row.flags) for row in OPTIONS.values()}
    of_job = [row.opts[0] for row in command.params if sorted(row.opts) == job.get(row.opts[0])]
    folded = of_job if len(of_job) > FEW else []
    rows = [_row(row, context) for row in command.params if row.opts[0] not in folded]
    yield Command(
        name=name,
        usage=" ".join(["hpckit", name, *command.collect_usage_pieces(context)]),
        about=(command.help or "").strip(),
        rows=tuple(row for row in rows if row),
        of_job=tuple(folded),
    )
    for below, one in getattr(command, "commands", {}).items():
        yield from _walk(one, f"{name} {below}")


def _row(row: click.Parameter, context: click.Context) -> Row | None:
    about = " ".join((getattr(row, "help", None) or "").split())
    if row.param_type_name == "argument":
        return Row(typed=row.make_metavar(context), about=about)
    if getattr(row, "hidden", False):
        return None
    default = getattr(row, "show_default", False) and row.default
    if default and not getattr(row, "is_flag", False):
        about += f" [default: {default}]"
    value = "" if row.is_flag else f" {row.make_metavar(context)}"  # type: ignore[attr-defined]
    return Row(typed=", ".join(sorted(row.opts, key=len)) + value, about=about)


_TOP = """\
# Commands

`hpckit COMMAND --help` shows the same, and `man hpckit`, where hpckit is installed by pip in a folder whose `bin` is on your PATH. This page and the man page
are made from the commands by `make docs`.
"""
_OF_JOB = "It takes options of a job, too ([options.md](options.md)): "


def page() -> str:
    """Return the text of docs/commands.md."""
    parts = [_TOP, *map(_section, commands())]
    for heading, rows in (("Environment variables", ENVIRONMENT), ("Exit statuses", EXITS)):
        parts.append(f"\n## {heading}\n\n" + _table(Row(typed=k, about=v) for k, v in rows.items()))
    return "".join(parts)


def _section(command: Command) -> str:
    depth = "##" if " " not in command.name else "###"
    lines = [f"\n{depth} hpckit {command.name}\n", f"{_plain(command.about)}\n"]
    lines.append(f"```text\n{command.usage}\n```\n")
    if command.rows:
        lines.append(_table(command.rows))
    if command.of_job:
        lines.append(_OF_JOB + ", ".join(f"`{word}`" for word in command.of_job) + ".\n")
    return "\n".join(lines)


def _table(rows: Iterator[Row] | tuple[Row, ...]) -> str:
    cells = (f"| `{_bar(row.typed)}` | {_bar(_plain(row.about))} |\n" for row in rows)
    return "| | |\n|---|---|\n" + "".join(cells)


def _bar(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Escape what Markdown would take for its own, outside of backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts
    )


def man() -> str:
    """Return the text of the man page, in roff's macros for them."""
    lines = [
        ".\\\" Made by `make pages` from hpckit's commands.",
        f'.TH HPCKIT 1 "" "hpckit {__version__}" "User commands"',
        ".SH NAME",
        f"hpckit \\- {_roff(HELP[0].lower() + HELP[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B hpckit",
        '.RI [ OPTIONS ] " COMMAND " [ ARGS ]...',
        ".SH DESCRIPTION",
        "hpckit submits programs to Slurm, or starts them on this machine, and shows what became of",
        "them. Each submission is a run with a folder of its own.",
        ".SH OPTIONS",
        *_list(FRONT),
        ".SH COMMANDS",
    ]
    for command in commands():
        lines += [
            f'.SS "{_roff(f"hpckit {command.name}")}"',
            ".nf",
            _roff(command.usage),
            ".fi",
            ".PP",
        ]
        paragraphs = [_roff(" ".join(part.split())) for part in command.about.split("\n\n")]
        lines += "\n.PP\n".join(paragraphs).splitlines()
        lines += _list({row.typed: row.about for row in command.rows})
        if command.of_job and command.name != "submit":
            words = ", ".join(command.of_job)
            lines += [".PP" if command.rows else "", _roff(f"And as of submit: {words}.")]
        elif command.of_job:
            lines += _list({
                f"{', '.join(row.flags)} {row.metavar or ''}".strip(): help_of(row)
                for row in OPTIONS.values()
            })  # fmt: skip
    for heading, rows in (("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES), ("EXIT STATUS", EXITS)):
        lines += [f'.SH "{heading}"', *_list(rows)]
    lines += [".SH SEE ALSO", '.BR sbatch (1), " srun" (1), " squeue" (1), " sacct" (1)']
    return "\n".join(line for line in lines if line) + "\n"


def _list(rows: dict[str, str]) -> list[str]:
    return [
        line
        for name, about in rows.items()
        for line in (".TP", f'.B "{_roff(name)}"', _roff(about) or "\\&")
    ]


def _roff(text: str) -> str:
    """Return a line of text as roff prints it, whatever letters it begins with."""
    plain = text.replace("`", "").replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    plain = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in plain)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    MAN.write_text(man(), encoding="utf-8")
