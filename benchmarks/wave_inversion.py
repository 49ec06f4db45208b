"""Seconds per gradient of wave_inversion, beside deepwave alone on one thread.

    python benchmarks/wave_inversion.py [--shots 16] [--shape 300,120] [--repeat 3]

All in one run, in turn, so that what else the machine does is the same for all:
- deepwave alone: one process, one thread, all shots at once, written as its own examples are;
- the workload on 1 rank, on 2 ranks (DDP over gloo), and on 2 logical replicas in one process,
  one thread each.
What is timed is one gradient: forward, filter, misfit, backward, and the sum over ranks. It prints
the median and the best, which other work on the machine disturbs least, and how often the gradient
of deepwave alone fits into them. It asserts nothing but that all gradients are the same.
"""

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TRAIN = ROOT / "workloads" / "wave_inversion" / "train.py"
ALONE = """
import sys, time, numpy as np, torch, deepwave
sys.path.insert(0, sys.argv[1])
from fwi.filters import end_taper
from fwi.velocity import layered, smoothed
shots, receivers, nt, nx, nz, out = *map(int, sys.argv[2:7]), sys.argv[7]
torch.set_num_threads(1)
truth = layered((nx, nz), 0)
at = torch.linspace(0, nx - 1, receivers, dtype=torch.float64).round().long()
line = lambda x: torch.stack([x, torch.full_like(x, 2)], -1)
sources = line(torch.from_numpy(np.linspace(5, nx - 6, shots).round()).long())[:, None]
receivers = line(torch.from_numpy(np.linspace(0, nx - 1, receivers).round()).long()).repeat(shots, 1, 1)
wavelet = deepwave.wavelets.ricker(25, nt, .004, 1.5 / 25).repeat(shots, 1, 1)
def traces(v):
    return deepwave.scalar(v, 4., .004, source_amplitudes=wavelet, source_locations=sources,
        receiver_locations=receivers, max_vel=2500., pml_freq=25., time_pad_frac=.2
    ).receiver_amplitudes
taper = end_taper(nt, 50, torch.device("cpu"))
with torch.no_grad():
    observed = traces(torch.from_numpy(truth).float())
energy = (observed * taper).square().sum()
start = torch.from_numpy(smoothed(truth, 10)).float().requires_grad_()
began = time.perf_counter()
loss = ((traces(start) - observed) * taper).square().sum() / energy
loss.backward()
print(time.perf_counter() - began)
np.save(out, start.grad.numpy())
"""  # noqa: E501


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(argvs: list[list[str]], **more: str) -> str:
    """Run programs at once, one thread each; return what the first prints."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HPCKIT_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
    if len(argvs) > 1:
        env |= meeting | {"WORLD_SIZE": str(len(argvs))}
    running = [
        subprocess.Popen(
            argv,
            env=env | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if len(argvs) > 1 else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, argv in enumerate(argvs)
    ]
    said = [process.communicate()[0] for process in running]
    assert all(process.returncode == 0 for process in running), said
    return said[0]


def gradient(words: list[str], out: Path, ranks: int = 1) -> float:
    """Return seconds of one gradient of the workload."""
    run([[sys.executable, str(TRAIN), *words, "--gradient", "--out", str(out)]] * ranks)
    return float(json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["s_per_step"])


def main() -> None:
    """Measure all ways in turn, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shots", type=int, default=16)
    parser.add_argument("--receivers", type=int, default=100)
    parser.add_argument("--nt", type=int, default=300)
    parser.add_argument("--shape", default="300,120")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    words = ["--shots", str(args.shots), "--receivers", str(args.receivers), "--nt", str(args.nt)]
    words += ["--shape", args.shape]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        plain = [sys.executable, "-c", ALONE, str(TRAIN.parent), *words[1:6:2]]
        plain += [*args.shape.split(","), str(root / "alone.npy")]
        for number in range(args.repeat):
            took = {
                "deepwave alone, 1 thread": float(run([plain])),
                "1 rank": gradient(words, root / f"1-{number}"),
                "2 ranks": gradient(words, root / f"2-{number}", ranks=2),
                "2 logical replicas": gradient(
                    [*words, "--devices", "cpu:2"], root / f"r-{number}"
                ),
            }
            for name, seconds in took.items():
                found.setdefault(name, []).append(seconds)
        expected = np.load(root / "alone.npy")
        for name in ("1", "2", "r"):
            other = np.load(root / f"{name}-0" / "gradient.npy")
            difference = np.linalg.norm(other - expected) / np.linalg.norm(expected)
            assert difference < 1e-5, f"{name}: gradients differ by {difference:.1e}"
    print(
        f"{args.shots} shots, {args.receivers} receivers, {args.nt} samples, {args.shape} cells; "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"median of {args.repeat}"
    )
    alone = found["deepwave alone, 1 thread"]
    for name, seconds in found.items():
        usual, best = median(alone) / median(seconds), min(alone) / min(seconds)
        print(
            f"{name:26} {median(seconds):7.2f} s per gradient, {usual:.2f} x"
            f"   (best {min(seconds):.2f} s, {best:.2f} x)"
        )


if __name__ == "__main__":
    main()
