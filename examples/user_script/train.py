"""Linear regression with DistributedDataParallel; knows torchrun's variables and nothing else."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group is made: see main()
from torch.nn.parallel import DistributedDataParallel


def train(lr: float, steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        # The remainder is for launchers that show each rank only its own GPU, as number 0.
        local_rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
    model = DistributedDataParallel(model.to(device))

    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        x = torch.randn(64, 3, generator=generator).to(device)
        y = x @ torch.tensor([[1.0], [-2.0], [0.5]], device=device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    weights = [round(w, 3) for w in model.module.weight.flatten().tolist()]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.2e} {weights}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    # Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(args.lr, args.steps)
    # A process group that outlives this call may hang or abort the rank in its last moment (torch
    # 2.13 with gloo). Two things keep it alive: a DistributedDataParallel, so train() has returned;
    # and torch.distributed.nn, if DistributedDataParallel is the first to import it.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
