"""Modules and optimizers that answer each replica for itself while a run lasts.

An attribute of such a module, or a call of it, is that of the replica's copy. `optimizer.step()` is
one step that all replicas take together.
"""

import functools
import threading
import types
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hpckit.parallel.given import refuse_lbfgs
from hpckit.parallel.mirrored import context
from hpckit.parallel.mirrored.gradients import reduce_gradients
from hpckit.parallel.mirrored.twins import Twins, refuse_foreign

_optimizers: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()
_ONLY_OUTSIDE = ("add_param_group", "load_state_dict", "state_dict")
_noting = threading.Lock()  # nothing may be added to the set while it is read


def answering(kind: type) -> type:
    """Return a class of modules or optimizers that answer each replica for itself.

    Of one base and without slots, so that an object can be of it for a while and then as before.
    """
    answers = _MODULE if issubclass(kind, nn.Module) else _OPTIMIZER
    said = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
    return types.new_class(
        kind.__name__, (kind,), exec_body=lambda body: body.update(said, **answers)
    )


def _copy_of(module: object) -> nn.Module | None:
    here = context.replica_here()
    return None if here is None or here.twins is None else here.twins.modules.get(id(module))


def _of_module(self: Any, name: str) -> Any:  # noqa: ANN401  # whatever the module has
    copy = _copy_of(self)
    return _plain(self).__getattribute__(self, name) if copy is None else getattr(copy, name)


def _set_in_module(self: Any, name: str, value: object) -> None:  # noqa: ANN401
    copy = _copy_of(self)
    _plain(self).__setattr__(self, name, value) if copy is None else setattr(copy, name, value)


def _delete_in_module(self: Any, name: str) -> None:  # noqa: ANN401
    copy = _copy_of(self)
    _plain(self).__delattr__(self, name) if copy is None else delattr(copy, name)


def _of_optimizer(self: Any, name: str) -> Any:  # noqa: ANN401  # whatever the optimizer has
    here = context.replica_here()
    asked = name in ("step", "zero_grad", "param_groups", *_ONLY_OUTSIDE)
    if here is None or here.twins is None or not asked:
        return _plain(self).__getattribute__(self, name)
    if name in _ONLY_OUTSIDE:
        return functools.partial(_refuse_in_replica, name)
    return getattr(_Together(here, here.twins, self), name)


def _refuse_in_replica(name: str, *_: object, **__: object) -> None:
    raise RuntimeError(
        f"optimizer.{name}() is of all replicas, and one cannot call it: call it outside of run()."
    )


def _plain(one: object) -> Any:  # noqa: ANN401
    return type(one).__base__


_MODULE = {
    "__getattribute__": _of_module,
    "__setattr__": _set_in_module,
    "__delattr__": _delete_in_module,
}
_OPTIMIZER = {"__getattribute__": _of_optimizer}


class _Group(Mapping[str, Any]):
    """An optimizer's group as one replica sees it, whose settings it cannot change."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  # whatever a group has
        return self._content[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def update(self, *content: Mapping[str, object], **named: object) -> None:
        """Refuse new values.

        Raises:
            RuntimeError: always.
        """
        for name in dict(*content, **named):
            self[name] = None

    def __setitem__(self, name: str, value: object) -> None:
        """Refuse a new value.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"The optimizer's {name} is of all replicas, and one cannot change it: call "
            "scheduler.step(), and set a learning rate, outside of run()."
        )


@dataclass(frozen=True)
class _Together:
    """What an optimizer is to one replica."""

    here: context.ReplicaContext
    twins: Twins
    optimizer: Any

    @property
    def param_groups(self) -> list[Mapping[str, Any]]:
        """The groups, with this replica's weights; settings cannot be changed in a replica."""
        groups = object.__getattribute__(self.optimizer, "param_groups")
        mine = self.twins.weight
        return [
            _Group({**group, "params": [mine(one) for one in group["params"]]}) for group in groups
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop this replica's gradients."""
        for parameter in weights_of(self.optimizer):
            leaf = self.twins.weight(parameter)
            if set_to_none:
                leaf.grad = None
            elif leaf.grad is not None:
                leaf.grad.zero_()

    def step(self, closure: object = None) -> None:
        """Sum the gradients of all replicas, let the optimizer step once, hand out the weights.

        Afterwards the sum is the first replica's gradient, until it is dropped: gradients that are
        never dropped add up as on one device.
        """
        refuse_lbfgs(self.optimizer)
        if closure is not None:
            raise ValueError(
                "step(closure) evaluates the model again, and one replica cannot do this alone: "
                "call step() after backward()."
            )
        parameters = weights_of(self.optimizer)
        reduce_gradients(self.here, [self.twins.weight(one) for one in parameters], None)

        def once(sent: list[Twins]) -> list[None]:
            first, *others = sent
            refuse_foreign(parameters)
            with context.entered(self.here.strategy):
                for parameter in parameters:
                    parameter.grad = first.weight(parameter).grad
                self.optimizer.step()
                for parameter in parameters:
                    first.gradients[id(parameter)] = first.weight(parameter).grad
                    parameter.grad = None
                for twins in sent:
                    twins.follow(parameters)
            for twins in others:
                for parameter in parameters:
                    twins.weight(parameter).grad = None
            return [None] * len(sent)

        what = f"step() of the {type(self.optimizer).__name__} at {id(self.optimizer):#x}"
        self.here.meet(what, self.twins, once)


def weights_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return an optimizer's own parameters, also while it answers replicas."""
    groups = object.__getattribute__(optimizer, "param_groups")
    return [parameter for group in groups for parameter in group["params"]]


@functools.cache
def watch_optimizers() -> None:
    """Know of each optimizer that is made from now on, and of each step.

    Torch has a hook for steps only.
    """
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def noted(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        with _noting:
            _optimizers.add(self)

    torch.optim.Optimizer.__init__ = noted  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(_refuse_shared)


def _refuse_shared(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Refuse an optimizer that several replicas step: they would all write into the same weights.

    Raises:
        RuntimeError: another replica has stepped it in this run.
    """
    here = context.replica_here()
    if here is None or here.num_replicas_in_sync == 1:
        return
    first = here.steppers.setdefault(optimizer, here.replica.number)
    if first != here.replica.number:
        raise RuntimeError(
            f"Replicas {first} and {here.replica.number} step the same {type(optimizer).__name__}, "
            "whose weights they share: build the model in `with strategy.scope():`, or use "
            "strategy.mirror(model) and strategy.optimizer(model, make)."
        )


def optimizers_of(weights: set[int]) -> list[torch.optim.Optimizer]:
    """Return the optimizers that have some of these parameters, given by their `id`."""
    with _noting:
        optimizers = list(_optimizers)
    return [one for one in optimizers if weights & set(map(id, weights_of(one)))]
