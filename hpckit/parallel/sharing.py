"""Which samples of each batch are a rank's: each sample once, whatever the number of ranks."""

import math
from itertools import pairwise

from torch.utils.data.distributed import DistributedSampler


def batches(sampler: "DistributedSampler[object]", batch_size: int) -> list[list[int]]:
    """Return, for each global batch of the epoch, the samples that are this rank's.

    DistributedSampler shuffles the samples, the same way on every rank, and deals them out like
    cards: rank r of W gets positions r, r + W, r + 2W, ... Cutting those positions at multiples
    of the global batch size puts the same samples into batch k for any number of ranks. A batch
    that does not divide evenly gives some ranks one sample less, perhaps none.

    To give all ranks equally many, the sampler repeats samples past the end. We leave these out:
    they would count twice.
    """
    total = len(sampler.dataset)  # type: ignore[arg-type]  # ours has a length
    shares: list[list[int]] = [[] for _ in range(math.ceil(total / batch_size))]
    for turn, index in enumerate(sampler):
        position = sampler.rank + turn * sampler.num_replicas
        if position < total:
            shares[position // batch_size].append(index)  # type: ignore[arg-type]
    return shares


def parts(share: list[int], count: int) -> list[list[int]]:
    """Cut a rank's share into `count` parts, as even as can be; some may be empty."""
    size, more = divmod(len(share), count)
    ends = [number * size + min(number, more) for number in range(count + 1)]
    return [share[begin:end] for begin, end in pairwise(ends)]
