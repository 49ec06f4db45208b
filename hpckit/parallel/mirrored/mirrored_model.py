"""A module with a copy for each replica: equal parameters, and buffers of their own."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hpckit.parallel.mirrored.batchnorm import is_synced
from hpckit.parallel.mirrored.collectives import one_buffer
from hpckit.parallel.mirrored.context import Strategy, replica_of
from hpckit.parallel.mirrored.per_replica import Tree


class Mirrored:
    """Copies of a module, one per replica; they never share memory, also on one device.

    Called in a replica, its own copy is called; called outside, the first. Parameters stay equal as
    long as every replica applies the same update. Buffers, such as the running statistics of
    BatchNorm, are each replica's own; where one value is wanted (`state_dict`, `sync_buffers`), it
    is their mean, or of whole numbers the first replica's.
    """

    def __init__(self, strategy: Strategy, module: nn.Module) -> None:
        self.strategy = strategy
        self.copies = tuple(
            copy.deepcopy(module).to(replica.device) for replica in strategy.replicas
        )

    @property
    def local(self) -> nn.Module:
        """The copy of the replica that calls; outside of replicas, the first."""
        context = replica_of(self.strategy, "a model")
        return self.copies[context.replica.number if context else 0]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # only of what is not there
        """Say where a method of Keras's models is, or of one copy."""
        if name in ("compile", "fit", "evaluate", "predict"):
            raise AttributeError(
                f"A mirrored model has no {name}(): "
                "strategy.fit(model, batches, loss, optimizer, epochs), strategy.evaluate and "
                "strategy.predict do that, and take loss and metrics themselves."
            )
        raise AttributeError(f"A mirrored model has no {name!r}; model.local is one copy of it.")

    @property
    def synced(self) -> bool:
        """Whether replicas meet in the forward pass, so that those without samples must run it."""
        return self.training and is_synced(self.copies[:1])

    def __call__(self, *args: Tree, **kwargs: Tree) -> Tree:
        """Call the local copy."""
        return self.local(*args, **kwargs)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the local copy."""
        return self.local.parameters()

    @property
    def training(self) -> bool:
        """Whether the copies are in training mode."""
        return self.copies[0].training

    def train(self, mode: bool = True) -> None:
        """Set training mode: in a replica of its copy, outside of all."""
        inside = replica_of(self.strategy, "a model") is not None
        for module in (self.local,) if inside else self.copies:
            module.train(mode)

    def eval(self) -> None:
        """Set evaluation mode: in a replica of its copy, outside of all."""
        self.train(False)

    @torch.no_grad()
    def sync_buffers(self) -> None:
        """Give all copies the same buffers, outside of replicas."""
        for values in self._buffers():
            one = one_buffer(values)
            for value in values:
                value.copy_(one)

    def state_dict(self) -> dict[str, Any]:
        """Return one copy for all: a plain module can load it, and any number of replicas."""
        state: dict[str, Any] = self.copies[0].state_dict()
        names = [name for name, _ in self.copies[0].named_buffers()]
        for name, values in zip(names, self._buffers(), strict=True):
            if name in state:
                state[name] = one_buffer(values)
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load one state into all copies, outside of replicas."""
        for module in self.copies:
            module.load_state_dict(state, strict=strict)

    def _buffers(self) -> Iterator[tuple[torch.Tensor, ...]]:
        return zip(*(module.buffers() for module in self.copies), strict=True)
