"""Samples made up of random numbers, for runs where only the work counts."""

import torch
from torch import Tensor

from hpckit.parallel.data.samples import Pair, Samples


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
