"""What 0.1 had here: groups' copies of its workloads import it."""

from collections.abc import Sequence

import torch

from hpckit.parallel.mpi import Ranks


def choose_device(ranks: Ranks, device_ids: Sequence[str] = ()) -> torch.device:
    """Return the device of one rank, as `Ranks.choose_device` does."""
    return ranks.choose_device(device_ids)
