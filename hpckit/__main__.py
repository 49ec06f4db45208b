"""Where the program begins: `hpckit`, and `python -m hpckit` where that is not on PATH."""

import io
import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while it is being imported."""
    _hold_streams()
    try:
        from hpckit.cli import main as command_line  # noqa: PLC0415  # takes most of the start

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


def _hold_streams() -> None:
    """Stand in for streams that were closed: no file of ours may get their numbers.

    What is meant for stdout still fails, as it would in any program; for stderr it is lost.
    """
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(number, "w"), write_through=True)
    else:
        os.close(number)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(os.devnull, "w"))


if __name__ == "__main__":
    main()
