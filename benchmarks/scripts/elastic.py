"""In the style of torchrun's elastic examples: a trainer that goes on from its snapshot."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    """A model, its optimizer and the epoch it is at; `snapshot` is a path."""

    def __init__(self, snapshot: str) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        self.snapshot, self.epoch = snapshot, 0
        self.rank, self.restart = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
        if os.path.exists(snapshot):  # noqa: PTH110  # as these scripts write it
            state = torch.load(snapshot)
            model.load_state_dict(state["model"])
            self.epoch = state["epoch"]
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def train(self, epochs: int) -> None:
        """Train to epoch `epochs`, each rank on samples of its own."""
        while self.epoch < epochs:
            inputs = torch.full((8, 4), float(self.rank + 1))
            self.optimizer.zero_grad()
            self.model(inputs).mean().backward()
            self.optimizer.step()
            self.epoch += 1
            if self.rank == 0:
                state = {"model": self.model.module.state_dict(), "epoch": self.epoch}
                torch.save(state, self.snapshot)

    def report(self) -> None:
        """Say what this rank has become."""
        weight = self.model.module.weight[0, 0].item()
        print(f"rank {self.rank} of {dist.get_world_size()}: weight {weight:.6f}")
        print(f"epoch {self.epoch}, restart {self.restart}")


def main(snapshot: str) -> None:
    trainer = Trainer(snapshot)
    trainer.train(epochs=3)
    trainer.report()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(sys.argv[1])
    dist.destroy_process_group()
