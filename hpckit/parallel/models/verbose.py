"""Models that tell, each time they run, which replica runs where and with how much input."""

import torch.distributed as dist
from torch import Tensor, nn

from hpckit.parallel.mirrored.context import get_replica_context
from hpckit.parallel.ranks import say


class Verbose(nn.Module):
    """A module whose forward begins with `announce`.

    Attributes:
        verbose: print a line in every forward; may be changed at any time.
        replica: the number of this copy, for whoever makes copies on one device; None: found out.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self.verbose = verbose
        self.replica: int | None = None

    def announce(self, inputs: Tensor) -> None:
        """Print `replica 1 on cuda:1: input (32, 1, 28, 28)`, if verbose, in one write."""
        if self.verbose:
            number = _number(inputs) if self.replica is None else self.replica
            say(f"replica {number} on {inputs.device}: input {tuple(inputs.shape)}")


def _number(inputs: Tensor) -> int:
    """Return the replica's number: of its strategy, else the rank, else the device's index.

    The device is that of the inputs: copies that DataParallel makes own no parameters.
    """
    try:
        return get_replica_context().replica.number
    except RuntimeError:  # outside of a MirroredStrategy
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank()
        return inputs.device.index or 0
