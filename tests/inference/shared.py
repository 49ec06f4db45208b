"""A user's script whose rank 0 makes arrays of many kinds for all."""

import numpy
import torch

from hpckit.inference.mpi_setup import mpi_rank, ranks

made = [
    numpy.array(["node", "edge"]),
    numpy.array(["2026-11-29"], dtype="datetime64[D]"),
    numpy.ones(3, dtype=numpy.float16),
    numpy.arange(3, dtype=">i4"),
    numpy.array([(1, 2.5)], dtype=[("agent", "i4"), ("time", "f8")]),
    numpy.zeros((3, 0)),
    numpy.arange(12).reshape(3, 4).T,
    torch.ones(2, requires_grad=True),
    numpy.arange(25, dtype=numpy.uint8),
]
for mine, theirs in zip(made, ranks.share(lambda: made if mpi_rank == 0 else []), strict=True):
    one = mine.detach().numpy() if isinstance(mine, torch.Tensor) else mine
    assert (one.dtype, one.shape) == (theirs.dtype, theirs.shape)
    assert (one == theirs).all()
print("all are the same")
