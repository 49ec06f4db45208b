"""One rank: its environment, its logs, its record, and the user's script as its child.

`python -m hpckit.payload.rank` is what torchrun and mpirun start for each rank.
"""

import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

from hpckit import shell
from hpckit.errors import CommandError
from hpckit.localjob import read_local_state
from hpckit.payload.children import (
    die_with_parent,
    prepare_child,
    shell_status,
    signal_group,
    stop_all,
    wait_for,
)
from hpckit.payload.device import choose_device
from hpckit.payload.orphan import end_job
from hpckit.payload.place import Place, find_place, mpi_source
from hpckit.payload.task import Task, task_from_json
from hpckit.ranks import RankRecord, first_failure, read_ranks, write_rank
from hpckit.runs import FOLDER_MODE, open_to_write
from hpckit.stats.sampler.start import start_sampler, stop_sampler, write_summary
from hpckit.tracebacks import last_error

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

TASK_VARIABLE = "HPCKIT_TASK"
# What a rank gets to end after another one failed. Long enough for a traceback to be written.
_GRACE_AFTER_FAILURE_S = 3.0
# Slurm's own KillWait, where slurmstepd is no longer there to keep it.
_GRACE_ALONE_S = 30.0
_POLL_S = 0.05
# Where a script finds `hpckit.parallel`, also under a Python that lacks hpckit.
_IMPORTABLE = str(Path(__file__).parent / "importable")


class RankProcess:
    """The user's script of one rank, from start to record.

    `start`, then `wait`; `stop` and `forward` may come from signal handlers in between.
    """

    def __init__(self, task: Task, place: Place) -> None:
        self.task = task
        self.place = place
        self._child: Popen[bytes] | None = None
        self._stop_at: float | None = None
        self._stopped_by: int | None = None
        self._alone = False

    def run(self) -> int:
        """Run the script to its end; return its exit status as a shell would give it."""
        device, warning = choose_device(self.task.device)
        logs = self.task.folder / "logs"
        logs.mkdir(mode=FOLDER_MODE, exist_ok=True)
        (self.task.folder / "ranks").mkdir(mode=FOLDER_MODE, exist_ok=True)
        out, err = (logs / f"{self.place.rank}.{end}" for end in ("out", "err"))
        with open_to_write(out, "ab") as stdout, open_to_write(err, "ab") as stderr:
            errors_from = stderr.tell()
            if warning and self.place.rank == 0:
                _say(stderr, warning)
            record = self._record(device)
            write_rank(self.task.folder, record)
            sampler = self._start_sampler()
            try:
                code = self._run_child(device, stdout, stderr, record)
            except CommandError as error:
                _say(stderr, f"hpckit: {error}")
                code = 127
            finally:
                stop_sampler(sampler)
        self._finish(code, err, errors_from)
        if self._alone:
            end_job(self.task)
        if self.place.rank == 0 and self.task.sample_interval_s > 0:
            write_summary(self.task.folder)
        return code

    def forward(self, signum: int) -> None:
        """Pass a signal to the script itself, not to its own children."""
        if self._child and self._child.poll() is None:
            self._child.send_signal(signum)

    def settle(self, seconds: float) -> None:
        """Wait for the script to end by itself after a stop signal."""
        wait_for(self._child, seconds)

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        """End the script: Slurm, a colleague rank's failure or the user wants it so.

        After another rank's failure the script gets three seconds; else it has until Slurm's own
        KillWait, since a script may use SIGTERM to save its state before a preemption.
        """
        self._stopped_by = signum
        if self._child and self._child.poll() is None:
            signal_group(self._child, signal.SIGTERM)
        if self._stop_at is None and first_failure(read_ranks(self.task.folder)):
            self._stop_at = time.monotonic() + _GRACE_AFTER_FAILURE_S

    def _start_sampler(self) -> "Popen[bytes] | None":
        """Start this node's sampler, on its first rank; before the script, so that it sees all."""
        ids = {"run_id": self.task.run_id, "restart": str(restart_count())}
        folder, interval_s = self.task.folder / "samples", self.task.sample_interval_s
        if self.place.local_rank != 0:
            return None
        if self.task.executor != "local":
            return start_sampler(folder, interval_s, ids)
        if self.place.node_rank != 0:
            return None  # simulated nodes are one machine: one sampler sees all of it
        state = read_local_state(self.task.folder)
        environ = {**os.environ, "CUDA_VISIBLE_DEVICES": os.environ.get("HPCKIT_NODE_GPUS", "")}
        return start_sampler(
            folder,
            interval_s,
            ids,
            root_pid=state.pid if state else None,
            environ=environ if environ["CUDA_VISIBLE_DEVICES"] else None,
        )

    def _record(self, device: str) -> RankRecord:
        return RankRecord(
            rank=self.place.rank,
            restart=restart_count(),
            host=socket.gethostname(),
            device=device,
            pid=os.getpid(),
            started=time.time(),
        )

    def _run_child(
        self, device: str, stdout: IO[bytes], stderr: IO[bytes], record: RankRecord
    ) -> int:
        child = shell.spawn(
            self.task.command,
            env=rank_environment(self.task, self.place, device),
            stdout=stdout,
            stderr=stderr,
            new_session=True,
            # MPI's PMI hands its ranks an open descriptor (PMI_FD); Python's own are closed anyway.
            close_fds=False,
            prepare=prepare_child,
        )
        self._child = child
        write_rank(self.task.folder, replace(record, pid=child.pid))
        parent = os.getppid()
        while child.poll() is None:
            time.sleep(_POLL_S)
            if not self._alone and os.getppid() != parent:
                # slurmstepd was killed: Slurm cannot end this script any more.
                self._alone, self._stop_at = True, time.monotonic() + _GRACE_ALONE_S
                self.stop(signal.SIGTERM)
            if self._stop_at is not None and time.monotonic() > self._stop_at:
                signal_group(child, signal.SIGKILL)
        stop_all([child], grace_s=0)  # what the script left running ends with it
        return shell_status(child.returncode)

    def _finish(self, code: int, err: Path, errors_from: int) -> None:
        records = read_ranks(self.task.folder)
        mine = next(row for row in records if row.rank == self.place.rank)
        others = [row for row in records if row.rank != self.place.rank]
        error = last_error(err, errors_from) if code else None
        if self._stopped_by and code:
            error = f"ended by {signal.Signals(self._stopped_by).name}"
        write_rank(
            self.task.folder,
            replace(
                mine,
                ended=time.time(),
                exit_code=code,
                error=error,
                consequence=bool(self._stopped_by and first_failure(others)),
            ),
        )


def rank_environment(task: Task, place: Place, device: str) -> dict[str, str]:
    """Return the environment of one rank's script."""
    environment = {
        **os.environ,
        **place.environment(),
        "HPCKIT_RUN_DIR": task.run_dir,
        "HPCKIT_RUN_ID": task.run_id,
        "HPCKIT_RESTART": str(restart_count()),
        "HPCKIT_DEVICE": device,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([_IMPORTABLE, *_python_path()])),
    }
    environment.pop(TASK_VARIABLE, None)
    return environment


def _python_path() -> list[str]:
    return [word for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]


def restart_count() -> int:
    """Return how often the job was started again: Slurm's count, or the local controller's."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or os.environ.get("HPCKIT_RESTART") or 0)


def _say(stream: IO[bytes], line: str) -> None:
    stream.write(f"{line}\n".encode())
    stream.flush()


def main() -> None:
    """Run one rank that torchrun or mpirun started."""
    # torchrun and mpirun start ranks in sessions of their own, and do not end them when killed.
    die_with_parent(signal.SIGKILL)
    task = task_from_json(os.environ[TASK_VARIABLE])
    source = "torchrun" if task.launcher == "torchrun" else mpi_source(os.environ)
    rank = RankProcess(task, find_place(source, task.tasks_per_node, os.environ))
    signal.signal(signal.SIGTERM, rank.stop)
    signal.signal(signal.SIGINT, rank.stop)
    signal.signal(signal.SIGUSR2, lambda signum, _: _stop_signal(task, rank, signum))
    sys.exit(rank.run())


def _stop_signal(task: Task, rank: RankProcess, signum: int) -> None:
    # Under torchrun the node's supervisor signals the scripts itself: once is enough.
    if task.handles_stop_signal and task.launcher != "torchrun":
        rank.forward(signum)


if __name__ == "__main__":
    main()
