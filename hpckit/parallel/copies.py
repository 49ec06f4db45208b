"""A model on several devices: the leading copy is the model itself, and the others follow it.

Their gradients are added up over calls, and applied together: every sample weighs the same.
"""

import copy
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import torch
from torch import nn

from hpckit.parallel.devices import Replica
from hpckit.parallel.models.networks import number_replica
from hpckit.parallel.older_python import add_note

_OTHERS = (
    "The model has other layers or weights than when its copies were made: create a new "
    "MicrobatchTrainer, with an optimizer of the new weights."
)
_Part = TypeVar("_Part")


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
        for replica, module in zip(replicas, self.modules, strict=True):
            number_replica(module, replica.number)

    def follow(self) -> None:
        """Give all copies the leading one's weights and buffers, and what of it is frozen.

        Raises:
            RuntimeError: the leading one has other weights than when the copies were made.
        """
        leading, *others = self.modules
        with torch.no_grad():
            for other in others:
                for mine, wanted in _pairs(_tensors(other), _tensors(leading)):
                    if mine.shape != wanted.shape:  # which copy_ might broadcast
                        raise RuntimeError(_OTHERS)
                    mine.copy_(wanted)
                    if mine.is_leaf:
                        mine.requires_grad_(wanted.requires_grad)

    @contextmanager
    def mode(self, *, training: bool) -> Iterator[None]:
        """Have all copies in a mode, then the leading one as it was.

        Where the model is in that mode already, parts of it that are not stay so: BatchNorm that
        is kept in eval mode, for example.

        Raises:
            RuntimeError: the leading one has other layers than when the copies were made.
        """
        leading, *others = self.modules
        before = [module.training for module in leading.modules()]
        try:
            if leading.training != training:
                leading.train(training)
            for other in others:
                for mine, wanted in _pairs(other.modules(), leading.modules()):
                    mine.training = wanted.training
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


def _pairs(these: Iterable[_Part], those: Iterable[_Part]) -> Iterator[tuple[_Part, _Part]]:
    try:
        yield from zip(these, those, strict=True)
    except ValueError as error:
        raise RuntimeError(_OTHERS) from error


@dataclass
class Waiting:
    """Gradients not applied yet: of sums of losses of `samples` in `calls`, divided by `unit`."""

    calls: int = 0
    samples: int = 0
    unit: int = 0

    def drop(self) -> None:
        """Forget them."""
        self.calls = self.samples = 0


class Accumulation:
    """Adds up the gradients of copies, and lets an optimizer of the leading one apply them."""

    def __init__(
        self,
        copies: Copies,
        optimizer: torch.optim.Optimizer,
        scaler: "torch.amp.GradScaler | None",
    ) -> None:
        self._copies, self._optimizer = copies, optimizer
        self.scaler = scaler
        self.waiting = Waiting()
        weakref.finalize(self, _report, self.waiting)

    @contextmanager
    def adding(self, total: int) -> Iterator[torch.Tensor]:
        """Count a batch of some samples, whose gradients are taken in the block.

        The block gets what to multiply a sum of losses by before it is differentiated. After an
        error in it all gradients are dropped, since parts of the batch are among them.
        """
        waiting = self.waiting
        if not waiting.calls:
            self._copies.clear_gradients()
            # Sums over a batch would overflow sooner in half precision than its mean.
            waiting.unit = total
        try:
            yield self._scale()
        except BaseException as error:
            if waiting.samples:
                add_note(error, f"Gradients of {waiting.samples} samples before it are dropped.")
            waiting.drop()
            self._copies.clear_gradients()
            raise
        waiting.calls += 1
        waiting.samples += total

    def apply(self) -> bool:
        """Change the weights by the mean gradient of all samples that wait.

        Returns:
            Whether they were changed: not if nothing waits, or if scaled gradients are not finite.
        """
        waiting = self.waiting
        if not waiting.calls:
            return False
        self._copies.sum_gradients(waiting.unit / waiting.samples)
        waiting.drop()
        stepped = self._step()
        self._copies.clear_gradients()
        return stepped

    def _scale(self) -> torch.Tensor:
        # Double, so that dividing by the number of samples is exact for models that are.
        one = torch.ones((), dtype=torch.float64, device=self._copies.device)
        return (self.scaler.scale(one) if self.scaler else one) / self.waiting.unit

    def _step(self) -> bool:
        if self.scaler is None:
            self._optimizer.step()
            return True
        before = self.scaler.get_scale()
        self.scaler.step(self._optimizer)
        self.scaler.update()
        # The scaler says in no other way that it left a step out.
        return self.scaler.get_scale() >= before


def _report(waiting: Waiting) -> None:
    """Say what was lost, when gradients are dropped unused or the program ends."""
    if waiting.samples:
        warnings.warn(
            f"Gradients of {waiting.samples} samples were never applied: call flush() of the "
            "MicrobatchTrainer after the last batch.",
            RuntimeWarning,
            stacklevel=2,
        )
