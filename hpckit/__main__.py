"""Where the program begins: `hpckit`, and `python -m hpckit` where that is not on PATH."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while it is being imported."""
    try:
        from hpckit.cli import main as command_line  # noqa: PLC0415  # takes most of the start

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
