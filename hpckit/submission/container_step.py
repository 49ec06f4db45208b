"""How a process that has taken the job script's place ends the step of Pyxis's containers.

Elsewhere the script's own shell does so: templates/environments/pyxis.sh.j2.
"""

import contextlib
import os
import time
from collections.abc import Iterator

# `PID FD`: the step's srun, which is this process's child, and its stdin, with which it ends.
STEP_VARIABLE = "HPCKIT_CONTAINER_STEP"
# Slurm would cancel the step, and say so in the job's log. Pyxis removes the container's files.
_PATIENCE_S, _PAUSE_S = 20.0, 0.05


@contextlib.contextmanager
def step_ended_at_the_end() -> Iterator[None]:
    """End the step with this process, if there is one; children of this process never hold it."""
    words = [word for word in os.environ.pop(STEP_VARIABLE, "").split() if word.isdecimal()]
    if len(words) != 2:
        yield
        return
    pid, stdin = map(int, words)
    with contextlib.suppress(OSError):
        os.set_inheritable(stdin, False)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.close(stdin)
            until = time.monotonic() + _PATIENCE_S
            while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
                time.sleep(_PAUSE_S)
