"""Where a finding is: the job, a node or a GPU; and how several of them are named in a line."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpckit.stats.advice.functions import visible
from hpckit.stats.summary.values import JobUse

_HOSTS_NAMED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """One subject of a rule.

    Attributes:
        host: None for the whole job.
        gpu: position in `JobUse.per_gpu`; None for a node.
        index, uuid: what the GPU is called; slices of one GPU share an index.
    """

    host: str | None = None
    gpu: int | None = None
    index: int | None = None
    uuid: str | None = None
    mig: bool = False

    def label(self) -> str:
        """Name it: `GPU 3 on c1`, `c1`, `the job`."""
        if self.host is None:
            return "the job"
        host = visible(self.host)
        return host if self.gpu is None else f"GPU {self.short()} on {host}"

    def short(self) -> str:
        """Name the GPU on its host: `3`; a MIG slice by its UUID too."""
        if self.index is None or self.mig:
            name = visible(self.uuid or "?")[:12]
            return name if self.index is None else f"{self.index} ({name})"
        return str(self.index)


def spots_of(job: JobUse) -> dict[str, list[Spot]]:
    """Return the subjects of a job: itself, its nodes, its GPUs."""
    gpus = [
        Spot(host=row.host, gpu=at, index=row.index, uuid=row.uuid, mig=row.mig)
        for at, row in enumerate(job.per_gpu)
    ]
    return {"job": [Spot()], "node": [Spot(host=row.host) for row in job.per_node], "gpu": gpus}


def leaves(spot: Spot, job: JobUse) -> frozenset[object]:
    """Return the smallest parts a spot is made of, to tell which spots cover which.

    These are GPUs where there are any, else nodes, else the job.
    """
    gpus = frozenset(
        at
        for at, row in enumerate(job.per_gpu)
        if spot.gpu == at or (spot.gpu is None and spot.host in (None, row.host))
    )
    hosts = frozenset(row.host for row in job.per_node if spot.host in (None, row.host))
    return gpus or hosts or frozenset([spot.host])


def where(spots: Sequence[Spot], total: int) -> str:
    """Name several spots in a line: `4 of 8 GPUs (c1: 0-3)`, `2 of 4 nodes (c1, c2)`."""
    if len(spots) == 1:
        return spots[0].label()
    hosts: dict[str, list[Spot]] = {}
    for spot in spots:
        hosts.setdefault(visible(spot.host or ""), []).append(spot)
    are_gpus = spots[0].gpu is not None
    named = [f"{host}: {_ranges(rows)}" if are_gpus else host for host, rows in hosts.items()]
    more = f" and {len(named) - _HOSTS_NAMED} more nodes" if len(named) > _HOSTS_NAMED else ""
    separator = "; " if are_gpus else ", "
    return (
        f"{len(spots)} of {total} {'GPUs' if are_gpus else 'nodes'} "
        f"({separator.join(named[:_HOSTS_NAMED])}{more})"
    )


def _ranges(spots: Sequence[Spot]) -> str:
    """Write `0-3, 6`; GPUs without a plain index by name."""
    numbers = sorted(spot.index for spot in spots if spot.index is not None and not spot.mig)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    plain = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    others = [spot.short() for spot in spots if spot.index is None or spot.mig]
    return ", ".join([*plain, *others])
