"""All devices of one machine in one process: tf.distribute.MirroredStrategy's ways, in torch.

- `strategy`, and what runs it: `replica_threads` on `idle_threads`; `context` says which replica
  code runs in.
- What is built in its scope: `built`, `answering`, `twins`; `mirror()` gives a `mirrored_model`.
- Values: `per_replica`, `variables`, `data`, `collectives`, `gradients`, `alike` (a check).
- Keras's methods: `fitting`, `evaluation`, `measures`.
"""

import hpckit.parallel.torch_versions  # noqa: F401  # refuses an older torch
from hpckit.parallel.mirrored.collectives import (
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from hpckit.parallel.mirrored.context import (
    ReplicaContext,
    get_replica_context,
    has_strategy,
    in_cross_replica_context,
)
from hpckit.parallel.mirrored.data import DistributedDataset, InputContext, ValueContext
from hpckit.parallel.mirrored.fitting import Callback, Progress
from hpckit.parallel.mirrored.gradients import MirroredOptimizer
from hpckit.parallel.mirrored.measures import compute_average_loss
from hpckit.parallel.mirrored.mirrored_model import Mirrored
from hpckit.parallel.mirrored.per_replica import PerReplica, ReduceOp
from hpckit.parallel.mirrored.strategy import (
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    get_strategy,
)
from hpckit.parallel.mirrored.variables import Aggregation, MirroredVariable, Sync

__all__ = [
    "Aggregation",
    "Callback",
    "DistributedDataset",
    "HierarchicalCopyAllReduce",
    "InputContext",
    "Mirrored",
    "MirroredOptimizer",
    "MirroredStrategy",
    "MirroredVariable",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "PerReplica",
    "Progress",
    "ReduceOp",
    "ReductionToOneDevice",
    "ReplicaContext",
    "Sync",
    "ValueContext",
    "compute_average_loss",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
