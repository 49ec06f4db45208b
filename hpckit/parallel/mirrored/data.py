"""Global batches in parts, one for each replica; and what every replica makes for itself."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice

import torch

from hpckit.parallel.devices import Replica
from hpckit.parallel.given import whole
from hpckit.parallel.mirrored.per_replica import PerReplica, Tree, leaves, map_tree, regroup
from hpckit.parallel.sharing import has_samples, split


@dataclass(frozen=True, slots=True)
class ValueContext:
    """For which replica a value is made."""

    replica_id_in_sync_group: int
    num_replicas_in_sync: int


@dataclass(frozen=True, slots=True)
class InputContext:
    """For whom a data set is made: one process, so one pipeline, which feeds all replicas."""

    num_replicas_in_sync: int
    num_input_pipelines: int = 1
    input_pipeline_id: int = 0

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return a replica's part of a global batch.

        Raises:
            ValueError: the parts would not be equal.
        """
        return per_replica_batch_size(global_batch_size, self.num_replicas_in_sync)


def per_replica_batch_size(global_batch_size: int, replicas: int) -> int:
    """Return a replica's part of a global batch.

    Raises:
        ValueError: the parts would not be equal, or it is not a number of samples.
    """
    size = whole(global_batch_size)
    if size is None or size < 1:
        raise ValueError(
            f"The global batch size is {global_batch_size!r}: it must be a whole number, 1 or more."
        )
    if size % replicas:
        raise ValueError(
            f"A global batch of {size} is not divisible by {replicas} replicas: "
            f"use {size - size % replicas or replicas}, or let "
            "distribute_dataset() split it unevenly."
        )
    return size // replicas


class DistributedDataset:
    """Batches for all replicas: each a tree with a PerReplica at every tensor."""

    def __init__(
        self, data: Iterable[Tree], parts: Callable[[Iterable[Tree]], Iterator[Tree]]
    ) -> None:
        self._data = data
        self._parts = parts

    def __iter__(self) -> Iterator[Tree]:
        return self._parts(self._data)


class SplitDataset(DistributedDataset):
    """Global batches in parts; there are as many as in the data."""

    def __init__(self, data: Iterable[Tree], replicas: Sequence[Replica]) -> None:
        super().__init__(data, lambda batches: (split_tree(one, replicas) for one in batches))

    def __len__(self) -> int:
        if not isinstance(self._data, Sized):
            raise TypeError(
                f"{type(self._data).__name__} has no length: count the batches while iterating."
            )
        return len(self._data)


def split_tree(batch: Tree, replicas: Sequence[Replica]) -> Tree:
    """Return a batch (samples first) with each tensor in parts, each on its replica's device.

    What is no tensor, and numbers, go to all replicas. For one replica, tensors stay tensors.

    Raises:
        ValueError: the tensors have not all as many samples.
    """
    devices = [replica.device for replica in replicas]
    samples(batch)

    def parts(leaf: Tree) -> Tree:
        leaf = _as_tensor(leaf)
        if not has_samples(leaf):
            return leaf
        values = split(leaf, devices, non_blocking=leaf.is_pinned())
        return values[0] if len(values) == 1 else PerReplica(tuple(values))

    return map_tree(parts, batch)


def samples(batch: Tree) -> int:
    """Return how many samples the tensors of a replica's or global batch have.

    Raises:
        ValueError: they have not all as many, or there is none that could have.
    """
    counts = [len(leaf) for leaf in map(_as_tensor, leaves(batch)) if has_samples(leaf)]
    if len(set(counts)) != 1:
        told = ", ".join(map(str, counts)) or "no tensor with an axis of samples"
        raise ValueError(
            "The tensors of a batch must have the same number of samples on axis 0; "
            f"they have {told}."
        )
    return counts[0]


def by_replica(batches: Iterable[Tree], replicas: Sequence[Replica]) -> Iterator[Tree]:
    """Return batches for all replicas from those for one each; who is left over gets no sample."""
    source = iter(batches)
    while group := list(islice(source, len(replicas))):
        empty = map_tree(lambda leaf: leaf[:0] if has_samples(leaf) else leaf, group[0])
        group += [empty] * (len(replicas) - len(group))
        yield regroup(
            [_moved(batch, replica.device) for batch, replica in zip(group, replicas, strict=True)]
        )


def _moved(batch: Tree, device: torch.device) -> Tree:
    return map_tree(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, batch)


def _as_tensor(leaf: Tree) -> Tree:
    """Return numpy's arrays as tensors, and all else as it is."""
    if hasattr(leaf, "__array_interface__"):
        return torch.as_tensor(leaf)
    return leaf
