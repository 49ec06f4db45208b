"""What the job used on this node: of its cgroup, and of /proc what no cgroup says."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hpckit.stats.sampler.cgroups import Usage, find_cgroup
from hpckit.stats.sampler.procfs import ProcessTree, step_root
from hpckit.stats.sampler.readings import Tell


class NodeReader:
    """Reads CPU, memory and I/O of the job on this node."""

    def __init__(
        self,
        root_pid: int,
        tell: Tell,
        *,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        """Find the cgroup; without one the job is Slurm's step of process `root_pid`.

        Outside Slurm it is that process and its descendants.
        """
        self._cgroup = find_cgroup(proc, cgroups)
        self._tree = ProcessTree(step_root(root_pid, proc), proc, leave_out=os.getpid())
        first = self._cgroup.read() if self._cgroup else Usage()
        self._cpu_missing = first.cpu_us is None
        self._memory_missing = first.memory_bytes is None
        self.kind = self._cgroup.version if self._cgroup else "proc"
        self._say(tell)

    def read(self) -> Usage:
        """Return what was used so far."""
        usage = self._cgroup.read() if self._cgroup else None
        if usage and not (self._cpu_missing or self._memory_missing):
            return usage
        summed = self._tree.read()
        if usage is None:
            return summed
        if self._cpu_missing:
            usage = replace(usage, cpu_us=summed.cpu_us)
        if self._memory_missing:
            usage = replace(usage, memory_bytes=summed.memory_bytes, swap_bytes=summed.swap_bytes)
        return usage

    def pids(self) -> frozenset[int]:
        """Return the job's processes."""
        return self._cgroup.pids() if self._cgroup else self._tree.pids()

    def memory_limit_bytes(self, environ: Mapping[str, str]) -> int | None:
        """Return what the job may use here: the cgroup's limit, else Slurm's word (in MiB)."""
        limit = self._cgroup.memory_limit_bytes() if self._cgroup else None
        megabytes = _number(environ.get("SLURM_MEM_PER_NODE"))
        return limit if limit is not None or not megabytes else megabytes << 20

    def _say(self, tell: Tell) -> None:
        missing = [
            name
            for name, gone in (("CPU time", self._cpu_missing), ("memory", self._memory_missing))
            if gone
        ]
        if missing:
            why = (
                "There is no cgroup of a Slurm job"
                if self._cgroup is None
                else "The job's cgroup lacks a counter"
            )
            tell(
                "cgroup",
                f"{why}: {' and '.join(missing)} summed over the processes in /proc.",
                None,
            )


def allocated_cores(environ: Mapping[str, str]) -> int | None:
    """Return how many cores the job may use on this node."""
    given = _number(environ.get("SLURM_CPUS_ON_NODE"))
    return given or len(os.sched_getaffinity(0))


def boot_id(proc: Path = Path("/proc")) -> str | None:
    """Return what tells this boot of the node from others."""
    path = proc / "sys/kernel/random/boot_id"
    return path.read_text().strip() if path.exists() else None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d+", text, re.ASCII) else None
