"""Users and accounts that were named but have no job in a report: nobody's names, or idle ones."""

import re
from collections.abc import Iterable, Iterator, Sequence

from hpckit.documents import nearest
from hpckit.errors import CommandError, RequestError
from hpckit.group_report.allocations import Allocation
from hpckit.group_report.ledgers import Asked
from hpckit.owners import user_name
from hpckit.slurm.client import ask, patience
from hpckit.text import counted, listed

_NAME = r"\S{1,256}"
_MOST_NAMED = 16


def absent_notes(
    asked: Asked, rows: Sequence[Allocation], *, hide_names: bool = False
) -> Iterator[str]:
    """Say which of the named users and accounts have no attempt in a report's time.

    Args:
        asked: whose attempts, and when.
        rows: those that are known.
        hide_names: name no users, and of what accounting has only what was asked for.

    Raises:
        RequestError: Slurm's accounting does not have one of them.
    """
    users = _without(asked.users, {row.user for row in rows})
    accounts = _without(asked.accounts, {row.account.lower() for row in rows})
    others = [name for name in users if name != user_name()]
    silent = [
        *_unsaid("user", others, hide_names=hide_names),
        *_unsaid("account", accounts, hide_names=hide_names),
    ]
    missing = [counted(len(users), "user") if hide_names else listed(users)] if users else []
    missing += [f"account {listed(accounts)}"] if accounts else []
    why = "; Slurm shows others' jobs only where the site allows it" if others or accounts else ""
    for whose in missing if rows else filter(None, [" in ".join(missing)]):
        yield f"no job of {whose} is in this time{why}"
    yield from silent


def _without(names: Iterable[str], seen: set[str]) -> list[str]:
    """Return those that were not seen; all that was seen is of a name that is asked for alone."""
    asked = list(names)
    if len(asked) == 1 and seen:
        return []
    return [name for name in asked if name not in seen and name.lower() not in seen]


def _unsaid(kind: str, names: Sequence[str], *, hide_names: bool) -> Iterator[str]:
    """Refuse a name that accounting does not have; yield why that cannot be told.

    Sites may show users and accounts only to those who manage them (PrivateData of slurmdbd.conf):
    sacctmgr then refuses to answer, or names only the user who asks. And where jobs need no
    association, nobody may have one.
    """
    if not names:
        return
    cannot = f"hpckit cannot tell whether Slurm has this {kind}"
    try:
        with patience():
            answer = ask(("sacctmgr", "-nP", "show", kind, f"format={kind}")).stdout
    except CommandError as error:
        yield f"{cannot}: {str(error).rstrip('.')}"
        return
    # Several words may be a message; or an account that somebody asks for.
    lines = {line.lower() for line in answer.splitlines()}
    asked = {name.lower() for name in names}
    known = {line for line in lines if re.fullmatch(_NAME, line) or line in asked}
    if not known - {"root", user_name().lower()}:
        yield f"{cannot}: sacctmgr shows you no other {kind}s"
        return
    unknown = next((name for name in names if name.lower() not in known), None)
    if unknown is not None:
        raise RequestError(
            f"--{kind} {unknown!r}: Slurm's accounting has no such {kind}. "
            f"{_advice(kind, unknown, known, hide_names=hide_names)}"
        )


def _advice(kind: str, name: str, known: set[str], *, hide_names: bool) -> str:
    near = nearest(name, known)
    few = len(known) <= _MOST_NAMED or near.startswith("Did you mean")
    return near if few and not hide_names else f"sacctmgr show {kind} lists them."
