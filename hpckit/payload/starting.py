"""A rank's program that does not start: which, on which host, why, and what to do."""

import errno
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpckit.errors import CommandError
from hpckit.files import DamagedFileError, open_regular

NOT_STARTED = 127  # the exit status
# e_machine, bytes 18 and 19 of an ELF file (elf(5)), in the words of `uname -m`.
_MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64"}
_START = 4096  # bytes


def located(argv: Sequence[str], environ: Mapping[str, str], python: str) -> tuple[str, ...]:
    """Return an argv whose program is found on PATH, else beside the environment's Python."""
    if "/" in argv[0] or shutil.which(argv[0], path=environ.get("PATH")):
        return tuple(argv)
    beside = Path(python).parent / argv[0]
    found = "/" in python and os.access(beside, os.X_OK) and beside.is_file()
    return (str(beside) if found else argv[0], *argv[1:])


def why_not(argv: Sequence[str], environ: Mapping[str, str], error: CommandError) -> str:
    """Say why the kernel did not start a program."""
    program, host = argv[0], socket.gethostname()
    number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
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
