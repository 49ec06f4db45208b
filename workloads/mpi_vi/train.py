"""Fit a normalizing flow to a simulator by variational inference, over MPI.

The same file runs on one process or on many:

    python train.py                                              1 process, a GPU or the CPU
    mpirun -n 4 python train.py                                  4 processes of this machine
    mpirun -n 2 python train.py --device_ids cuda:0 cuda:1       each with a GPU of its own
    srun --mpi=pmix -n 8 python train.py                         8 processes of a Slurm job
    hpckit submit mpi_vi --nodes 2 --gpus 4                      the same as a Slurm job

Each rank simulates its share of the parameters drawn in an epoch, and draws its share of the
divergence from the prior. All random numbers follow from the seed, the epoch and the number of the
sample: any number of ranks gives the same losses. The problem is that of blackbirds' example on
GPUs: an epidemic on a graph of which three rates are to be found.
"""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from outcome import report
from problems import Problem, make_problem

from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.progress import Figures
from hpckit.inference.same_fit import refuse_differences
from hpckit.inference.spline_flow import SplineFlow
from hpckit.inference.vi import VI
from hpckit.parallel.arguments import (
    Parser,
    add_out,
    add_resume,
    add_tensorboard,
    at_least,
    seed,
)
from hpckit.parallel.errors import SetupError
from hpckit.parallel.journal import counted
from hpckit.parallel.mpi import Ranks, find_ranks
from hpckit.parallel.ranks import divide_cores, say
from hpckit.parallel.run_folder import Metrics, make_folder
from hpckit.parallel.stopping import stop_requested, stopping_now

# Arguments that say where a rank works, or what rank 0 alone writes. All others must be the same on
# all ranks.
ELSEWHERE = ("device_ids", "gpu_aware", "out", "posterior_samples", "no_figures", "tensorboard")
# Arguments that shape the curve of losses, beside those that VI itself keeps.
SHAPING = (
    "model",
    "n_agents",
    "n_timesteps",
    "gradient_horizon",
    "estimator",
    "lr",
    "diff_mode",
    "gradient_clipping_norm",
    "initialize_to_prior",
)
# Samples simulated at once: more need more memory, and are hardly faster.
_AT_ONCE = 10


def fit(args: Namespace, ranks: Ranks) -> None:
    """Fit, and let rank 0 report what came of it."""
    # First of all: ranks that differ here would not even send each other the same messages.
    compared = by_flag(args, [name for name in vars(args) if name not in ELSEWHERE])
    refuse_differences(ranks, {}, compared, more="")
    device = ranks.choose_device(" ".join(args.device_ids or []).replace(",", " ").split())
    share_cores(ranks, device)
    out = args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "train-out"))
    make_folder(out, writes=ranks.leads)
    problem = make_problem(
        args.model,
        ranks,
        device,
        agents=args.n_agents,
        steps=args.n_timesteps,
        horizon=horizon_of(args.gradient_horizon),
        seed=args.seed,
    )
    estimator = make_estimator(args, problem).to(device)
    if ranks.leads:
        weights = sum(row.numel() for row in estimator.parameters())
        say(f"{problem.description}; {args.estimator} of {weights} weights")
        say(
            f"{counted(ranks.size, 'rank')} ({device.type}), {args.n_samples_per_epoch} samples "
            f"and {args.n_samples_regularisation} draws per epoch over all ranks, run folder {out}"
        )
    vi = VI(
        loss=problem.loss,
        prior=problem.prior,
        posterior_estimator=estimator,
        optimizer=torch.optim.AdamW(estimator.parameters(), lr=args.lr),
        w=args.w,
        n_samples_per_epoch=args.n_samples_per_epoch,
        n_samples_regularisation=args.n_samples_regularisation,
        gradient_estimation_method=args.method,
        diff_mode=args.diff_mode,
        gradient_clipping_norm=args.gradient_clipping_norm or float("inf"),
        initialize_estimator_to_prior=args.initialize_to_prior,
        log_tensorboard=args.tensorboard,
        device=device,
        seed=args.seed,
        samples_per_call=_AT_ONCE,
        ranks=ranks,
        out=out,
        more_settings=by_flag(args, SHAPING),
        resume=args.resume == "auto",
        checkpoint_every=args.checkpoint_every,
        should_stop=stop_requested,
        on_epoch=recorder(args, out, ranks),
    )
    vi.run(problem.data, args.n_epochs, args.patience or float("inf"))
    if vi.stopped and vi.history.epochs < args.n_epochs:
        stopping_now()
    if ranks.leads:
        report(vi, problem, out, draws=args.posterior_samples, pictures=not args.no_figures)


def by_flag(args: Namespace, names: Iterable[str]) -> dict[str, object]:
    """Return arguments by the names that people type."""
    return {f"--{name.replace('_', '-')}": getattr(args, name) for name in names}


def recorder(args: Namespace, out: Path, ranks: Ranks) -> Callable[[int, Figures], None]:
    """Return what writes a line of metrics.jsonl per epoch, on rank 0."""
    constants = {"total_steps": args.n_epochs, "epochs": args.n_epochs, "ranks": ranks.size}
    metrics: Metrics | None = None
    last, sent = time.perf_counter(), ranks.spent.seconds

    def record(epoch: int, figures: Figures) -> None:
        nonlocal last, sent, metrics
        if metrics is None:  # only now it is known after which epoch the fit goes on
            metrics = Metrics(out if ranks.leads else None, epoch - 1, constants)
        now = time.perf_counter()
        seconds, message = now - last, ranks.spent.seconds - sent
        speed = {
            "s_per_step": seconds,
            "samples_per_s": args.n_samples_per_epoch / seconds,  # of the simulator, by all ranks
            "compute_s": seconds - message,
            "communication_s": message,  # of rank 0, with its wait for the slowest rank
        }
        metrics.write(epoch, epoch, **figures.losses, dropped=figures.dropped, **speed)
        last, sent = now, ranks.spent.seconds

    return record


def make_estimator(args: Namespace, problem: Problem) -> torch.nn.Module:
    """Return the posterior estimator, with its first weights."""
    dim = len(problem.parameters)
    if args.estimator == "gaussian":
        return TrainableGaussian(problem.prior.mean.cpu())
    return SplineFlow(dim, seed=args.seed)


def horizon_of(word: str) -> int | None:
    """Return the number of steps that `--gradient-horizon` says; None means all.

    Raises:
        SetupError: it says neither a number nor `all`.
    """
    if word == "all":
        return None
    if not word.isdecimal() or len(word) > 18:  # Python itself refuses thousands of digits
        shown = word if len(word) < 40 else f"{word[:20]}..."
        raise SetupError(f"--gradient-horizon {shown!r}: give a number of steps, or all")
    return int(word)


def share_cores(ranks: Ranks, device: torch.device) -> None:
    """Divide the cores among the ranks of this host."""
    cores = len(os.sched_getaffinity(0))
    # Slurm and Open MPI may bind ranks to cores of their own: those are not to be divided.
    bound = cores < (os.cpu_count() or 1)
    divide_cores(device, cores, 1 if bound else ranks.local_size)


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too.

    blackbirds' example spells some with underscores: these work as well.
    """
    parser = Parser(prog="train.py", description="Variational inference over MPI.")
    _add_problem(parser)
    _add_fit(parser)
    _add_run(parser)
    return parser


def _add_problem(parser: Parser) -> None:
    add = parser.add_argument
    models = ["sir", "random_walk"]
    add("--model", choices=models, default="sir", help="the simulator (sir)")
    add(
        "--n_agents", "--n-agents", type=at_least(1), default=5000, metavar="N",
        help="agents of the epidemic (5000)",
    )  # fmt: skip
    add(
        "--n_timesteps", "--n-timesteps", type=at_least(1), default=100, metavar="N",
        help="steps of a simulation (100)",
    )  # fmt: skip
    add(
        "--gradient-horizon",
        default="0",
        metavar="N",
        help="number of earlier steps in a gradient: 0, 1, ... or all (0)",
    )


def _add_fit(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--n_epochs", "--n-epochs", type=at_least(1), default=500, metavar="N",
        help="gradient steps (500)",
    )  # fmt: skip
    add(
        "--n_samples_per_epoch", "--n-samples-per-epoch", type=at_least(1), default=5, metavar="N",
        help="simulations per epoch, of all ranks together (5)",
    )  # fmt: skip
    add(
        "--n-samples-regularisation",
        type=at_least(1),
        default=10_000,
        metavar="N",
        help="draws per epoch for the divergence from the prior, of all ranks together (10000)",
    )
    add(
        "--w",
        type=at_least(0, float),
        default=100.0,
        help="weight of the divergence from the prior (100)",
    )
    add("--lr", type=at_least(0, float), default=0.001, help="learning rate of AdamW (0.001)")
    add(
        "--estimator",
        choices=["flow", "gaussian"],
        default="flow",
        help="family of posteriors: a neural spline flow, or a Gaussian (flow)",
    )
    add(
        "--method",
        choices=["pathwise", "score"],
        default="pathwise",
        help="pathwise: gradient through the simulator; score: gradient of log q only (pathwise)",
    )
    add(
        "--diff-mode",
        choices=["reverse", "forward"],
        default="reverse",
        help="how the simulator is differentiated (reverse)",
    )
    add(
        "--gradient-clipping-norm",
        type=at_least(0, float),
        default=0.0,
        help="scale larger gradients down to this norm; 0 means never (0)",
    )
    add(
        "--initialize-to-prior",
        action="store_true",
        help="fit the estimator to the prior alone first",
    )
    add(
        "--patience",
        type=at_least(0),
        default=0,
        metavar="N",
        help="stop after N epochs without improvement; 0 means never (0)",
    )


def _add_run(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--device_ids", "--device-ids", nargs="+", metavar="DEVICE",
        help="cpu, or a device per rank such as cuda:0 cuda:1; by default the GPU with the number "
        "of the local rank, or the CPU",
    )  # fmt: skip
    add(
        "--gpu-aware",
        action="store_true",
        help="give tensors on GPUs directly to MPI (the library must have been built for that)",
    )
    add("--seed", type=seed, default=0, help="seed of all random numbers (0)")
    add(
        "--checkpoint-every",
        type=at_least(1),
        default=10,
        metavar="N",
        help="epochs between checkpoints (10)",
    )
    add_resume(parser)
    add(
        "--posterior-samples",
        type=at_least(1),
        default=5000,
        metavar="N",
        help="draws of the posterior in posterior.npz (5000)",
    )
    add("--no-figures", action="store_true", help="do not draw figures")
    add_tensorboard(parser)
    add_out(parser)


def main() -> None:
    """Read the arguments, meet the other ranks, fit."""
    args = make_parser().parse_args()
    try:
        ranks = find_ranks(gpu_aware=args.gpu_aware)
        with ranks.ending_together():
            fit(args, ranks)
    except SetupError as error:
        sys.exit(f"train.py: error: {error}")


if __name__ == "__main__":
    main()
