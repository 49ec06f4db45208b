"""Samples that lie in memory, so that a whole batch is one gather; some are random numbers."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 lacks it

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

    def to(self, device: torch.device | str) -> "Self":
        """Return the same samples on a device."""
        return self._moved(lambda tensor: tensor.to(device))

    def pin_memory(self) -> "Self":
        """Return the same samples in page-locked memory, or unchanged where there is no GPU."""
        return self._moved(Tensor.pin_memory) if torch.cuda.is_available() else self

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "Self":
        moved = copy.copy(self)
        moved.inputs, moved.targets = move(self.inputs), move(self.targets)
        return moved


class RandomCorpus(Samples):
    """Random tokens in sequences of `context`; the target of each token is the next.

    There is nothing to learn: no loss can stay below ln(vocabulary), 5.55 for 256.
    """

    def __init__(
        self, sequences: int = 1024, context: int = 512, *, vocabulary: int = 256, seed: int = 0
    ) -> None:
        if not 1 <= vocabulary <= 256:
            raise ValueError(f"vocabulary is {vocabulary}, must be 1 to 256: a token is a byte.")
        tokens = torch.randint(
            vocabulary, (sequences, context + 1), generator=_generator(seed), dtype=torch.uint8
        )
        super().__init__(tokens[:, :-1], tokens[:, 1:])

    def ready(self, inputs: Tensor, targets: Tensor) -> Pair:
        """Return tokens as the whole numbers that embeddings and losses take."""
        return inputs.long(), targets.long()


class RandomDataset(Samples):
    """Points of normally distributed numbers; the target of each is sin of the largest of them.

    Inputs have the shape (count, features), targets (count, 1).
    """

    def __init__(self, count: int = 100, features: int = 5, *, seed: int = 0) -> None:
        points = torch.randn((count, features), generator=_generator(seed))
        super().__init__(points, points.amax(1, keepdim=True).sin())


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
