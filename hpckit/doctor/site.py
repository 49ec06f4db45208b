"""Whether a site's file says of the cluster what the cluster says of itself. Pure."""

from collections.abc import Iterator

from hpckit.detect.model import Detected
from hpckit.doctor.model import Check, bad, good, unknown
from hpckit.sites import GENERIC, Site
from hpckit.slurm.cluster import Partition
from hpckit.units import format_minutes

_INIT = "or run hpckit init again, if you have not edited the file"


def site_checks(site: Site, path: str, found: Detected | None) -> Iterator[Check]:
    """Compare a site with what was found out; None where there is no Slurm to ask."""
    yield good(f"site {site.name}: {path} can be read")
    if found is None:
        return
    if site.name == GENERIC:
        yield unknown(
            "limits and GPUs of this cluster", "no site file fits this cluster: run hpckit init"
        )
    differences = list(_differences(site, found))
    yield from differences
    if site.name != GENERIC and not differences:
        yield good(f"site {site.name} agrees with the cluster")


def _differences(site: Site, found: Detected) -> Iterator[Check]:
    if found.partitions is None:
        yield unknown("whether the site's partitions are right", "scontrol did not answer")
    else:
        yield from _partitions(site, {row.name: row for row in found.partitions})
    yield from _gpus(site, found)
    yield from _rights(site, found)
    kinds = found.mpi.kinds
    if site.mpi and kinds and site.mpi not in kinds:
        todo = f"srun --mpi=list names {', '.join(kinds)}: set 'launch: {{mpi: NAME}}'"
        yield bad(f"the site's MPI {site.mpi!r} is not one that srun knows", todo)


def _partitions(site: Site, known: dict[str, Partition]) -> Iterator[Check]:
    names = dict.fromkeys([*site.partitions, *([site.partition] if site.partition else [])])
    for name in names:
        if name not in known:
            todo = f"the cluster has {', '.join(known)}: correct the site's file, {_INIT}"
            yield bad(f"partition {name!r} of the site does not exist", todo)
    for row in site.partitions.values():
        if row.name in known:
            yield from _limits(row.name, row.max_time_min, row.max_nodes, known[row.name])
    default = known.get(site.partition or "")
    if default and default.state != "UP":
        todo = "jobs wait there: give another --partition, or ask the cluster's support"
        yield bad(f"default partition {default.name!r} is {default.state}", todo)


def _limits(name: str, minutes: int | None, nodes: int | None, known: Partition) -> Iterator[Check]:
    """Yield limits over the cluster's: such jobs wait for ever."""
    limit = known.max_time_min
    if limit and minutes and minutes > limit:
        yield bad(
            f"partition {name!r}: the site allows {format_minutes(minutes)}, but "
            f"the cluster allows {format_minutes(limit)}",
            f"such jobs never start: correct max_time, {_INIT}",
        )
    if known.max_nodes and nodes and nodes > known.max_nodes:
        yield bad(
            f"partition {name!r}: the site allows {nodes} nodes, but the cluster allows "
            f"{known.max_nodes}",
            f"correct max_nodes, {_INIT}",
        )


def _gpus(site: Site, found: Detected) -> Iterator[Check]:
    gone = [name for name in site.gpu_types if name not in found.gpu_types]
    if gone and not found.nodes_known:
        yield unknown("whether the site's GPU types are right", "sinfo did not answer")
    elif gone:
        has = ", ".join(found.gpu_types) or "no types"
        yield bad(
            f"GPU types {', '.join(gone)} of the site do not exist",
            f"the cluster has {has}: correct the site's file, {_INIT}",
        )


def _rights(site: Site, found: Detected) -> Iterator[Check]:
    if found.associations is None:
        if site.account or site.qos:
            yield unknown("whether you may use the account and QOS", "sacctmgr did not answer")
        return
    if site.account and site.account not in found.accounts:
        yours = ", ".join(found.accounts) or "none"
        yield bad(f"account {site.account!r} is not yours", f"you have {yours}: --account NAME")
    if site.account_required and not site.account and not found.default_account:
        yours = ", ".join(found.accounts) or "none"
        yield bad("jobs here need an account", f"you have {yours}: --account NAME at each submit")
    if site.qos and found.qos and site.qos not in found.qos:
        yield bad(f"QOS {site.qos!r} is not yours", f"you have {', '.join(found.qos)}: --qos NAME")
