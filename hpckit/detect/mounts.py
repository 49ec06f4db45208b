"""Which file systems nodes can share, by the types in /proc/self/mountinfo: proc(5).

A type says whether a file system can be shared. That the nodes mount it at the same place, only a
job can tell.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpckit.detect.model import Place

_SHARED = {
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "pvfs2", "orangefs"),
    *("afs", "ocfs2", "gfs2", "cifs", "smb3", "dvs", "quobyte", "fuse.quobyte", "fuse.ceph"),
    *("fuse.ceph-fuse", "fuse.glusterfs", "fuse.sshfs", "fuse.juicefs", "fuse.moosefs"),
}
_LOCAL = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "ramfs", "overlay", "aufs", "vfat"),
    *("exfat", "f2fs", "squashfs", "devtmpfs", "rootfs", "iso9660"),
}
# What sites call the folders that are meant for a job's data.
VARIABLES = ("SCRATCH", "PSCRATCH", "WORK", "WORKDIR", "PROJECT", "PROJECTS", "DATA")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One mounted file system: where, and of which type."""

    point: str
    type: str


def read_mounts(path: Path = Path("/proc/self/mountinfo")) -> tuple[Mount, ...]:
    """Read the mounts of this process; none where there is no /proc."""
    try:
        return tuple(parse_mountinfo(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return ()


def parse_mountinfo(text: str) -> Iterator[Mount]:
    """Read `36 35 98:0 /root /point rw shared:1 - type source options`, later mounts last."""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split(" ")
        if dash and len(words) > 5 and after.strip():
            yield Mount(point=_unescaped(words[4]), type=after.split(" ")[0])


def _unescaped(text: str) -> str:
    r"""Undo `\040` and its like, which stand for blanks, tabs, line ends and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def is_shared(file_system: str | None) -> bool | None:
    """Say whether a type of file system is shared by nodes; None where it does not tell.

    VAST and most appliances are mounted as nfs. autofs is a place that nobody has used yet.
    """
    if file_system in _SHARED:
        return True
    return False if file_system in _LOCAL else None


def file_system(path: str, mounts: Sequence[Mount]) -> str | None:
    """Return the type of the file system a path is on; None without mounts."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # Of two at the same place the later one covers the earlier.
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best.type if best else None


def place(label: str, path: str, mounts: Sequence[Mount]) -> Place:
    """Describe a folder that may not be there yet."""
    kind = file_system(os.path.realpath(path), mounts)
    return Place(label=label, path=path, file_system=kind, shared=is_shared(kind))


def places(
    environ: Mapping[str, str], home: Path, here: Path, mounts: Sequence[Mount]
) -> tuple[Place, ...]:
    """Return folders where runs could live: this one, those of variables, and the home."""
    names = ("HPCKIT_RUNS", *VARIABLES)
    named = [(f"${name}", environ[name]) for name in names if environ.get(name, "")[:1] == "/"]
    labels = [("./", str(here)), *named, ("$HOME", str(home))]
    return tuple(place(label, path, mounts) for label, path in labels)
