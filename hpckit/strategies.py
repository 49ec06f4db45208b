"""Strategies: how ranks share the work. A row in a table each."""

from hpckit.documents import nearest
from hpckit.errors import RequestError
from hpckit.frozen import frozen


@frozen(kw_only=True)
class Strategy:
    """How many ranks a node gets, and whether several nodes make sense."""

    name: str
    help: str
    rank_per_gpu: bool
    multi_node: bool
    mpi: bool = False


STRATEGIES = {
    row.name: row
    for row in (
        Strategy(
            name="serial",
            help="one process",
            rank_per_gpu=False,
            multi_node=False,
        ),
        Strategy(
            name="dp",
            help="one process that splits batches over the node's GPUs (torch.nn.DataParallel)",
            rank_per_gpu=False,
            multi_node=False,
        ),
        Strategy(
            name="ddp",
            help="one process per GPU, gradients all-reduced (DistributedDataParallel)",
            rank_per_gpu=True,
            multi_node=True,
        ),
        Strategy(
            name="mirrored",
            help="one process, one replica per GPU of the node (as tf.distribute.MirroredStrategy)",
            rank_per_gpu=False,
            multi_node=False,
        ),
        Strategy(
            name="mpi",
            help="one MPI rank per GPU, or --tasks-per-node ranks without GPUs",
            rank_per_gpu=True,
            multi_node=True,
            mpi=True,
        ),
    )
}


def find_strategy(name: str) -> Strategy:
    """Return the strategy called `name`.

    Raises:
        RequestError: there is none of that name.
    """
    if name not in STRATEGIES:
        raise RequestError(f"Unknown strategy {name!r}. {nearest(name, STRATEGIES)}")
    return STRATEGIES[name]
