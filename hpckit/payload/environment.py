"""How one rank's script starts: its argv, its device, its threads, the environment it finds.

And why it does not: which program, on which host, and what to do.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpckit.environ import OWN_THREADS, THREADS
from hpckit.errors import CommandError, JobError
from hpckit.files import DamagedFileError, open_regular
from hpckit.launchers import find_launcher
from hpckit.payload.bundle import VARIABLE as BUNDLE
from hpckit.payload.task import TASK_VARIABLE, Task
from hpckit.rank_variables import RankPlacement, restart_count
from hpckit.stop_marks import VARIABLE, marks_of

# Where a script finds `hpckit.parallel`, also under a Python that lacks hpckit; and where Python
# finds the `sitecustomize.py` that it imports before the script.
IMPORTABLE = str(Path(__file__).parent / "importable")
# NVIDIA's and AMD's drivers make these; torch calls both `cuda`.
_DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
# What is said of a node without them.
NO_DRIVER = "no GPU driver (no /proc/driver/nvidia, no /dev/kfd)"
NOT_STARTED = 127  # the exit status
# e_machine, bytes 18 and 19 of an ELF file (elf(5)), in the words of `uname -m`.
_MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64"}
_START = 4096  # bytes
_OF_CODE = ("HPCKIT_CODE_DIR", "HPCKIT_CODE_MAP")


def script_command(task: Task) -> tuple[str, ...]:
    """Return the argv of one rank's program; a Python script of MPI is run by `mpi_script`."""
    command = list(task.command)
    if task.program is not None:
        number, kept = task.program
        command[number] = kept
    if not (task.mpi and task.by_python):
        return tuple(command)
    from hpckit.payload import mpi_script  # noqa: PLC0415  # it brings what it needs in a script

    return (*task.python, "-c", mpi_script.STARTER, *command[len(task.python) :])


def rank_environment(task: Task, place: RankPlacement, device: str) -> dict[str, str]:
    """Return the environment of one rank's script."""
    inherited = {name: text for name, text in os.environ.items() if name != "HPCKIT_ARRAY_INDEX"}
    environment = {
        **inherited,
        **threads(task, os.environ),
        **place.environment(),
        "HPCKIT_RUN_DIR": task.run_dir,
        "HPCKIT_RUN_ID": task.run_id,
        "HPCKIT_RESTART": str(restart_count()),
        "HPCKIT_DEVICE": device,
        VARIABLE: str(marks_of(task.folder, place.rank)),
        "HPCKIT_CPU_REPLICAS": str(task.replicas if device == "cpu" else 1),
        "PYTHONUNBUFFERED": "1",
    }
    own = task.run_id.rpartition("_")[2]
    index = own if task.number is None else str(task.number)
    if index.isdecimal():  # SLURM_ARRAY_TASK_ID begins again in each array of a long one
        environment["HPCKIT_ARRAY_INDEX"] = index
    if task.sources_only:
        environment["HPCKIT_SOURCES_ONLY"] = task.sources_only
    if task.code_dir:
        environment["HPCKIT_CODE_DIR"] = task.code_dir
        environment["HPCKIT_CODE_MAP"] = "\n".join(f"{at}\t{kept}" for at, kept in task.code_map)
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([IMPORTABLE, *_python_path()]))
    # Those of a job that this one was submitted from.
    for name in (TASK_VARIABLE, BUNDLE, "HPCKIT_MPI_SCRIPT", *(() if task.code_dir else _OF_CODE)):
        environment.pop(name, None)
    if task.mpi:
        from hpckit.payload import mpi_script  # noqa: PLC0415  # as above

        environment["HPCKIT_MPI_SCRIPT"] = Path(mpi_script.__file__).read_text(encoding="utf-8")
    return environment


def _python_path() -> list[str]:
    return [word for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]


def choose_device(planned: str | None, drivers: tuple[str, ...] = _DRIVERS) -> tuple[str, str]:
    """Return `cuda` or `cpu`, and a warning when GPUs were asked for but the node has no driver."""
    if planned is not None:
        return planned, ""
    if any(Path(path).exists() for path in drivers):
        return "cuda", ""
    return "cpu", (
        f"hpckit: GPUs were allocated, but this node has {NO_DRIVER}: HPCKIT_DEVICE=cpu, ranks run "
        "on the CPU"
    )


def threads(task: Task, environ: Mapping[str, str], cores: int | None = None) -> dict[str, str]:
    """Return OMP_NUM_THREADS for a rank, or nothing: it is set, or the rank has its own cores.

    OpenMP and the libraries over it (torch, MKL, OpenBLAS, numexpr) start one thread per core that
    a process may use. Where several ranks may use the same cores they slow one another down many
    times over: of a small transformer on 2 cores, 4 ranks of DDP over gloo made a step in 0.4 to
    0.8 s with one thread each, and with two each no 60 steps in 9 minutes. MKL_NUM_THREADS and its
    kin follow OMP_NUM_THREADS where they are not set themselves.

    What the user, the site, a template or the environment set stays. `cores`: how many this
    process may use, unless it is this machine's to say.
    """
    if environ.get(THREADS):
        return {}
    cores = cores or len(os.sched_getaffinity(0))
    share = _local(task, cores) if task.one_machine else _slurm(task, environ, cores)
    return {} if share is None else {THREADS: str(share), OWN_THREADS: str(share)}


def _local(task: Task, cores: int) -> int | None:
    """Share this machine, which plays all nodes; what was asked for may be more than it has."""
    ranks = task.nodes * task.tasks_per_node
    share = max(1, cores // ranks)
    if task.cpus_per_task:
        return min(task.cpus_per_task, share)
    return share if ranks > 1 else None


def _slurm(task: Task, environ: Mapping[str, str], cores: int) -> int | None:
    """Share the cores that Slurm gave the job on this node, unless each rank is bound to its own.

    A launcher that limits threads is told beforehand, for all the ranks that it will start here.
    """
    if task.cpus_per_task:
        return task.cpus_per_task
    if task.tasks_per_node == 1:
        return None
    given = int(environ.get("SLURM_CPUS_ON_NODE") or cores)
    bound = not find_launcher(task.launcher).limits_threads and cores * task.tasks_per_node <= given
    return None if bound else max(1, min(cores, given) // task.tasks_per_node)


def located(argv: Sequence[str], environ: Mapping[str, str], python: str) -> tuple[str, ...]:
    """Return an argv whose program is found on PATH, else beside the environment's Python."""
    if "/" in argv[0]:
        return tuple(argv)
    import shutil  # noqa: PLC0415  # most programs have a path

    if shutil.which(argv[0], path=environ.get("PATH")):
        return tuple(argv)
    beside = Path(python).parent / argv[0]
    found = "/" in python and os.access(beside, os.X_OK) and beside.is_file()
    return (str(beside) if found else argv[0], *argv[1:])


def why_not(
    argv: Sequence[str],
    environ: Mapping[str, str],
    error: CommandError | JobError,
    image: str | None = None,
) -> str:
    """Say why the kernel did not start a program; `image` is that of a container it runs in."""
    program, host = argv[0], os.uname().nodename
    number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
    if number == errno.ENOENT and image:
        return (
            f"Program {program!r} was not found in the container of {image} on {host}. Is it in "
            "the image, or in a folder of the environment's binds:? PATH is "
            f"{environ.get('PATH', '')}"
        )
    if number == errno.ENOENT and "/" not in program:
        return (
            f"Program {program!r} was not found on {host}. Load the module that provides it (--env "
            "module:NAME), or name its environment (--env PATH or conda:NAME). "
            f"PATH is {environ.get('PATH', '')}"
        )
    if number == errno.ENOENT and not Path(program).exists():
        return (
            f"Program {program!r} was not found on {host}. Put it on a file system that all nodes "
            "share, or name what is installed on the node by its name alone"
        )
    if number == errno.ENOENT:
        needs = _first_line(program) or "a loader of another system"
        return f"{program!r} cannot be started on {host}: it needs {needs}, which is not there"
    if number == errno.EACCES:
        return (
            f"{program!r} cannot be started on {host}: it lacks the permission (chmod +x), or its "
            "file system allows no programs (noexec)"
        )
    if number == errno.ENOEXEC:
        return f"{program!r} cannot be started on {host}: {_wrong_kind(program)}"
    return str(error).removesuffix(".")


def _start(path: str) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_START)
    except (OSError, DamagedFileError):
        return b""


def _first_line(path: str) -> str:
    """Return what the first line of a script names."""
    start = _start(path)
    line = start.partition(b"\n")[0].decode(errors="replace")
    return repr(line[2:].strip(" ").partition(" ")[0]) if start.startswith(b"#!") else ""


def _wrong_kind(path: str) -> str:
    start = _start(path)
    if not start.startswith(b"\x7fELF"):
        return "its first line is not such as #!/bin/bash, and it is not a compiled program"
    order = "big" if start[5:6] == b"\2" else "little"
    number = int.from_bytes(start[18:20], order)  # type: ignore[arg-type]
    built = _MACHINES.get(number, f"machine {number}")
    return f"it was compiled for {built}, and this is {os.uname().machine}. Compile it there"
