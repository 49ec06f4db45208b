"""What could start now, by partition and type of GPU: sums over nodes. Pure."""

from collections.abc import Collection, Iterable, Sequence

from hpckit.frozen import frozen
from hpckit.slurm.cluster import Association, Partition
from hpckit.slurm.nodes import Node, is_slice


@frozen(kw_only=True)
class Block:
    """The most that one job can get on one node now, and on how many nodes."""

    gpus: int
    cpus: int | None
    memory_mb: int | None
    nodes: int


@frozen(kw_only=True)
class FreePart:
    """Nodes of one partition with one type of GPUs, or without; None is unknown.

    Attributes:
        gpu: the type; None: a type without a name, or no GPUs (`gpus` is then 0).
        mig: the type is one of MIG slices.
        may_use: whether the user's accounts and groups may use the partition.
        state: the partition's, `UP` where jobs start.
        nodes, open, out, reserved, planned: all nodes; those where a job could start now; down,
            drained or the like; in a reservation; kept by Slurm for a job that waits.
        largest: what one job can get on one node; None: nothing, or it is unknown.
    """

    partition: str
    default: bool
    state: str
    may_use: bool | None
    gpu: str | None
    mig: bool
    gpus: int
    gpus_free: int | None
    cpus: int | None
    cpus_free: int | None
    memory_mb: int | None
    memory_free_mb: int | None
    nodes: int
    open: int
    out: int
    reserved: int
    planned: int
    largest: Block | None


@frozen(kw_only=True)
class _Share:
    """What one node has to give of a part."""

    node: Node
    gpus: int
    gpus_free: int | None
    cpus_free: int | None
    memory_free_mb: int | None

    @property
    def starts(self) -> bool:
        """Whether a job could start there: with a core, memory, and a GPU where it has some."""
        amounts = (self.cpus_free, self.memory_free_mb, self.gpus_free if self.gpus else None)
        return self.node.open and 0 not in amounts


def free_parts(
    partitions: Sequence[Partition],
    nodes: Iterable[Node],
    accounts: Collection[Association] | None = None,
    groups: Collection[str] | None = None,
) -> tuple[FreePart, ...]:
    """Return what is free, in the order of Slurm's partitions; None: it is not known whose.

    A partition that root alone may use is left out.
    """
    every = tuple(nodes)
    found: list[FreePart] = []
    for partition in partitions:
        if partition.root_only:
            continue
        here = [node for node in every if partition.name in node.partitions]
        kinds = dict.fromkeys(gpu.type for node in here for gpu in node.gpus)
        bare = [node for node in here if not node.gpus]
        allowed = may_use(partition, accounts, groups)
        for kind in kinds:
            with_kind = [node for node in here if any(gpu.type == kind for gpu in node.gpus)]
            found.append(_part(partition, allowed, kind, _shares(partition, with_kind, kind)))
        if bare:
            found.append(_part(partition, allowed, None, _bare(partition, bare)))
    return tuple(found)


def may_use(
    partition: Partition,
    accounts: Collection[Association] | None,
    groups: Collection[str] | None,
) -> bool | None:
    """Say whether one of a user's accounts, and their groups, may use a partition; None: unknown.

    QOS and limits are not looked at: only Slurm can weigh these.
    """
    if partition.groups is not None and groups is not None and not {*groups} & {*partition.groups}:
        return False
    if partition.accounts is None and not partition.denied_accounts:
        return None if partition.groups is not None and groups is None else True
    if accounts is None:
        return None
    mine = {row.account for row in accounts if row.partition in (None, partition.name)}
    if partition.accounts is not None:
        return bool(mine & {*partition.accounts})
    return bool(mine - {*partition.denied_accounts})


def _shares(partition: Partition, nodes: Iterable[Node], kind: str | None) -> list[_Share]:
    return [
        _share(partition, node, gpu.total, gpu.free)
        for node in nodes
        for gpu in node.gpus
        if gpu.type == kind
    ]


def _bare(partition: Partition, nodes: Iterable[Node]) -> list[_Share]:
    return [_share(partition, node, 0, 0) for node in nodes]


def _share(partition: Partition, node: Node, gpus: int, gpus_free: int | None) -> _Share:
    """Return what a node has to give: nothing where Slurm starts nothing, or gives whole nodes."""
    shut = not node.open or partition.state != "UP" or (partition.exclusive and not node.idle)
    # No job can be given a GPU of a node whose cores are all taken.
    none = shut or node.cpus_free == 0 or node.memory_free_mb == 0
    return _Share(
        node=node,
        gpus=gpus,
        gpus_free=0 if none else gpus_free,
        cpus_free=0 if shut else node.cpus_free,
        memory_free_mb=0 if shut else node.memory_free_mb,
    )


def _part(
    partition: Partition, allowed: bool | None, kind: str | None, rows: Sequence[_Share]
) -> FreePart:
    nodes = [row.node for row in rows]
    return FreePart(
        partition=partition.name,
        default=partition.default,
        state=partition.state,
        may_use=allowed,
        gpu=kind,
        mig=is_slice(kind),
        gpus=sum(row.gpus for row in rows),
        gpus_free=_sum(row.gpus_free for row in rows),
        cpus=_sum(node.cpus for node in nodes),
        cpus_free=_sum(row.cpus_free for row in rows),
        memory_mb=_sum(node.memory_mb for node in nodes),
        memory_free_mb=_sum(row.memory_free_mb for row in rows),
        nodes=len(nodes),
        open=sum(row.starts for row in rows) if partition.state == "UP" else 0,
        out=sum(bool(node.out) for node in nodes),
        reserved=sum(node.reserved and not node.out for node in nodes),
        planned=sum(node.planned and node.open for node in nodes),
        largest=_largest(rows),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """Return a sum; one that is unknown makes it so."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _largest(rows: Sequence[_Share]) -> Block | None:
    ready = [row for row in rows if row.starts and row.gpus_free is not None]
    if not ready:
        return None

    def size(row: _Share) -> tuple[int, int, int]:
        return row.gpus_free or 0, row.cpus_free or 0, row.memory_free_mb or 0

    best = max(ready, key=size)
    same = [row for row in ready if row.gpus_free == best.gpus_free]
    if not best.gpus_free:
        same = [row for row in ready if row.cpus_free == best.cpus_free]
    return Block(
        gpus=best.gpus_free or 0,
        cpus=best.cpus_free,
        memory_mb=best.memory_free_mb,
        nodes=len(same),
    )
