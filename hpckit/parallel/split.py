"""A batch in parts, one for each replica: in order, none lost, as even as can be.

Ten samples over three replicas are 4, 4 and 2, as tf.distribute has them; one over two leaves the
second none. Whoever averages over replicas must weigh them by their number of samples.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")


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
