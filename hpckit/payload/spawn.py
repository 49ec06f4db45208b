"""The local executor's srun: `python -m hpckit.payload.spawn NODES TASKS -- COMMAND...`.

Starts NODES x TASKS processes on this machine, each told its place and its simulated node's GPUs;
one that fails ends the others within seconds.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.payload.spawn")

import os
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import CommandError
from hpckit.payload.children import (
    LOCAL_GRACE_S,
    die_with_parent,
    handle_passed,
    prepare_child,
    shell_status,
    stop_all,
)
from hpckit.payload.last_line import end_with
from hpckit.payload.sweep import adopt_orphans, reap, sweep
from hpckit.payload.task import JOB_ROOT

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.05
# What the ranks have left running gets to end, as at the end of a step of Slurm's.
_LEFT_GRACE_S = 1.0


def task_environments(nodes: int, tasks: int, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return one environment per process, rank by rank, in submitit's local words.

    `HPCKIT_NODE_GPUS` holds the GPUs of all simulated nodes; each node gets its even share as
    CUDA_VISIBLE_DEVICES, so that local rank means the same as on a cluster.
    """
    gpus = [gpu for gpu in environ.get("HPCKIT_NODE_GPUS", "").split(",") if gpu]
    share = len(gpus) // nodes
    environments = []
    for rank in range(nodes * tasks):
        node = rank // tasks
        place = {
            "SUBMITIT_LOCAL_GLOBALID": str(rank),
            "SUBMITIT_LOCAL_LOCALID": str(rank % tasks),
            "SUBMITIT_LOCAL_NODEID": str(node),
            "SUBMITIT_LOCAL_NTASKS": str(nodes * tasks),
            "SUBMITIT_LOCAL_JOB_NUM_NODES": str(nodes),
        }
        if gpus:
            place["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[node * share : (node + 1) * share])
        environments.append({**environ, **place})
    return environments


def run_all(command: list[str], environments: list[dict[str, str]]) -> int:
    """Run one process per environment; return the first failing status, ending the others."""
    children: list[Popen[bytes]] = []
    told: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        told.append(signum)

    def pass_on(signum: int, _frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(signum)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    handle_passed(pass_on)
    adopt_orphans()
    for environment in environments:
        children.append(
            shell.spawn(command, env=environment, new_session=True, prepare=prepare_child)
        )
    while None in (codes := [child.poll() for child in children]) and not told:
        if any(codes):
            break
        time.sleep(_POLL_S)
        reap(children)
    # The numbers of those that ended may be others' by now; what they left is adopted, and swept.
    stop_all([child for child in children if child.returncode is None], LOCAL_GRACE_S)
    sweep(_LEFT_GRACE_S, children)
    if told:
        return 128 + told[0]
    return next(
        (shell_status(code) for code in codes if code),
        max(shell_status(child.returncode) for child in children),
    )


def main() -> None:
    """Run the command line described above."""
    nodes, tasks, dashes, *command = sys.argv[1:]
    if dashes != "--" or not command:
        end_with("usage: python -m hpckit.payload.spawn NODES TASKS -- COMMAND...")
    os.environ.setdefault(JOB_ROOT, str(os.getppid()))
    # The job script's shell started this, and cannot end it when the controller is killed.
    die_with_parent(signal.SIGTERM)
    try:
        sys.exit(run_all(command, task_environments(int(nodes), int(tasks), os.environ)))
    except CommandError as error:  # the ranks that did start end with this process
        end_with(f"hpckit: {error}")
