"""Checks of what a script gives: whole numbers, modules of torch, losses, functions of these."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from typing import cast

import torch
from torch import nn

_STEPS = ("step", "zero_grad", "state_dict", "load_state_dict")


def whole(number: object) -> int | None:
    """Return a whole number, also one of numpy's or torch's; None: it is none."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        return None
    try:
        return operator.index(number)
    except TypeError:  # a tensor has the method, and may hold another number
        return None


def as_number(given: object) -> float:
    """Return a number, also one of numpy's or torch's; NaN for all else."""
    try:
        return math.nan if isinstance(given, str) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def check_module(what: str, module: object) -> None:
    """Refuse a model that is not a module of torch.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(module, nn.Module):
        given = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
        raise TypeError(
            f"{what} is {given}: give a module of torch, such as torch.nn.Linear(5, 1)."
        )


def check_loss(loss: object) -> None:
    """Refuse a loss that is no function.

    Raises:
        TypeError: it is a name, a class, or something else.
    """
    if isinstance(loss, type):
        raise TypeError(f"The loss is the class {loss.__name__}: give {loss.__name__}().")
    if not callable(loss):
        raise TypeError(
            f"The loss is {loss!r}: give a function of predictions and targets, such as "
            "torch.nn.MSELoss()."
        )


def optimizer_of(make: object, module: nn.Module) -> torch.optim.Optimizer:
    """Return what a function makes to optimize one module.

    Raises:
        TypeError: it is not a function, or returns something else.
        ValueError: the optimizer would change nothing of the module, or is LBFGS.
    """
    way_out = "give a function such as lambda model: torch.optim.SGD(model.parameters(), lr=0.1)"
    if isinstance(make, torch.optim.Optimizer) or not callable(make):
        given = f"a {type(make).__name__}" if callable(getattr(make, "step", None)) else repr(make)
        raise TypeError(f"The optimizer is {given}: {way_out}.")
    made: object = make(module)
    if not is_optimizer(made):
        raise TypeError(
            f"The function that makes the optimizer returned {made!r}, which is not an optimizer "
            f"of torch: {way_out}."
        )
    refuse_lbfgs(made)
    if steps_nothing_of(made, module.parameters()):
        raise ValueError(
            f"The {type(made).__name__} has no parameter of the {type(module).__name__} that it is "
            f"made for, which would never change: {way_out}, of the model that it gets."
        )
    return cast("torch.optim.Optimizer", made)


def is_optimizer(given: object) -> bool:
    """Return whether something is an optimizer of torch, or does what one does, as a wrapper."""
    if isinstance(given, torch.optim.Optimizer):
        return True
    return not isinstance(given, type) and all(
        callable(getattr(given, name, None)) for name in _STEPS
    )


def steps_nothing_of(optimizer: object, parameters: Iterable[torch.Tensor]) -> bool:
    """Return whether an optimizer has none of these, some of which are to be trained.

    Of parameters that are all frozen none need be in it: a loss may have some of its own.
    """
    groups = getattr(optimizer, "param_groups", None)
    own = list(parameters)
    if groups is None or not any(one.requires_grad for one in own):
        return False
    stepped = {id(one) for group in groups for one in group["params"]}
    return stepped.isdisjoint(map(id, own))


def refuse_lbfgs(optimizer: object) -> None:
    """Refuse an optimizer that evaluates the model by itself.

    Raises:
        ValueError: it does.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "LBFGS evaluates the model several times in a step, which is not supported here: use "
            "SGD, Adam or another optimizer whose step() needs no function."
        )


def check_arguments(args: object, kwargs: object) -> None:
    """Refuse arguments that would be taken apart: a batch by itself, as if its values were several.

    The values of a dict are several, as a tuple is.

    Raises:
        TypeError: they are not a tuple and a dict.
    """
    if not isinstance(args, Sequence | ValuesView) or isinstance(args, str | bytes):
        raise TypeError(
            f"The arguments of run() are a {type(args).__name__}: give a tuple of them, as "
            "strategy.run(step, (batch,))."
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(
            f"The named arguments of run() are a {type(kwargs).__name__}: give a dict, as "
            "strategy.run(step, (batch,), {'training': True})."
        )
