"""The partitions that a job asks for, and what the site says of them."""

from collections.abc import Iterable, Sequence

from hpckit.documents import nearest
from hpckit.errors import PlanError
from hpckit.job.checks import off_switch
from hpckit.job_spec.spec import JobSpec
from hpckit.sites import PartitionLimits, Site


def asked(spec: JobSpec, site: Site) -> tuple[PartitionLimits, ...]:
    """Return what the site says of each partition asked for; nothing if one is not known.

    Raises:
        PlanError: one asked for is not among those of the site.
    """
    words = (spec.partition or site.partition or "").split(",")
    names = [name for name in dict.fromkeys(words) if name]
    for name in names:
        if name not in site.partitions:
            if "partition" in spec.skip_checks:
                return ()
            raise PlanError(
                f"Partition {name!r} is not in site {site.name!r}. "
                f"{nearest(name, site.partitions)} See `hpckit sites show {site.name}`. "
                f"{off_switch('partition')}"
            )
    return tuple(site.partitions[name] for name in names)


def widest(rows: Sequence[PartitionLimits]) -> PartitionLimits | None:
    """Return limits that a job is over only if it can start in none of these partitions.

    Slurm starts a job in the first of several partitions that can. None: there is no partition.
    """
    if len(rows) < 2:
        return rows[0] if rows else None
    return PartitionLimits(
        name=",".join(row.name for row in rows),
        max_time_min=_most(row.max_time_min for row in rows),
        max_nodes=_most(row.max_nodes for row in rows),
        gpus_per_node=_most(row.gpus_per_node for row in rows),
        cpus_per_node=_most(row.cpus_per_node for row in rows),
        mem_gb_per_node=_most(row.mem_gb_per_node for row in rows),
    )


def _most(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if len(known) == len(found) else None
