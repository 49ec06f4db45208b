"""Batches too large for the device's memory: in microbatches, each split over devices.

After BatchFlow's models: gradients of microbatches are added up, and the weights change once per
batch, or once per several batches. Every sample weighs the same, whatever the parts' sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from hpckit.parallel.copies import Accumulation, Copies
from hpckit.parallel.devices import Replica, Spec, replicas_of
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import check_loss, check_module, optimizer_of, whole
from hpckit.parallel.mirrored.measures import Loss, refuse_sum
from hpckit.parallel.mirrored.per_replica import Tree
from hpckit.parallel.passes import Amp, Passes, Work, make_scaler
from hpckit.parallel.spans import as_tensors, check_even, samples, spans

# What one call may say: as the trainer does, off, or a size.
Microbatch = int | Literal[False] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What became of one batch.

    Attributes:
        loss_sum: over its samples, on the leading device.
        samples: how many it has.
        outputs: the model's, in the order of the batch, on the leading device, without gradients;
            None if they were not asked for.
        stepped: the weights were changed. If not, gradients wait for more calls; or, with fp16,
            they were not finite, and the scale is smaller from now on.
        waiting: how many samples' gradients are not applied yet.
    """

    loss_sum: torch.Tensor
    samples: int
    outputs: Tree = None
    stepped: bool = False
    waiting: int = 0

    @property
    def loss(self) -> float:
        """The mean over all samples of the batch; reading it waits for the device."""
        return self.loss_sum.item() / self.samples


class MicrobatchTrainer:
    """Trains a model on batches that are split into microbatches, and these over devices.

    The leading replica is the model itself. Only it has an optimizer: gradients are added up there
    once per step, and every call begins by copying its weights and buffers to the others. One step
    everywhere would save that copy, and cost the optimizer's memory on each device; and nothing
    would mend replicas that drift apart, or learn of weights that were loaded into the model.

    Attributes:
        model: the one that was given, now on the leading device.
        optimizer: of that model; schedulers take it as it is.
        replicas: which devices.
        scaler: of losses in fp16, else None.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        devices: Spec | Sequence[Replica] = None,
        *,
        microbatch: int | None = None,
        sync_frequency: int = 1,
        amp: Amp | None = None,
        uneven: Literal["error", "weight"] = "error",
    ) -> None:
        """Make copies of a model, and an optimizer.

        Args:
            model: called with the inputs of a part, as they are given (a tensor, tuple or dict).
            loss: of outputs and targets: the mean over samples, or one value for each.
            optimizer: makes one of the model.
            devices: words of `find_replicas`, replicas, or devices, one replica each. None: the
                first GPU, else the CPU.
            microbatch: samples at a time, over all devices; None: the whole batch.
            sync_frequency: calls of `train` per step of the optimizer.
            amp: compute in bfloat16, or in float16 with a scaled loss; weights stay as they are.
            uneven: what to do with a batch that does not divide into equal parts: refuse it, or
                weigh each part by its samples, which is exact.

        Raises:
            SetupError: one of these cannot be.
            TypeError: the model, the loss or the optimizer is something else.
            ValueError: the loss is a sum, or the optimizer has no weight of the model.
        """
        check_module("The model", model)
        check_loss(loss)
        refuse_sum("The loss", loss)
        calls = whole(sync_frequency)
        if calls is None or calls < 1:
            raise SetupError(
                f"sync_frequency is {sync_frequency!r}: give 1 call per step, or more."
            )
        if uneven not in ("error", "weight"):
            raise SetupError(f"uneven is {uneven!r}: give 'error' or 'weight'.")
        self.replicas = replicas_of(devices)
        self.scaler = make_scaler(amp, self.replicas)
        self._copies = Copies(model, self.replicas)
        self.model = self._copies.modules[0]
        self.optimizer = optimizer_of(optimizer, self.model)
        self._passes = Passes(self._copies, self.replicas, loss, amp)
        self._uneven = uneven
        self._microbatch = _checked(microbatch)
        self._sync_frequency = calls
        self._accumulation = Accumulation(self._copies, self.optimizer, self.scaler)

    @property
    def waiting(self) -> int:
        """How many samples' gradients are not applied yet."""
        return self._accumulation.waiting.samples

    def train(
        self, inputs: Tree, targets: Tree, *, microbatch: Microbatch = None, outputs: bool = False
    ) -> StepResult:
        """Add up the gradients of a batch; change the weights if it is time.

        Args:
            inputs: tensors with samples along axis 0, also in tuples, lists and dicts.
            targets: as many.
            microbatch: None: as the trainer has it; False: off; else its size.
            outputs: keep the model's.

        Raises:
            ValueError: inputs and targets are not as many, there is none, or with uneven="error"
                they do not divide into equal parts.
        """
        inputs, targets = as_tensors(inputs), as_tensors(targets)
        total = _matched(inputs, targets)
        size = self._size(microbatch)
        if self._uneven == "error":
            check_even(total, size, len(self.replicas))
        work = Work(
            inputs=inputs,
            targets=targets,
            shares=spans(total, size, len(self.replicas)),
            kept=outputs,
        )
        with (
            self._accumulation.adding(total) as scale,
            self._copies.mode(training=True),
            torch.enable_grad(),
        ):
            loss_sum, predictions = self._passes.run(work, scale=scale)
        due = self._accumulation.waiting.calls >= self._sync_frequency
        return StepResult(
            loss_sum=loss_sum,
            samples=total,
            outputs=predictions,
            stepped=due and self.flush(),
            waiting=self.waiting,
        )

    def flush(self) -> bool:
        """Change the weights by what waits, as at the end of an epoch; return whether they were."""
        return self._accumulation.apply()

    def evaluate(
        self, inputs: Tree, targets: Tree, *, microbatch: Microbatch = None, outputs: bool = False
    ) -> StepResult:
        """Return the loss of a batch of any size, in eval mode; nothing changes.

        Raises:
            ValueError: inputs and targets are not as many, or there is none.
        """
        inputs, targets = as_tensors(inputs), as_tensors(targets)
        total = _matched(inputs, targets)
        work = Work(
            inputs=inputs,
            targets=targets,
            shares=spans(total, self._size(microbatch), len(self.replicas)),
            kept=outputs,
        )
        with self._copies.mode(training=False), torch.no_grad():
            loss_sum, predictions = self._passes.run(work)
        return StepResult(
            loss_sum=loss_sum, samples=total, outputs=predictions, waiting=self.waiting
        )

    def predict(self, inputs: Tree, *, microbatch: Microbatch = None) -> Tree:
        """Return the outputs for inputs of any number, in order, in eval mode, on the first device.

        Raises:
            ValueError: the tensors of the inputs have not all as many samples.
        """
        inputs = as_tensors(inputs)
        total = samples(inputs, "the inputs")
        count = len(self.replicas)
        shares = spans(total, self._size(microbatch), count) or [[(0, 0)] * count]
        work = Work(inputs=inputs, targets=None, shares=shares, judged=False, kept=True)
        with self._copies.mode(training=False), torch.no_grad():
            return self._passes.run(work)[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the model's, the optimizer's and the scaler's; any number of devices can load it.

        Raises:
            RuntimeError: gradients wait, which would be lost.
        """
        if self.waiting:
            raise RuntimeError(
                f"Gradients of {self.waiting} samples are not applied yet: call flush() first."
            )
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; gradients that wait are dropped.

        Raises:
            ValueError: it is not one that `state_dict` returned.
        """
        needed = {"model", "optimizer", *(["scaler"] if self.scaler else [])}
        if missing := needed - set(state):
            raise ValueError(
                f"The state has no {' and no '.join(sorted(missing))}: give what state_dict() of a "
                "MicrobatchTrainer returned."
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self._accumulation.waiting.drop()

    def _size(self, microbatch: Microbatch) -> int | None:
        return self._microbatch if microbatch is None else _checked(microbatch)


def _checked(microbatch: Microbatch) -> int | None:
    """Return the size of a microbatch; None: the whole batch.

    Raises:
        SetupError: it is none.
    """
    if microbatch is None or microbatch is False:
        return None
    size = whole(microbatch)
    if size is None or size < 1:
        raise SetupError(
            f"microbatch is {microbatch!r}: give a number of samples, or False for off."
        )
    return size


def _matched(inputs: Tree, targets: Tree) -> int:
    """Return the number of samples of a batch.

    Raises:
        ValueError: inputs and targets are not as many, or there is none.
    """
    total, wanted = samples(inputs, "the inputs"), samples(targets, "the targets")
    if total != wanted:
        raise ValueError(
            f"A batch has {total} inputs and {wanted} targets: the numbers must be equal."
        )
    if not total:
        raise ValueError("The batch is empty: there is no sample to take a mean over.")
    return total
