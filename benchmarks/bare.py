"""The `cnn` trained by torch's DDP as one would without hpckit: a program for each rank.

    python benchmarks/bare.py EPOCHS

Rank zero prints seconds per step. It is beside the ddp workload in training.py.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist
import torch.distributed.nn  # see "The end of a script" in docs/frameworks.md
from torch.nn.parallel import DistributedDataParallel

from benchmarks.steps import bare_loop
from hpckit.parallel.data import load_images
from hpckit.parallel.models import make_model


def main(epochs: int) -> None:
    """Train, with 64 images a step."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    images = load_images("mnist-5k").train
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    network = DistributedDataParallel(make_model("cnn"))
    taken = bare_loop(network, images, batch=64, epochs=epochs, rank=rank, ranks=ranks)
    if rank == 0:
        print(taken)


main(int(sys.argv[1]))
dist.destroy_process_group()
