"""Samples that lie in memory, so that a whole batch is one gather."""

import copy
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

Index = int | slice | Sequence[int] | Tensor
Pair = tuple[Tensor, Tensor]


class Samples(Dataset[Pair]):
    """Inputs and their targets, samples first, as small as they can be stored.

    What is stored (bytes, most often) becomes what a model takes only batch by batch, and on the
    device where the batch lies. Three ways to a batch:

        samples[[4, 0, 7]]                      gathered and ready for a model
        DataLoader(samples, batch_size=64)      the same, by torch's own means
        samples.gather([4, 0, 7])               as stored, to be copied to a device first; there
                                                samples.ready(*batch) makes it a model's

    Raises:
        ValueError: there are not as many targets as inputs.
    """

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise ValueError(
                f"There are {len(inputs)} inputs and {len(targets)} targets: the numbers "
                "must be equal."
            )
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.targets)

    def __getitem__(self, index: Index) -> Pair:
        """Return one sample, or several with their number as first dimension."""
        return self.ready(*self.gather(index))

    def __getitems__(self, index: list[int]) -> list[Pair]:
        """Return several samples one by one: torch's DataLoader asks so for a batch."""
        return list(zip(*self[index], strict=True))

    def gather(self, index: Index) -> Pair:
        """Return inputs and targets of some samples as they are stored."""
        if not isinstance(index, slice):
            # Made on the host, then moved: on a GPU, torch would wait for each number by itself.
            index = torch.as_tensor(index, dtype=torch.int64).to(self.targets.device)
        return self.inputs[index], self.targets[index]

    def ready(self, inputs: Tensor, targets: Tensor) -> Pair:
        """Return what a model takes, made of what is stored, on the device where it lies."""
        return inputs, targets

    def to(self, device: torch.device | str) -> Self:
        """Return the same samples on a device."""
        return self._moved(lambda tensor: tensor.to(device))

    def pin_memory(self) -> Self:
        """Return the same samples in page-locked memory, or unchanged where there is no GPU."""
        return self._moved(Tensor.pin_memory) if torch.cuda.is_available() else self

    def _moved(self, move: Callable[[Tensor], Tensor]) -> Self:
        moved = copy.copy(self)
        moved.inputs, moved.targets = move(self.inputs), move(self.targets)
        return moved
