"""The command line; workload.yaml lists the same names and defaults for hpckit."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from hpckit.parallel.errors import SetupError


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, since every rank makes them."""

    def error(self, message: str) -> NoReturn:
        """Print the complaint without the usage, and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")


def at_least(minimum: int, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """Return a reader of numbers that refuses those below a minimum."""

    def read(text: str) -> float:
        number = kind(text)
        if not number >= minimum:  # refuses nan, too
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {text}")
        return number

    read.__name__ = kind.__name__  # argparse names it: "invalid int value: 'abc'"
    return read


def make_parser() -> Parser:
    """Return the parser of train.py's arguments."""
    parser = Parser(
        prog="train.py", description="Train a small image classifier on any number of processes."
    )
    add = parser.add_argument
    add(
        "--data",
        default="digits",
        help="digits (scikit-learn), fashion-mnist (Debian package), or a folder with the four "
        "IDX files (default: digits)",
    )
    add("--epochs", type=at_least(1), default=10, metavar="N", help="passes over the images (10)")
    add(
        "--batch-size",
        type=at_least(1),
        default=64,
        metavar="N",
        help="images per step over ALL ranks together, so that the same seed gives the same loss "
        "curve on any number of ranks (64)",
    )
    add("--lr", type=at_least(0, float), default=0.005, help="learning rate (0.005)")
    add(
        "--optimizer",
        choices=["adam", "sgd"],
        default="adam",
        help="adam, or sgd with momentum 0.9, for which --lr 0.05 is good (adam)",
    )
    add("--seed", type=at_least(0), default=0, help="for first weights and order of images (0)")
    add("--limit", type=at_least(1), metavar="N", help="use only the first N training images")
    add(
        "--checkpoint-every",
        type=at_least(0),
        default=1,
        metavar="N",
        help="epochs between checkpoints; 0 means only at the end (1)",
    )
    add(
        "--resume",
        choices=["auto", "never"],
        default="auto",
        help="auto goes on from checkpoints/last.pt in the run folder, if it is there (auto)",
    )
    add(
        "--log-every", type=at_least(1), default=10, metavar="N", help="steps per metrics line (10)"
    )
    add(
        "--verbose-shapes",
        action="store_true",
        help="every rank prints the shapes of its inputs, each once per epoch",
    )
    add(
        "--no-sampler",
        action="store_true",
        help="exercise: every rank trains on all images, to see what the sampler is for",
    )
    add("--out", type=Path, metavar="DIR", help="run folder ($HPCKIT_RUN_DIR, else ./ddp-out)")
    return parser


def curve_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that shape the loss curve."""
    names = ["data", "batch_size", "lr", "optimizer", "seed", "limit"]
    return {name: getattr(args, name) for name in names}


def refuse_other_settings(args: argparse.Namespace, before: dict[str, Any]) -> None:
    """Check that a run that goes on keeps the arguments that shape its loss curve.

    Raises:
        SetupError: One of them is not what it was.
    """
    for name, now in curve_settings(args).items():
        if now != before[name]:
            flag = f"--{name.replace('_', '-')}"
            raise SetupError(
                f"checkpoints/last.pt was made with {flag} {before[name]}, not {now}: "
                "give the same again, or --resume never, or another --out"
            )
