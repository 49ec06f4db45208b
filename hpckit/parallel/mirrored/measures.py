"""Losses and metrics: means that are right for parts of unequal size, and metrics by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from hpckit.parallel.given import check_loss, whole
from hpckit.parallel.mirrored.context import get_replica_context, has_strategy
from hpckit.parallel.mirrored.context import in_cross_replica_context as outside

Loss = Callable[..., torch.Tensor]
Metrics = Mapping[str, Loss] | Sequence[str | Loss] | None


def compute_average_loss(
    per_example_loss: torch.Tensor,
    global_batch_size: int | None = None,
    sample_weight: torch.Tensor | Sequence[float] | float | None = None,
) -> torch.Tensor:
    """Return this replica's share of the mean loss over a global batch: shares add up to it.

    Take gradients of it, and sum these (`optimizer.step()` without samples). It is 0 of no sample.

    Args:
        per_example_loss: the loss of each of this replica's samples.
        global_batch_size: the samples of all replicas. None: they are counted, for which all
            replicas must call this.
        sample_weight: a factor for each sample or each loss, or one for all.

    Raises:
        ValueError: the loss is one number, there is no sample on any replica, or the weights are
            of another shape.
    """
    if per_example_loss.dim() == 0:
        raise ValueError(
            'The loss is one number, not one per sample: use a loss with reduction="none".'
        )
    if global_batch_size is None:
        global_batch_size = _count(len(per_example_loss))
    size = whole(global_batch_size)
    if size is None or size < 1:
        raise ValueError(
            f"The global batch size is {global_batch_size!r}: it must be a whole number, 1 or more."
        )
    if sample_weight is not None:
        per_example_loss = per_example_loss * _of_each(sample_weight, per_example_loss)
    return per_example_loss.sum() / size


def _of_each(weight: object, losses: torch.Tensor) -> torch.Tensor:
    """Return a factor for each loss; torch would make a square of (n, 1) and (n,).

    Raises:
        ValueError: it has another shape.
    """
    factors = torch.as_tensor(weight, device=losses.device)
    if factors.shape == losses.shape[:1]:  # one for each sample, of whatever shape its losses are
        return factors.reshape(-1, *[1] * (losses.dim() - 1))
    if factors.numel() == 1:
        return factors.reshape(())
    # Of as many axes it is clear what those of length 1 are for, as in (n, 1) and (n, steps).
    pairs = zip(factors.shape, losses.shape, strict=False)
    if factors.dim() != losses.dim() or any(one not in (1, other) for one, other in pairs):
        raise ValueError(
            f"sample_weight has shape {tuple(factors.shape)} for losses of shape "
            f"{tuple(losses.shape)}: give one factor for each sample."
        )
    return factors


def mean_of_samples(loss: Loss, predictions: object, targets: object, samples: int) -> torch.Tensor:
    """Return the mean of a loss or metric over samples, whether it gives that or one of each.

    Raises:
        ValueError: it gives neither, or a complex number.
        TypeError: it gives what is no number.
    """
    value = _tensor(loss(predictions, targets))
    if value.dim() and len(value) != samples:
        raise ValueError(
            f"A loss of {samples} samples has shape {tuple(value.shape)}: it must be their mean, "
            "or one value for each along axis 0."
        )
    if value.is_complex():
        raise ValueError("A loss or metric must be real, and this one is complex: take abs().")
    if not value.is_floating_point():
        value = value.double()
    return value.mean()


def _tensor(value: object) -> torch.Tensor:
    """Return a tensor of what a loss or metric gives, which may be a number of Python or numpy.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, int | float) or hasattr(value, "__array_interface__"):
        return torch.as_tensor(value, dtype=torch.float64)
    raise TypeError(
        f"A loss or metric returned a {type(value).__name__}: it must return a tensor, their mean "
        "over samples or one value for each."
    )


def refuse_sum(name: str, loss: Loss) -> None:
    """Refuse a loss that says it adds up: its value cannot be told from a mean.

    Raises:
        ValueError: it does.
    """
    said = loss.keywords.get("reduction") if isinstance(loss, partial) else None
    if "sum" in (said, getattr(loss, "reduction", None)):
        raise ValueError(f'{name} has reduction="sum": use "mean" or "none".')


def _count(samples: int) -> int:
    if not has_strategy() or outside():
        return samples
    return int(get_replica_context().all_reduce("sum", samples))


def measures_of(loss: Loss, metrics: Metrics) -> dict[str, Loss]:
    """Return the loss and all metrics by name.

    Raises:
        TypeError: one is no function.
        ValueError: a name means no metric, or two have the same name.
    """
    check_loss(loss)
    found: dict[str, Loss] = {"loss": loss}
    for name, metric in _pairs(metrics):
        if not callable(metric) or isinstance(metric, type):
            raise TypeError(
                f"The metric {name} is {metric!r}: give a function of predictions and targets."
            )
        if name in found:
            other = "as the loss is" if name == "loss" else "as another one is"
            raise ValueError(
                f"A metric is named {name!r}, {other}: give names of their own, as "
                "metrics={'first': function, 'second': function}."
            )
        found[name] = metric
    return found


def _pairs(metrics: Any) -> list[tuple[str, Any]]:  # noqa: ANN401  # a name, a function, several
    if metrics is None:
        return []
    if isinstance(metrics, Mapping):
        return [
            (name, _named(one)[1] if isinstance(one, str) else one) for name, one in metrics.items()
        ]
    # Modules can be called, and those that are lists of others cannot.
    if isinstance(metrics, str) or (callable(metrics) and not isinstance(metrics, Iterable)):
        metrics = [metrics]
    return [_named(one) for one in metrics]


def accuracy(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return for each sample whether its largest score is that of its class.

    Args:
        predictions: scores, of shape (samples, classes, ...).
        targets: the numbers of the classes, or as many scores (one-hot).

    Raises:
        ValueError: there is one score per sample.
    """
    if predictions.dim() < 2 or predictions.shape[1] < 2:
        raise ValueError(
            f"'accuracy' compares scores of several classes, not predictions of shape "
            f"{tuple(predictions.shape)}: give a function, such as "
            "{'accuracy': lambda scores, targets: (scores > 0) == (targets > 0.5)}."
        )
    chosen = predictions.argmax(1)
    classes = targets.argmax(1) if targets.shape == predictions.shape else targets
    hits = (chosen == classes.reshape(chosen.shape)).double()
    return _mean_of_each(hits)


def squared_error(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean of the squared errors of each sample."""
    return _mean_of_each((predictions - targets).square())


def absolute_error(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean of the absolute errors of each sample."""
    return _mean_of_each((predictions - targets).abs())


def _mean_of_each(values: torch.Tensor) -> torch.Tensor:
    return values if values.dim() < 2 else values.flatten(1).mean(1)


_BY_NAME: dict[str, Loss] = {
    "accuracy": accuracy,
    "acc": accuracy,
    "mse": squared_error,
    "mean_squared_error": squared_error,
    "mae": absolute_error,
    "mean_absolute_error": absolute_error,
}


def _named(metric: str | Loss) -> tuple[str, Loss]:
    if not isinstance(metric, str):
        return getattr(metric, "__name__", type(metric).__name__), metric
    if metric not in _BY_NAME:
        raise ValueError(
            f"{metric!r} is not a metric: write {', '.join(_BY_NAME)}, or give a function, such as "
            f"metrics={{{metric!r}: function}}, of predictions and targets."
        )
    return metric, _BY_NAME[metric]
