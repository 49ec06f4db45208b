"""Checks of what a script gives: whole numbers, modules of torch, losses, functions of these."""

import operator
from collections.abc import Mapping

import torch
from torch import nn


def whole(number: object) -> int | None:
    """Return a whole number, also one of numpy's or torch's; None: it is none."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        return None
    try:
        return operator.index(number)
    except TypeError:  # a tensor has the method, and may hold another number
        return None


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
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            f"The function that makes the optimizer returned {made!r}, which is not an optimizer "
            f"of torch: {way_out}."
        )
    refuse_lbfgs(made)
    stepped = {id(one) for group in made.param_groups for one in group["params"]}
    own = set(map(id, module.parameters()))
    if own and stepped.isdisjoint(own):
        raise ValueError(
            f"The {type(made).__name__} has no parameter of the {type(module).__name__} that it is "
            f"made for, which would never change: {way_out}, of the model that it gets."
        )
    return made


def refuse_lbfgs(optimizer: torch.optim.Optimizer) -> None:
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

    Raises:
        TypeError: they are not a tuple and a dict.
    """
    if not isinstance(args, tuple | list):
        raise TypeError(
            f"The arguments of run() are a {type(args).__name__}: give a tuple of them, as "
            "strategy.run(step, (batch,))."
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(
            f"The named arguments of run() are a {type(kwargs).__name__}: give a dict, as "
            "strategy.run(step, (batch,), {'training': True})."
        )
