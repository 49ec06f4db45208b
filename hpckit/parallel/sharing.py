"""Batches in parts: one for each replica, or for each rank; in order, none lost, as even as can be.

Ten samples over three replicas are 4, 4 and 2, as tf.distribute has them; one over two leaves the
second none. Whoever averages over replicas must weigh them by their number of samples.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch.utils.data.distributed import DistributedSampler

Item = TypeVar("Item")


def has_samples(leaf: object) -> bool:
    """Say whether a part of a batch is a tensor with an axis of samples, its first."""
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0


def part_sizes(total: int, parts: int) -> list[int]:
    """Return the sizes of the parts: each of the first is the ceiling, the last takes the rest."""
    if parts < 1:
        raise ValueError(f"A batch cannot be split into {parts} parts.")
    each = -(-total // parts)
    return [max(min(each, total - number * each), 0) for number in range(parts)]


def split(
    batch: torch.Tensor, devices: Sequence[torch.device], *, non_blocking: bool = False
) -> list[torch.Tensor]:
    """Return the parts of a batch (samples first), each on its device; some may have no sample."""
    parts = torch.split(batch, part_sizes(len(batch), len(devices)))
    return [
        part.to(device, non_blocking=non_blocking)
        for part, device in zip(parts, devices, strict=True)
    ]


def split_batch(
    inputs: torch.Tensor, targets: torch.Tensor, devices: Sequence[torch.device]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the parts of inputs and targets, each on its device.

    Raises:
        ValueError: they are not of one length.
    """
    if len(inputs) != len(targets):
        raise ValueError(
            f"A batch has {len(inputs)} inputs and {len(targets)} targets: the numbers "
            "must be equal."
        )
    return split(inputs, devices), split(targets, devices)


def batches(sampler: "DistributedSampler[object]", batch_size: int) -> list[list[int]]:
    """Return, for each global batch of the epoch, the samples that are this rank's.

    DistributedSampler shuffles the samples, the same way on every rank, and deals them out like
    cards: rank r of W gets positions r, r + W, r + 2W, ... Cutting those positions at multiples
    of the global batch size puts the same samples into batch k for any number of ranks. A batch
    that does not divide evenly gives some ranks one sample less, perhaps none.

    To give all ranks equally many, the sampler repeats samples past the end. We leave these out:
    they would count twice.
    """
    total = len(sampler.dataset)  # type: ignore[arg-type]  # ours has a length
    shares: list[list[int]] = [[] for _ in range(math.ceil(total / batch_size))]
    for turn, index in enumerate(sampler):
        position = sampler.rank + turn * sampler.num_replicas
        if position < total:
            shares[position // batch_size].append(index)  # type: ignore[arg-type]
    return shares


def parts(share: list[int], count: int) -> list[list[int]]:
    """Cut a rank's share into `count` parts, as even as can be; some may be empty."""
    size, more = divmod(len(share), count)
    ends = [number * size + min(number, more) for number in range(count + 1)]
    return [share[begin:end] for begin, end in pairwise(ends)]
