"""How fast the training workloads are beside what one would write without them.

    python benchmarks/training.py [--seconds 8]

All in one run, on two processes or replicas:
- a step of the ddp workload beside a bare loop of torch's DDP with the same network and batches;
- from submission to the first step, `hpckit submit ddp` beside sbatch and srun by hand (where a
  Slurm answers: eval "$(make -s slurm-up)"), and on this machine beside torchrun;
- data parallelism from scratch beside the network alone, the ring beside the naive all-reduce.
It asserts nothing. MirroredStrategy, beside TensorFlow's, has a benchmark of its own: mirrored.py.
"""

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch.nn.functional import cross_entropy

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.steps import per_step, plain_step  # noqa: E402
from hpckit.parallel.devices import find_replicas  # noqa: E402
from hpckit.parallel.models import make_model  # noqa: E402
from hpckit.parallel.scratch import (  # noqa: E402
    allreduce,
    copy_params,
    ring_allreduce,
    train_batch,
)

Start = Callable[[Path], None]
TRAIN = ROOT / "workloads" / "ddp" / "train.py"
BARE = Path(__file__).with_name("bare.py")
BATCH = 64


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ranks(argv: list[str], count: int = 2) -> str:
    """Run a program once per rank; return what all of them print."""
    meeting = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
               "HPCKIT_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}  # fmt: skip
    running = [
        subprocess.Popen(
            argv,
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    said = "".join(process.communicate()[0] for process in running)
    assert all(process.returncode == 0 for process in running), said
    return said


def ddp_step(root: Path, epochs: int) -> tuple[list[float], list[float]]:
    """Return seconds per step of the workload and of the bare loop, some runs of each in turn."""
    ours, bare = [], []
    for number in range(5):
        out = root / f"ddp-{number}"
        words = ["--data", "mnist-5k", "--epochs", str(epochs), "--checkpoint-every", "0"]
        ranks([sys.executable, str(TRAIN), *words, "--out", str(out)])
        last = (out / "metrics.jsonl").read_text().splitlines()[-1]
        ours.append(json.loads(last)["s_per_step"])
        bare.append(float(ranks([sys.executable, str(BARE), str(epochs)])))
    return ours, bare


def until_first_step(starts: dict[str, Start], root: Path, rounds: int) -> dict[str, list[float]]:
    """Return seconds from each command to the first line of metrics; the commands take turns."""
    found: dict[str, list[float]] = {name: [] for name in starts}
    for number in range(rounds):
        for at, (name, start) in enumerate(starts.items()):
            folder = root / f"first-{rounds}-{number}-{at}"
            folder.mkdir()
            began = time.perf_counter()
            start(folder)
            # By hand the file is in the folder, else in the run's, which is in it.
            while not any(
                path.stat().st_size
                for path in [*folder.glob("metrics.jsonl"), *folder.glob("*/metrics.jsonl")]
            ):
                time.sleep(0.02)
            found[name].append(time.perf_counter() - began)
            while "held-out accuracy" not in "".join(
                path.read_text() for path in folder.rglob("*.out")
            ):
                time.sleep(0.1)
            time.sleep(1)  # what ends now must not slow the next start
    return found


def first_steps(root: Path) -> dict[str, list[float]]:
    """Return seconds from submission to the first step, by hpckit and by hand."""
    words = ["--data", "digits", "--epochs", "1", "--log-every", "1"]
    sets = [part for word in ("data=digits", "epochs=1", "log-every=1") for part in ("--set", word)]
    hpckit = [str(Path(sys.executable).with_name("hpckit")), "submit", "ddp", *sets]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HPCKIT_DEVICE": "cpu"}

    def local(folder: Path) -> None:
        argv = [*hpckit, "--gpus", "2", "--executor", "local", "--runs", str(folder)]
        subprocess.run(argv, env=env, check=True, **quiet)

    def torchrun(folder: Path) -> None:
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node=2", str(TRAIN), *words, "--out", str(folder)]  # fmt: skip
        with (folder / "log.out").open("w") as log:
            subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.DEVNULL)

    def slurm(folder: Path) -> None:
        argv = [*hpckit, "--nodes", "2", "--gpus", "1", "--runs", str(folder)]
        subprocess.run(argv, env=env, check=True, **quiet)

    def by_hand(folder: Path) -> None:
        script = f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --output={folder}/log.out
export MASTER_ADDR=$(hostname) MASTER_PORT=$((15000 + SLURM_JOB_ID % 10000))
srun {sys.executable} {TRAIN} {" ".join(words)} --out {folder}
"""
        subprocess.run(["sbatch"], input=script, text=True, env=env, check=True, **quiet)

    here = {"hpckit submit, this machine": local, "torchrun, this machine": torchrun}
    found = until_first_step(here, root, 5)
    answers = (
        shutil.which("sinfo") and not subprocess.run(["sinfo"], check=False, **quiet).returncode
    )
    if answers:
        there = {"hpckit submit, Slurm": slurm, "sbatch and srun by hand": by_hand}
        # Slurm looks for new jobs once a second, so a start differs by as much.
        found |= until_first_step(there, root, 15)
    else:
        print("No Slurm answers: submission to it is left out.", file=sys.stderr)
    return found


def one_process(seconds: float) -> dict[str, float]:
    """Return seconds per step of a batch, on one device and on logical replicas."""
    inputs, labels = torch.rand(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))
    alone = make_model("cnn")
    plain = plain_step(alone, torch.optim.SGD(alone.parameters(), lr=0.01), inputs, labels)
    found = {"the network alone": per_step(plain, seconds)}
    first = list(make_model("cnn").parameters())
    names = [name for name, _ in alone.named_parameters()]

    def call(some: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
        named = dict(zip(names, parameters, strict=True))
        scores: torch.Tensor = torch.func.functional_call(alone, named, (some,))
        return scores

    for name, reduce in (("naive", allreduce), ("ring", ring_allreduce)):
        for count in (2, 4):
            lists = [copy_params(first, row.device) for row in find_replicas(f"cpu:{count}")]

            def scratch(lists=lists, reduce=reduce) -> None:  # noqa: ANN001
                train_batch(
                    inputs, labels, lists, call,
                    lambda scores, wanted: cross_entropy(scores, wanted, reduction="none"),
                    0.01, reduce=reduce,
                )  # fmt: skip

            found[f"from scratch, {count} replicas, {name}"] = per_step(scratch, seconds / 2)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8, help="per measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        ours, bare = ddp_step(Path(name), epochs=max(2, round(options.seconds / 2)))
        starts = first_steps(Path(name))
    print(f"{'ms per step of 64 images':<36}{'median':>9}{'min':>9}{'max':>9}")
    for label, runs in (("ddp workload, 2 ranks", ours), ("bare torch DDP, 2 ranks", bare)):
        figures = (median(runs), min(runs), max(runs))
        print(f"{label:<36}" + "".join(f"{figure * 1000:>9.2f}" for figure in figures))
    print(f"samples/s, workload / bare: {median(bare) / median(ours):.3f}  (goal 0.98)")
    print(f"\n{'s to the first step':<36}{'median':>9}{'min':>9}{'max':>9}")
    for label, runs in starts.items():
        figures = (median(runs), min(runs), max(runs))
        print(f"{label:<36}" + "".join(f"{figure:>9.2f}" for figure in figures))
    print(f"\n{'ms per step of 64 images':<36}{'':>9}{'x alone':>9}")
    steps = one_process(options.seconds)
    for label, seconds in steps.items():
        ratio = seconds / steps["the network alone"]
        print(f"{label:<36}{seconds * 1000:>9.2f}{ratio:>9.2f}")
    print(
        f"python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} CPUs, "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
