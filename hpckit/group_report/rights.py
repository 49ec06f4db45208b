"""Whose jobs accounting shows this user. What it said before is of use only while that is the same.

Where slurmdbd.conf(5) has `PrivateData=jobs`, users see their own jobs, coordinators those of their
accounts, operators and administrators all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hpckit.owners import user_name
from hpckit.slurm.client import ask, own_patience_s, patience

_COLUMNS = "format=AdminLevel,Coordinators"
_PRIVATE = "PrivateData"
_ORDINARY = "None"
_NOTE = (
    "Slurm shows you your own jobs and those of accounts that you coordinate (PrivateData=jobs in "
    "slurmdbd.conf), so all others are here only where a ledger has them"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rights:
    """What decides which jobs accounting shows this user.

    Attributes:
        level: the admin level; an ordinary user has `None`, in Slurm's own word.
        coordinates: the accounts that this user coordinates.
        private: what slurm.conf and slurmdbd.conf hide from ordinary users, in this order.
        lines: all of it as sacctmgr says it: what was seen counts while these are the same.
    """

    level: str
    coordinates: frozenset[str]
    private: tuple[str, ...]
    lines: tuple[str, ...]

    def hidden_note(self, accounts: Sequence[str]) -> str | None:
        """Say that others' jobs are not shown, where some of what was asked for may be missing."""
        theirs = self.private[-1].split(",") if self.private else []
        if "jobs" not in theirs or self.level != _ORDINARY:
            return None
        named = {name.lower() for name in accounts}
        return None if named and named <= self.coordinates else _NOTE


def rights(users: Sequence[str]) -> Rights | None:
    """Return what decides which jobs of some users accounting shows; no users: of all users.

    None where only the own jobs are asked for, which everybody sees.

    Raises:
        CommandError: accounting does not say.
    """
    me = user_name()
    if list(users) == [me]:
        return None
    with patience(own_patience_s()):  # sacct may have minutes; this is only for the next time
        person = ask(("sacctmgr", "-nP", "show", "user", me, "withcoord", _COLUMNS)).stdout
        settings = ask(("sacctmgr", "-nP", "show", "config")).stdout
    private = [line for line in settings.splitlines() if line.startswith(_PRIVATE)]
    level, _, accounts = person.strip().partition("|")
    return Rights(
        level=level or _ORDINARY,  # whom accounting does not know
        coordinates=frozenset(accounts.lower().split(",")),
        private=tuple(line.partition("=")[2].strip() for line in private),
        lines=(*person.splitlines(), *(" ".join(line.split()) for line in private)),
    )
