"""In the style of FairScale's tutorial: an optimizer whose state is shared out over ranks."""

import torch
import torch.distributed as dist
import torch.distributed.nn
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim.oss import OSS


def train() -> None:
    """Take three steps, each rank on samples of its own."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = OSS(params=model.parameters(), optim=torch.optim.SGD, lr=0.01)
    model = ShardedDataParallel(model, optimizer)
    for _ in range(3):
        inputs = torch.full((8, 4), float(dist.get_rank() + 1))
        model.zero_grad()
        model(inputs).mean().backward()
        optimizer.step()
    weight = model.module[0].weight[0, 0].item()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: weight {weight:.6f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
