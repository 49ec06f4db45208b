"""The command line: a file per command or group; `main()` ends what an HpckitError reaches.

Only the module of the command that was called is imported: the others are lines in a table, so
that `hpckit --help` starts in a tenth of a second. A command parses, calls `hpckit.api`, prints.

- A command's module has its name; `hpckit status|logs|wait|cancel` are in `runs`.
- What commands share: `options` (made of the fields of `JobSpec`), `arguments`, `carry_out` (a
  submission), `left_running` (what goes on without a command), `view` (a run's status),
  `chosen_task` and `followed` (logs), `rebuild`.
- Everything is printed by `output`, which escapes control characters; `written` are the files that
  a user names. `mistakes` explains command lines that are wrong, with
  the words of `other_programs`.
- Without typer, for a quick start: `front` (`--help`), `show_stats`, and for the Tab key
  `completing`, which reads words.json (`make docs` writes it); `completion` installs it in a shell.
- The live screen, all that knows Textual: `top_screen`, `top_list`, `top_pages`, `top_work`
  (threads), `top_keys`.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from hpckit.cli.front import HELP, VERSION_HELP, front_page
from hpckit.cli.output import note, say, spelling
from hpckit.errors import HpckitError, OutsideError, RequestError, refused_by_disk
from hpckit.interrupts import interrupts
from hpckit.stand_ins import stand_ins
from hpckit.version import __version__

if TYPE_CHECKING:
    import typer

# Command -> first line of its help. `hpckit.cli.NAME` is its module, with `add_to(app)`; those of
# _OF_RUNS are functions of `hpckit.cli.runs`.
COMMANDS = {
    "submit": "Submit a workload, or your own script, as one job or an array; return at once.",
    "shell": "Open a shell on a node, with the site's environment; or go back to one.",
    "jupyter": "Start a notebook server on a node and print the way to it.",
    "ssh-config": "Print an entry for ssh and VS Code that reaches a job's node.",
    "jobs": "List your runs, newest first, with their states.",
    "top": "Watch your jobs on a live screen; --once prints one frame.",
    "free": "Show what is free now: GPUs by type, cores, memory, and the most on one node.",
    "status": "Show the state of a job, why it waits, and its ranks.",
    "logs": "Print the output of a job's ranks (default: rank 0).",
    "wait": "Wait until all jobs are over.",
    "cancel": "End jobs, or remove them from the queue.",
    "resubmit": "Submit a run's request again, with options changed.",
    "code": "Show what of the code changed since a run was submitted, or write it out.",
    "stats": "Show how a job used its GPUs, cores and memory, and what to change.",
    "scale": "Run the same work in several sizes; show time, speed-up and efficiency.",
    "report": "Show GPU-hours held, used and lost: your own, an account's, everybody's.",
    "bad-nodes": "List nodes on which jobs met a fault of the hardware; add or forget one.",
    "clean": "Remove old runs that no unfinished job needs; show them first.",
    "sample": "Run COMMAND, and record how this node's GPUs, cores and memory are used.",
    "workloads": "Programs hpckit can submit.",
    "templates": "Job script templates.",
    "sites": "Clusters, as data.",
    "collections": "Folders of templates, workloads and sites.",
    "init": "Detect the properties of this cluster and write a site file; submits nothing.",
    "doctor": "Check what a submission needs; say what to do.",
}
# What is imported for archives, addresses, dates and other systems, which a command seldom meets,
# and to tell programmers of mistakes.
_TYPERS = (
    *("bz2", "lzma", "ipaddress", "locale", "platform", "shellingham", "uuid", "datetime"),
    *("difflib", "gettext", "linecache", "tokenize", "traceback", "typer.completion"),
)
_OF_RUNS = ("status", "logs", "wait", "cancel")
# Commands that take the user's own words after `--`.
TAKE_REST = ("submit", "scale", "sample")


def make_app(words: list[str]) -> "typer.Typer":
    """Return the app with the command that `words` calls; if none, all as names with their help."""
    with stand_ins(*_TYPERS):
        import typer  # noqa: PLC0415  # the first page and the version start without it

    from hpckit.cli.mistakes import Commands  # noqa: PLC0415

    app = typer.Typer(
        name="hpckit",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    version = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help=VERSION_HELP
    )

    def options(version: bool = version) -> None: ...

    app.callback(help=HELP)(options)
    name = words[0] if words else ""
    if name in _OF_RUNS:
        app.command()(getattr(importlib.import_module("hpckit.cli.runs"), name))
    elif name in COMMANDS:
        importlib.import_module(f"hpckit.cli.{name.replace('-', '_')}").add_to(app)
    else:
        for known, line in COMMANDS.items():
            app.command(known, help=line)(_not_loaded)
    return app


def _not_loaded() -> None:
    """Stand for a command whose name was not the first word."""
    raise RequestError("Write the command first: hpckit COMMAND [OPTIONS].")


def _show_stats(jobs: list[str]) -> NoReturn:
    """Show jobs of whose page nothing else was asked: the most usual command, without typer."""
    # For dataclasses, which ask for what ours have; for `Path.as_uri()`; for encodings.
    with stand_ins("inspect", "urllib.parse", "locale"):
        from hpckit.cli.show_stats import show  # noqa: PLC0415

    show(jobs)
    sys.exit(0)


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _show_version(asked: bool) -> None:
    if asked:
        say(f"hpckit {__version__}")
        sys.exit(0)


def split_dashes(argv: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split the words for the user's own script off, at the first `--`."""
    if "--" not in argv or argv[0] not in TAKE_REST:
        return argv, ()
    at = argv.index("--")
    return argv[:at], tuple(argv[at + 1 :])


def main(argv: list[str] | None = None) -> Any:  # noqa: ANN401
    """Run the command line; turn an error of ours into one line on stderr and an exit status."""
    if shell := os.environ.get("_HPCKIT_COMPLETE"):
        from hpckit.cli.completing import answer  # noqa: PLC0415

        sys.exit(answer(shell, sys.argv[1:] if argv is None else argv))
    words, rest = split_dashes(sys.argv[1:] if argv is None else argv)
    with spelling():
        try:
            _run(words, rest)
        except HpckitError as error:
            note(f"hpckit: error: {error}")
            sys.exit(error.exit_code)
        except BrokenPipeError:  # the reader (head, less) has left
            sys.exit(1)
        except OSError as error:
            refused = refused_by_disk(error)
            note(f"hpckit: error: {refused}")
            sys.exit(refused.exit_code)
        except KeyboardInterrupt:
            sys.exit(130)


def _stand_somewhere() -> None:
    """Refuse to work in a folder that is gone.

    Raises:
        OutsideError: the working directory was deleted.
    """
    try:
        os.getcwd()  # noqa: PTH109  # Path.cwd() is the same call, and pathlib may not be loaded
    except OSError as error:
        raise OutsideError(
            f"The folder you are in, {os.environ.get('PWD', '.')}, no longer exists. "
            "Go to another folder: cd ~"
        ) from error


def _run(words: list[str], rest: tuple[str, ...]) -> None:
    if words in (["--help"], ["-h"]):
        say(front_page(COMMANDS))
        sys.exit(0)
    _show_version(words == ["--version"])
    if words[:1] in (["--install-completion"], ["--show-completion"]):
        if words[1:]:
            raise RequestError(
                f"{words[0]} is for the shell that you type it in: leave {words[1]!r} out."
            )
        from hpckit.cli import completion  # noqa: PLC0415

        (completion.install if words[0].startswith("--install") else completion.show)()
        sys.exit(0)
    if words[:1] and words[0] in COMMANDS and words[0] != "sample":  # whose command runs anyway
        _stand_somewhere()
    with interrupts(note):  # what was started for an answer ends with us
        try:
            if words[:1] == ["stats"] and words[1:] and not any(map(_is_option, words)):
                _show_stats(words[1:])
            make_app(words)(args=words, obj=rest, prog_name="hpckit")
        except SystemExit:  # how each command ends
            sys.stdout.flush()
            raise
