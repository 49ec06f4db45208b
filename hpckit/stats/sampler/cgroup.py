"""The cgroup of a Slurm job on this node, v1 or v2. Roots can be given, for tests."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpckit.frozen import frozen
from hpckit.units import whole_number

# Since 26.05 Slurm may name the folder by its SLUID instead of `job_ID`.
_JOB = r"(?a)job_(\d+|s[0-9A-HJKMNP-TV-Z]{13})|s[0-9A-HJKMNP-TV-Z]{13}"
# v1 writes "no limit" as the largest page-aligned number.
_NO_LIMIT = 1 << 60


@frozen(kw_only=True)
class Cgroup:
    """A job's folders: one for v2, one per controller for v1."""

    version: str
    folders: Mapping[str, Path]

    def files(self) -> "JobFiles":
        """Return its files as they are now."""
        return JobFiles(self.version, self.folders)

    def memory_limit_bytes(self) -> int | None:
        """Return the job's memory limit; None if there is none."""
        limit = self.files().number(
            "memory.max" if self.version == "v2" else "memory.limit_in_bytes"
        )
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
        if re.fullmatch(_JOB, parts[end - 1]):
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

    def oom_kills(self) -> int | None:
        """Return how many processes the kernel has killed because the job's memory was full."""
        if self.version == "v2":
            return self.pairs("memory.events").get("oom_kill")
        # v1 counts a kill only in the cgroup of the killed process.
        counts = [pairs.get("oom_kill") for pairs in self.pairs_below("memory.oom_control")]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

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


def read_once(path: Path | str) -> bytes:
    """Read a file of the kernel's in one call, which gives one moment of it.

    Raises:
        OSError: it is not there, or not for us.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 65_536)
    finally:
        os.close(file)
