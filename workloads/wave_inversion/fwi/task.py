"""What is to be inverted: models and survey, made or read as the arguments say, and checked."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fwi.survey import Survey, read_observed, slowest_of
from fwi.velocity import Bounds, Model, layered, read_model, smoothed
from hpckit.parallel.errors import SetupError
from hpckit.parallel.journal import counted

_SYNTHETIC = (150, 80)


@dataclass(frozen=True)
class Task:
    """What is to be inverted; a truth that is not known is None."""

    survey: Survey
    truth: Model | None
    start: Model
    bounds: Bounds
    observed: NDArray[np.float32] | None
    description: str


def make_task(args: Namespace) -> Task:
    """Make or read the models, and check all that is asked.

    Raises:
        SetupError: it does not fit together.
    """
    if args.window and not (args.velocity or args.start):
        raise SetupError("--window cuts the files of --velocity and --start: give one, or --shape")
    truth, name = find_truth(args)
    bounds = Bounds(args.v_min, args.v_max)
    if truth is not None:
        bounds.check(truth, name)
    if args.start:
        start = read_model(Path(args.start), "--start", args.shape, args.window)
    elif truth is not None:
        start = smoothed(truth, args.smooth)
    else:
        raise SetupError("--observed without --velocity needs a --start model")
    if truth is not None and truth.shape != start.shape:
        raise SetupError(f"--start has {start.shape} cells, --velocity {truth.shape}")
    bounds.check(start, f"--start {args.start}" if args.start else "the smoothed start model")
    survey = Survey(
        nx=start.shape[0],
        nz=start.shape[1],
        dx=args.dx,
        dt=args.dt,
        nt=args.nt,
        shots=args.shots,
        receivers=args.receivers,
        frequency=args.frequency,
        taper=args.taper,
    )
    survey.check(args.frequencies)
    if not args.skip_grid_check:
        survey.check_grid(slowest_of(truth, start))
    observed = read_observed(Path(args.observed), survey) if args.observed else None
    where = (
        f"read from {args.observed}"
        if args.observed
        else "simulated by the same solver on the same grid ('inverse crime': real ones fit worse)"
    )
    size = f"{survey.nx}x{survey.nz} cells of {args.dx:g} m"
    description = (
        f"velocity: {name}, {size}, {start.min():.0f} to {start.max():.0f} m/s at the start\n"
        f"survey: {counted(args.shots, 'shot')}, {counted(args.receivers, 'receiver')}, "
        f"{args.nt} samples of {args.dt:g} s, Ricker wavelet of {args.frequency:g} Hz\n"
        f"observed traces: {where}"
    )
    return Task(survey, truth, start, bounds, observed, description)


def find_truth(args: Namespace) -> tuple[Model | None, str]:
    """Return the model that the traces are simulated with or compared to, and its name."""
    if args.velocity:
        model = read_model(Path(args.velocity), "--velocity", args.shape, args.window)
        return model, f"--velocity {args.velocity}"
    if args.observed:
        return None, f"unknown, from --start {args.start}"
    return layered(args.shape or _SYNTHETIC, args.seed), f"layered synthetic of seed {args.seed}"
