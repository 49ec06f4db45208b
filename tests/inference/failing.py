"""A user's script whose simulator goes wrong on one rank, in the second epoch."""
# Words: how it goes wrong, and whether the script calls `run` or `step`.

import os
import sys

import torch

from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.mpi_setup import mpi_comm, mpi_rank, mpi_size, ranks
from hpckit.inference.vi import VI

assert mpi_comm is not None
assert (mpi_comm.rank, mpi_comm.size) == (mpi_rank, mpi_size) == (ranks.rank, 3)
calls = 0


def loss(params: torch.Tensor, data: object) -> torch.Tensor:
    global calls
    calls += 1
    if calls == 2 and mpi_rank == 1:
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), 9)
        if sys.argv[1] == "exited":
            sys.exit("no luck")
        if sys.argv[1] == "interrupted":
            raise KeyboardInterrupt
        raise ZeroDivisionError("the simulator of rank 1")
    return params.square().sum()


prior = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
vi = VI(loss, prior, TrainableGaussian(), n_samples_per_epoch=3, ranks=ranks)
if sys.argv[2:] == ["step"]:
    while True:
        vi.step(None)
if sys.argv[2:] == ["share"]:
    ranks.share(lambda: [1 / 0])
vi.run(None, 10_000, 10_000)
