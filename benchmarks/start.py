"""Where the time goes from a submission to the first step of training, beside a script by hand.

    python benchmarks/start.py [--pairs 15] [--no-sampler]

It needs a Slurm whose nodes are on this machine: eval "$(make -s slurm-up)". `hpckit submit ddp` on
two nodes and sbatch with srun by hand start the same training in turns. A thread looks at /proc
every 20 ms for the processes of both; when each began is the kernel's own word, in hundredths of a
second. Slurm looks for new jobs once a second, so the time in which a job waits for it is chance:
it is shown, and left out of the second sum. It asserts nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TRAIN = ROOT / "workloads" / "ddp" / "train.py"
TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.02
# What a process is told by, in the order in which they begin.
MARKS = {
    "job script": (b"/slurm_script",),
    "srun": (b"srun\0",),
    "supervisor": (b"hpckit.submission.in_job",),
    "rank": (b"ddp/train.py",),
}
CHANCE = "sbatch to job script (chance)"
# From which mark to which; "" is the command's start, `task` what srun starts.
PARTS = {
    "command to sbatch": ("", "sbatch"),
    CHANCE: ("sbatch", "job script"),
    "job script to srun": ("job script", "srun"),
    "srun to its tasks": ("srun", "task"),
    "supervisor to rank": ("task", "rank"),
    "rank to first step": ("rank", "first step"),
}
SETS = ("data=digits", "epochs=1", "log-every=1")


def now() -> float:
    """Return seconds since the boot, by which the kernel says when a process began."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Watch:
    """Notes when the first process of each kind began."""

    def __init__(self, mine: bytes) -> None:
        """Begin; `mine`: what the environment of these processes holds, and no other's."""
        self.began: dict[str, float] = {}
        self._mine = mine
        self._over = threading.Event()
        self._known = set(Path("/proc").iterdir())
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            for process in set(Path("/proc").iterdir()) - self._known:
                if process.name.isdecimal():
                    self._note(process)

    def _note(self, process: Path) -> None:
        try:
            argv = (process / "cmdline").read_bytes()
            if self._mine not in (process / "environ").read_bytes():
                return
            stat = (process / "stat").read_text()
        except (OSError, UnicodeDecodeError):
            return
        at = int(stat.rpartition(")")[2].split()[19]) / TICKS
        for mark, words in MARKS.items():
            # The supervisors are started by srun, and their argv is in srun's.
            if any(word in argv for word in words):
                self.began[mark] = min(at, self.began.get(mark, at))
                return


def timed_sbatch(folder: Path) -> str:
    """Return a PATH on which sbatch says when it begins: it is gone before anybody looks."""
    program = folder / "sbatch"
    real = shutil.which("sbatch") or sys.exit("No sbatch: this needs a Slurm.")
    program.write_text(
        f'#!/bin/bash\necho "$EPOCHREALTIME" >"$BENCHMARK_START/sbatch"\nexec {real} "$@"\n'
    )
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def submit(folder: Path, env: dict[str, str], more: tuple[str, ...]) -> None:
    """Start the training with hpckit."""
    sets = [word for row in SETS for word in ("--set", row)]
    hpckit = [str(Path(sys.executable).with_name("hpckit")), "submit", "ddp", *sets]
    shape = ["--nodes", "2", "--gpus", "1", "--executor", "slurm", "--runs", str(folder)]
    subprocess.run([*hpckit, *shape, *more], env=env, check=True, stdout=subprocess.DEVNULL)


def by_hand(folder: Path, env: dict[str, str]) -> None:
    """Start it with a script."""
    words = " ".join(f"--{row.replace('=', ' ')}" for row in SETS)
    script = folder / "job.sh"
    script.write_text(f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --output={folder}/log.out
export MASTER_ADDR=$(hostname) MASTER_PORT=$((15000 + SLURM_JOB_ID % 10000))
srun {sys.executable} {TRAIN} {words} --out {folder}
""")
    subprocess.run(["sbatch", str(script)], env=env, check=True, stdout=subprocess.DEVNULL)


def one(start, folder: Path, env: dict[str, str]) -> dict[str, float]:  # noqa: ANN001
    """Return the seconds from the command to each mark and to the first step."""
    folder.mkdir()
    mine = {"BENCHMARK_START": str(folder)}
    watch, began = Watch(f"BENCHMARK_START={folder}\0".encode()), now()
    try:
        start(folder, env | mine)
        while not any(
            path.stat().st_size
            for path in [*folder.glob("metrics.jsonl"), *folder.glob("*/metrics.jsonl")]
        ):
            time.sleep(LOOK_S / 2)
        first = now()
    finally:
        watch.end()
    while "held-out accuracy" not in "".join(path.read_text() for path in folder.rglob("*.out")):
        time.sleep(0.1)
    time.sleep(1)  # what ends now must not slow the next start
    sbatch = float((folder / "sbatch").read_text()) - time.time() + now()
    moments = {**watch.began, "sbatch": sbatch, "first step": first}
    return {mark: at - began for mark, at in moments.items()}


def span(marks: dict[str, float], since: str, until: str) -> float:
    """Return the seconds between two marks; `task` is what srun starts, "" the command."""
    task = marks.get("supervisor", marks["rank"])
    moments = {**marks, "task": task, "": 0.0}
    return moments[until] - moments[since]


def whole(marks: dict[str, float]) -> float:
    """Return the seconds to the first step."""
    return marks["first step"]


def without_chance(marks: dict[str, float]) -> float:
    """Return them but for those in which Slurm had not begun the job."""
    return whole(marks) - span(marks, *PARTS[CHANCE])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--no-sampler", action="store_true", help="how much of it is the sampler's")
    options = parser.parse_args()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HPCKIT_DEVICE": "cpu", "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it nothing is kept from start to start
    found: dict[str, list[dict[str, float]]] = {"hpckit submit": [], "by hand": []}
    more = ("--sample-interval", "0") if options.no_sampler else ()
    starts = dict(zip(found, (partial(submit, more=more), by_hand), strict=True))
    with tempfile.TemporaryDirectory() as root:
        env["PATH"] = timed_sbatch(Path(root))
        for number in range(options.pairs + 1):
            for at, (name, start) in enumerate(starts.items()):
                marks = one(start, Path(root, f"{number}-{at}"), env)
                if number:  # the first round warms the caches
                    found[name].append(marks)
    ours, theirs = found.values()
    print(f"{'medians, ms':<34}{'hpckit submit':>14}{'by hand':>10}")
    for label, (since, until) in PARTS.items():
        both = [median(span(row, since, until) for row in rows) for rows in (ours, theirs)]
        print(f"{label:<34}{both[0] * 1000:>14.0f}{both[1] * 1000:>10.0f}")
    for label, take in (("first step", whole), ("without what is chance", without_chance)):
        pairs = [take(a) - take(b) for a, b in zip(ours, theirs, strict=True)]
        medians = median(map(take, ours)), median(map(take, theirs))
        print(f"{label}: hpckit {medians[0]:.2f} s, by hand {medians[1]:.2f} s")
        between = f"{min(pairs):+.2f} to {max(pairs):+.2f}"
        print(f"  median of {len(pairs)} pairs {median(pairs):+.2f} s ({between})")
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
