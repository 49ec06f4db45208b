"""What the job used on this node: of its cgroup, v1 or v2, and of /proc what no cgroup says.

A counter of a cgroup keeps what processes used that have ended since, and counts shared memory
once: better than any sum over processes (`procfs`). Roots can be given, for tests.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.stats.metric_table import NODE
from hpckit.stats.sampler.procfs import ProcessTree, read_once, step_root
from hpckit.stats.samples.records import Usage
from hpckit.text import whole_number

if TYPE_CHECKING:
    from hpckit.stats.sampler.gpu_reader import Tell

# Since 26.05 Slurm may name the folder by its SLUID instead of `job_ID`.
_JOB = re.compile(r"job_(\d+|s[0-9A-HJKMNP-TV-Z]{13})|s[0-9A-HJKMNP-TV-Z]{13}", re.ASCII)
# v1 writes "no limit" as the largest page-aligned number.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Cgroup:
    """A job's folders: one for v2, one per controller for v1."""

    version: str
    folders: Mapping[str, Path]

    def read(self) -> Usage:
        """Read what there is; a controller Slurm did not turn on gives None."""
        files = JobFiles(self.version, self.folders)
        return Usage(**{row.name: row.read(files) for row in NODE if row.read})

    def memory_limit_bytes(self) -> int | None:
        """Return the job's memory limit; None if there is none."""
        files = JobFiles(self.version, self.folders)
        limit = files.number("memory.max" if self.version == "v2" else "memory.limit_in_bytes")
        return None if limit is None or limit >= _NO_LIMIT else limit

    def pids(self) -> frozenset[int]:
        """Return the processes of the job's steps and tasks."""
        folder = next(iter(self.folders.values()))
        found: set[int] = set()
        for path in (folder, *_below(folder)):
            found |= {int(word) for word in _lines(path / "cgroup.procs") if word.isdecimal()}
        return frozenset(found)


def find_cgroup(proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> Cgroup | None:
    """Return the cgroup of the Slurm job this process is in; None if there is none."""
    folders: dict[str, Path] = {}
    for line in (_text(proc / "self" / "cgroup") or "").splitlines():
        _, controllers, place = line.split(":", 2)
        inside = _job_part(place)
        if inside is None:
            continue
        if controllers == "":
            mounts = (root / "unified", root)  # hybrid, or v2 alone
            folder = next((mount / inside for mount in mounts if (mount / inside).is_dir()), None)
            if folder is not None and (folder / "cpu.stat").exists():
                folders["all"] = folder
            continue
        for name in controllers.split(","):
            for mount in (root / name, root / controllers):
                if (mount / inside).is_dir():
                    folders[name] = mount / inside
    if any(name in folders for name in ("memory", "cpuacct")):
        folders.pop("all", None)
        return Cgroup(version="v1", folders=folders)
    return Cgroup(version="v2", folders=folders) if "all" in folders else None


def _job_part(place: str) -> Path | None:
    """Cut `/slurm/uid_0/job_5/step_0/task_1` after the job's folder."""
    parts = Path(place.lstrip("/")).parts
    for end in range(len(parts), 0, -1):
        if _JOB.fullmatch(parts[end - 1]):
            return Path(*parts[:end])
    return None


class JobFiles:
    """The files of a job's cgroup at one moment: each is read once, whoever asks for it.

    The first word of a file's name in v1 is its controller. A file that is not there is empty.
    """

    def __init__(self, version: str, folders: Mapping[str, Path]) -> None:
        self.version = version
        self._folders = folders
        self._texts: dict[str, str | None] = {}

    def number(self, name: str) -> int | None:
        """Return the number that a file holds."""
        return whole_number((self._text(name) or "").strip())

    def pairs(self, name: str) -> dict[str, int]:
        """Return the lines of `name number`."""
        return _pairs(self._text(name))

    def total(self, name: str, pattern: str) -> int | None:
        """Return the sum of all numbers that a pattern finds; None without the file."""
        text = self._text(name)
        return None if text is None else sum(map(int, re.findall(pattern, text)))

    def pairs_below(self, name: str) -> Iterator[dict[str, int]]:
        """Yield the pairs of the job's file and of those of its steps and tasks."""
        folder = self._folder(name)
        for path in (folder, *_below(folder)) if folder else ():
            yield _pairs(_text(path / name))

    def _folder(self, name: str) -> Path | None:
        return self._folders.get("all" if self.version == "v2" else name.partition(".")[0])

    def _text(self, name: str) -> str | None:
        if name not in self._texts:
            folder = self._folder(name)
            self._texts[name] = _text(folder / name) if folder else None
        return self._texts[name]


def _below(folder: Path) -> Iterator[Path]:
    """Yield the folders of steps and tasks: a handful."""
    try:
        children = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return  # a step has ended in this moment
    for path in children:
        yield path
        yield from _below(path)


def _lines(path: Path) -> list[str]:
    """Return all lines of a list: the kernel gives at most a page of it per call."""
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def _text(path: Path) -> str | None:
    """Return a file's text; None if the kernel or Slurm does not have it."""
    try:
        return read_once(path).decode("ascii", "replace")
    except OSError:
        return None


def _pairs(text: str | None) -> dict[str, int]:
    """Read lines of `name number`."""
    rows = (line.split() for line in (text or "").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


# What processes are summed for where the cgroup lacks the first of them.
_CPU, _MEMORY = ("cpu_us",), ("memory_bytes", "swap_bytes")


_NO_CGROUP = Cgroup(version="proc", folders={})


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
        self._tree = ProcessTree(step_root(root_pid, proc), proc, leave_out=os.getpid())
        first = asdict((self._cgroup or _NO_CGROUP).read())
        self._missing = [names for names in (_CPU, _MEMORY) if first[names[0]] is None]
        self.kind = (self._cgroup or _NO_CGROUP).version
        self._say(tell)

    def read(self) -> Usage:
        """Return what was used so far."""
        usage = (self._cgroup or _NO_CGROUP).read()
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
        megabytes = whole_number(environ.get("SLURM_MEM_PER_NODE", ""))
        return limit if limit is not None or not megabytes else megabytes << 20

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
    """Return how many cores the job may use on this node."""
    given = whole_number(environ.get("SLURM_CPUS_ON_NODE", ""))
    return given or len(os.sched_getaffinity(0))


def boot_id(proc: Path = Path("/proc")) -> str | None:
    """Return what tells this boot of the node from others."""
    path = proc / "sys/kernel/random/boot_id"
    return path.read_text().strip() if path.exists() else None
