"""Train a network with DistributedDataParallel (DDP).

The same file runs on one process or on many:

    python train.py                                                     1 process, a GPU or the CPU
    torchrun --standalone --nproc-per-node 4 train.py                   1 node, 4 processes
    MASTER_ADDR=node1 MASTER_PORT=29500 srun -N 2 -n 8 python train.py  2 nodes, 8 processes
    hpckit submit ddp --nodes 2 --gpus 4                                the same as a Slurm job

Every process ("rank") holds a copy of the network and works on its share of each batch. DDP
averages the gradients, so all copies take the same step. The batch size counts the samples of all
ranks together: the same seed gives the same loss curve on any number of ranks.
"""

import gc
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from hpckit.parallel.arguments import (
    BASE_BATCH_SIZE,
    Parser,
    at_least,
    refuse_unequal_ranks,
    training_parser,
)
from hpckit.parallel.compiling import check_compiler
from hpckit.parallel.errors import SetupError
from hpckit.parallel.journal import counted
from hpckit.parallel.kept_memory import keep_freed_memory
from hpckit.parallel.models import MODELS
from hpckit.parallel.optimizers import load_zero, make_optimizer, scaled_lr, whole_state
from hpckit.parallel.prefetch import Batch, prefetch
from hpckit.parallel.ranks import (
    Rank,
    add_over_ranks,
    adding_over_ranks,
    find_rank,
    meet,
    order_gradients,
    say,
    share_cores,
)
from hpckit.parallel.run_folder import (
    Metrics,
    load_checkpoint,
    make_folder,
    restoring,
    save_checkpoint,
)
from hpckit.parallel.sharing import batches, parts
from hpckit.parallel.stopping import stop_requested, stopping_now
from hpckit.parallel.tasks import Task, find_task
from hpckit.parallel.throughput import device_label
from hpckit.parallel.training import make_journal

WORKLOAD = "ddp"


def train(args: Namespace, place: Rank) -> None:
    """Train until the last epoch, or until a rank is told that the job's time is nearly over."""
    rank, world_size, device = place.rank, place.world_size, place.device
    if args.compile:
        check_compiler([device])
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "bf16")

    # Data. It is read before the ranks meet: a rank that cannot read it says so at once instead of
    # leaving the others waiting. Small sets stay on the device; others come batch by batch.
    task = find_task(args.model, args.data, limit=args.limit, verify=not args.no_verify)
    task = task.to(device) if args.data_on == "device" else task
    out = args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "train-out"))
    make_folder(out, writes=rank == 0)

    # Model and optimizer. The same seed gives every rank the same first weights.
    # An optimizer makes torch load parts of itself that keep hold of the process group if there is
    # one already. Its threads would outlive it, and now and then abort the process at exit.
    model = task.make_model(args.seed).to(device)
    if args.sync_batch_norm:
        model = synchronized(model, device)
    lr = scaled_lr(args.lr, args.batch_size, BASE_BATCH_SIZE, args.lr_scaling)
    optimizer = make_optimizer(args.optimizer, model.parameters(), lr)

    if args.zero:
        load_zero()

    # Set-up. The ranks meet at MASTER_ADDR:MASTER_PORT. One process alone meets nobody.
    meet(place)
    if args.zero:  # it needs the group, to share its state out over the ranks
        optimizer = make_optimizer(args.optimizer, model.parameters(), lr, zero=True)
    hosts = share_cores(place)
    backend = place.backend if place.meets else "one process"
    setting = (
        f"{counted(world_size, 'rank')} on {counted(hosts, 'host')} ({device.type}, {backend})"
    )

    # Sampler. It deals the samples out to the ranks. Without it (the exercise) every rank works on
    # all of them: `copies` times the work for the same result.
    copies = world_size if args.no_sampler else 1
    sampler: DistributedSampler[Any] = DistributedSampler(
        task.train,
        num_replicas=1 if args.no_sampler else world_size,
        rank=0 if args.no_sampler else rank,
        seed=args.seed,
    )
    journal = make_journal(args, task, devices=device_label([device], world_size), leads=rank == 0)
    share, rest = divmod(len(task.train) * copies, world_size)
    journal.tell(task.description)
    journal.tell(f"{setting}, batch size {args.batch_size}, run folder {out}")
    journal.tell(f"each rank sees {share}{f' or {share + 1}' if rest else ''} samples per epoch")

    # Checkpoint. Rank zero reads it for all: the others may not see its files (yet). With it comes
    # what rank zero trains, since a node may have other data.
    work = {**journal.settings, "epochs": args.epochs, "samples": len(task.train)}
    work |= {"held-out samples": len(task.held_out), "accumulate": args.accumulate}
    found = load_checkpoint(out, WORKLOAD) if rank == 0 and args.resume == "auto" else None
    box: list[Any] = [work, found]
    if place.meets:
        dist.broadcast_object_list(box)
    hint = " (with --data auto, each takes what is installed on its node)"
    refuse_unequal_ranks(work, box[0], place.host, hint)
    if (checkpoint := box[1]) is not None:
        journal.resume(checkpoint)
        with restoring():
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])

    def save(names: Sequence[str]) -> None:
        """Write what is needed to go on after this step, on rank zero."""
        state = {"model": model.state_dict(), "optimizer": whole_state(optimizer, leads=rank == 0)}
        if rank == 0:
            save_checkpoint(out, {**state, **journal.state()}, names)

    # Metrics, on rank zero.
    constants = {"total_steps": journal.total_steps, "epochs": args.epochs, "lr": lr}
    folder = out if rank == 0 else None
    journal.open(Metrics(folder, journal.step, constants, tensorboard=args.tensorboard))

    # Wrap. From here on backward() also averages the gradients over the ranks.
    parallel: nn.Module = model
    if place.meets:
        parallel = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
        nothing = (tensor.to(device) for tensor in task.train.gather([]))
        order_gradients(parallel, task.train.ready(*nothing)[0])
    if args.compile:
        parallel = torch.compile(parallel)  # type: ignore[assignment]  # it acts as a module

    # Loop. Nothing in it is random but the order of the samples, which follows from the seed and
    # the epoch: a run that goes on needs to know only its step.
    stopping, shapes_seen = 0.0, set()
    for epoch in journal.epochs_left():
        sampler.set_epoch(epoch)
        shares = batches(sampler, args.batch_size)[journal.steps_done :]
        feed = gathered(task, shares, args.accumulate)
        with closing(prefetch(feed, device) if args.data_on == "host" else feed) as feed:
            for _ in shares:
                # Stop, if the ranks agreed to in the step before (see below).
                if stopping:
                    save(["last.pt"])
                    journal.tell(f"stopped at step {journal.step}, checkpoint saved")
                    stopping_now()
                    return

                optimizer.zero_grad()
                losses, hits = [], []  # sums of each part
                for part in range(args.accumulate):
                    # Forward. A rank without samples takes part with none, and zero gradients.
                    with journal.reading():
                        inputs, targets = task.train.ready(*next(feed))
                    if args.verbose_shapes and inputs.shape not in shapes_seen:
                        shapes_seen.add(inputs.shape)
                        shape = tuple(inputs.shape)
                        say(f"rank {rank} of {world_size} on {place.host} {device}: input {shape}")
                    # Gradients of all parts but the last stay on the rank, to be sent once.
                    last = not place.meets or part == args.accumulate - 1
                    with nullcontext() if last else parallel.no_sync():
                        with autocast:
                            scores = parallel(inputs).float()
                            loss = task.losses(scores, targets).sum()
                        losses.append(loss.detach())
                        hits.append(task.hits(scores.detach(), targets).sum())

                        # Add up over the ranks what is reported and, in the same message, whether
                        # any was told to stop: all must leave the loop after the same step. This
                        # goes on beside the backward pass.
                        if part == args.accumulate - 1:
                            added = reduce(torch.add, losses), reduce(torch.add, hits)
                            sums = adding_over_ranks(place, *added, stop_requested())

                        # Backward. The gradient wanted is that of the mean over the whole batch.
                        # DDP divides the sum of the ranks' gradients by their number: multiply by
                        # it first. (A mean over each share would be wrong where these differ.)
                        (loss * (world_size / (journal.next_size * copies))).backward()
                optimizer.step()

                batch_loss, batch_hits, stopping = sums()
                journal.count(batch_loss / copies, batch_hits / copies)

        # End of an epoch: test, report, and keep a checkpoint.
        if names := journal.end_epoch(*evaluate(model, task, place)):
            save(names)
    journal.end(setting)


def synchronized(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model with BatchNorm over the samples of all ranks.

    Raises:
        SetupError: there is no GPU; torch has it for these only.
    """
    if device.type != "cuda":
        raise SetupError("--sync-batch-norm needs GPUs: on CPUs, `mirrored` has it")
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def gathered(task: Task, shares: Sequence[list[int]], accumulate: int) -> Iterator[Batch]:
    """Yield this rank's share of each batch, in parts."""
    for share in shares:
        for part in parts(share, accumulate):
            yield task.train.gather(part)


def evaluate(model: nn.Module, task: Task, place: Rank) -> tuple[float, float]:
    """Return mean loss and accuracy. Each rank tests its share, so each sample counts once."""
    loss = hits = torch.zeros((), device=place.device)
    mine = list(range(place.rank, len(task.held_out), place.world_size))
    model.eval()
    with torch.no_grad():
        for start in range(0, len(mine), 1000):
            stored = task.held_out.gather(mine[start : start + 1000])
            inputs, targets = task.held_out.ready(*(tensor.to(place.device) for tensor in stored))
            scores = model(inputs)
            loss = loss + task.losses(scores, targets).sum()
            hits = hits + task.hits(scores, targets).sum()
    model.train()
    total_loss, total_hits = add_over_ranks(place, loss, hits)
    return total_loss / len(task.held_out), total_hits / len(task.held_out)


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = training_parser(
        WORKLOAD, "Train a network on any number of processes.", models=tuple(MODELS), model="cnn"
    )
    add = parser.add_argument
    add(
        "--accumulate",
        type=at_least(1),
        default=1,
        metavar="N",
        help="split a rank's share of a batch into N parts, to save memory (1)",
    )
    add(
        "--precision",
        choices=["fp32", "bf16"],
        default="fp32",
        help="precision of most of the forward pass; weights and sums stay fp32 (fp32)",
    )
    add(
        "--zero",
        action="store_true",
        help="divide the optimizer's state among the ranks (ZeRO stage 1), to save memory",
    )
    add(
        "--sync-batch-norm",
        action="store_true",
        help="BatchNorm uses the statistics of all ranks' samples (GPUs only)",
    )
    add("--compile", action="store_true", help="compile the network (needs a C++ compiler)")
    add(
        "--data-on",
        choices=["device", "host"],
        default="device",
        help="keep all samples on the device, or copy each batch while the step before runs "
        "(device)",
    )
    add(
        "--no-sampler",
        action="store_true",
        help="exercise: every rank trains on all samples, to show the effect of the sampler",
    )
    return parser


@record  # keeps the traceback of a rank that fails for the report of torchrun or hpckit
def main() -> None:
    """Read the arguments, train, and take leave of the other ranks."""
    args, problem = make_parser().parse_args(), None
    keep_freed_memory()
    try:
        train(args, find_rank())
    except SetupError as error:
        rank = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        problem = f"train.py: error: {rank}{error}"
    gc.collect()  # cycles that hold the process group, as ZeRO's optimizer is in, would outlive it
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(problem)


if __name__ == "__main__":
    main()
