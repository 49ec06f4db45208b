"""Gradients that are added up over calls, and applied together: every sample weighs the same."""

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hpckit.parallel.copies import Copies


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
        scaler: torch.amp.GradScaler | None,
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
                error.add_note(f"Gradients of {waiting.samples} samples before it are dropped.")
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
