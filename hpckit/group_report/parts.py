"""Jobs that changed their size while they ran: accounting has a row for each size. Pure.

The rows follow one another. Together they are one attempt, with one wait, one time limit and one
end: if the job failed, all of it was lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpckit.group_report.allocations import Allocation
from hpckit.slurm.resized import changes_at
from hpckit.slurm.states import JobState


def joined(rows: Sequence[Allocation]) -> list[Allocation]:
    """Return attempts in their order, the rows of one that changed its size as parts of it."""
    several = {row.job_id for row in rows if row.state is JobState.RESIZING or row.first_start}
    if not several:
        return list(rows)
    mine: dict[tuple[str, str], list[tuple[int, Allocation]]] = {}
    for at, row in enumerate(rows):
        if row.job_id in several and not row.start_lost:
            mine.setdefault((row.job_id, row.user), []).append((at, row))
    found = list(rows)
    for group in mine.values():
        for chain in _chains(sorted(group, key=lambda pair: pair[1].start)):
            parts = _parts([row for _, row in chain])
            for (at, _), part in zip(chain, parts, strict=True):
                found[at] = part
    return found


def _chains(rows: Sequence[tuple[int, Allocation]]) -> Iterator[list[tuple[int, Allocation]]]:
    """Yield the rows of each attempt, oldest first."""
    chain: list[tuple[int, Allocation]] = []
    for pair in rows:
        before = chain[-1][1] if chain else None
        if before and not changes_at(before.state, before.end, pair[1].submit):
            yield chain
            chain = []
        chain.append(pair)
    yield chain


def _parts(chain: Sequence[Allocation]) -> Iterator[Allocation]:
    """Yield the parts of one attempt; alone, a row may be what went on after a change."""
    first, last = chain[0], chain[-1]
    if len(chain) == 1 and first.first_start is None and first.state is not JobState.RESIZING:
        yield first
        return
    begun = first.attempt_start
    spent = first.start - begun  # of the limit, by parts that are not among these rows
    for row in chain:
        # Nobody asked for more than a part held before it changed; the last has what is left.
        limit_s = None if row.limit_s is None else max(row.limit_s - round(spent), 0)
        if row.state is JobState.RESIZING and row.end is not None and limit_s is not None:
            limit_s = round(row.held_s)
        yield replace(
            row,
            state=last.state,
            first_start=begun,
            wait_s=row.wait_s if row is first else None,
            limit_s=limit_s,
        )
        spent += row.held_s
