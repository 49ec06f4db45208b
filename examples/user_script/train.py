"""Linear regression with DistributedDataParallel; knows torchrun's variables and nothing else."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(lr: float, steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if cuda else "cpu"
    model = DistributedDataParallel(model.to(device))

    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        x = torch.randn(64, 3, generator=generator).to(device)
        y = x @ torch.tensor([[1.0], [-2.0], [0.5]], device=device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    weights = [round(float(w), 3) for w in model.module.weight.flatten()]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {float(loss):.2e} {weights}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    # Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(args.lr, args.steps)
    # After train() has returned, because its model must go first: a DistributedDataParallel that
    # outlives its process group can hang the rank in its last moment (seen with torch 2.13, gloo).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
