"""Mean losses that are right for parts of unequal size."""

from collections.abc import Callable

import torch

from hpckit.parallel.mirrored.context import get_replica_context, get_strategy
from hpckit.parallel.mirrored.context import in_cross_replica_context as outside

Loss = Callable[..., torch.Tensor]


def compute_average_loss(
    per_example_loss: torch.Tensor,
    global_batch_size: int | None = None,
    sample_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return this replica's share of the mean loss over a global batch: shares add up to it.

    Take gradients of it, and sum these (`optimizer.step()` without samples). It is 0 of no sample.

    Args:
        per_example_loss: the loss of each of this replica's samples.
        global_batch_size: the samples of all replicas. None: they are counted, for which all
            replicas must call this.
        sample_weight: a factor for each loss.

    Raises:
        ValueError: the loss is one number, or there is no sample on any replica.
    """
    if per_example_loss.dim() == 0:
        raise ValueError(
            'The loss is one number, not one per sample: use a loss with reduction="none".'
        )
    if global_batch_size is None:
        global_batch_size = _count(len(per_example_loss))
    if global_batch_size < 1:
        raise ValueError(f"The global batch size is {global_batch_size}, must be 1 or more.")
    if sample_weight is not None:
        per_example_loss = per_example_loss * sample_weight
    return per_example_loss.sum() / global_batch_size


def mean_of_samples(loss: Loss, predictions: object, targets: object, samples: int) -> torch.Tensor:
    """Return the mean of a loss or metric over samples, whether it gives that or one of each.

    Raises:
        ValueError: it gives neither.
    """
    value = loss(predictions, targets)
    if value.dim() and len(value) != samples:
        raise ValueError(
            f"A loss of {samples} samples has shape {tuple(value.shape)}: it must be their mean, "
            "or one value for each along axis 0."
        )
    if not value.is_floating_point():
        value = value.double()
    return value.mean()


def refuse_sum(name: str, loss: Loss) -> None:
    """Refuse a loss that adds up, whose value cannot be told from a mean.

    Raises:
        ValueError: it does.
    """
    if getattr(loss, "reduction", None) == "sum":
        raise ValueError(f'{name} has reduction="sum": use "mean" or "none".')


def _count(samples: int) -> int:
    if get_strategy() is None or outside():
        return samples
    return int(get_replica_context().all_reduce("sum", samples))
