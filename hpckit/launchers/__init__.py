"""Launchers: what starts a job's ranks. One module each, and a line in the table below."""

from typing import TYPE_CHECKING

from hpckit.errors import RequestError
from hpckit.launchers.base import Launcher, rank_argv
from hpckit.registry import Registry

if TYPE_CHECKING:
    from hpckit.job.job import Job

__all__ = [
    "LAUNCHERS", "Launcher", "default_launcher", "find_launcher", "launched_by",
    "named_launcher", "rank_argv", "recorded_launcher", "register",
]  # fmt: skip

# Where nobody asks for a launcher, the first one here that can start a job is taken.
LAUNCHERS: Registry[Launcher] = Registry(
    "launcher",
    "hpckit.launchers",
    {
        "srun": "hpckit.launchers.srun:Srun",
        "torchrun": "hpckit.launchers.torchrun:Torchrun",
        "mpirun": "hpckit.launchers.mpirun:Mpirun",
    },
)


def register(launcher: Launcher) -> None:
    """Add a launcher to the table of this process; one of the same name is replaced."""
    LAUNCHERS.register(launcher.name, launcher)


def default_launcher(job: "Job") -> Launcher:
    """Return the launcher of a job for which nobody has asked for one."""
    rows = map(find_launcher, LAUNCHERS)
    return next((row for row in rows if row.refusal(job) is None), named_launcher(None))


def named_launcher(name: str | None) -> Launcher:
    """Return the launcher that was asked for; where none was, the one that is tried first.

    Raises:
        RequestError: there is none of that name.
    """
    return find_launcher(name or next(iter(LAUNCHERS)))


def find_launcher(name: str) -> Launcher:
    """Return the launcher called `name`, of the table or of an installed package.

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


def launched_by(name: str, *, one_machine: bool) -> str:
    """Return ` by NAME` for pages; nothing where something else stands in for it on one machine."""
    launcher = recorded_launcher(name)
    stood_in = one_machine and launcher is not None and launcher.stand_in
    return "" if stood_in else f" by {name}"
