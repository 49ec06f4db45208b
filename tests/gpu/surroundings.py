"""What stands around the checks and must not change them: variables, and where they write."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

# Of the user or the site: each changes what torch, CUDA, pip's or pytest's own words do here.
_CHANGING = (
    "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONOPTIMIZE",
    "PYTHONWARNINGS",
)  # fmt: skip
# What a launcher says of its own ranks: a program that is started alone would look for the others.
_OF_A_LAUNCHER = ("SLURM", "OMPI_", "PMI_", "PMIX_", "PMI2_", "MPI_LOCAL", "PALS_", "FLUX_")
_OWN = "HPCKIT_GPU_"
# Checkpoints of resnet18 and gpt-small, and what a compiler makes.
_ENOUGH_BYTES = 2 * 2**30


def undisturbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those that change what is measured."""
    return {name: value for name, value in environ.items() if name not in _CHANGING}


def outside_of_jobs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of a job, of its launcher, and of the user's for hpckit."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_OF_A_LAUNCHER)
        and (name.startswith(_OWN) or not name.startswith("HPCKIT_"))
    }


def scratch_folder(places: Iterable[Path]) -> tuple[Path, str]:
    """Return the first place with room that lets programs run, and what lacks where none does.

    A node's /tmp may be small, in memory, or mounted `noexec`: a compiler's libraries cannot be
    loaded from there.
    """
    found = [(place, lacking(place)) for place in places]
    good = [row for row in found if not row[1]]
    return (good or found)[0]


def lacking(place: Path) -> str:
    """Return why a folder is not good for the checks' files; empty where it is."""
    try:
        with tempfile.TemporaryDirectory(dir=place) as name:
            program = Path(name) / "program"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o700)
            subprocess.run([str(program)], check=True)
        free = shutil.disk_usage(place).free
    except PermissionError as error:
        return f"no program may run there, or nothing be written ({error.strerror})"
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return "" if free >= _ENOUGH_BYTES else f"only {free / 2**30:.1f} GiB are free"


def caches(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return variables that keep caches away from a home that cannot be written."""
    home = environ.get("HOME", "")
    if home and os.access(home, os.W_OK):
        return {}
    names = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR")
    return {name: str(scratch / name.lower()) for name in names}


def host_room_bytes(proc: Path = Path("/proc"), tree: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how much more memory this process may take: the host's, or what a job was given.

    None where nothing tells.
    """
    known = [_available(proc), *_left_in_cgroups(proc, tree)]
    return min((room for room in known if room is not None), default=None)


def _available(proc: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        text = (proc / "meminfo").read_text()
        return int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    return None


def _cached(stat: Path) -> int:
    """Return what a cgroup has of files, which the kernel gives up when memory is needed."""
    rows = dict(line.split() for line in stat.read_text().splitlines())
    return int(rows.get("file") or rows.get("total_cache", "0"))


def _left_in_cgroups(proc: Path, tree: Path) -> Iterator[int]:
    """Yield what is left in this process's cgroup and those above it, of version 2 and 1."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, inside = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        top = tree / kinds
        names = ("memory.max", "memory.current")
        if kinds:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        path = top / inside.lstrip("/")
        for folder in (path, *path.parents):
            with suppress(OSError, ValueError):  # `max` is no limit
                limit, used = (int((folder / name).read_text()) for name in names)
                yield max(limit - used + _cached(folder / "memory.stat"), 0)
            if folder == top:
                break
