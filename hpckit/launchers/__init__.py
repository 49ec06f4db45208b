"""Launchers: what starts a job's ranks. One module each, and a line in the table below."""

from typing import TYPE_CHECKING

from hpckit.errors import RequestError
from hpckit.launchers.base import Launcher, rank_argv
from hpckit.launchers.mpirun import Mpirun
from hpckit.launchers.srun import Srun
from hpckit.launchers.torchrun import Torchrun

if TYPE_CHECKING:
    from hpckit.job.job import Job

__all__ = [
    "LAUNCHERS", "Launcher", "default_launcher", "find_launcher", "launched_by",
    "named_launcher", "rank_argv", "recorded_launcher", "register",
]  # fmt: skip

# Packages that are installed beside hpckit bring launchers by entry points of this group.
_GROUP = "hpckit.launchers"

# Where nobody asks for a launcher, the first one here that can start a job is taken.
LAUNCHERS: dict[str, Launcher] = {
    row.name: row
    for row in (
        Srun(),
        Torchrun(),
        Mpirun(),
    )
}


def register(launcher: Launcher) -> None:
    """Add a launcher to the table of this process; one of the same name is replaced."""
    LAUNCHERS[launcher.name] = launcher


def default_launcher(job: "Job") -> Launcher:
    """Return the launcher of a job for which nobody has asked for one."""
    rows = LAUNCHERS.values()
    return next((row for row in rows if row.refusal(job) is None), next(iter(rows)))


def named_launcher(name: str | None) -> Launcher:
    """Return the launcher that was asked for; where none was, the one that is tried first.

    Raises:
        RequestError: there is none of that name.
    """
    return find_launcher(name) if name else next(iter(LAUNCHERS.values()))


def find_launcher(name: str) -> Launcher:
    """Return the launcher called `name`, of the table or of an installed package.

    Raises:
        RequestError: there is none of that name, or its package cannot be imported.
    """
    if name not in LAUNCHERS:
        _load(name)
    return LAUNCHERS[name]


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


def _load(name: str) -> None:
    """Register the launcher that an installed package brings under this name."""
    # It takes 20 ms, and all that are known here can do without.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = {row.name: row for row in entry_points(group=_GROUP)}
    if name not in found:
        # Not above: a supervisor, which knows its launcher's name, starts without it.
        from hpckit.documents import nearest  # noqa: PLC0415

        raise RequestError(f"Unknown launcher {name!r}. {nearest(name, [*LAUNCHERS, *found])}")
    try:
        row = found[name].load()
        launcher = row() if isinstance(row, type) else row
    except Exception as error:  # somebody else's code: whatever it raises
        raise RequestError(
            f"Launcher {name!r} ({found[name].value}) cannot be loaded: {error!r}."
        ) from error
    LAUNCHERS[name] = launcher
