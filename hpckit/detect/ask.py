"""The edge: what Slurm's programs and this machine say. Nothing is submitted.

All programs are asked at once and each has its time, so that the slowest decides how long it takes.
"""

import os
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path

from hpckit.detect.model import Answer, Surroundings
from hpckit.detect.modules import module_systems
from hpckit.detect.mounts import places, read_mounts
from hpckit.errors import CommandError
from hpckit.slurm.accounts import associations_argv, default_account_argv
from hpckit.slurm.client import ask
from hpckit.slurm.cluster import SINFO


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
) -> dict[str, Answer]:
    """Ask all of Slurm's programs at once; one that does not answer says why.

    `more` are questions beside ours, by key.
    """
    # Each command would otherwise load it at its start.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    asked = questions(user_name()) | dict(more or {})
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = pool.map(lambda argv: _answer(argv, timeout_s), asked.values())
        return dict(zip(asked, answers, strict=True))


def _answer(argv: tuple[str, ...], timeout_s: float) -> Answer:
    asked = " ".join(word for word in argv if not word.startswith("--format"))
    try:
        said = ask(argv, timeout_s=timeout_s)
    except CommandError as error:
        return Answer(asked=asked, why=str(error))
    # 20.11 and 21.08 list their kinds of MPI on stderr.
    more = f"\n{said.stderr}" if argv[0] == "srun" else ""
    return Answer(asked=asked, text=said.stdout + more)


def user_name() -> str:
    """Return this user's login as accounting knows it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def look_around(environ: Mapping[str, str] = os.environ) -> Surroundings:
    """Look at this machine: its name, module systems and file systems."""
    return Surroundings(
        hostname=socket.getfqdn(),
        slurm_conf=environ.get("SLURM_CONF"),
        modules=module_systems(environ, lambda path: Path(path).is_file()),
        places=places(environ, Path.home(), Path.cwd(), read_mounts()),
    )
