"""In the style of torch.multiprocessing.spawn: the script starts its workers by itself.

It sets MASTER_ADDR and MASTER_PORT as such scripts do, so it is one program on one node.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def worker(rank: int, world_size: int, port: int) -> None:
    """Train as rank `rank`."""
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(rank)
    dist.destroy_process_group()


def train(rank: int) -> None:
    """Take one step on samples of this rank's own, and say what came of it."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    inputs = torch.full((8, 4), float(rank + 1))
    model(inputs).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    weight = model.module.weight[0, 0].item()
    print(f"rank {rank} of {dist.get_world_size()}: weight {weight:.6f}", flush=True)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    mp.spawn(worker, args=(int(sys.argv[1]), port), nprocs=int(sys.argv[1]))
