"""What the job used on this node: of its cgroup, and of /proc what no cgroup says.

A counter of a cgroup keeps what processes used that have ended since, and counts shared memory
once: better than any sum over processes (`procfs`).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.slurm.hostlist import nodes_or_none
from hpckit.stats.metric_table import NODE
from hpckit.stats.sampler.cgroup import Cgroup, find_cgroup
from hpckit.stats.sampler.procfs import ProcessTree, step_root
from hpckit.stats.samples.records import Usage
from hpckit.units import whole_number

if TYPE_CHECKING:
    from hpckit.stats.sampler.gpu_reader import Tell

# What processes are summed for where the cgroup lacks the first of them.
_CPU, _MEMORY = ("cpu_us",), ("memory_bytes", "swap_bytes")


_NO_CGROUP = Cgroup(version="proc", folders={})


def usage_of(cgroup: Cgroup) -> Usage:
    """Read what there is; a controller Slurm did not turn on gives None."""
    files = cgroup.files()
    return Usage(**{row.name: row.read(files) for row in NODE if row.read})


class NodeReader:
    """Reads CPU, memory and I/O of the job on this node."""

    def __init__(
        self,
        root_pid: int,
        tell: "Tell",
        *,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        """Find the cgroup; without one the job is Slurm's step of process `root_pid`.

        Outside Slurm it is that process and its descendants.
        """
        self._cgroup = find_cgroup(proc, cgroups)
        root = step_root(root_pid, proc)
        self._tree = ProcessTree(root, proc, leave_out=os.getpid())
        first = asdict(usage_of(self._cgroup or _NO_CGROUP))
        self._missing = [names for names in (_CPU, _MEMORY) if first[names[0]] is None]
        self.kind = (self._cgroup or _NO_CGROUP).version
        self.summed = f"{_namespace(proc)}:{root}" if _CPU in self._missing else None
        self._say(tell)

    def read(self) -> Usage:
        """Return what was used so far."""
        usage = usage_of(self._cgroup or _NO_CGROUP)
        if not self._missing:
            return usage
        summed = asdict(self._tree.read())
        if self._cgroup:
            summed = {name: summed[name] for names in self._missing for name in names}
        known = {name: value for name, value in summed.items() if value is not None}
        return replace(usage, **known)

    def pids(self) -> frozenset[int]:
        """Return the job's processes."""
        return self._cgroup.pids() if self._cgroup else self._tree.pids()

    def memory_limit_bytes(self, environ: Mapping[str, str]) -> int | None:
        """Return what the job may use here: the cgroup's limit, else Slurm's word (in MiB)."""
        limit = self._cgroup.memory_limit_bytes() if self._cgroup else None
        if limit is not None:
            return limit
        megabytes = whole_number(environ.get("SLURM_MEM_PER_NODE", "")) or 0
        per_core = whole_number(environ.get("SLURM_MEM_PER_CPU", "")) or 0
        return (megabytes or per_core * (job_cores(environ) or 0)) << 20 or None

    def _say(self, tell: "Tell") -> None:
        if self._missing:
            words = {_CPU: "CPU time", _MEMORY: "memory"}
            missing = [words[names] for names in self._missing]
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
    """Return how many cores this step of the job, or the job without Slurm, may use here."""
    given = whole_number(environ.get("SLURM_CPUS_ON_NODE", ""))
    return given or len(os.sched_getaffinity(0))


def job_cores(environ: Mapping[str, str]) -> int | None:
    """Return how many cores all of the job may use here, of which a step may have fewer.

    Slurm has them in the order of the job's nodes: `4(x2),1`.
    """
    each: list[int] = []
    for word in environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        match = re.fullmatch(r"(?a)(\d{1,9})(?:\(x(\d{1,5})\))?", word)
        if not match:
            return None
        each += [int(match[1])] * int(match[2] or 1)
    if len(set(each)) == 1:
        return each[0]
    hosts = nodes_or_none(environ.get("SLURM_JOB_NODELIST", "")) or ()
    at = dict(zip(hosts, each, strict=False)) if len(hosts) == len(each) else {}
    return at.get(environ.get("SLURMD_NODENAME", ""))


def _namespace(proc: Path) -> int:
    """Return which process numbers are meant, for a container may count anew; 0: not known."""
    path = proc / "self/ns/pid"
    return path.stat().st_ino if path.exists() else 0


def boot_id() -> str | None:
    """Return what tells this boot of the node from others."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else None
