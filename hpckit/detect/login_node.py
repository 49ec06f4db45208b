"""The edge: what Slurm's programs and this machine say, its module systems and file systems.

All programs are asked at once and each has its time, so that the slowest decides how long it takes.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hpckit import owners
from hpckit.collections import Found
from hpckit.detect.answers import Folder, ModuleSystem, Reply, Surroundings
from hpckit.environments import NO_MODULES, module_signs, module_templates
from hpckit.errors import CommandError, ConfigError
from hpckit.frozen import frozen
from hpckit.paths import home
from hpckit.sites import full_hostname
from hpckit.slurm.client import ask
from hpckit.slurm.cluster import SINFO, associations_argv, default_account_argv


def questions(user: str) -> dict[str, tuple[str, ...]]:
    """Return what each program is asked."""
    return {
        "version": ("sinfo", "--version"),
        "config": ("scontrol", "show", "config"),
        "partitions": ("scontrol", "show", "partition"),
        "nodes": SINFO,
        "mpi": ("srun", "--mpi=list"),
        "associations": associations_argv(user),
        "default_account": default_account_argv(user),
        "accounting": ("sacct", "-nX", "--starttime=now", "--format=JobID"),
    }


def ask_slurm(
    timeout_s: float, more: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, Reply]:
    """Ask all of Slurm's programs at once; one that does not answer says why.

    `more` are questions beside ours, by key.
    """
    # Each command would otherwise load it at its start.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    asked = questions(owners.user_name()) | dict(more or {})
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = pool.map(lambda argv: _answer(argv, timeout_s), asked.values())
        return dict(zip(asked, answers, strict=True))


def _answer(argv: tuple[str, ...], timeout_s: float) -> Reply:
    asked = " ".join(word for word in argv if not word.startswith("--format"))
    try:
        said = ask(argv, timeout_s=timeout_s)
    except CommandError as error:
        return Reply(asked=asked, why=str(error))
    # 20.11 and 21.08 list their kinds of MPI on stderr.
    more = f"\n{said.stderr}" if argv[0] == "srun" else ""
    return Reply(asked=asked, text=said.stdout + more)


def describe_machine() -> Surroundings:
    """Return what a site depends on of this machine: its name, module systems and file systems."""
    try:
        templates = module_templates()
    except ConfigError:  # a broken collection is another check's finding
        templates = {}
    return Surroundings(
        hostname=full_hostname(),
        slurm_conf=os.environ.get("SLURM_CONF"),
        modules=module_systems(os.environ, lambda path: Path(path).is_file(), templates),
        module_names=tuple(_signs(templates)),
        folders=likely_folders(os.environ, home(), Path.cwd(), read_mounts()),
    )


def module_systems(
    environ: Mapping[str, str],
    is_file: Callable[[str], bool],
    templates: Mapping[str, Found] | None = None,
) -> tuple[ModuleSystem, ...]:
    """Return the module systems of this machine, those of this shell first.

    Their templates say what shows them: `module_signs`. Lmod sets MODULESHOME and LOADEDMODULES,
    too: they mean Environment Modules only without it.
    """
    all_signs = _signs(module_templates() if templates is None else templates)
    active = [
        ModuleSystem(name=name, evidence=f"${variable}", active=True)
        for name, signs in all_signs.items()
        if not any(environ.get(other) for other in signs.get("unless", ()))
        and (variable := next((v for v in signs.get("variables", ()) if environ.get(v)), None))
    ]
    names = {row.name for row in active}
    installed = [
        ModuleSystem(name=name, evidence=path, active=False)
        for name, signs in all_signs.items()
        if name not in names
        and (path := next((path for path in signs.get("files", ()) if is_file(path)), None))
    ]
    return (*active, *installed)


def _signs(templates: Mapping[str, Found]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the signs of each module system, those that others are preferred to last."""
    rows = {name: module_signs(row) for name, row in templates.items() if name != NO_MODULES}
    return dict(sorted(rows.items(), key=lambda row: ("after" in row[1], row[0])))


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


@frozen(kw_only=True)
class Mount:
    """One mounted file system: where, and of which type."""

    point: str
    type: str


def read_mounts() -> tuple[Mount, ...]:
    """Read the mounts of this process; none where there is no /proc."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        return tuple(parse_mountinfo(text))
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


def folder_on(label: str, path: str, mounts: Sequence[Mount]) -> Folder:
    """Describe a folder that may not be there yet."""
    kind = file_system(os.path.realpath(path), mounts)
    return Folder(label=label, path=path, file_system=kind, shared=is_shared(kind))


def likely_folders(
    environ: Mapping[str, str], home: Path, here: Path, mounts: Sequence[Mount]
) -> tuple[Folder, ...]:
    """Return folders where runs could live: this one, those of variables, and the home."""
    names = ("HPCKIT_RUNS", *VARIABLES)
    named = [(f"${name}", environ[name]) for name in names if environ.get(name, "")[:1] == "/"]
    labels = [("./", str(here)), *named, ("$HOME", str(home))]
    return tuple(folder_on(label, path, mounts) for label, path in labels)
