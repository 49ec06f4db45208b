"""Where the program begins: `hpckit`, and `python -m hpckit` where that is not on PATH."""

import gc
import io
import os
import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while it is being imported."""
    # Ignored, as some parents leave it, a program's exit status would be lost and read as 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Imports make many objects and no garbage: looking for some would take a twentieth of the time.
    gc.set_threshold(500_000)
    _own_packages_first()
    _hold_streams()
    _speak_utf8()
    try:
        from hpckit.cli import main as command_line  # noqa: PLC0415  # takes most of the start

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Python looks for garbage once more at its end, a twelfth of a dry run: let it find none.
        gc.freeze()


def _own_packages_first() -> None:
    """Look into PYTHONPATH last: it is meant for the user's Python.

    Clusters' modules put packages of other Pythons there, and `PYTHONPATH=$PYTHONPATH:DIR` names
    the working directory where it was empty: a `logging.py` there would end each command. Where
    hpckit itself was found through it, it stays as it is. In jobs `own_python` sees to it.
    """
    told = os.environ.get("PYTHONPATH")
    theirs = {os.path.abspath(word) for word in told.split(os.pathsep)} if told else set()  # noqa: PTH100
    home = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))  # noqa: PTH118, PTH120
    if home not in map(os.path.realpath, theirs):
        sys.path.sort(key=theirs.__contains__)


def _speak_utf8() -> None:
    """Begin again in Python's UTF-8 mode where the locale would have another encoding.

    Files of hpckit are UTF-8 everywhere, and names of others' files may hold any letter: with
    LC_ALL=C and PYTHONUTF8=0 the first one that is not ASCII would end a command. Children are not
    told: how a script reads and writes is its user's choice.
    """
    asked = "utf8" in sys._xoptions  # -X utf8=0, which exec() would only repeat
    if sys.getfilesystemencoding() != "utf-8" and not asked and sys.orig_argv[1:]:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


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
