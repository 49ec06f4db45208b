"""How long the command line takes, beside `python -c pass`, plain sbatch and TorchX.

python benchmarks/cli.py [--repeat N] [--json]

One run measures everything: after a round that does not count, each round starts every command
once, so that noise of the machine hits all alike. Beside the time on the wall stands processor
time (user and system, of children too), which other work changes less. It asserts nothing. It
needs a Slurm to submit to (SLURM_CONF: `eval "$(make -s slurm-up)"`), but no job runs there: where
it may, it reserves all nodes, and it cancels each job as soon as it is submitted.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TORCHX_VERSION = "0.7.0"
RESERVATION = "hpckit-benchmark"
ARRAY_SIZE = 1000
# What travels with a job: hpckit's own runs and cache lie beside it, as a user's do.
_PROJECT = "project"
# Slurm remembers cancelled tasks for MinJobAge, and takes MaxJobCount (10,000 by default) at most.
ARRAY_ROUNDS = 3
_JOB_ID = re.compile(rb"^(?:Submitted |Submitted batch job |slurm://torchx/)?(\d+)\b", re.MULTILINE)
_NOOP_SH = "#!/bin/bash\n#SBATCH --output=/dev/null\ntrue\n"
# What the disk takes for an array: a folder of each task, with its script, log and record.
_FOLDERS = f"""
import os
for task in range({ARRAY_SIZE}):
    folder = f"../runs/{{task}}"
    os.makedirs(folder)
    for name in ("job.sh", "job.out", "run.json"):
        with open(f"{{folder}}/{{name}}", "w") as stream:
            stream.write("x" * 2000)
"""


@dataclass(frozen=True)
class Took:
    """Seconds that a command took on the wall, and of processors."""

    wall: float
    cpu: float


Times = dict[str, list[Took]]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One row of the table; `submits` when its output names a job to cancel."""

    name: str
    argv: Sequence[str]
    submits: bool = False
    needs_slurm: bool = True
    most_rounds: int = sys.maxsize


@dataclass(frozen=True, kw_only=True)
class Goal:
    """`name` shall take at most `factor` times as long as `than`, plus `extra_s`."""

    name: str
    factor: float
    than: str
    extra_s: float = 0.0


GOALS = (
    Goal(name="hpckit --help", factor=4, than="python -c pass"),
    Goal(name="hpckit dry run 2x4", factor=0.45, than="torchx dryrun 2x4"),
    Goal(name="hpckit submit 2x4", factor=0.5, than="torchx run 2x4"),
    Goal(name="hpckit submit serial", factor=0.5, than="torchx run 2x4"),
    Goal(name="hpckit array 1000", factor=2, than="sbatch array 1000", extra_s=1.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=9, metavar="N", help="rounds (default: 9)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    options = parser.parse_args()
    slurm = slurm_version()
    if slurm is None:
        say("No sbatch here that knows a cluster: what submits is left out. SLURM_CONF names one:")
        say('  eval "$(make -s slurm-up)"')
    torchx = make_torchx()
    with tempfile.TemporaryDirectory(prefix="hpckit-bench-") as name, reserved(slurm) as held:
        folder = Path(name)
        (folder / _PROJECT).mkdir()
        commands = [row for row in all_commands(folder, torchx) if slurm or not row.needs_slurm]
        load = os.getloadavg()[0]
        times = measure(commands, folder, max(options.repeat, 1))
    report = make_report(times, slurm, held, load)
    print(json.dumps(report, indent=2) if options.json else as_text(report))


def all_commands(folder: Path, torchx: Path | None) -> list[Command]:
    """Write what the commands need into the folder; return them in the order of the table."""
    (folder / _PROJECT / "noop.py").write_text("")
    (folder / _PROJECT / "noop.sh").write_text(_NOOP_SH)
    script = Path(sys.executable).with_name("hpckit")
    hpckit = [str(script)] if script.exists() else [sys.executable, "-m", "hpckit"]
    submit = [*hpckit, "submit"]
    shape = ["--nodes", "2", "--gpus", "4"]
    slurm = ["--executor", "slurm"]
    values = ",".join(map(str, range(ARRAY_SIZE)))
    rows = [
        Command(name="python -c pass", argv=[sys.executable, "-c", "pass"], needs_slurm=False),
        Command(name="hpckit --help", argv=[*hpckit, "--help"], needs_slurm=False),
        Command(name="hpckit jobs", argv=[*hpckit, "jobs"], needs_slurm=False),
        Command(
            name="hpckit dry run 2x4",
            argv=[*submit, "ddp", *shape, "--dry-run"],
            needs_slurm=False,
        ),
        Command(
            name="hpckit submit serial", argv=[*submit, "serial", "noop.py", *slurm], submits=True
        ),
        Command(
            name="hpckit submit 2x4",
            argv=[*submit, "ddp", "noop.py", *shape, *slurm],
            submits=True,
        ),
        Command(name="sbatch", argv=["sbatch", "noop.sh"], submits=True),
    ]
    if torchx:
        job = ["dist.ddp", "-j", "2x4", "--script", "noop.py"]
        run = [str(torchx), "run", "-s", "slurm"]
        rows += [
            Command(name="torchx dryrun 2x4", argv=[*run, "--dryrun", *job], needs_slurm=False),
            Command(name="torchx run 2x4", argv=[*run, *job], submits=True),
        ]
    return [
        *rows,
        Command(
            name="1000 folders of 3 files",
            argv=[sys.executable, "-c", _FOLDERS],
            needs_slurm=False,
            most_rounds=ARRAY_ROUNDS,
        ),
        Command(
            name="sbatch array 1000",
            argv=["sbatch", f"--array=0-{ARRAY_SIZE - 1}", "noop.sh"],
            submits=True,
            most_rounds=ARRAY_ROUNDS,
        ),
        Command(
            name="hpckit array 1000",
            argv=[*submit, "serial", "noop.py", "--array", f"x={values}", *slurm],
            submits=True,
            most_rounds=ARRAY_ROUNDS,
        ),
    ]


def measure(commands: list[Command], folder: Path, repeat: int) -> Times:
    """Time every command `repeat` times, round after round; return what they took by name."""
    environ = clean_environment(folder)
    times: Times = {row.name: [] for row in commands}
    for turn in range(repeat + 1):
        for row in commands:
            if turn > row.most_rounds:
                continue
            took, output = timed(row, folder, environ)
            if row.submits:
                cancel(output, environ)
            for left in ("runs", "state"):
                shutil.rmtree(folder / left, ignore_errors=True)
            if turn:  # the first round only warms the caches
                times[row.name].append(took)
        say(f"round {turn} of {repeat}" + ("" if turn else " (does not count)"))
    return times


def timed(row: Command, folder: Path, environ: dict[str, str]) -> tuple[Took, bytes]:
    before, begin = children_s(), time.perf_counter()
    done = subprocess.run(
        row.argv,
        cwd=folder / _PROJECT,
        env=environ,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    took = Took(time.perf_counter() - begin, children_s() - before)
    if done.returncode:
        sys.exit(f"{' '.join(row.argv)[:200]}: status {done.returncode}\n{done.stderr.decode()}")
    return took, done.stdout


def children_s() -> float:
    """Return the processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def walls(times: Times, name: str) -> list[float]:
    return [took.wall for took in times[name]]


def cpu_s(times: Times, name: str) -> float:
    return median(took.cpu for took in times[name])


def cancel(output: bytes, environ: dict[str, str]) -> None:
    found = _JOB_ID.search(output)
    if found is None:
        sys.exit(f"No job id in {output.decode()!r}: a job may be left, see squeue.")
    subprocess.run(["scancel", found[1].decode()], env=environ, capture_output=True, check=False)


def clean_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a shell at login, with runs and index in the folder."""
    prefixes = ("HPCKIT_", "SBATCH_", "SLURM_JOB", "TORCHX", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {
        **kept,
        "HPCKIT_RUNS": str(folder / "runs"),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def slurm_version() -> str | None:
    if shutil.which("sbatch") is None:
        return None
    asked = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else None


@contextmanager
def reserved(slurm: str | None) -> Iterator[bool]:
    """Keep the nodes from starting what is submitted; yield whether Slurm agreed."""
    if slurm is None:
        yield False
        return
    words = f"reservationname={RESERVATION} starttime=now duration=60 users=root nodes=ALL"
    asked = ["scontrol", "create", *words.split(), "flags=maint,ignore_jobs"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"The nodes stay open, jobs may start before they are cancelled: {done.stderr.strip()}")
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["scontrol", "delete", f"reservationname={RESERVATION}"], check=False)


def make_torchx() -> Path | None:
    """Return TorchX's program in a virtual environment of its own, made here if need be."""
    venv = ROOT / ".venv-torchx"
    program = venv / "bin" / "torchx"
    if not program.exists():
        say(f"Installing TorchX {TORCHX_VERSION} into {venv}")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [venv / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints-ci.txt"]
        done = subprocess.run([*pip, f"torchx=={TORCHX_VERSION}"], stdout=sys.stderr, check=False)
        if done.returncode:
            say("TorchX could not be installed: its rows are left out.")
            return None
    return program


def make_report(times: Times, slurm: str | None, held: bool, load: float) -> dict[str, object]:
    base = median(walls(times, "python -c pass"))
    rows = {
        name: {
            "median_s": median(walls(times, name)),
            "min_s": min(walls(times, name)),
            "max_s": max(walls(times, name)),
            "cpu_median_s": cpu_s(times, name),
            "times_python": median(walls(times, name)) / base,
            "rounds": len(times[name]),
        }
        for name in times
    }
    known = [goal for goal in GOALS if goal.name in times and goal.than in times]
    return {
        "commands": rows,
        "goals": [judge(goal, times) for goal in known],
        "versions": {
            "hpckit": version("hpckit-slurm"),
            "python": platform.python_version(),
            "torchx": TORCHX_VERSION,
            "slurm": slurm,
        },
        "cpus": os.cpu_count(),
        "load_before": load,
        "nodes_reserved": held,
    }


def judge(goal: Goal, times: Times) -> dict[str, object]:
    mine, other = median(walls(times, goal.name)), median(walls(times, goal.than))
    limit = goal.factor * other + goal.extra_s
    plus = f" + {goal.extra_s:g} s" if goal.extra_s else ""
    return {
        "goal": f"{goal.name} <= {goal.factor:g} x {goal.than}{plus}",
        "ratio": mine / other,
        "cpu_ratio": cpu_s(times, goal.name) / cpu_s(times, goal.than),
        "seconds": mine,
        "limit_s": limit,
        "met": mine <= limit,
    }


def as_text(report: dict) -> str:  # type: ignore[type-arg]
    head = f"{'command':<22}{'median ms':>11}{'min':>8}{'max':>8}"
    lines = [f"{head}{'cpu ms':>8}{'x python':>10}{'rounds':>8}"]
    for name, row in report["commands"].items():
        figures = [row[key] * 1000 for key in ("median_s", "min_s", "max_s", "cpu_median_s")]
        middle, least, most, cpu = (f"{figure:.0f}" for figure in figures)
        lines.append(
            f"{name:<22}{middle:>11}{least:>8}{most:>8}{cpu:>8}{row['times_python']:>10.1f}{row['rounds']:>8}"
        )
    lines += ["", f"{'goal':<56}{'ratio':>8}{'of cpu':>8}{'ms':>7}{'limit':>7}"]
    for row in report["goals"]:
        mine, limit = f"{row['seconds'] * 1000:.0f}", f"{row['limit_s'] * 1000:.0f}"
        end = "met" if row["met"] else "MISSED"
        ratios = f"{row['ratio']:>8.2f}{row['cpu_ratio']:>8.2f}"
        lines.append(f"{row['goal']:<56}{ratios}{mine:>7}{limit:>7}  {end}")
    versions = ", ".join(f"{name} {what}" for name, what in report["versions"].items() if what)
    lines += ["", f"{versions}; {report['cpus']} CPUs, "
              f"load {report['load_before']:.1f} before"]  # fmt: skip
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
