"""The command line: one small file per command; `main()` is the only catch of HpckitError."""

import sys
from typing import Any

import typer

from hpckit import __version__
from hpckit.cli import (
    cancel,
    collections,
    jobs,
    logs,
    resubmit,
    sites,
    status,
    submit,
    templates,
    wait,
    workloads,
)
from hpckit.cli.arguments import split_dashes
from hpckit.errors import HpckitError

app = typer.Typer(
    name="hpckit",
    help="Submit multi-GPU work to Slurm with one line, and see what became of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (submit, jobs, status, logs, wait, cancel, resubmit):
    module.add_to(app)
for module in (workloads, templates, sites, collections):
    module.add_to(app)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"hpckit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(  # the callback does it
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Submit multi-GPU work to Slurm with one line, and see what became of it."""


def main(argv: list[str] | None = None) -> Any:  # noqa: ANN401
    """Run the command line; turn an error of ours into one line on stderr and an exit status."""
    words, rest = split_dashes(sys.argv[1:] if argv is None else argv)
    try:
        app(args=words, obj=rest, prog_name="hpckit")
    except HpckitError as error:
        print(f"hpckit: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has left; keep Python from complaining at its own exit.
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
