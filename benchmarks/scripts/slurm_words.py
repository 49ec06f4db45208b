"""In the style of many clusters' guides: rank and size from Slurm's variables."""

import os

import torch
import torch.distributed as dist

rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", rank=rank, world_size=world_size)
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {rank} of {int(total)}: weight {total.item():.6f}")
dist.destroy_process_group()
