"""Train a network on several devices with nothing but tensors: what the other workloads do inside.

    python train.py                               all GPUs of this machine, or the CPU
    python train.py --devices cpu:4 --reduce ring
    hpckit submit from_scratch --gpus 4           the same as a Slurm job

After "Dive into Deep Learning" (d2l.ai), chapter 13.5: each device has a list of parameters of its
own; a batch is split; gradients are added up over the devices; each takes the same step of SGD.
`hpckit/parallel/scratch.py` is the whole of it.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from hpckit.parallel.arguments import BASE_BATCH_SIZE, Parser, add_devices, training_parser
from hpckit.parallel.devices import Replica, find_replicas
from hpckit.parallel.errors import SetupError
from hpckit.parallel.models.networks import number_replica
from hpckit.parallel.optimizers import scaled_lr
from hpckit.parallel.scratch import (
    Parameters,
    allreduce,
    copy_params,
    ring_allreduce,
    train_batch,
)
from hpckit.parallel.tasks import Task
from hpckit.parallel.training import devices_of, run_script, task_of, train_alone

REDUCTIONS = {"naive": allreduce, "ring": ring_allreduce}
# Those without buffers: a list of parameters is all there is.
MODELS = ("cnn", "lenet", "mlp", "linear")


class ScratchLearner:
    """Takes steps with a list of parameters per device."""

    def __init__(self, args: Namespace, task: Task, replicas: Sequence[Replica]) -> None:
        self.task, self.reduce = task, REDUCTIONS[args.reduce]
        self.lr = scaled_lr(args.lr, args.batch_size, BASE_BATCH_SIZE, args.lr_scaling)
        self.module = task.make_model(args.seed)
        self.names = [name for name, _ in self.module.named_parameters()]
        if list(self.module.buffers()):
            raise SetupError(f"--model {args.model} has buffers: give one of {', '.join(MODELS)}")
        first = list(self.module.parameters())
        self.replicas = [copy_params(first, replica.device) for replica in replicas]
        self.hits: list[Tensor] = []

    def model(self, inputs: Tensor, parameters: Parameters) -> Tensor:
        """Return the network's scores, with these parameters instead of its own."""
        number = next(at for at, own in enumerate(self.replicas) if own is parameters)
        number_replica(self.module, number)
        named = dict(zip(self.names, parameters, strict=True))
        scores: Tensor = functional_call(self.module, named, (inputs,))
        return scores

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return a loss per sample, and note how many are right.

        A number that is read here would wait for this device before the next one has its work.
        """
        self.hits.append(self.task.hits(scores.detach(), targets).sum())
        return self.task.losses(scores, targets)

    def step(self, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Take one step of SGD on all devices."""
        self.hits = []
        mean = train_batch(
            inputs, targets, self.replicas, self.model, self.losses, self.lr, reduce=self.reduce
        )
        return mean * len(inputs), sum(hits.item() for hits in self.hits)

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the scores of the first replica; the others would say the same."""
        with torch.no_grad():
            return self.model(inputs.to(self.replicas[0][0].device), self.replicas[0])

    def state_dict(self) -> dict[str, Any]:
        """Return one replica's parameters."""
        return {"parameters": [parameter.detach() for parameter in self.replicas[0]]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such parameters, on any number of devices."""
        self.replicas = [
            copy_params(state["parameters"], replica[0].device) for replica in self.replicas
        ]


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = training_parser(
        "from_scratch",
        "Train a network on several devices with nothing but tensors.",
        models=MODELS,
        model="cnn",
        lr=0.05,
        optimizer=None,
    )
    add_devices(parser)
    parser.add_argument(
        "--reduce",
        choices=tuple(REDUCTIONS),
        default="naive",
        help="how gradients are added up: on the first device, or in a ring (naive)",
    )
    return parser


def train(args: Namespace) -> None:
    """Train with the arguments."""
    task = task_of(args)
    replicas = find_replicas(devices_of(args.devices), default="all")
    train_alone(args, task, ScratchLearner(args, task, replicas), replicas)


if __name__ == "__main__":
    run_script(make_parser(), train)
