"""The local executor's slurmstepd: `python -m hpckit.payload.keeper SCRIPT`, one per job at a time.

It runs the job script that is open under the number SCRIPT, adopts what the script's processes
leave, and ends all of it: when it is told to by SIGTERM, when its controller is gone, and when the
script has ended. Its status is the script's.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.payload.keeper")

import os
import signal
import sys
import time
from types import FrameType

from hpckit import shell
from hpckit.errors import CommandError
from hpckit.payload.children import die_with_parent, prepare_child, shell_status
from hpckit.payload.last_line import end_with
from hpckit.payload.sweep import adopt_orphans, reap, sweep

_POLL_S = 0.05
# What a job gets to end after SIGTERM; `spawn.py` and its ranks need less.
GRACE_S = 8.0
# What is left running when the script has ended gets to end.
_LEFT_GRACE_S = 2.0


def keep(script: int) -> int:
    """Run a job script to its end, or to ours; leave nothing running."""
    told: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        told.append(signum)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    adopt_orphans()
    # The controller may be killed, and may have been just now.
    controller = os.getppid()
    die_with_parent(signal.SIGTERM)
    child = shell.spawn(
        ["/bin/bash", f"/dev/fd/{script}"], pass_fds=(script,), prepare=prepare_child
    )
    while child.poll() is None and not told and os.getppid() == controller:
        time.sleep(_POLL_S)
        reap([child])
    if child.returncode is None:
        os.killpg(0, signal.SIGTERM)  # the script's processes, and this one, which started them
        left = sweep(GRACE_S, [child], heard=os.getpgrp())
    else:
        left = sweep(_LEFT_GRACE_S, [child])
    if left:
        sys.stderr.write(f"hpckit: still running, and cannot be ended: {', '.join(left)}\n")
    return shell_status(-signal.SIGKILL if child.returncode is None else child.returncode)


def main() -> None:
    """Run the script named on the command line."""
    try:
        sys.exit(keep(int(sys.argv[1])))
    except CommandError as error:  # no room for another process, say
        end_with(f"hpckit: {error}")
