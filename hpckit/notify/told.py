"""How a supervisor that has taken the job script's place tells that the script is over.

Elsewhere the script's own shell does so: templates/slurm/base.sh.j2.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator

# `TO FROM`: descriptors of the pipes to and from `hpckit.notify.in_job`.
TELLER_VARIABLE = "HPCKIT_TELLER"


@contextlib.contextmanager
def told_at_the_end() -> Iterator[None]:
    """Tell what the process ends with, if there is somebody to tell; wait some seconds at most.

    The first process that does so has the pipes alone: its children inherit nothing.
    """
    words = os.environ.pop(TELLER_VARIABLE, "").split()
    pipes = [int(word) for word in words if word.isdecimal()]
    for pipe in pipes:
        with contextlib.suppress(OSError):
            os.set_inheritable(pipe, False)
    status = 1
    try:
        yield
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    finally:
        if len(pipes) == 2:
            with contextlib.suppress(OSError):
                _tell(pipes[0], pipes[1], status)


def _tell(to: int, back: int, status: int) -> None:
    from hpckit.sinks import SCRIPT_PATIENCE_S  # noqa: PLC0415  # every rank loads this module

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.write(to, f"{status % 256}\n".encode())
    until = time.monotonic() + SCRIPT_PATIENCE_S
    while (left := until - time.monotonic()) > 0:
        if not select.select([back], [], [], left)[0] or not os.read(back, 64):
            return
