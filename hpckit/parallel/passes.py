"""Forward and backward passes over the parts of a batch, on all replicas at once."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from hpckit.parallel.copies import Copies
from hpckit.parallel.devices import Replica
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mirrored.measures import Loss, mean_of_samples
from hpckit.parallel.mirrored.per_replica import Tree
from hpckit.parallel.mirrored.replica_threads import run_together
from hpckit.parallel.spans import Span, cut, join, map_fields
from hpckit.parallel.torch_versions import gpu_scaler

Amp = Literal["bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A batch and its parts.

    Attributes:
        inputs, targets: trees of tensors, samples first.
        shares: for each microbatch the samples of each replica. The first has some of each, unless
            the batch is empty: then its outputs show their shape.
        judged: the loss is wanted; else there are no targets.
        kept: the outputs are wanted.
    """

    inputs: Tree
    targets: Tree
    shares: Sequence[Sequence[Span]]
    judged: bool = True
    kept: bool = False


class Passes:
    """Runs a model and its loss."""

    def __init__(
        self, copies: Copies, replicas: Sequence[Replica], loss: Loss, amp: Amp | None
    ) -> None:
        self._copies, self._replicas, self._loss, self._amp = copies, replicas, loss, amp

    def run(self, work: Work, *, scale: torch.Tensor | None = None) -> tuple[torch.Tensor, Tree]:
        """Return the sum of losses, and the outputs in order or None, on the leading device.

        Args:
            work: what to do.
            scale: add to the gradients of each copy those of its sum of losses times this; None:
                take no gradients.
        """
        self._copies.follow()
        used = [replica for replica in self._replicas if _takes_part(replica, work)]
        device = self._replicas[0].device

        def on(replica: Replica, _: object) -> tuple[torch.Tensor, dict[int, Tree]]:
            return self._one(replica, work, scale)

        done = run_together(used, on)
        loss_sum = torch.stack([loss.to(device) for loss, _ in done]).sum()
        if not work.kept:
            return loss_sum, None
        in_order = [
            outputs[number]
            for number in range(len(work.shares))
            for _, outputs in done
            if number in outputs
        ]
        return loss_sum, join(in_order, device)

    def _one(
        self, replica: Replica, work: Work, scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, dict[int, Tree]]:
        """Return one replica's sum of losses, and its outputs by the number of the microbatch."""
        model = self._copies.modules[replica.number]
        loss_sum = torch.zeros((), dtype=torch.float64, device=replica.device)
        outputs: dict[int, Tree] = {}
        for number, share in enumerate(work.shares):
            begin, end = share[replica.number]
            if begin == end and replica.number:
                continue
            with self._precision(replica.device):
                predictions = model(cut(work.inputs, (begin, end), replica.device))
                if work.judged:
                    wanted = cut(work.targets, (begin, end), replica.device)
                    loss = mean_of_samples(self._loss, predictions, wanted, end - begin)
            if work.kept:
                outputs[number] = map_fields(_detached, predictions, own_kinds=True)
            if work.judged:
                loss_sum += loss.detach().double() * (end - begin)
            if scale is not None:
                torch.autograd.backward(loss * (scale.to(replica.device) * (end - begin)))
        return loss_sum, outputs

    def _precision(self, device: torch.device) -> AbstractContextManager[object]:
        if self._amp is None:
            return nullcontext()
        return torch.autocast(device.type, dtype=_DTYPES[self._amp])


def make_scaler(amp: str | None, replicas: Sequence[Replica]) -> "torch.amp.GradScaler | None":
    """Return what scales losses in fp16, whose gradients would vanish; None if it is not needed.

    Raises:
        SetupError: the word is not known, or a device has no fp16.
    """
    if amp not in (None, *_DTYPES):
        raise SetupError(f"amp is {amp!r}: give 'bf16', 'fp16' or None.")
    if amp != "fp16":
        return None
    for replica in replicas:
        if replica.device.type != "cuda":
            raise SetupError(
                f"amp='fp16' needs GPUs, but {replica} is not on a GPU: give amp='bf16'."
            )
    return gpu_scaler()


def _takes_part(replica: Replica, work: Work) -> bool:
    """Return whether a replica has samples; of 4 and then 3 over three, the last has one of 3."""
    spans = (share[replica.number] for share in work.shares)
    return replica.number == 0 or any(begin < end for begin, end in spans)


def _detached(leaf: Tree) -> Tree:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf
