"""Copies of modules for one replica and one run, and what of them is kept afterwards."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from hpckit.parallel.devices import Replica
from hpckit.parallel.mirrored.collectives import one_buffer


@dataclass
class Twins:
    """One replica's copies during a run, by the `id` of what they are copies of."""

    modules: dict[int, nn.Module] = field(default_factory=dict)
    weights: dict[int, nn.Parameter] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    # Of the first replica: the gradients that the parameters have outside of the run.
    gradients: dict[int, torch.Tensor | None] = field(default_factory=dict)

    def weight(self, parameter: torch.Tensor) -> nn.Parameter:
        """Return the copy of a parameter.

        Raises:
            RuntimeError: it has none.
        """
        if id(parameter) not in self.weights:
            raise RuntimeError(
                f"An optimizer has a parameter of shape {tuple(parameter.shape)} that does not "
                "belong to a module built in scope(), but other parameters do: build a module with "
                "it in scope()."
            )
        return self.weights[id(parameter)]

    @torch.no_grad()
    def follow(self, parameters: Iterable[nn.Parameter]) -> None:
        """Take over the values of parameters."""
        for parameter in parameters:
            mine = self.weights[id(parameter)]
            if mine.data_ptr() != parameter.data_ptr():
                mine.copy_(parameter)
            self.versions[id(parameter)] = mine._version


def make_twins(modules: Sequence[nn.Module], replica: Replica) -> Twins:
    """Return copies for one replica; the first one's weights are those of the modules."""
    twins = Twins()
    copies: dict[nn.Module, nn.Module] = {}
    buffers: dict[int, torch.Tensor] = {}
    with torch.inference_mode(False), torch.no_grad():
        for module in modules:
            # Torch's modules say themselves, in the method that its DataParallel calls, what a
            # copy needs.
            copies[module] = module._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        for module, copy in copies.items():
            twins.modules[id(module)] = copy
            for name, child in module._modules.items():
                copy._modules[name] = None if child is None else copies[child]
            for name, parameter in module._parameters.items():
                if parameter is None:
                    copy._parameters[name] = None
                    continue
                if id(parameter) not in twins.weights:
                    leaf = twins.weights[id(parameter)] = _leaf(parameter, replica)
                    twins.versions[id(parameter)] = leaf._version
                setattr(copy, name, twins.weights[id(parameter)])
            for name, buffer in module._buffers.items():
                if buffer is not None and id(buffer) not in buffers:
                    buffers[id(buffer)] = buffer.to(replica.device, copy=True)
                copy._buffers[name] = None if buffer is None else buffers[id(buffer)]
    for copy in copies.values():
        del copy._is_replica
    return twins


def _leaf(parameter: nn.Parameter, replica: Replica) -> nn.Parameter:
    """Return a weight for one replica, with the gradient so far in the first."""
    value = parameter.detach()
    if replica.number:
        value = value.to(replica.device, copy=True)
    leaf = nn.Parameter(value, requires_grad=parameter.requires_grad)
    if not replica.number:
        leaf.grad = parameter.grad
    return leaf


def refuse_hooks(modules: Sequence[nn.Module]) -> None:
    """Refuse parameters with hooks for their gradient: copies do not have them.

    Raises:
        RuntimeError: a parameter has one.
    """
    for module in modules:
        for name, parameter in module._parameters.items():
            if parameter is not None and (
                parameter._backward_hooks or parameter._post_accumulate_grad_hooks
            ):
                raise RuntimeError(
                    f"{type(module).__name__}.{name} has a hook for its gradient (register_hook or "
                    "register_post_accumulate_grad_hook), and several replicas cannot call it: "
                    "remove the hook, and change gradients after backward() inside run()."
                )


@contextmanager
def set_aside(modules: Sequence[nn.Module], first: Twins) -> Iterator[None]:
    """Leave parameters without gradients, so that one that comes from outside is seen.

    Raises:
        RuntimeError: one came.
    """
    weights = {id(one): one for module in modules for one in module._parameters.values()}
    parameters = [one for one in weights.values() if one is not None]
    for parameter in parameters:
        first.gradients[id(parameter)], parameter.grad = parameter.grad, None
    try:
        yield
        refuse_foreign(parameters)
    finally:
        for parameter in parameters:
            parameter.grad = first.gradients[id(parameter)]


def refuse_foreign(parameters: Iterable[nn.Parameter]) -> None:
    """Refuse gradients of parameters themselves, where replicas run and have copies.

    Raises:
        RuntimeError: there is one.
    """
    for parameter in parameters:
        if parameter.grad is not None:
            raise RuntimeError(
                f"A weight of the model, of shape {tuple(parameter.shape)}, was used that was "
                "taken outside of run(), or in another thread: take it from the model inside run()."
            )


@torch.no_grad()
def keep(modules: Sequence[nn.Module], twins: Sequence[Twins]) -> None:
    """Leave in modules what replicas made of them: gradients, buffers, plain attributes.

    Raises:
        RuntimeError: a replica has changed a weight other than by an optimizer's step.
    """
    for module in modules:
        copies = [one.modules[id(module)] for one in twins]
        for name in module._buffers:
            _keep_buffer(module, name, [copy._buffers[name] for copy in copies])
        for name, value in copies[0].__dict__.items():
            if value is None or isinstance(value, bool | int | float | str):
                module.__dict__[name] = value
        for name, parameter in module._parameters.items():
            if parameter is not None:
                _keep_gradient(f"{type(module).__name__}.{name}", parameter, twins)


def _keep_buffer(module: nn.Module, name: str, values: Sequence[torch.Tensor | None]) -> None:
    tensors = tuple(value for value in values if value is not None)
    mine = module._buffers[name]
    if len(tensors) < len(values):
        module._buffers[name] = values[0]
    elif mine is not None and mine.shape == tensors[0].shape:
        mine.copy_(one_buffer(tensors, before=mine))
    else:
        module._buffers[name] = one_buffer(tensors)


def _keep_gradient(name: str, parameter: nn.Parameter, twins: Sequence[Twins]) -> None:
    first, *others = (one.weights[id(parameter)] for one in twins)
    gradient = first.grad
    for number, (one, leaf) in enumerate(zip(twins[1:], others, strict=True), start=1):
        if leaf._version != one.versions[id(parameter)]:
            raise RuntimeError(
                f"Replica {number} has changed {name} by itself, and the other replicas have not: "
                "change weights only with a torch optimizer. Or use strategy.mirror(model), which "
                "gives each replica its own copy."
            )
        if leaf.grad is not None:
            more = leaf.grad.to(parameter.device)
            gradient = more if gradient is None else gradient + more
            leaf.grad = None  # a weight that two modules share is counted once
    first.grad = parameter.grad = gradient
