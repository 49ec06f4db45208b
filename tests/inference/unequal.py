"""A user's script that draws graph and data on each rank, as blackbirds' example does.

Words: what is not the same on rank 1, and whether the ranks are compared.
"""

import sys

import numpy
import torch

from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.model import L2Loss
from hpckit.inference.mpi_setup import mpi_rank, ranks
from hpckit.inference.sir import SIR
from hpckit.inference.vi import VI

ring = numpy.array([[agent, (agent + 1) % 20] for agent in range(20)])
if sys.argv[1] == "graph" and mpi_rank == 1:
    ring = ring[1:]
model = SIR(ring, 5, n_agents=20)
data = [torch.arange(6.0), torch.zeros(6)]
if sys.argv[1] == "data":
    data[0] += mpi_rank
prior = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))
estimator = TrainableGaussian(torch.zeros(3))
loss = L2Loss(model)
vi = VI(loss, prior, estimator, n_samples_per_epoch=2, n_samples_regularisation=10,
        progress_bar=False, ranks=ranks, check_ranks=sys.argv[2] == "compared")  # fmt: skip
if mpi_rank == 1 and sys.argv[1] == "horizon":
    loss.gradient_horizon = 2
elif mpi_rank == 1 and hasattr(vi, sys.argv[1]):
    setattr(vi, sys.argv[1], 0.5)
vi.run(data, 1)
