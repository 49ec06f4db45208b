"""Train a network with MirroredStrategy: one process, a copy of the network on each device.

    python train.py                               all GPUs of this machine, or the CPU
    python train.py --devices cpu:4               four logical replicas that share the CPU
    python train.py --devices GPU:0 GPU:1 --microbatch 16
    hpckit submit mirrored --gpus 4               the same as a Slurm job

Each batch is split over the copies, which work at once; then all take the same step. The same seed
gives the same loss curve on any number of devices.
"""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hpckit.parallel.arguments import (
    BASE_BATCH_SIZE,
    Parser,
    add_devices,
    at_least,
    training_parser,
)
from hpckit.parallel.compiling import check_compiler
from hpckit.parallel.mirrored import MirroredStrategy
from hpckit.parallel.models import MODELS
from hpckit.parallel.optimizers import make_optimizer, scaled_lr
from hpckit.parallel.tasks import Task
from hpckit.parallel.training import devices_of, run_script, task_of, train_alone


class MirroredLearner:
    """Takes steps with a strategy."""

    def __init__(self, args: Namespace, task: Task, strategy: MirroredStrategy) -> None:
        lr = scaled_lr(args.lr, args.batch_size, BASE_BATCH_SIZE, args.lr_scaling)
        self.task, self.strategy = task, strategy
        if args.compile:
            check_compiler(replica.device for replica in strategy.replicas)
        self.model = strategy.mirror(
            task.make_model(args.seed),
            sync_batch_norm=args.sync_batch_norm,
            compile=args.compile,
        )
        self.optimizer = strategy.optimizer(
            self.model, lambda copy: make_optimizer(args.optimizer, copy.parameters(), lr)
        )
        # Each replica's share of a microbatch.
        replicas = strategy.num_replicas_in_sync
        self.at_once = -(-args.microbatch // replicas) if args.microbatch else None

    def step(self, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Split a batch over the replicas, and take one step with the sum of their gradients."""
        (batch,) = self.strategy.distribute_dataset([(inputs, targets)])
        sums = self.strategy.run(self._replica_step, (batch, len(inputs)))
        loss, hits = self.strategy.reduce("sum", sums).tolist()
        return loss, hits

    def _replica_step(self, part: tuple[Tensor, Tensor], batch_size: int) -> Tensor:
        """Work on one replica's part, microbatch after microbatch; return its sums."""
        inputs, targets = part
        self.optimizer.zero_grad()
        sums = torch.zeros(2, device=inputs.device)
        largest = max(-(-batch_size // self.strategy.num_replicas_in_sync), 1)
        at_once = self.at_once or largest
        for at in range(0, largest, at_once):
            some, wanted = inputs[at : at + at_once], targets[at : at + at_once]
            # With fewer samples than others, a replica only has to be where these wait for it.
            if not len(some) and not self.model.synced:
                continue
            scores = self.model(some)
            loss = self.task.losses(scores, wanted).sum()
            # Summed over parts and replicas this is the gradient of the mean over the batch.
            (loss / batch_size).backward()
            sums += torch.stack([loss.detach(), self.task.hits(scores, wanted).sum()])
        self.optimizer.step()
        return sums

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the scores, in the order of the inputs."""
        scores: Tensor = self.strategy.predict(self.model, [inputs])
        return scores

    def state_dict(self) -> dict[str, Any]:
        """Return one copy, for any number of replicas."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = training_parser(
        "mirrored",
        "Train a network on all devices of this machine.",
        models=tuple(MODELS),
        model="cnn",
    )
    add_devices(parser)
    parser.add_argument(
        "--microbatch",
        type=at_least(1),
        metavar="N",
        help="samples per microbatch, over all devices; a batch has several microbatches",
    )
    parser.add_argument(
        "--sync-batch-norm",
        action="store_true",
        help="BatchNorm uses the statistics of all replicas' parts together",
    )
    parser.add_argument(
        "--compile", action="store_true", help="compile the network (needs a C++ compiler)"
    )
    return parser


def train(args: Namespace) -> None:
    """Train with the arguments."""
    task = task_of(args)
    strategy = MirroredStrategy(devices_of(args.devices))
    learner = MirroredLearner(args, task, strategy)
    train_alone(args, task, learner, strategy.replicas)


if __name__ == "__main__":
    run_script(make_parser(), train)
