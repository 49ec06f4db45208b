"""Ranks that never met: a job of several ranks that ends well, and did the same work on each. Pure.

What each rank says of itself comes from `payload/importable/hpckit_meeting.py`.
"""

from collections.abc import Sequence

from hpckit.ranks import RankRecord

_HOW = {
    "ddp": "no rank joined a process group of torch.distributed",
    "mpi": "no rank joined the others by MPI (is mpi4py of the MPI that starts the job?)",
}


def never_met(strategy: str, planned: int, ranks: Sequence[RankRecord]) -> str | None:
    """Say that the ranks of a job worked alone; None: some met, or it is not known of all."""
    how = _HOW.get(strategy)
    alone = [row for row in ranks if row.met is False and row.exit_code == 0]
    if how is None or planned < 2 or not len(alone) == len(ranks) == planned:
        return None
    return (
        f"the {planned} ranks never met: {how}. Each may have done the whole work by itself. What "
        "to set for Lightning, Transformers and others: docs/frameworks.md"
    )
