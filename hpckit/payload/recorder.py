"""The record of one rank: its logs, that it has begun, and how and why it ended."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from hpckit.errors import JobError
from hpckit.files import DamagedFileError, read_tail
from hpckit.job_ends.mpi_ends import is_mpi_end
from hpckit.job_ends.tracebacks import (
    HANGS_AT_END,
    OUT_OF_MEMORY,
    last_error,
    last_words,
    says_why,
    signal_error,
    silent_error,
)
from hpckit.launchers import find_launcher
from hpckit.payload.task import Task
from hpckit.rank_variables import RankPlacement, restart_count
from hpckit.run_folders.ranks import Fault, RankRecord, write_rank
from hpckit.run_folders.run_files import FOLDER_MODE, JOB_LOG, open_to_write, patiently
from hpckit.stats.sampler.cgroup import find_cgroup

# A script that wrote an error, and then nothing for so long before a signal ended it, had failed
# already. What it writes because of the signal is younger, even by a file server's clock.
_QUIET_S = 20.0
_KILLED = 137  # by SIGKILL
# After an error of the hardware, libraries may still write a lot.
_FAULT_BYTES = 1 << 18


class Recorder:
    """Writes the record of one rank. Its process sets the attributes as it learns of them.

    Attributes:
        stopped_by: the signal by which hpckit, Slurm or the user ended the script.
        own_error: why the program did not start, or why hpckit ended it in the middle.
        met: whether the script joined other ranks, as it says itself.
        hangs: whether it was done long before its end, and Python did not exit.
        alone: whether its slurmstepd was killed.
    """

    def __init__(self, task: Task, place: RankPlacement) -> None:
        self.task = task
        self.place = place
        self.stopped_by: int | None = None
        self.own_error: str | None = None
        self.met: bool | None = None
        self.hangs = False
        self.alone = False
        self._record: RankRecord | None = None
        self._earlier: list[RankRecord] | None = None
        self._began_s = 0.0
        self._starts = {"out": 0, "err": 0}
        self._failed_before: str | None = None
        self._oom_kills = oom_kills()

    @contextmanager
    def logs(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open the logs of stdout and stderr, to append to what an earlier attempt wrote.

        Raises:
            JobError: they, or the record meanwhile, cannot be written.
        """
        try:
            with self._open_log("out") as stdout, self._open_log("err") as stderr:
                self._starts = {"out": stdout.tell(), "err": stderr.tell()}
                yield stdout, stderr
        except OSError as error:
            raise JobError(
                f"rank {self.place.rank} on {os.uname().nodename} cannot write to "
                f"{self.task.folder}: {error.strerror}. The rank's end is not recorded."
            ) from error

    def _open_log(self, end: str) -> IO[bytes]:
        return patiently(lambda: self._opened(self._log(end)))

    @staticmethod
    def _opened(path: Path) -> IO[bytes]:
        try:
            return open_to_write(path, "ab")
        except FileNotFoundError:  # the first rank to come makes the folder
            path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
            return open_to_write(path, "ab")

    def _log(self, end: str) -> Path:
        return self.task.folder / "logs" / f"{self.place.rank}.{end}"

    def begin(self, device: str) -> None:
        """Remember that this rank begins; `started` writes it down."""
        self._began_s = time.monotonic()
        self._record = RankRecord(
            rank=self.place.rank,
            restart=restart_count(),
            host=os.uname().nodename,
            device=device,
            pid=os.getpid(),
            started=time.time(),
            log_start=_size(self.task.folder / JOB_LOG),
            cluster=os.environ.get("SLURM_CLUSTER_NAME"),
            node=slurm_node(
                os.uname().nodename,
                os.environ,
                by_srun=find_launcher(self.task.launcher).ranks_are_tasks,
            ),
        )

    @property
    def node(self) -> str | None:
        """Slurm's name of this node; None: it is not known."""
        return self._record.node if self._record else None

    def started(self, pid: int) -> None:
        """Write down that this rank has begun, and the number of the script's process."""
        if self._record:
            out, err = self._starts["out"], self._starts["err"]
            self._write(replace(self._record, pid=pid, out_start=out, err_start=err))

    def stopped(self, signum: int) -> None:
        """Remember the signal that ends the script, and whether the script had failed before it."""
        if self.stopped_by is None:
            logs = self._log("err"), self._log("out")
            self._failed_before = silent_error(*logs, self._starts["err"], _QUIET_S)
        self.stopped_by = signum

    def finish(self, code: int, *, by_signal: bool) -> None:
        """Write down this rank's end, unless that was done before.

        Args:
            code: the exit status as a shell gives it.
            by_signal: whether a signal ended the script; if not, it chose that status itself.
        """
        if self._record is None or self._record.ended is not None:
            return
        error = last_error(self._log("err"), self._starts["err"]) if code else None
        told = error and says_why(error) and not is_mpi_end(error)
        words = None if told else self._last_words(code)
        self._write(
            replace(
                self._record,
                # By the monotonic clock: somebody may have set the other one meanwhile.
                ended=self._record.started + time.monotonic() - self._began_s,
                exit_code=code,
                met=self.met,
                error=self._why(code, error, by_signal=by_signal),
                last_words=words,
                fault=self._fault() if code else None,
                consequence=self.stopped_by is not None and not self.alone,
            )
        )

    def _why(self, code: int, error: str | None, *, by_signal: bool) -> str | None:
        """Return why the rank ended; `error` is the last error it wrote to stderr."""
        if self.alone:
            return "its slurmstepd was killed, so nothing else could end this rank"
        if self.stopped_by and code:
            ended = f"ended by {signal.Signals(self.stopped_by).name}"
            if self._failed_before:
                return f"{ended}; before that it wrote:\n{self._failed_before}"
            return f"{ended}\n{HANGS_AT_END}" if self.hangs else ended
        if code > 128:
            error = signal_error(code, error, by_signal=by_signal)
        error = self.own_error or error
        memory = self._out_of_memory(code) if code else None
        return f"{error}\n{memory}" if error and memory else error or memory

    def _out_of_memory(self, code: int) -> str | None:
        """Say that memory ran out, by the cgroup's count or, if there is none, by the samples."""
        kills = oom_kills()
        if (kills or 0) > (self._oom_kills or 0):
            return OUT_OF_MEMORY
        if kills is not None or code != _KILLED:
            return None
        from hpckit.payload.last_memory import sampled_out_of_memory  # noqa: PLC0415  # seldom

        return sampled_out_of_memory(self.task.folder, restart_count())

    def _last_words(self, code: int) -> str | None:
        """Return the last lines of a rank that failed without saying why."""
        if not code or self.stopped_by or self.own_error:
            return None
        return last_words(*((self._log(end), self._starts[end]) for end in ("err", "out")))

    def _fault(self) -> Fault | None:
        """Return what this attempt's logs say of the node's hardware."""
        from hpckit.bad_nodes.faults import fault_in  # noqa: PLC0415  # only where a rank has failed

        texts = []
        for end in ("err", "out"):
            try:
                tail = read_tail(self._log(end), _FAULT_BYTES, start=self._starts[end])
            except (OSError, DamagedFileError):  # the script has removed it
                continue
            texts.append(tail.decode(errors="replace"))
        return fault_in("\n".join(texts), self.place.rank)

    def _write(self, record: RankRecord) -> None:
        self._record = record
        self._earlier = write_rank(self.task.folder, record, self._earlier)


def oom_kills() -> int | None:
    """Return how many processes of this job the OOM killer ended on this node; None: not known."""
    cgroup = find_cgroup()
    return cgroup.files().oom_kills() if cgroup else None


def slurm_node(host: str, environ: Mapping[str, str], *, by_srun: bool) -> str | None:
    """Return Slurm's name of this node; None: it is not known.

    mpirun may give all ranks the variables of its own node; `by_srun` says that srun set them.
    """
    name, short = environ.get("SLURMD_NODENAME"), host.partition(".")[0]
    if name is None or by_srun or name in (host, short):
        return name
    from hpckit.slurm.hostlist import nodes_or_none  # noqa: PLC0415  # seldom

    nodes = nodes_or_none(environ.get("SLURM_JOB_NODELIST", "")) or ()
    return next((node for node in nodes if node in (host, short)), None)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a group's own template may write its log elsewhere
        return 0
