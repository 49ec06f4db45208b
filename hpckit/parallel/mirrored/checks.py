"""What users give to `fit`, `evaluate` and `predict`: refused in one line where it cannot work."""

import torch

from hpckit.parallel.mirrored.context import Strategy
from hpckit.parallel.mirrored.gradients import MirroredOptimizer
from hpckit.parallel.mirrored.mirrored_model import Mirrored
from hpckit.parallel.mirrored.variables import MirroredVariable


def check_own(strategy: Strategy, value: object) -> None:
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


def check_model(strategy: Strategy, model: object) -> None:
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


def check_optimizer(strategy: Strategy, model: object, optimizer: object) -> None:
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
