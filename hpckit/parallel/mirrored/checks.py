"""What users give to `fit`, `evaluate` and `predict`: refused in one line where it cannot work."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from hpckit.parallel.mirrored.gradients import MirroredOptimizer
from hpckit.parallel.mirrored.measures import Loss
from hpckit.parallel.mirrored.mirrored_model import Mirrored
from hpckit.parallel.mirrored.variables import MirroredVariable

if TYPE_CHECKING:  # the strategy asks
    from hpckit.parallel.mirrored.strategy import MirroredStrategy

Metrics = Mapping[str, Loss] | Sequence[str | Loss] | None


def check_own(strategy: "MirroredStrategy", value: object) -> None:
    """Refuse what another strategy made.

    Raises:
        RuntimeError: it did.
    """
    if not isinstance(value, Mirrored | MirroredOptimizer | MirroredVariable):
        return
    if value.strategy is not strategy:
        raise RuntimeError(
            f"Two strategies are mixed: a {type(value).__name__} of {value.strategy} is "
            f"given to {strategy}. Make it with the strategy that uses it."
        )


def check_model(strategy: "MirroredStrategy", model: object) -> None:
    """Refuse a model that has no copy on each replica.

    Raises:
        TypeError: it is neither mirrored nor built in the strategy's scope.
        RuntimeError: it is another strategy's.
    """
    check_own(strategy, model)
    if not isinstance(model, Mirrored) and model not in strategy.built:
        raise TypeError(
            f"A {type(model).__name__} has no copy on each replica: build the model in "
            "`with strategy.scope():`, or give what strategy.mirror(model) returns."
        )


def check_optimizer(strategy: "MirroredStrategy", model: object, optimizer: object) -> None:
    """Refuse an optimizer that is not of a model's kind.

    Raises:
        TypeError: it is not.
        RuntimeError: it is another strategy's.
    """
    check_own(strategy, optimizer)
    mirrored = isinstance(model, Mirrored)
    wanted = MirroredOptimizer if mirrored else torch.optim.Optimizer
    if isinstance(optimizer, wanted):
        return
    given = repr(optimizer) if isinstance(optimizer, str) else f"a {type(optimizer).__name__}"
    needed = (
        "strategy.optimizer(model, lambda copy: torch.optim.SGD(copy.parameters(), lr=0.1)), which "
        "has one for each replica"
        if mirrored
        else "an optimizer of torch, such as torch.optim.SGD(model.parameters(), lr=0.1)"
    )
    raise TypeError(f"The optimizer is {given}; this model needs {needed}.")


def check_loss(loss: object) -> None:
    """Refuse a loss that is no function.

    Raises:
        TypeError: it is a name, or something else.
    """
    if not callable(loss):
        raise TypeError(
            f"The loss is {loss!r}: give a function of predictions and targets, such as "
            "torch.nn.MSELoss()."
        )


def measures_of(loss: Loss, metrics: Metrics) -> dict[str, Loss]:
    """Return the loss and all metrics by name.

    Raises:
        TypeError: one is no function.
        ValueError: a name means no metric.
    """
    check_loss(loss)
    if metrics is None:
        metrics = {}
    if isinstance(metrics, str):
        metrics = [metrics]
    if not isinstance(metrics, Mapping):
        metrics = dict(_named(one) for one in metrics)
    for name, metric in metrics.items():
        if not callable(metric):
            raise TypeError(
                f"The metric {name} is {metric!r}: give a function of predictions and targets."
            )
    return {"loss": loss, **metrics}


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
