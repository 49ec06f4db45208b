"""Full-waveform inversion: find the velocities below a line of receivers from what they recorded.

    python train.py                                            1 process, a GPU or the CPU
    python train.py --devices GPU:*                            1 process, shots over all its GPUs
    torchrun --standalone --nproc-per-node 4 train.py          4 processes, shots over all of them
    hpckit submit wave_inversion --nodes 2 --gpus 2            the same as a Slurm job

Waves are simulated by deepwave. Each process ("rank") has some of the shots: their sources,
receivers and observed traces. The misfit is a sum over shots, and so is its gradient: they are the
same on any number of ranks or devices.
"""

import os
import signal
import sys
import time
from argparse import ArgumentTypeError, Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from fwi.inversion import Inversion, Objective, Plan
from fwi.packages import need
from fwi.pictures import draw_gradient, draw_misfit, draw_models
from fwi.shots import Replicas, Solver
from fwi.survey import Survey, read_observed, share, slowest_of
from fwi.team import Stopped, Team, together
from fwi.velocity import Bounds, Model, layered, read_model, rms_difference, smoothed
from numpy.typing import NDArray
from torch.distributed.elastic.multiprocessing.errors import record

from hpckit.parallel.arguments import Parser, at_least, refuse_other_settings
from hpckit.parallel.devices import Replica, find_replicas
from hpckit.parallel.errors import SetupError
from hpckit.parallel.journal import counted
from hpckit.parallel.ranks import Place, find_place, say, share_cores
from hpckit.parallel.run_folder import Metrics, load_checkpoint, make_folder, save_checkpoint
from hpckit.parallel.throughput import device_label
from hpckit.parallel.training import devices_of

SYNTHETIC = (150, 80)
PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}
# Arguments that only say where and how the work is done. All others shape the misfit's curve.
ELSEWHERE = ("devices", "shots_at_once", "checkpoint_every", "resume", "out", "skip_grid_check")


@dataclass(frozen=True)
class Task:
    """What is to be inverted; a truth that is not known is None."""

    survey: Survey
    truth: Model | None
    start: Model
    bounds: Bounds
    observed: NDArray[np.float32] | None
    description: str


def run(args: Namespace, place: Place, signals: list[int]) -> None:
    """Invert, or find one gradient, on all ranks; the first one decides, the others follow."""
    # Before there is a process group: of one that is there already, the parts of torch that
    # deepwave loads keep hold, and its threads would outlive it and abort the process at exit.
    need("deepwave")
    if place.world_size > 1:
        device = place.device if place.device.type == "cuda" else None
        dist.init_process_group(place.backend, device_id=device)
    hosts = share_cores(place)
    task = together(place, lambda: make_task(args))
    replicas = together(place, lambda: find_devices(args.devices, place))
    mine = share(range(args.shots), place.world_size, place.rank)
    solver = Solver(task.survey, task.bounds.high, args.shots_at_once, PRECISIONS[args.precision])
    work = Replicas(solver, mine, replicas)
    together(place, lambda: observe(work, task, args))
    out = together(place, lambda: make_folder(folder_of(args)))

    team = Team(place, work, (args.shots, task.survey.nx, task.survey.nz))
    team.signals = signals
    if place.rank != 0:
        team.follow()
        return
    try:
        setting = describe(place, hosts, replicas)
        say(f"{task.description}\n{setting}, {spread(args, place, replicas)}, run folder {out}")
        if args.gradient:
            find_gradient(task, team, out)
        else:
            devices = device_label([row.device for row in replicas], place.world_size)
            invert(args, task, team, out, setting, devices)
    finally:
        team.dismiss()


def folder_of(args: Namespace) -> Path:
    """Return the run's folder."""
    return args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "train-out"))


def make_task(args: Namespace) -> Task:
    """Make or read the models, and check all that is asked.

    Raises:
        SetupError: it does not fit together.
    """
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
    return layered(args.shape or SYNTHETIC, args.seed), f"layered synthetic of seed {args.seed}"


def find_devices(words: str, place: Place) -> tuple[Replica, ...]:
    """Return the replicas of this rank, which share its cores if they are CPUs.

    Raises:
        SetupError: there are no such devices, or several ranks would all take the same GPUs.
    """
    if words == "auto":
        return (Replica(0, place.device),)
    replicas = find_replicas(devices_of(words), default="all")
    if place.world_size > 1 and any(row.device.type == "cuda" for row in replicas):
        raise SetupError(
            f"--devices {words}: each of {place.world_size} ranks has a GPU of its own already; "
            "leave --devices out, or start one process"
        )
    if replicas[0].device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // len(replicas)))
    return replicas


def observe(work: Replicas, task: Task, args: Namespace) -> None:
    """Give each shot what was recorded of it."""
    if task.observed is not None:
        work.observe(task.observed)
    else:
        work.simulate(torch.from_numpy(task.truth), args.noise, args.seed)


def find_gradient(task: Task, team: Team, out: Path) -> None:
    """Save the gradient of the misfit at the start model, of all frequencies, and its picture."""
    start, objective = torch.from_numpy(task.start), Objective(team)
    began = time.perf_counter()
    objective.begin(start, 0)
    misfit, gradient = objective(start)
    seconds = time.perf_counter() - began
    np.save(out / "gradient.npy", gradient.numpy())
    draw_gradient(out / "gradient.png", gradient.numpy(), task.survey)
    Metrics(out, 0, {}).write(
        1, 1, loss=misfit, samples_per_s=task.survey.shots / seconds, s_per_step=seconds
    )
    say(f"misfit {misfit:.6g} at the start model, gradient in {seconds:.2f} s")
    say(f"saved in {out}: gradient.npy, gradient.png")


def invert(args: Namespace, task: Task, team: Team, out: Path, setting: str, devices: str) -> None:
    """Take all steps, or those until SIGUSR2; keep a record, checkpoints, the model, pictures."""
    plan = Plan(args.frequencies, args.steps, args.iterations)
    # A source's strength goes with the velocity of its own cell, which is kept as it is. It is
    # also the only one whose fp32 gradient would depend on which shots are simulated together.
    still = task.survey.sources_at(range(args.shots))[:, 0]
    objective = Objective(team, still)
    inversion = Inversion(plan, task.bounds, torch.from_numpy(task.start), objective)
    settings = {name: value for name, value in vars(args).items() if name not in ELSEWHERE}
    checkpoint = load_checkpoint(out) if args.resume == "auto" else None
    if checkpoint is not None:
        refuse_other_settings(settings, checkpoint["settings"])
        inversion.load_state(checkpoint["inversion"])
        say(f"resuming after step {inversion.step} of {plan.total_steps}")
    constants = {"total_steps": plan.total_steps, "epochs": len(plan.cutoffs)}
    metrics = Metrics(out, inversion.step, constants)

    def save() -> None:
        state = {"settings": settings, "inversion": inversion.state()}
        save_checkpoint(out, state, ["last.pt"])

    def error() -> dict[str, float]:
        """Return how far the model is from the truth, where that is known."""
        if task.truth is None:
            return {}
        return {"model_error": rms_difference(inversion.velocity.numpy(), task.truth)}

    if checkpoint is None:
        metrics.write(0, 1, **error())
        say(" ".join(["start", *(f"  model error {value:.1f} m/s" for value in error().values())]))
    spent, gradients = 0.0, 0
    while inversion.step < plan.total_steps:
        began, known, cutoff = time.perf_counter(), len(inversion.objective.evaluations), 0.0
        cutoff = inversion.cutoff_hz
        try:
            before, after = inversion.advance()
        except Stopped:
            save()
            say(f"stopped at step {inversion.step}, checkpoint saved")
            return
        count = len(inversion.objective.evaluations) - known
        seconds = time.perf_counter() - began
        spent, gradients = spent + seconds, gradients + count
        figures = {"loss": after, "loss_before": before, "frequency": cutoff, **error()}
        speed = {"gradients": count, "samples_per_s": count * args.shots / seconds}
        epoch = (inversion.step - 1) // plan.steps + 1
        metrics.write(inversion.step, epoch, **figures, **speed)
        report(inversion.step, plan, figures, count, speed["samples_per_s"])
        if args.checkpoint_every and inversion.step % args.checkpoint_every == 0:
            save()
        if inversion.step % plan.steps == 0:
            keep_model(task, inversion, out)
    save()
    keep_model(task, inversion, out)
    if gradients:
        figures = {"samples_per_s": gradients * args.shots / spent, "s_per_step": spent / gradients}
        metrics.write(inversion.step, len(plan.cutoffs), devices=devices, **figures)
        say(f"{devices}: {spent / gradients:.3f} s per gradient of {counted(args.shots, 'shot')}")
    say(f"saved in {out}: model.npy, models.png, misfit.png")
    if task.truth is not None:
        first = rms_difference(task.start, task.truth)
        say(f"model error {first:.1f} -> {error()['model_error']:.1f} m/s after "
            f"{counted(plan.total_steps, 'step')}, {setting}")  # fmt: skip
    else:
        say(f"{counted(plan.total_steps, 'step')} done, {setting}")


def report(step: int, plan: Plan, figures: dict[str, float], count: int, rate: float) -> None:
    """Print the line of a step."""
    cutoff = figures["frequency"]
    band = f"below {cutoff:g} Hz" if cutoff else "all frequencies"
    error = f"  model error {figures['model_error']:.1f} m/s" if "model_error" in figures else ""
    say(
        f"step {step}/{plan.total_steps}  {band}  misfit {figures['loss_before']:.3g} -> "
        f"{figures['loss']:.3g}{error}  {counted(count, 'gradient')}, {rate:.1f} shots/s"
    )


def keep_model(task: Task, inversion: Inversion, out: Path) -> None:
    """Save the model as it is now, and the pictures."""
    model = inversion.velocity.numpy()
    np.save(out / "model.npy", model.astype(np.float32))
    truth = {"true": task.truth} if task.truth is not None else {}
    draw_models(out / "models.png", {**truth, "start": task.start, "inverted": model}, task.survey)
    draw_misfit(out / "misfit.png", inversion.objective.evaluations)


def describe(place: Place, hosts: int, replicas: tuple[Replica, ...]) -> str:
    """Return where the work is done, in words."""
    kind = replicas[0].device.type
    if place.world_size == 1:
        return f"{counted(len(replicas), 'replica')} in one process ({kind})"
    each = f", {len(replicas)} replicas each" if len(replicas) > 1 else ""
    ranks = f"{counted(place.world_size, 'rank')} on {counted(hosts, 'host')}"
    return f"{ranks} ({kind}, {place.backend}{each})"


def spread(args: Namespace, place: Place, replicas: tuple[Replica, ...]) -> str:
    """Return how many shots each part of the machine has."""
    parts = place.world_size * len(replicas)
    least, more = divmod(args.shots, parts)
    return f"{least}{f' or {least + 1}' if more else ''} shots each"


def pair(text: str) -> tuple[int, int]:
    """Read NX,NZ."""
    numbers = [int(word) for word in text.split(",")]
    if len(numbers) != 2 or min(numbers) < 1:
        raise ArgumentTypeError(f"must be two numbers NX,NZ, such as 600,250, not {text}")
    return numbers[0], numbers[1]


def several(text: str) -> tuple[float, ...]:
    """Read frequencies."""
    return tuple(float(word) for word in text.split(","))


# argparse names a type in its complaints, and workload.yaml knows these as text.
pair.__name__ = several.__name__ = "str"


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = Parser(prog="train.py", description="Full-waveform inversion on any devices.")
    add_models(parser)
    add_survey(parser)
    add_inversion(parser)
    return parser


def add_models(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--velocity",
        metavar="FILE",
        help="true model: .npy [NX,NZ], or raw float32 with the depth fastest, as Marmousi's is "
        "(layers made by --seed)",
    )
    add(
        "--shape",
        type=pair,
        metavar="NX,NZ",
        help="cells along the surface and down; a raw file needs it (a .npy file's own, or 150,80)",
    )
    add("--window", type=pair, metavar="NX,NZ", help="use only so much of the files, from 0,0 on")
    add("--start", metavar="FILE", help="start model, as --velocity (the true one, smoothed)")
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
        help="the model stays above this (1000)",
    )
    add(
        "--v-max",
        type=at_least(1, float),
        default=2500.0,
        metavar="M/S",
        help="and below this, which also sets the solver's time step (2500)",
    )


def add_survey(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--observed",
        metavar="FILE",
        help="recorded traces, .npy floats [shots, receivers, nt] (simulated from --velocity)",
    )
    add(
        "--noise",
        type=at_least(0, float),
        default=0.0,
        metavar="SHARE",
        help="white noise on simulated traces, relative to the rms of their shot (0)",
    )
    add("--shots", type=at_least(1), default=8, metavar="N", help="over the whole width (8)")
    add("--receivers", type=at_least(1), default=50, metavar="N", help="the same for all (50)")
    add("--nt", type=at_least(2), default=200, metavar="N", help="samples per trace (200)")
    add("--dt", type=at_least(1e-5, float), default=0.004, metavar="S", help="between them (0.004)")
    add("--dx", type=at_least(0.01, float), default=4.0, metavar="M", help="size of a cell (4)")
    add(
        "--frequency",
        type=at_least(0.1, float),
        default=25.0,
        metavar="HZ",
        help="peak of the Ricker wavelet (25)",
    )
    add(
        "--taper",
        type=at_least(0),
        default=50,
        metavar="N",
        help="samples over which the end of each trace goes to zero (50)",
    )
    add(
        "--skip-grid-check",
        action="store_true",
        help="simulate also where --dx or --dt is too coarse for the shortest waves",
    )
    add("--seed", type=at_least(0), default=0, help="for the layers and the noise (0)")


def add_inversion(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--gradient",
        action="store_true",
        help="only the gradient at the start model, of all frequencies, for imaging",
    )
    add(
        "--frequencies",
        type=several,
        default="10,15,20,25,30",
        metavar="HZ,...",
        help="low-pass of each stage, one after the other; 0 lets all pass (10,15,20,25,30)",
    )
    add("--steps", type=at_least(1), default=2, metavar="N", help="L-BFGS steps per stage (2)")
    add(
        "--iterations",
        type=at_least(1),
        default=4,
        metavar="N",
        help="line searches per step, a gradient or two each; the published example has 20 (4)",
    )
    add(
        "--devices",
        default="auto",
        help="of each process: words such as GPU:*, cpu:2; auto is the rank's own (auto)",
    )
    add(
        "--precision",
        choices=list(PRECISIONS),
        default="fp32",
        help="of the simulation; sums over shots, filter and optimizer are fp64 (fp32)",
    )
    add(
        "--shots-at-once",
        type=at_least(0),
        default=0,
        metavar="N",
        help="shots that a device has in memory together; 0 is all of its own (0)",
    )
    add(
        "--checkpoint-every",
        type=at_least(0),
        default=1,
        metavar="N",
        help="steps between checkpoints; 0 means only at the end (1)",
    )
    add(
        "--resume",
        choices=["auto", "never"],
        default="auto",
        help="auto goes on from checkpoints/last.pt in the run folder, if it is there (auto)",
    )
    add("--out", type=Path, metavar="DIR", help="run folder ($HPCKIT_RUN_DIR, else ./train-out)")


@record  # keeps the traceback of a rank that fails for the report of torchrun or hpckit
def main() -> None:
    """Read the arguments, invert, and take leave of the other ranks."""
    # Slurm sends this signal some time before the job's end; the step under way is given up.
    signals: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, frame: signals.append(number))
    args, problem = make_parser().parse_args(), None
    try:
        run(args, find_place(), signals)
    except SetupError as error:
        rank = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        problem = f"train.py: error: {rank}{error}"
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(problem)


if __name__ == "__main__":
    main()
