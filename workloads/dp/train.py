"""Train a network with DataParallel (DP): one process, whose forward pass is split over devices.

    python train.py                               all GPUs of this machine, or the CPU
    python train.py --devices cpu:4               four logical replicas that share the CPU
    hpckit submit dp --gpus 4                     the same as a Slurm job

The simplest way to several GPUs, one line around a network; and the slowest, since the network is
copied to all of them for each batch. `ddp` is the same with a process for each GPU.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hpckit.parallel.arguments import BASE_BATCH_SIZE, Parser, add_devices, training_parser
from hpckit.parallel.devices import Replica, find_replicas
from hpckit.parallel.dp import data_parallel
from hpckit.parallel.models import MODELS
from hpckit.parallel.optimizers import make_optimizer, scaled_lr
from hpckit.parallel.tasks import Task
from hpckit.parallel.training import devices_of, run_script, task_of, train_alone


class ParallelLearner:
    """Takes steps with a network whose forward pass is split."""

    def __init__(self, args: Namespace, task: Task, replicas: Sequence[Replica]) -> None:
        lr = scaled_lr(args.lr, args.batch_size, BASE_BATCH_SIZE, args.lr_scaling)
        self.task, self.device = task, replicas[0].device
        self.model = task.make_model(args.seed).to(self.device)
        self.parallel = data_parallel(self.model, [replica.device for replica in replicas])
        self.optimizer = make_optimizer(args.optimizer, self.model.parameters(), lr)

    def step(self, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Take one step, as a program for one device would."""
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self.optimizer.zero_grad()
        scores = self.parallel(inputs)
        losses = self.task.losses(scores, targets)
        losses.mean().backward()
        self.optimizer.step()
        hits = self.task.hits(scores.detach(), targets).sum()
        return losses.detach().sum().item(), hits.item()

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the scores."""
        self.model.eval()
        with torch.no_grad():
            scores: Tensor = self.parallel(inputs.to(self.device))
        self.model.train()
        return scores

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = training_parser(
        "dp",
        "Train a network whose forward pass is split over devices.",
        models=tuple(MODELS),
        model="cnn",
    )
    add_devices(parser)
    return parser


def train(args: Namespace) -> None:
    """Train with the arguments."""
    task = task_of(args)
    replicas = find_replicas(devices_of(args.devices), default="all")
    train_alone(args, task, ParallelLearner(args, task, replicas), replicas)


if __name__ == "__main__":
    run_script(make_parser(), train)
