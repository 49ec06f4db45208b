"""Checks of what a script gives a fit; each error names the value, and what to give."""

from collections.abc import Iterable
from typing import cast

import torch

from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import (
    as_number,
    is_optimizer,
    refuse_lbfgs,
    steps_nothing_of,
    whole,
)

_WEIGHTS = ("parameters", "state_dict", "load_state_dict")


def check_choice(name: str, word: str, choices: Iterable[str]) -> None:
    """Refuse a word that is not one of some.

    Raises:
        SetupError: it is not.
    """
    if word not in choices:
        raise SetupError(f"{name} is {word!r}: it must be one of {', '.join(choices)}")


def check_counts(least: int = 1, **counts: object) -> None:
    """Refuse what is not a number of things, at least so many.

    Raises:
        SetupError: it is not.
    """
    for name, given in counts.items():
        number = whole(given)
        if number is None:
            raise SetupError(f"{name} is {given!r}: it must be a whole number")
        if number < least:
            raise SetupError(f"{name} is {number}: it must be at least {least}")


def check_course(n_epochs: object, patience: object) -> None:
    """Refuse numbers of epochs that are none.

    Raises:
        SetupError: they are.
    """
    check_counts(0, n_epochs=n_epochs)
    if not as_number(patience) >= 0:
        raise SetupError(
            f"max_epochs_without_improvement is {patience!r}: it must be a number of epochs, or "
            "float('inf')"
        )


def check_parts(loss: object, estimator: object, optimizer: object, method: str) -> None:
    """Refuse parts of a fit that lack what is asked of them.

    An estimator may also be a wrapper that has a module's weights; of pathwise gradients its
    `log_prob` is not asked.

    Raises:
        SetupError: one does.
    """
    if not callable(loss):
        raise SetupError(f"loss is {loss!r}: give a function of parameters and data")
    if isinstance(estimator, torch.nn.Module) and not list(estimator.parameters()):
        raise SetupError("the posterior estimator has no parameters to fit")
    wanted = ("sample", *_WEIGHTS, *(["log_prob"] if method == "score" else []))
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in wanted):
        kind = estimator if isinstance(estimator, type) else type(estimator)
        raise SetupError(
            f"posterior_estimator is a {kind.__name__}: give a torch module with sample(n) and "
            "log_prob(z), such as hpckit.inference.gaussian.TrainableGaussian([0.0, 0.0])"
        )
    _check_optimizer(optimizer, cast("torch.nn.Module", estimator))


def check_prior(prior: object) -> None:
    """Refuse a prior without densities.

    Raises:
        SetupError: it is one.
    """
    if not callable(getattr(prior, "log_prob", None)):
        raise SetupError(f"prior is {prior!r}: give a distribution of torch.distributions")


def _check_optimizer(optimizer: object, estimator: torch.nn.Module) -> None:
    if optimizer is None:
        return
    way_out = "give one of torch, as torch.optim.Adam(posterior_estimator.parameters(), lr=1e-3)"
    if not is_optimizer(optimizer):
        raise SetupError(f"optimizer is {optimizer!r}: {way_out}")
    try:
        refuse_lbfgs(optimizer)
    except ValueError as error:
        raise SetupError(str(error)) from error
    if steps_nothing_of(optimizer, estimator.parameters()):
        raise SetupError(
            f"the {type(optimizer).__name__} has no parameter of the posterior estimator, which "
            f"would never change: {way_out}"
        )


def device_of(word: object, estimator: torch.nn.Module) -> torch.device:
    """Return the device that a word means.

    Raises:
        SetupError: it means none, or the estimator is not there.
    """
    try:
        device = torch.device(cast("str", word))
    except (RuntimeError, TypeError) as error:
        raise SetupError(f"device is {word!r}: give cpu, cuda or cuda:1") from error
    weight: torch.Tensor | None = next(estimator.parameters(), None)
    # The CPU is what nobody need say: an estimator may be on a GPU all the same.
    if weight is not None and device.type not in ("cpu", weight.device.type):
        raise SetupError(
            f"device is {device}, but the posterior estimator is on {weight.device}: give "
            f"posterior_estimator.to('{device}'), before the optimizer is made"
        )
    return device
