"""Whose jobs accounting shows this user. What it said before is of use only while that is the same.

Where slurmdbd.conf(5) has `PrivateData=jobs`, users see their own jobs, coordinators those of their
accounts, operators and administrators all.
"""

from collections.abc import Sequence

from hpckit.paths import user_name
from hpckit.slurm.client import ask, own_patience_s, patience

_COLUMNS = "format=AdminLevel,Coordinators"
_PRIVATE = "PrivateData"


def rights(users: Sequence[str]) -> list[str]:
    """Return what decides which jobs of some users accounting shows; no users: of all users.

    Nothing does where only the own jobs are asked for, which everybody sees.

    Raises:
        CommandError: accounting does not say.
    """
    me = user_name()
    if list(users) == [me]:
        return []
    with patience(own_patience_s()):  # sacct may have minutes; this is only for the next time
        person = ask(("sacctmgr", "-nP", "show", "user", me, "withcoord", _COLUMNS)).stdout
        settings = ask(("sacctmgr", "-nP", "show", "config")).stdout
    private = (line for line in settings.splitlines() if line.startswith(_PRIVATE))
    return [*person.splitlines(), *(" ".join(line.split()) for line in private)]
