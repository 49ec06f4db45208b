"""Runs an MPI script so that a rank that fails ends at once, under the environment's own Python.

mpi4py calls MPI_Finalize when Python ends, and MPI_Finalize waits for all ranks: one that raised,
or called sys.exit(3), would wait there for the others, which wait for it in their next message.
Here an uncaught error, or an exit status other than 0, ends the process without MPI_Finalize, after
its threads and exit handlers have had their turn; hpckit's supervisor then ends the other ranks.
`python -m mpi4py` calls MPI_Abort instead, at which Slurm's PMIx kills the whole step before
anybody can write down which rank it was.

The supervisor hands the text of this file over in `HPCKIT_MPI_SCRIPT`, since a container may not
see hpckit's folder; any Python from 3.6 on can run it, and nothing of it stays in `__main__`.
"""

import atexit
import os
import socket
import sys
import threading
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path

NAME = "hpckit_mpi_script"
# What `python -c` gets; the text itself would fill the lines of `ps`. `-c` has the folder that the
# job runs in looked into first: somebody else's socket.py may lie there.
STARTER = (
    "__import__('sys').path[:] = filter(None, __import__('sys').path); "
    f"exec(__import__('os').environ['HPCKIT_MPI_SCRIPT'], {{'__name__': '{NAME}'}})"
)

# What threads and exit handlers get to end in; one that waits for other ranks would never do so.
_GRACE_S = 5.0


def run(path: str) -> None:
    """Run the script at `path` as `python path` would; `-m`: the module that is named next."""
    module = path == "-m"
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, str(Path.cwd() if module else Path(path).resolve().parent))
    atexit.register(_leave)  # the first one registered is the last one called
    try:
        _run_module(sys.argv.pop(1)) if module else _run_file(path)
    except SystemExit as request:
        _failed(_status_of(request.code))
        raise
    except BaseException as error:  # noqa: BLE001  # as the interpreter itself does
        # Without the frames of this file, as users know their tracebacks.
        trace = error.__traceback__ and error.__traceback__.tb_next
        trace = trace and trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        _failed(130 if isinstance(error, KeyboardInterrupt) else 1)
        sys.exit(_status[0])


def _run_file(path: str) -> None:
    main = sys.modules["__main__"].__dict__
    loader = SourceFileLoader("__main__", path)
    main.update(__file__=path, __cached__=None, __loader__=loader, __doc__=None)
    exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), main)  # noqa: S102


def _run_module(name: str) -> None:
    """Run a module as `python -m` does: in `__main__`, with its file as the first argument."""
    import runpy  # noqa: PLC0415  # few scripts are modules

    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what -m calls


_status = [0]


def _status_of(code: object) -> int:
    """Return the exit status that Python makes of what sys.exit was given."""
    if code is None:
        return 0
    if not isinstance(code, int):
        return 1
    # Python ends with -1 for a number that C's long cannot hold.
    return code & 0xFF if -sys.maxsize <= code <= sys.maxsize else 255


def _failed(status: int) -> None:
    _status[0] = status
    if status:
        timer = threading.Timer(_GRACE_S, _leave)
        timer.daemon = True
        timer.start()


def _leave() -> None:
    """End without MPI_Finalize, if this rank has failed and MPI is up."""
    mpi = sys.modules.get("mpi4py.MPI")
    if not _status[0] or mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        # Closed, or its disk is full: nobody is left to tell.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    _tell_supervisor(_status[0])
    os._exit(_status[0])


def _tell_supervisor(status: int) -> None:
    """Let the supervisor write this rank's end down, before MPI notices that it is gone."""
    with suppress(KeyError, ValueError, OSError):  # a container may have closed it
        line = socket.socket(fileno=int(os.environ["HPCKIT_END_FD"]))
        line.settimeout(_GRACE_S)
        line.sendall(b"%d\n" % status)
        line.recv(1)


if __name__ == NAME:
    sys.argv = sys.argv[1:]
    run(sys.argv[0])
