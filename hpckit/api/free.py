"""What is free on the cluster now: GPUs by type, cores and memory of each partition."""

import grp
import os
from dataclasses import asdict
from typing import Any

from hpckit.errors import CommandError
from hpckit.frozen import frozen
from hpckit.owners import user_name
from hpckit.slurm.client import ask, patience
from hpckit.slurm.cluster import (
    Association,
    associations_argv,
    cluster_name,
    parse_associations,
    parse_scontrol_partitions,
)
from hpckit.slurm.free import Block, FreePart, free_parts
from hpckit.slurm.nodes import nodes

__all__ = ["Block", "Free", "FreePart", "free"]


@frozen(kw_only=True)
class Free:
    """What could start now.

    Attributes:
        parts: by partition and type of GPU, in Slurm's order.
        trouble: why it is not known which partitions the user may use; "" if it is.
    """

    parts: tuple[FreePart, ...]
    trouble: str = ""

    def document(self) -> dict[str, Any]:
        """Return what `hpckit free --json` prints; null is unknown."""
        return {"free": [asdict(row) for row in self.parts], "trouble": self.trouble or None}


def free() -> Free:
    """Return what is free now: of nodes that are up, and in no reservation.

    Two questions go to Slurm's controller, whatever the cluster's size; a third one to accounting
    where a partition is for some accounts only.

    Raises:
        OutsideError: Slurm does not answer.
    """
    with patience():
        partitions = parse_scontrol_partitions(ask(["scontrol", "show", "partition"]).stdout)
        found = nodes()
        accounts: list[Association] | None = None
        trouble = ""
        if any(row.accounts is not None or row.denied_accounts for row in partitions):
            accounts, trouble = _own_accounts()
    return Free(parts=free_parts(partitions, found, accounts, _groups()), trouble=trouble)


def _own_accounts() -> tuple[list[Association] | None, str]:
    """Return the accounts that this user may charge here, or why they are not known."""
    try:
        rows = parse_associations(ask(associations_argv(user_name())).stdout)
    except CommandError as error:
        return None, str(error)
    if len({row.cluster for row in rows}) > 1:
        here = cluster_name()
        rows = tuple(row for row in rows if here in (None, row.cluster))
    return list(rows), ""


def _groups() -> list[str]:
    """Return the names of this process's groups; one without a name is left out."""
    found = []
    for number in {os.getegid(), *os.getgroups()}:
        try:
            found.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return found
