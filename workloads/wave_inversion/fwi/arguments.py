"""The arguments of the workload; workload.yaml lists them too."""

from argparse import ArgumentTypeError

import torch

from hpckit.parallel.arguments import Parser, add_devices, add_out, add_resume, at_least, seed

PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}


def pair(text: str) -> tuple[int, int]:
    """Read NX,NZ."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or min(numbers) < 1:
        raise ArgumentTypeError(f"must be two numbers NX,NZ, such as 600,250, not {text}")
    return numbers[0], numbers[1]


def several(text: str) -> tuple[float, ...]:
    """Read frequencies."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise ArgumentTypeError(f"must be numbers such as 10,15,20, not {text}") from error


# argparse names a type in its complaints, and workload.yaml knows these as text.
pair.__name__ = several.__name__ = "str"


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = Parser(prog="train.py", description="Full-waveform inversion on any devices.")
    _add_models(parser)
    _add_survey(parser)
    _add_inversion(parser)
    return parser


def _add_models(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--velocity",
        metavar="FILE",
        help="true model: .npy [NX,NZ], or raw float32 with the depth fastest, as Marmousi's is "
        "(default: layers made from --seed)",
    )
    add(
        "--shape",
        type=pair,
        metavar="NX,NZ",
        help="cells along the surface and down; a raw file needs it (default: the .npy file's "
        "shape, or 150,80)",
    )
    add(
        "--window",
        type=pair,
        metavar="NX,NZ",
        help="use only NX by NZ cells of the files, from cell 0,0",
    )
    add(
        "--start",
        metavar="FILE",
        help="start model, in the format of --velocity (default: the true model, smoothed)",
    )
    add(
        "--smooth",
        type=at_least(0, float),
        default=10.0,
        metavar="CELLS",
        help="standard deviation of the Gaussian that makes the start model (10)",
    )
    add(
        "--v-min",
        type=at_least(1, float),
        default=1000.0,
        metavar="M/S",
        help="lowest velocity of the model, m/s (1000)",
    )
    add(
        "--v-max",
        type=at_least(1, float),
        default=2500.0,
        metavar="M/S",
        help="highest velocity of the model, m/s; also sets the solver's time step (2500)",
    )


def _add_survey(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--observed",
        metavar="FILE",
        help="recorded traces, .npy floats [shots, receivers, nt] (default: simulated from "
        "--velocity)",
    )
    add(
        "--noise",
        type=at_least(0, float),
        default=0.0,
        metavar="SHARE",
        help="white noise on simulated traces, relative to the rms of their shot (0)",
    )
    add(
        "--shots",
        type=at_least(1),
        default=8,
        metavar="N",
        help="number of shots, spread over the whole width (8)",
    )
    add(
        "--receivers",
        type=at_least(1),
        default=50,
        metavar="N",
        help="number of receivers, the same for all shots (50)",
    )
    add("--nt", type=at_least(2), default=200, metavar="N", help="samples per trace (200)")
    add(
        "--dt",
        type=at_least(1e-5, float),
        default=0.004,
        metavar="S",
        help="time between two samples, s (0.004)",
    )
    add("--dx", type=at_least(0.01, float), default=4.0, metavar="M", help="size of a cell, m (4)")
    add(
        "--frequency",
        type=at_least(0.1, float),
        default=25.0,
        metavar="HZ",
        help="peak frequency of the Ricker wavelet, Hz (25)",
    )
    add(
        "--taper",
        type=at_least(0),
        default=50,
        metavar="N",
        help="number of samples at the end of each trace that fade to zero (50)",
    )
    add(
        "--skip-grid-check",
        action="store_true",
        help="simulate also where --dx or --dt is too coarse for the shortest waves",
    )
    add("--seed", type=seed, default=0, help="seed of the layers and the noise (0)")


def _add_inversion(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--gradient",
        action="store_true",
        help="compute only the gradient at the start model, for all frequencies (imaging)",
    )
    add(
        "--frequencies",
        type=several,
        default="10,15,20,25,30",
        metavar="HZ,...",
        help="low-pass frequency of each stage, Hz; 0 means no filter (10,15,20,25,30)",
    )
    add("--steps", type=at_least(1), default=2, metavar="N", help="L-BFGS steps per stage (2)")
    add(
        "--iterations",
        type=at_least(1),
        default=4,
        metavar="N",
        help="line searches per step, with one or two gradients each; the published example has "
        "20 (4)",
    )
    add_devices(
        parser,
        "auto",
        "of each process: words such as GPU:0 GPU:1, GPU:* or cpu:2; auto is the rank's own (auto)",
    )
    add(
        "--precision",
        choices=list(PRECISIONS),
        default="fp32",
        help="precision of the simulation; sums over shots, filter and optimizer use fp64 (fp32)",
    )
    add(
        "--shots-at-once",
        type=at_least(0),
        default=0,
        metavar="N",
        help="shots in a device's memory at the same time; 0 means all its shots (0)",
    )
    add(
        "--checkpoint-every",
        type=at_least(0),
        default=1,
        metavar="N",
        help="steps between checkpoints; 0 means only at the end (1)",
    )
    add_resume(parser)
    add_out(parser)
