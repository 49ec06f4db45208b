"""Launchers: what starts a job's ranks. One module each, and a line in the table below.

A job never starts the user's script directly, but hpckit's supervisor
(`hpckit.submission.in_job`). The supervisor starts its rank's script; or, with a launcher that
starts ranks itself, it starts the launcher, which starts `rank_argv()` for each rank. So logs,
records and signals are the same for all launchers.

There are `srun`, `torchrun` and `mpirun`. To add a launcher, write a module with a subclass of
`Launcher`, and add a line to the table. A package of your own, installed beside hpckit, can bring
one too, by an entry point of the group `hpckit.launchers`.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hpckit.environ import own_python
from hpckit.errors import RequestError
from hpckit.registry import Registry

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.payload.task import Task
    from hpckit.rank_variables import RankVariables


__all__ = [
    "LAUNCHERS", "Launcher", "default_launcher", "find_launcher", "launched_by",
    "named_launcher", "rank_argv", "recorded_launcher", "register",
]  # fmt: skip


class Launcher:
    """One way to start ranks: as mpirun does it, unless a subclass says otherwise.

    A `Job` is what the login node has worked out, and a `Task` is what of it travels into the job.

    Attributes:
        name: what users give as `--launcher`.
        help: one line of what it does.
        in_batch_script: a single supervisor takes the place of the job script's own process, on
            the job's first node. Slurm's warning before the time limit then has to go there.
        ranks_are_tasks: Slurm's tasks are the ranks, so what Slurm says of a task is about a rank.
        takes_mpi_kind: MPI ranks find each other only if it is told the right kind of PMI, which
            hpckit finds out.
        stand_in: in local runs something else starts ranks in its place, so pages do not name it.
        passes_on: the signals that it passes on to its ranks. None: it passes on none, and may die
            of them, so the supervisors signal the scripts.
        limits_threads: it gives ranks one thread each, unless OMP_NUM_THREADS is set.
    """

    name = ""
    help = ""
    in_batch_script = True
    ranks_are_tasks = False
    takes_mpi_kind = False
    stand_in = False
    passes_on: tuple[int, ...] | None = None
    limits_threads = False

    # On the login node.

    def refusal(self, job: "Job") -> str | None:
        """Say why this launcher cannot start a job's ranks, and what could; None: it can.

        Without --launcher, the first one of the table that can is used.
        """
        del job
        return None

    def supervisors(self, job: "Job") -> tuple[int, int]:
        """Return how many nodes have supervisors, and how many each of these nodes has."""
        del job
        return 1, 1

    def slurm_argv(self, job: "Job") -> tuple[str, ...]:
        """Return the command that starts the supervisors in an allocation; their argv follows it.

        Empty: the job script itself becomes the supervisor, as `in_batch_script` says.
        """
        del job
        return ()

    # In the job.

    def child(self, task: "Task") -> tuple[str, ...] | None:
        """Return the argv by which a supervisor starts its ranks, each of which runs `rank_argv()`.

        None: each supervisor is one rank.
        """
        raise NotImplementedError

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of `child`; `environ` is the supervisor's own."""
        return dict(environ)

    def without_sigterm(self) -> dict[str, str]:
        """Return the variables that make `child` end at SIGINT, and set no handler for SIGTERM.

        Empty: this launcher cannot be told so.
        """
        return {}

    def variables(self, task: "Task") -> "RankVariables":
        """Return the names of the variables that tell this process, a rank, which one it is.

        Raises:
            JobError: it was started by something else.
        """
        raise NotImplementedError


# Without --launcher, the first one here that can start a job is used.
LAUNCHERS: Registry[Launcher] = Registry(
    "launcher",
    "hpckit.launchers",
    {
        "srun": "hpckit.launchers.srun:Srun",
        "torchrun": "hpckit.launchers.torchrun:Torchrun",
        "mpirun": "hpckit.launchers.mpirun:Mpirun",
    },
)


def _ignoring(signals: str) -> tuple[str, ...]:
    """Return what goes before an argv, to ignore signals that end a Python which still starts.

    An ignored signal stays ignored after `exec`, until hpckit handles it.
    """
    return ("/bin/sh", "-c", f'trap "" {signals}; exec "$@"', "sh")


UNWARNED = _ignoring("USR2")  # Slurm's warning
# Where Slurm itself signals what is started: a preemption begins with SIGTERM.
UNSIGNALLED = _ignoring("USR2 TERM")


def rank_argv() -> tuple[str, ...]:
    """Return the argv that runs one rank, for launchers to start."""
    return (*own_python(dict(os.environ)), "-m", "hpckit.payload.rank")


def register(launcher: Launcher) -> None:
    """Add a launcher to the table of this process; one of the same name is replaced."""
    LAUNCHERS.register(launcher.name, launcher)


def default_launcher(job: "Job") -> Launcher:
    """Return the launcher of a job without --launcher."""
    rows = map(find_launcher, LAUNCHERS)
    return next((row for row in rows if row.refusal(job) is None), named_launcher(None))


def named_launcher(name: str | None) -> Launcher:
    """Return the launcher that was asked for; if none was, the first of the table.

    Raises:
        RequestError: there is none of that name.
    """
    return find_launcher(name or next(iter(LAUNCHERS)))


def find_launcher(name: str) -> Launcher:
    """Return the launcher `name`, from the table or from an installed package.

    Raises:
        RequestError: there is none of that name, or its package cannot be imported.
    """
    return LAUNCHERS.find(name)


def recorded_launcher(name: str) -> Launcher | None:
    """Return the launcher that a run's record names; None: it is not installed here."""
    try:
        return find_launcher(name)
    except RequestError:
        return None


def launched_by(name: str, *, one_machine: bool) -> str | None:
    """Return the launcher's name for pages; None where another stands in for it on one machine."""
    launcher = recorded_launcher(name)
    stood_in = one_machine and launcher is not None and launcher.stand_in
    return None if stood_in else name
