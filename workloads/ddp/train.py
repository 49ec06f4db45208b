"""Train a small image classifier with DistributedDataParallel (DDP).

The same file runs on one process or on many:

    python train.py                                                     1 process, a GPU or the CPU
    torchrun --standalone --nproc-per-node 4 train.py                   1 node, 4 processes
    MASTER_ADDR=node1 MASTER_PORT=29500 srun -N 2 -n 8 python train.py  2 nodes, 8 processes
    hpckit submit ddp --nodes 2 --gpus 4                                the same as a Slurm job

Every process ("rank") holds a copy of the network and works on its share of each batch. DDP
averages the gradients, so all copies take the same step. The batch size counts the images of all
ranks together: the same seed gives the same loss curve on any number of ranks.
"""

import math
import os
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from arguments import curve_settings, make_parser, refuse_other_settings
from data import Images, batches, load
from model import Classifier
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import Place, add_over_ranks, find_place, say, share_cores
from hpckit.parallel.run_folder import Metrics, load_checkpoint, make_folder, save_checkpoint


def train(args: Namespace, place: Place, signals: list[int]) -> None:
    """Train until the last epoch, or until a rank finds a stop signal among its `signals`."""
    rank, world_size, device = place.rank, place.world_size, place.device

    # Data. It is small, so every rank keeps all of it on its device. It is read before the ranks
    # meet: a rank that cannot read it says so at once instead of leaving the others waiting.
    train_images, test_images = (part.to(device) for part in load(args.data, args.limit))
    height, width = train_images.images.shape[2:]
    out = args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "ddp-out"))
    make_folder(out)

    # Model and optimizer. The same seed gives every rank the same first weights.
    # An optimizer makes torch load parts of itself that keep hold of the process group if there is
    # one already. Its threads would outlive it, and now and then abort the process at exit.
    torch.manual_seed(args.seed)
    model = Classifier(height, width).to(device)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    # Set-up. The ranks meet at MASTER_ADDR:MASTER_PORT. One process alone meets nobody.
    if world_size > 1:
        dist.init_process_group(place.backend, device_id=device if device.type == "cuda" else None)
    hosts = share_cores(place)
    backend = place.backend if world_size > 1 else "one process"
    setting = f"{count(world_size, 'rank')} on {count(hosts, 'host')} ({device.type}, {backend})"

    # Sampler. It deals the images out to the ranks. Without it (the exercise) every rank works on
    # all of them: `copies` times the work for the same result.
    copies = world_size if args.no_sampler else 1
    sampler: DistributedSampler[Any] = DistributedSampler(
        train_images,
        num_replicas=1 if args.no_sampler else world_size,
        rank=0 if args.no_sampler else rank,
        seed=args.seed,
    )
    steps_per_epoch = math.ceil(len(train_images) / args.batch_size)
    total_steps = args.epochs * steps_per_epoch
    if rank == 0:
        share, rest = divmod(len(train_images) * copies, world_size)
        sizes = f"{len(train_images)} training and {len(test_images)} held-out images"
        say(f"data: {args.data}, {sizes} of {height}x{width}")
        say(f"{setting}, batch size {args.batch_size}, run folder {out}")
        say(f"each rank sees {share}{f' or {share + 1}' if rest else ''} samples per epoch")

    # Checkpoint. Rank zero reads it for all: the others may not see its files (yet).
    step, loss_sum, hits, accuracy, best = 0, 0.0, 0.0, 0.0, -1.0
    box = [load_checkpoint(out) if rank == 0 and args.resume == "auto" else None]
    if world_size > 1:
        dist.broadcast_object_list(box)
    if (checkpoint := box[0]) is not None:
        refuse_other_settings(args, checkpoint["settings"])
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        step, loss_sum, hits = (checkpoint[name] for name in ("step", "loss_sum", "hits"))
        accuracy, best = checkpoint["accuracy"], checkpoint["best"]
        if rank == 0:
            say(f"resuming after step {step} of {total_steps}")

    def save(*names: str) -> None:
        """Write what is needed to go on after this step, on rank zero."""
        state: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"settings": curve_settings(args), "epoch": step // steps_per_epoch, "step": step}
        state |= {"loss_sum": loss_sum, "hits": hits, "accuracy": accuracy, "best": best}
        if rank == 0:
            save_checkpoint(out, state, names)

    # Metrics, on rank zero.
    constants = {"total_steps": total_steps, "epochs": args.epochs, "lr": args.lr}
    metrics = Metrics(out if rank == 0 else None, step, constants)

    # Wrap. From here on backward() also averages the gradients over the ranks.
    parallel: nn.Module = model
    if world_size > 1:
        parallel = DistributedDataParallel(model, [device] if device.type == "cuda" else None)

    # Loop. Nothing in it is random but the order of the images, which follows from the seed and
    # the epoch: a run that goes on needs to know only its step.
    stopping = 0.0
    for epoch in range(step // steps_per_epoch, args.epochs):
        sampler.set_epoch(epoch)
        shapes_seen = set()
        epoch_began = window_began = time.perf_counter()
        epoch_samples = window_samples = 0
        for mine in batches(sampler, args.batch_size)[step % steps_per_epoch :]:
            # Stop, if the ranks agreed to in the step before (see below).
            if stopping:
                save("last.pt")
                if rank == 0:
                    say(f"stopped at step {step}, checkpoint saved")
                return

            # Forward. A rank whose share is empty takes part with no images and zero gradients.
            images, labels = train_images[mine]
            if args.verbose_shapes and images.shape not in shapes_seen:
                shapes_seen.add(images.shape)
                shape = tuple(images.shape)
                say(f"rank {rank} of {world_size} on {place.host} {device}: input {shape}")
            scores = parallel(images)
            loss = cross_entropy(scores, labels, reduction="sum")

            # Backward. The gradient wanted is that of the mean over the whole batch. DDP divides
            # the sum of the ranks' gradients by the number of ranks: multiply by that number
            # first. (A mean over each rank's share would be wrong where shares differ in size.)
            first = step % steps_per_epoch * args.batch_size
            size = min(args.batch_size, len(train_images) - first)
            optimizer.zero_grad()
            (loss * world_size / (size * copies)).backward()
            optimizer.step()
            step += 1

            # Add up over the ranks what is reported and, in the same message, whether any of them
            # was told to stop: all must leave the loop after the same step.
            right = (scores.argmax(1) == labels).sum()
            sums = add_over_ranks(place, loss / copies, right / copies, len(signals))
            batch_loss, batch_hits, stopping = sums
            if not math.isfinite(batch_loss):
                raise SetupError(f"the loss is {batch_loss} at step {step}: try a smaller --lr")
            loss_sum, hits = loss_sum + batch_loss, hits + batch_hits
            epoch_samples, window_samples = epoch_samples + size, window_samples + size
            if step % args.log_every == 0:
                now = time.perf_counter()
                speed = window_samples / (now - window_began)
                window_began, window_samples = now, 0
                metrics.write(step, epoch + 1, loss=batch_loss / size, samples_per_s=speed)

        # End of an epoch: test, report, and keep a checkpoint.
        report = {
            "train_loss": loss_sum / len(train_images),
            "train_accuracy": hits / len(train_images),
            "samples_per_s": epoch_samples / (time.perf_counter() - epoch_began),
        }
        loss_sum = hits = 0.0
        report["test_loss"], accuracy = evaluate(model, test_images, place)
        metrics.write(step, epoch + 1, **report, test_accuracy=accuracy)
        if rank == 0:
            say(
                f"epoch {epoch + 1}/{args.epochs}  loss {report['train_loss']:.3f}  "
                f"train acc {report['train_accuracy']:.3f}  held-out acc {accuracy:.3f}  "
                f"{report['samples_per_s']:.0f} samples/s"
            )
        every = args.checkpoint_every or args.epochs
        if (epoch + 1) % every == 0 or epoch + 1 == args.epochs:
            names = ["last.pt", "best.pt"] if accuracy > best else ["last.pt"]
            best = max(accuracy, best)
            save(*names)

    if rank == 0:
        epochs = count(step // steps_per_epoch, "epoch")
        say(f"held-out accuracy {accuracy:.3f} after {epochs}, {setting}")


def evaluate(model: nn.Module, images: Images, place: Place) -> tuple[float, float]:
    """Return mean loss and accuracy. Each rank tests its share, so each image counts once."""
    loss = hits = torch.zeros((), device=place.device)
    mine = list(range(place.rank, len(images), place.world_size))
    with torch.no_grad():
        for start in range(0, len(mine), 1000):
            pixels, labels = images[mine[start : start + 1000]]
            scores = model(pixels)
            loss = loss + cross_entropy(scores, labels, reduction="sum")
            hits = hits + (scores.argmax(1) == labels).sum()
    total_loss, total_hits = add_over_ranks(place, loss, hits)
    return total_loss / len(images), total_hits / len(images)


def count(number: int, noun: str) -> str:
    """Return '1 rank' or '8 ranks'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@record  # keeps the traceback of a rank that fails for the report of torchrun or hpckit
def main() -> None:
    """Read the arguments, train, and take leave of the other ranks."""
    # Slurm sends this signal some time before the job's end; training stops at the next step.
    signals: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, frame: signals.append(number))
    args, problem = make_parser().parse_args(), None
    try:
        train(args, find_place(), signals)
    except SetupError as error:
        rank = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        problem = f"train.py: error: {rank}{error}"
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(problem)


if __name__ == "__main__":
    main()
