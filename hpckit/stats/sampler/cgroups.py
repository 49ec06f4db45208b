"""The job's cgroup on this node, as Slurm made it: v1 or v2. Roots can be given, for tests.

A counter of a cgroup keeps what processes used that have ended since, and counts shared memory
once: better than any sum over processes (`procfs`, for where there is no
cgroup).
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Since 26.05 Slurm may name the folder by its SLUID instead of `job_ID`.
_JOB = re.compile(r"job_(\d+|s[0-9A-HJKMNP-TV-Z]{13})|s[0-9A-HJKMNP-TV-Z]{13}", re.ASCII)
# v1 writes "no limit" as the largest page-aligned number.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a job used on this node; the fields are `Sample`'s."""

    cpu_us: int | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    cache_bytes: int | None = None
    swap_bytes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cgroup:
    """A job's folders: one for v2, one per controller for v1."""

    version: str
    folders: Mapping[str, Path]

    def read(self) -> Usage:
        """Read what there is; a controller Slurm did not turn on gives None."""
        return _read_v2(self.folders["all"]) if self.version == "v2" else _read_v1(self.folders)

    def memory_limit_bytes(self) -> int | None:
        """Return the job's memory limit; None if there is none."""
        if self.version == "v2":
            limit = _number(self.folders["all"] / "memory.max")
        else:
            limit = _number(_in(self.folders, "memory", "memory.limit_in_bytes"))
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


def _read_v2(folder: Path) -> Usage:
    cpu = _pairs(_text(folder / "cpu.stat"))
    memory = _pairs(_text(folder / "memory.stat"))
    traffic = _io_v2(_text(folder / "io.stat"))
    return Usage(
        cpu_us=cpu.get("usage_usec"),
        memory_bytes=_sum(memory.get("anon"), memory.get("shmem")),
        memory_peak_bytes=_number(folder / "memory.peak"),
        cache_bytes=_difference(memory.get("file"), memory.get("shmem")),
        swap_bytes=_number(folder / "memory.swap.current"),
        io_read_bytes=traffic[0],
        io_write_bytes=traffic[1],
        oom_kills=_pairs(_text(folder / "memory.events")).get("oom_kill"),
    )


def _read_v1(folders: Mapping[str, Path]) -> Usage:
    memory = _pairs(_text(_in(folders, "memory", "memory.stat")))
    nanoseconds = _number(_in(folders, "cpuacct", "cpuacct.usage"))
    shmem = memory.get("total_shmem")
    traffic = _io_v1(_text(_in(folders, "blkio", "blkio.throttle.io_service_bytes_recursive")))
    return Usage(
        cpu_us=None if nanoseconds is None else nanoseconds // 1000,
        memory_bytes=_sum(memory.get("total_rss"), shmem),
        memory_peak_bytes=_number(_in(folders, "memory", "memory.max_usage_in_bytes")),
        cache_bytes=_difference(memory.get("total_cache"), shmem),
        swap_bytes=memory.get("total_swap"),
        io_read_bytes=traffic[0],
        io_write_bytes=traffic[1],
        oom_kills=_oom_kills_v1(folders.get("memory")),
    )


def _oom_kills_v1(folder: Path | None) -> int | None:
    """Sum over steps and tasks: v1 counts a kill only in the cgroup of the killed process."""
    if folder is None:
        return None
    counts = [
        _pairs(_text(path / "memory.oom_control")).get("oom_kill")
        for path in (folder, *_below(folder))
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _io_v2(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    read = sum(int(number) for number in re.findall(r"\brbytes=(\d+)", text))
    return read, sum(int(number) for number in re.findall(r"\bwbytes=(\d+)", text))


def _io_v1(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    read = sum(int(number) for number in re.findall(r"\bRead (\d+)", text))
    return read, sum(int(number) for number in re.findall(r"\bWrite (\d+)", text))


def _below(folder: Path) -> Iterator[Path]:
    """Yield the folders of steps and tasks: a handful."""
    try:
        children = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return  # a step has ended in this moment
    for path in children:
        yield path
        yield from _below(path)


def _in(folders: Mapping[str, Path], controller: str, name: str) -> Path | None:
    return folders[controller] / name if controller in folders else None


def read_once(path: Path) -> bytes:
    """Read a file of the kernel's in one call, which gives one moment of it.

    Raises:
        OSError: it is not there, or not for us.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 65_536)
    finally:
        os.close(file)


def _lines(path: Path) -> list[str]:
    """Return all lines of a list: the kernel gives at most a page of it per call."""
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def _text(path: Path | None) -> str | None:
    """Return a file's text; None if the kernel or Slurm does not have it."""
    if path is None:
        return None
    try:
        return read_once(path).decode("ascii", "replace")
    except OSError:
        return None


def _number(path: Path | None) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _pairs(text: str | None) -> dict[str, int]:
    """Read lines of `name number`."""
    rows = (line.split() for line in (text or "").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _sum(first: int | None, second: int | None) -> int | None:
    """Add; a kernel too old to tell shared memory apart still gives the anonymous part."""
    return None if first is None else first + (second or 0)


def _difference(whole: int | None, part: int | None) -> int | None:
    return None if whole is None else max(whole - (part or 0), 0)
