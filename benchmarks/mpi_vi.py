"""How fast the mpi_vi workload is beside blackbirds 1.3 on its own example.

    make .venv-blackbirds/.done .venv-mpich/.done
    python benchmarks/mpi_vi.py [--quick] [--processor-time]

Both in turn, in one run, under the same MPICH, a thread per rank: an epidemic of 1000 agents with 5
samples per epoch, and of 5000 with 20, on 1 and 2 ranks. Prints seconds per epoch (median without
the first), memory of the largest rank, and ratios. With `--processor-time`, on one rank only, the
seconds are those of its processor, for a machine that does other work too. It asserts nothing.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKLOAD = ROOT / "workloads" / "mpi_vi" / "train.py"
PEER = ROOT / "benchmarks" / "peers" / "blackbirds_vi.py"
# Agents, samples per epoch, epochs of blackbirds, epochs of ours.
SETTINGS = ((1000, 5, 12, 40), (5000, 20, 5, 12))
# Runs the workload, then says how much memory the rank had at most.
WITH_MEMORY = """
import os, resource, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
if os.environ.get("PROCESSOR_TIME"):
    import time
    time.perf_counter = time.process_time
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    sys.stderr.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}\\n")
"""


def run(venv: Path, ranks: int, *words: object) -> subprocess.CompletedProcess[str]:
    """Run Python of an environment under its own mpirun, a thread per rank."""
    mpirun = venv / "bin" / "mpirun"
    if not mpirun.exists():
        sys.exit(f"{mpirun} is not there: make .venv-blackbirds/.done .venv-mpich/.done")
    argv = [str(mpirun), "-n", str(ranks), str(venv / "bin" / "python")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HPCKIT_DEVICE": "cpu"}
    done = subprocess.run(
        [*argv, *map(str, words)], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}")
    return done


def blackbirds(
    venv: Path, ranks: int, agents: int, samples: int, epochs: int
) -> tuple[float, float]:
    """Return seconds per epoch and MiB of the largest rank."""
    words = (PEER, "--agents", agents, "--samples", samples, "--epochs", epochs)
    done = run(venv, ranks, "-c", WITH_MEMORY, *words)
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return median(record["seconds_per_epoch"][1:]), max(record["peak_memory_mb"])


def ours(venv: Path, ranks: int, agents: int, samples: int, epochs: int) -> tuple[float, float]:
    """Return seconds per epoch and MiB of the largest rank."""
    with tempfile.TemporaryDirectory() as out:
        words = ("--n_agents", agents, "--n_samples_per_epoch", samples, "--n_epochs", epochs)
        rest = ("--no-figures", "--posterior-samples", 100, "--out", out)
        done = run(venv, ranks, "-c", WITH_MEMORY, WORKLOAD, *words, *rest)
        rows = map(json.loads, (Path(out) / "metrics.jsonl").read_text().splitlines())
        seconds = [row["s_per_step"] for row in rows]
    return median(seconds[1:]), max(map(float, done.stderr.split()))


def main() -> None:
    """Run both in turn and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blackbirds", type=Path, default=ROOT / ".venv-blackbirds")
    parser.add_argument("--mpich", type=Path, default=ROOT / ".venv-mpich")
    parser.add_argument("--quick", action="store_true", help="the smaller setting only")
    parser.add_argument("--processor-time", action="store_true", help="of one rank")
    args = parser.parse_args()
    if args.processor_time:
        os.environ["PROCESSOR_TIME"] = "1"
    print(f"load {os.getloadavg()[0]:.1f}, ", end="")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores", flush=True)
    print("agents samples ranks  blackbirds           ours                 faster  memory")
    for agents, samples, peer_epochs, epochs in SETTINGS[: 1 if args.quick else None]:
        alone: dict[str, float] = {}
        for ranks in (1,) if args.processor_time else (1, 2):
            theirs, their_mb = blackbirds(args.blackbirds, ranks, agents, samples, peer_epochs)
            mine, my_mb = ours(args.mpich, ranks, agents, samples, epochs)
            print(
                f"{agents:6} {samples:7} {ranks:5}  {theirs:6.3f} s {their_mb:5.0f} MiB  "
                f"{mine:6.3f} s {my_mb:5.0f} MiB  {theirs / mine:5.1f} x  {my_mb / their_mb:.2f} x",
                flush=True,
            )
            if ranks == 1:
                alone = {"blackbirds": theirs, "ours": mine}
            else:
                print(
                    f"       from 1 to 2 ranks: blackbirds {alone['blackbirds'] / theirs:.2f} x, "
                    f"ours {alone['ours'] / mine:.2f} x",
                    flush=True,
                )


if __name__ == "__main__":
    main()
