"""The local executor's srun: `python -m hpckit.payload.spawn NODES TASKS -- COMMAND...`.

Starts NODES x TASKS processes on this machine, each told its place and its simulated node's GPUs;
one that fails ends the others within seconds.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from hpckit import shell
from hpckit.payload.children import (
    die_with_parent,
    handle_passed,
    prepare_child,
    shell_status,
    stop_all,
)

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.05
_GRACE_S = 5.0


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

    def end(signum: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signum, signal.SIG_IGN)
        stop_all(children, _GRACE_S)
        sys.exit(128 + signum)

    def pass_on(signum: int, _frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(signum)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    handle_passed(pass_on)
    for environment in environments:
        children.append(
            shell.spawn(command, env=environment, new_session=True, prepare=prepare_child)
        )
    while None in (codes := [child.poll() for child in children]):
        if failed := next((code for code in codes if code), None):
            stop_all(children, _GRACE_S)
            return shell_status(failed)
        time.sleep(_POLL_S)
    return max(shell_status(child.returncode) for child in children)


def main() -> None:
    """Run the command line described above."""
    nodes, tasks, dashes, *command = sys.argv[1:]
    if dashes != "--" or not command:
        sys.exit("usage: python -m hpckit.payload.spawn NODES TASKS -- COMMAND...")
    # The job script's shell started this, and cannot end it when the controller is killed.
    die_with_parent(signal.SIGTERM)
    sys.exit(run_all(command, task_environments(int(nodes), int(tasks), os.environ)))


if __name__ == "__main__":
    main()
