"""Takes ten steps with DDP, as the ddp workload weighs them, and saves the parameters.

    equal_ddp.py FOLDER DTYPE ACCUMULATE

FOLDER holds batches.pt; rank 0 writes ddp.pt into it.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from hpckit.parallel.models import make_model
from hpckit.parallel.sharing import parts

folder, dtype, accumulate = Path(sys.argv[1]), getattr(torch, sys.argv[2]), int(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def train() -> None:
    """Take the steps. All that holds on to the process group is gone when this returns."""
    model = make_model("mlp", seed=3, shape=(1, 8, 8)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.init_process_group("gloo")
    parallel = DistributedDataParallel(model)
    for inputs, labels in torch.load(folder / "batches.pt"):
        optimizer.zero_grad()
        shares = parts(list(range(rank, len(inputs), world)), accumulate)
        for number, share in enumerate(shares):
            with nullcontext() if number == len(shares) - 1 else parallel.no_sync():
                loss = cross_entropy(parallel(inputs[share]), labels[share], reduction="sum")
                (loss * world / len(inputs)).backward()
        optimizer.step()
    if rank == 0:
        torch.save([parameter.detach() for parameter in model.parameters()], folder / "ddp.pt")


train()
dist.destroy_process_group()
