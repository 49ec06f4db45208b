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
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from fwi.arguments import PRECISIONS, make_parser
from fwi.inversion import Inversion, Objective, Plan
from fwi.packages import need
from fwi.pictures import draw_gradient, draw_misfit, draw_models
from fwi.shots import Replicas, Solver
from fwi.survey import share, some_traces
from fwi.task import Task, make_task
from fwi.team import Stopped, Team, together
from fwi.velocity import rms_difference
from torch.distributed.elastic.multiprocessing.errors import record

from hpckit.inference.data_digest import digest
from hpckit.parallel.arguments import refuse_other_settings, refuse_unequal_ranks
from hpckit.parallel.devices import Replica, find_replicas
from hpckit.parallel.errors import SetupError
from hpckit.parallel.journal import counted
from hpckit.parallel.ranks import Rank, find_rank, meet, say, share_cores
from hpckit.parallel.run_folder import Metrics, load_checkpoint, make_folder, save_checkpoint
from hpckit.parallel.stopping import stopping_now
from hpckit.parallel.throughput import device_label
from hpckit.parallel.training import devices_of

WORKLOAD = "wave_inversion"
# Arguments that only say where and how the work is done. All others shape the misfit's curve.
ELSEWHERE = ("devices", "shots_at_once", "checkpoint_every", "resume", "out", "skip_grid_check")
FILES = ("velocity", "start", "observed")


def run(args: Namespace, place: Rank) -> None:
    """Invert, or find one gradient, on all ranks; the first one decides, the others follow."""
    # Before there is a process group: of one that is there already, the parts of torch that
    # deepwave loads keep hold, and its threads would outlive it and abort the process at exit.
    # And what is missing should not be missed only when the first picture is drawn.
    for package in ("deepwave", "scipy", "matplotlib"):
        need(package)
    meet(place)
    hosts = share_cores(place)
    task = together(place, lambda: make_task(args))
    compare(args, task, place)
    replicas = together(place, lambda: find_devices(args.devices, place))
    writes = place.rank == 0
    out = together(place, lambda: make_folder(folder_of(args), writes=writes))
    mine = share(range(args.shots), place.world_size, place.rank)
    solver = Solver(task.survey, task.bounds.high, args.shots_at_once, PRECISIONS[args.precision])
    work = Replicas(solver, mine, replicas)
    together(place, lambda: observe(work, task, args))

    team = Team(place, work, (args.shots, task.survey.nx, task.survey.nz))
    if place.rank != 0:
        team.follow()
        return
    try:
        setting = describe(place, hosts, replicas)
        say(f"{task.description}\n{setting}, {spread(args, place, replicas)}, run folder {out}")
        if args.gradient:
            find_gradient(task, team, out)
        else:
            count = len(replicas) * place.world_size
            devices = device_label([row.device for row in replicas], count)
            invert(args, task, team, out, setting, devices)
    except Stopped:
        say("stopped, nothing saved")
        stopping_now()
    finally:
        team.dismiss()


def compare(args: Namespace, task: Task, place: Rank) -> None:
    """Check that all ranks invert the same: each has shots of its own, and reads its own files.

    Files count by what is in them: nodes may have them at different places.

    Raises:
        SetupError: this rank does not invert what rank zero does.
    """
    mine = {name: value for name, value in settings_of(args).items() if name not in FILES}
    for name, model in (("velocity", task.truth), ("start", task.start)):
        found = digest(model) if vars(args)[name] else None
        mine[f"the digest of --{name}"] = found and f"{found:x}"
    found = None if task.observed is None else digest(some_traces(task.observed))
    mine["the digest of some traces of --observed"] = found and f"{found:x}"
    box = [mine]
    if place.meets:
        dist.broadcast_object_list(box)
    together(place, lambda: refuse_unequal_ranks(mine, box[0], place.host))


def folder_of(args: Namespace) -> Path:
    """Return the run's folder."""
    return args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "train-out"))


def find_devices(words: Sequence[str], place: Rank) -> tuple[Replica, ...]:
    """Return the replicas of this rank, which share its cores if they are CPUs.

    Raises:
        SetupError: there are no such devices, or several ranks would all take the same GPUs.
    """
    if list(words) == ["auto"]:
        return (Replica(0, place.device),)
    replicas = find_replicas(devices_of(words), default="all")
    if place.world_size > 1 and any(row.device.type == "cuda" for row in replicas):
        raise SetupError(
            f"--devices {' '.join(words)}: each of {place.world_size} ranks has a GPU of its own "
            "already; leave --devices out, or start one process"
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
    inversion, settings = begin(args, task, team), settings_of(args)
    plan = inversion.plan
    checkpoint = load_checkpoint(out, WORKLOAD) if args.resume == "auto" else None
    if checkpoint is not None:
        refuse_other_settings(settings, checkpoint["settings"])
        inversion.load_state(checkpoint["inversion"])
        say(f"resuming after step {inversion.step} of {plan.total_steps}")
    metrics = Metrics(
        out, inversion.step, {"total_steps": plan.total_steps, "epochs": len(plan.cutoffs)}
    )
    if checkpoint is None and task.truth is not None:
        metrics.write(0, 1, **error_of(task, inversion))
        say(f"start  model error {error_of(task, inversion)['model_error']:.1f} m/s")

    def save() -> None:
        state = {"workload": WORKLOAD, "settings": settings, "inversion": inversion.state()}
        save_checkpoint(out, state, ["last.pt"])

    spent, gradients = 0.0, 0
    while inversion.step < plan.total_steps:
        began, cutoff = time.perf_counter(), inversion.cutoff_hz
        known = len(inversion.objective.evaluations)
        try:
            before, after = inversion.advance()
        except Stopped:
            save()
            say(f"stopped at step {inversion.step}, checkpoint saved")
            stopping_now()
            return
        count = len(inversion.objective.evaluations) - known
        seconds = time.perf_counter() - began
        spent, gradients = spent + seconds, gradients + count
        figures = {"loss": after, "loss_before": before, "frequency": cutoff}
        figures |= error_of(task, inversion)
        figures |= {"gradients": count, "samples_per_s": count * args.shots / seconds}
        metrics.write(inversion.step, (inversion.step - 1) // plan.steps + 1, **figures)
        report(inversion.step, plan, figures)
        if args.checkpoint_every and inversion.step % args.checkpoint_every == 0:
            save()
        if inversion.step % plan.steps == 0:
            keep_model(task, inversion, out)
    save()
    if gradients:
        speed = {"samples_per_s": gradients * args.shots / spent, "s_per_step": spent / gradients}
        metrics.write(inversion.step, len(plan.cutoffs), devices=devices, **speed)
        say(f"{devices}: {spent / gradients:.3f} s per gradient of {counted(args.shots, 'shot')}")
    keep_model(task, inversion, out)
    say(f"saved in {out}: model.npy, models.png, misfit.png")
    say(conclusion(task, inversion, setting))


def begin(args: Namespace, task: Task, team: Team) -> Inversion:
    """Return an inversion that is at its start model.

    A source's strength goes with the velocity of its own cell, which is kept as it is. It is also
    the only one whose fp32 gradient would depend on which shots are simulated together.
    """
    plan = Plan(args.frequencies, args.steps, args.iterations)
    objective = Objective(team, still=task.survey.sources_at(range(args.shots))[:, 0])
    return Inversion(plan, task.bounds, torch.from_numpy(task.start), objective)


def settings_of(args: Namespace) -> dict[str, object]:
    """Return the arguments that a run which goes on must keep."""
    return {name: value for name, value in vars(args).items() if name not in ELSEWHERE}


def error_of(task: Task, inversion: Inversion) -> dict[str, float]:
    """Return how far the model is from the truth, where that is known."""
    if task.truth is None:
        return {}
    return {"model_error": rms_difference(inversion.velocity.numpy(), task.truth)}


def conclusion(task: Task, inversion: Inversion, setting: str) -> str:
    """Return the last line of a run."""
    steps = counted(inversion.plan.total_steps, "step")
    if task.truth is None:
        return f"{steps} done, {setting}"
    first = rms_difference(task.start, task.truth)
    last = error_of(task, inversion)["model_error"]
    return f"model error {first:.1f} -> {last:.1f} m/s after {steps}, {setting}"


def report(step: int, plan: Plan, figures: dict[str, float]) -> None:
    """Print the line of a step."""
    cutoff = figures["frequency"]
    band = f"below {cutoff:g} Hz" if cutoff else "all frequencies"
    error = f"  model error {figures['model_error']:.1f} m/s" if "model_error" in figures else ""
    say(
        f"step {step}/{plan.total_steps}  {band}  misfit {figures['loss_before']:.3g} -> "
        f"{figures['loss']:.3g}{error}  {counted(int(figures['gradients']), 'gradient')}, "
        f"{figures['samples_per_s']:.1f} shots/s"
    )


def keep_model(task: Task, inversion: Inversion, out: Path) -> None:
    """Save the model as it is now, and the pictures."""
    model = inversion.velocity.numpy()
    np.save(out / "model.npy", model.astype(np.float32))
    truth = {"true": task.truth} if task.truth is not None else {}
    draw_models(out / "models.png", {**truth, "start": task.start, "inverted": model}, task.survey)
    draw_misfit(out / "misfit.png", inversion.objective.evaluations)


def describe(place: Rank, hosts: int, replicas: tuple[Replica, ...]) -> str:
    """Return where the work is done, in words."""
    kind = replicas[0].device.type
    if place.world_size == 1:
        return f"{counted(len(replicas), 'replica')} in one process ({kind})"
    each = f", {len(replicas)} replicas each" if len(replicas) > 1 else ""
    ranks = f"{counted(place.world_size, 'rank')} on {counted(hosts, 'host')}"
    return f"{ranks} ({kind}, {place.backend}{each})"


def spread(args: Namespace, place: Rank, replicas: tuple[Replica, ...]) -> str:
    """Return how many shots each part of the machine has."""
    parts = place.world_size * len(replicas)
    least, more = divmod(args.shots, parts)
    return f"{least}{f' or {least + 1}' if more else ''} shots each"


@record  # keeps the traceback of a rank that fails for the report of torchrun or hpckit
def main() -> None:
    """Read the arguments, invert, and take leave of the other ranks."""
    args, problem = make_parser().parse_args(), None
    try:
        run(args, find_rank())
    except SetupError as error:
        rank = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        problem = f"train.py: error: {rank}{error}"
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(problem)


if __name__ == "__main__":
    main()
