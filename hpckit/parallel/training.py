"""The training loop of dp, mirrored and from_scratch, which train in one process.

A `Learner` takes the steps and makes the predictions. This loop gives it batches, in the same order
as the ddp workload, and keeps the run's record.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.data.distributed import DistributedSampler

from hpckit.parallel.arguments import Parser
from hpckit.parallel.devices import Replica
from hpckit.parallel.errors import SetupError
from hpckit.parallel.journal import Journal, counted
from hpckit.parallel.kept_memory import keep_freed_memory
from hpckit.parallel.run_folder import (
    Metrics,
    load_checkpoint,
    make_folder,
    restoring,
    save_checkpoint,
)
from hpckit.parallel.sharing import batches
from hpckit.parallel.stopping import should_stop
from hpckit.parallel.tasks import Task, find_task
from hpckit.parallel.throughput import device_label

# Arguments that shape the loss curve, in any workload.
CURVE = ("model", "batch_size", "lr", "lr_scaling", "optimizer", "seed", "limit")
_TEST_BATCH = 1000


class Learner(Protocol):
    """How a workload learns from batches."""

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
        """Take one step of training; return the sums of losses and hits over the batch."""

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores of inputs, on the inputs' device."""

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors and numbers that a checkpoint needs."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""


def devices_of(words: Sequence[str]) -> list[str] | None:
    """Return what `--devices` says, as `find_replicas` takes it; None means all.

    A word is one device, or several with commas between them.
    """
    return None if list(words) == ["all"] else [one.strip() for one in ",".join(words).split(",")]


def task_of(args: Namespace) -> Task:
    """Return the task that the common arguments ask for."""
    return find_task(
        args.model,
        args.data,
        limit=args.limit,
        verify=not args.no_verify,
        verbose=args.verbose_shapes,
    )


def run_script(parser: Parser, train: Callable[[Namespace], None]) -> None:
    """Run a workload's script; an error that its user can fix is one line."""
    args = parser.parse_args()
    keep_freed_memory()
    try:
        train(args)
    except SetupError as error:
        sys.exit(f"{parser.prog}: error: {error}")


def train_alone(args: Namespace, task: Task, learner: Learner, replicas: Sequence[Replica]) -> None:
    """Train until the last epoch, or until SIGUSR2 says that the job is about to end.

    Args:
        args: of `hpckit.parallel.arguments.training_parser`.
        task: what to learn.
        learner: how to learn it.
        replicas: the devices in use, for the record.

    Raises:
        SetupError: the run folder cannot be used, or the loss is no longer a number.
    """
    out = make_folder(args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "train-out")))
    journal = make_journal(args, task, devices=device_label([row.device for row in replicas]))
    kind = replicas[0].device.type
    # Images are moved to the device once, as bytes, so that a step copies no batch to the GPU.
    task = task.to(replicas[0].device)
    setting = f"{counted(len(replicas), 'replica')} in one process ({kind})"
    journal.tell(task.description)
    journal.tell(f"{setting}, batch size {args.batch_size}, run folder {out}")
    checkpoint = load_checkpoint(out, args.workload) if args.resume == "auto" else None
    if checkpoint is not None:
        journal.resume(checkpoint)
        with restoring():
            learner.load_state_dict(checkpoint["learner"])
    constants = {"total_steps": journal.total_steps, "epochs": args.epochs, "lr": args.lr}
    journal.open(Metrics(out, journal.step, constants, tensorboard=args.tensorboard))

    def save(names: Sequence[str]) -> None:
        save_checkpoint(out, {"learner": learner.state_dict(), **journal.state()}, names)

    sampler: DistributedSampler[Any] = DistributedSampler(
        task.train, num_replicas=1, rank=0, seed=args.seed
    )
    for epoch in journal.epochs_left():
        sampler.set_epoch(epoch)
        for share in batches(sampler, args.batch_size)[journal.steps_done :]:
            if should_stop():
                save(["last.pt"])
                journal.tell(f"stopped at step {journal.step}, checkpoint saved")
                return
            with journal.reading():
                batch = task.train[share]
            journal.count(*learner.step(*batch))
        if names := journal.end_epoch(*evaluate(task, learner)):
            save(names)
    journal.end(setting)


def evaluate(task: Task, learner: Learner) -> tuple[float, float]:
    """Return the mean loss and the accuracy over the held-out samples."""
    loss = hits = 0.0
    for start in range(0, len(task.held_out), _TEST_BATCH):
        chosen = list(range(start, min(start + _TEST_BATCH, len(task.held_out))))
        inputs, targets = task.held_out[chosen]
        scores = learner.predict(inputs)
        targets = targets.to(scores.device)
        loss += float(task.losses(scores, targets).sum())
        hits += float(task.hits(scores, targets).sum())
    return loss / len(task.held_out), hits / len(task.held_out)


def make_journal(args: Namespace, task: Task, *, devices: str, leads: bool = True) -> Journal:
    """Return the journal of a run with the common arguments; only the leading rank writes."""
    settings = {name: value for name, value in vars(args).items() if name in CURVE}
    journal = Journal(
        samples=len(task.train),
        batch_size=args.batch_size,
        epochs=args.epochs,
        log_every=args.log_every,
        checkpoint_every=args.checkpoint_every,
        settings={**settings, "data": task.name},
        workload=args.workload,
        devices=devices,
        leads=leads,
    )
    journal.judged = task.judged
    return journal
