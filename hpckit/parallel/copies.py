"""A model on several devices: the leading copy is the model itself, and the others follow it."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from hpckit.parallel.devices import Replica


class Copies:
    """One module for each replica; they never share memory.

    Attributes:
        modules: of the replicas, in their order; the first is the model that was given.
        device: of the first.
    """

    def __init__(self, model: nn.Module, replicas: Sequence[Replica]) -> None:
        self.device = replicas[0].device
        self.modules = (
            model.to(self.device),
            *(copy.deepcopy(model).to(replica.device) for replica in replicas[1:]),
        )

    def follow(self) -> None:
        """Give all copies the leading one's weights and buffers, and what of it is frozen."""
        leading, *others = self.modules
        with torch.no_grad():
            for other in others:
                for mine, wanted in zip(_tensors(other), _tensors(leading), strict=True):
                    mine.copy_(wanted)
                    if mine.is_leaf:
                        mine.requires_grad_(wanted.requires_grad)

    @contextmanager
    def mode(self, *, training: bool) -> Iterator[None]:
        """Have all copies in a mode, then the leading one as it was.

        Where the model is in that mode already, parts of it that are not stay so: BatchNorm that
        is kept in eval mode, for example.
        """
        leading, *others = self.modules
        before = [module.training for module in leading.modules()]
        if leading.training != training:
            leading.train(training)
        for other in others:
            for mine, wanted in zip(other.modules(), leading.modules(), strict=True):
                mine.training = wanted.training
        try:
            yield
        finally:
            for module, was in zip(leading.modules(), before, strict=True):
                module.training = was

    def sum_gradients(self, scale: float = 1.0) -> None:
        """Add up the gradients of all copies in the leading one's, times a factor.

        A parameter that some copies did not use counts there as 0; that none used has none.
        """
        with torch.no_grad():
            for leading, *others in zip(*(one.parameters() for one in self.modules), strict=True):
                for other in others:
                    if other.grad is not None:
                        more = other.grad.to(leading.device)
                        leading.grad = more if leading.grad is None else leading.grad + more
                        other.grad = None
                if leading.grad is not None and scale != 1.0:
                    leading.grad *= scale

    def clear_gradients(self) -> None:
        """Drop the gradients of all copies."""
        for module in self.modules:
            module.zero_grad()


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    return chain(module.parameters(), module.buffers())
