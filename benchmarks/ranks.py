"""What hpckit itself asks of a shared file system when a job has many ranks.

    python benchmarks/ranks.py [--ranks 8,64,512] [--case ends,fails,preempted] [--json]

Needs strace (Debian's package). A job of N ranks, 8 a node, is submitted to a stand-in for Slurm;
then its script runs, and a stand-in for srun starts N real supervisors, some at a time, each under
strace, with the variables that srun sets. strace counts the system calls that name a file (and the
reads of folders) of supervisors, samplers and what they start, by where the file is: in the run's
folder, in hpckit's installation with the packages it uses, or in Python's own. All ranks are alive
at once before the first one may end.

What it cannot show: what such a call costs on NFS or Lustre, whose clients keep answers for the
ranks of a node; srun's own work; 64 real nodes. It asserts nothing.
"""

import argparse
import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 8  # ranks of a node
# A machine of two cores must bear it: so many ranks start at once, and so long after one is told to
# end, the next one is.
_WAVE, _PAUSE_S = 12, 0.02
CASES = {
    "ends": "all ranks end well",
    "fails": "rank 0 fails, srun ends the others",
    "preempted": "SIGTERM to all ranks of a job that may be requeued; Slurm says that it ends",
}
# Reads, writes and what asks the kernel alone cost a file server no call on its metadata.
CALLS = (
    "open,openat,creat,stat,lstat,newfstatat,statx,access,faccessat,faccessat2,readlink,readlinkat,"
    "mkdir,mkdirat,rmdir,rename,renameat,renameat2,unlink,unlinkat,link,linkat,symlink,symlinkat,"
    "truncate,ftruncate,chmod,fchmod,fchmodat,getdents64,fsync,fdatasync,flock,execve,utimensat"
)
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)")
_MAIN = re.compile(r'"[^"]*python[^"]*", \[.*"-m", "(hpckit\.[\w.]+)"')

SRUN = """#!{python}
import os, sys
sys.path[:0] = ["{benchmarks}"]
import ranks
ranks.as_srun(sys.argv[1:])
"""
SBATCH = """#!/bin/sh
[ "$1" = --version ] && {{ echo "slurm-wlm 23.11.4"; exit 0; }}
echo 1001
"""
# A rank's program: not Python, so that what is counted is hpckit's.
PROGRAM = """#!/bin/sh
trap 'exit 143' TERM
: > "$RANKS_HERE/alive/$RANK"
read -r _ < "$RANKS_HERE/go"  # a line for each; and no process that looks again and again
[ "$RANKS_CASE" = ends ] && exit 0
[ "$RANKS_CASE $RANK" = "fails 0" ] && exit 3
sleep 600 & wait
"""


@dataclass
class Counts:
    """Calls by where the file is, and by which program; `calls` are those in the run's folder."""

    where: collections.Counter[str] = field(default_factory=collections.Counter)
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    programs: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    processes: collections.Counter[str] = field(default_factory=collections.Counter)


def as_srun(argv: list[str]) -> None:
    """Stand in for srun: start all tasks, end all when one fails, return the highest status."""
    number = int(next(word for word in argv if word.startswith("--ntasks=")).partition("=")[2])
    start = next(at for at, word in enumerate(argv) if not word.startswith("-") and at)
    here = Path(os.environ["RANKS_HERE"])
    children = []
    for rank in range(number):
        while rank - sum(1 for _ in (here / "alive").iterdir()) >= _WAVE:
            time.sleep(0.05)
        children.append(_start(argv[start:], rank, number, here))
    left, worst, told = dict(enumerate(children)), 0, False
    while left:
        for rank, child in list(left.items()):
            if child.poll() is not None:
                worst = max(worst, child.returncode)
                del left[rank]
        if ((here / "end").exists() and not told) or (worst and not told):
            told = True
            _tell(here, left)
        time.sleep(0.05)
    sys.exit(worst)


def _start(argv: list[str], rank: int, number: int, here: Path) -> subprocess.Popen[bytes]:
    nodes = number // WIDTH
    env = {
        **os.environ,
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % WIDTH),
        "SLURM_NODEID": str(rank // WIDTH),
        "SLURM_NTASKS": str(number),
        "SLURM_STEP_NUM_TASKS": str(number),
        "SLURM_NNODES": str(nodes),
        "SLURMD_NODENAME": f"n{rank // WIDTH}",
    }
    # -ff: a file of each process. The supervisor is strace's own child.
    trace = ["strace", "-ff", "-qq", "-y", "-s", "200", "--seccomp-bpf", "-e", f"trace={CALLS}"]
    trace += ["-e", "signal=none", "-o", str(here / "traces" / f"{rank}")]
    tell = ["sh", "-c", f'echo $$ > {here}/pids/{rank}; exec "$@"', "sh"]
    return subprocess.Popen([*trace, *tell, *argv], env=env)


def _tell(here: Path, ranks: object) -> None:
    for rank in list(ranks):  # type: ignore[call-overload]
        try:
            os.kill(int((here / "pids" / str(rank)).read_text()), signal.SIGTERM)
            time.sleep(_PAUSE_S)
        except (OSError, ValueError):
            continue


def submit(here: Path, number: int, case: str) -> Path:
    """Submit the job; return its run's folder."""
    for name in ("bin", "work", "home", "alive", "traces", "pids"):
        (here / name).mkdir()
    programs = {
        "sbatch": SBATCH.format(),
        "srun": SRUN.format(python=sys.executable, benchmarks=ROOT / "benchmarks"),
        # No job of that id runs any more, so a signal is the job's end.
        "squeue": "#!/bin/sh\n",
        "scontrol": "#!/bin/sh\n",
        "sinfo": "#!/bin/sh\n",
        "sacct": "#!/bin/sh\n",
    }
    for name, text in programs.items():
        (here / "bin" / name).write_text(text)
        (here / "bin" / name).chmod(0o755)
    os.mkfifo(here / "go")
    (here / "work" / "program.sh").write_text(PROGRAM)
    (here / "work" / "program.sh").chmod(0o755)
    more = ("--max-requeues", "1") if case == "preempted" else ()
    words = ("--nodes", str(number // WIDTH), "--tasks-per-node", str(WIDTH), "--gpus", "0")
    argv = [sys.executable, "-m", "hpckit", "submit", "ddp", "program.sh", *words, *more]
    subprocess.run(
        [*argv, "--time", "10m"], check=True, cwd=here / "work", env=environment(here, case),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return next(path for path in (here / "work" / "runs").iterdir() if path.name[0] != ".")


def environment(here: Path, case: str) -> dict[str, str]:
    """Return the environment of the login node, and of the job."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SLURM")}
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    path = f"{here / 'bin'}:{os.environ['PATH']}"
    ours = {"HOME": str(here / "home"), "RANKS_HERE": str(here), "RANKS_CASE": case}
    return {**clean, **ours, "PATH": path}


def run(here: Path, folder: Path, number: int, case: str) -> tuple[float, float, float]:
    """Run the job; return seconds until all ranks live, MiB of memory then, and s until its end.

    The memory is that of hpckit's own processes: their shares of pages that they have together.
    """
    env = environment(here, case) | {
        "SLURM_JOB_ID": "1001",
        "SLURM_JOB_NUM_NODES": str(number // WIDTH),
        "SLURM_JOB_NODELIST": f"n[0-{number // WIDTH - 1}]",
        "SLURM_CLUSTER_NAME": "stand-in",
    }
    began = time.monotonic()
    with (folder / "job.out").open("ab") as log:
        job = subprocess.Popen(["bash", folder / "job.sh"], env=env, stdout=log, stderr=log)
    while sum(1 for _ in (here / "alive").iterdir()) < number and job.poll() is None:
        time.sleep(0.2)
    alive = time.monotonic() - began
    memory = _memory()
    line = os.open(here / "go", os.O_RDWR | os.O_NONBLOCK)
    for _ in range(number):
        os.write(line, b"\n")
        time.sleep(_PAUSE_S)
    if case == "preempted":
        (here / "end").touch()
    job.wait()
    os.close(line)
    return alive, memory, time.monotonic() - began - alive


def _memory() -> float:
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if (
                b"-m" in words
                and not words[0].endswith(b"strace")
                and b"hpckit." in b" ".join(words)
            ):
                rows = (path / "smaps_rollup").read_text().splitlines()
                total += next(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1024


def count(here: Path, folder: Path) -> Counts:
    """Count what strace has written down."""
    found = Counts()
    places = _places(folder)
    for path in (here / "traces").iterdir():
        program = ""
        for line in path.read_text(errors="replace").splitlines():
            match = _LINE.match(line)
            if match is None or "AT_EMPTY_PATH" in line:
                continue
            call, words = match.groups()
            if call == "execve" and (main := _MAIN.match(words)):
                program = main[1]
                found.processes[program] += 1
            if not program or (call == "execve" and "hpckit" not in words):
                continue  # the rank's own program, or what strace began with
            if call == "execve":
                if not main:
                    break
                continue
            where = next((name for name, at in places if at in words), "system")
            found.where[where] += 1
            found.programs[program, where] += 1
            if where == "run":
                found.calls[call] += 1
    return found


def _places(folder: Path) -> list[tuple[str, str]]:
    import hpckit  # noqa: PLC0415

    installed = Path(hpckit.__file__).parent
    return [
        ("run", str(folder)),
        ("run", '"/proc/self/fd/'),  # submitit's result, in a folder held open
        ("proc", '"/proc'),
        ("proc", '"/sys'),
        ("installed", str(installed)),
        ("installed", "site-packages/"),
        ("python", os.path.realpath(sys.base_prefix)),
        ("python", str(sys.prefix)),
    ]


def of_commands(here: Path, folder: Path, case: str) -> dict[str, tuple[int, float]]:
    """Return calls in the run's folder, and seconds of processor time, of some commands."""
    found = {}
    for words in (("status", "1001"), ("logs", "1001"), ("stats", "1001"), ("jobs",)):
        trace = here / f"command-{words[0]}"
        argv = ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", f"trace={CALLS}", "-o"]
        ours = [sys.executable, "-m", "hpckit", *words]
        run_it = {"cwd": here / "work", "env": environment(here, case), "capture_output": True}
        subprocess.run([*argv, str(trace), *ours], check=False, **run_it)
        lines = trace.read_text(errors="replace").splitlines()
        inside = [row for row in lines if str(folder) in row and "AT_EMPTY_PATH" not in row]
        before = os.times()
        subprocess.run(ours, check=False, **run_it)
        after = os.times()
        spent = after.children_user + after.children_system
        spent -= before.children_user + before.children_system
        found[words[0]] = (len(inside), spent)
    return found


def files(folder: Path) -> tuple[int, int]:
    """Return how many files a run has, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def measure(number: int, case: str) -> dict[str, object]:
    """Measure one job."""
    here = Path(tempfile.mkdtemp(prefix="hpckit-ranks-"))
    try:
        folder = submit(here, number, case)
        alive, memory, end = run(here, folder, number, case)
        counts, (many, size) = count(here, folder), files(folder)
        commands = of_commands(here, folder, case) if case == "ends" else {}
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return {
        "case": case,
        "ranks": number,
        "files": many,
        "bytes": size,
        "calls": dict(counts.where),
        "in_run": dict(counts.calls.most_common()),
        "by_program": {f"{name} {at}": found for (name, at), found in counts.programs.items()},
        "processes": dict(counts.processes),
        "alive_s": alive,
        "end_s": end,
        "memory_mb": memory,
        "commands": commands,
    }


def show(row: dict[str, object]) -> None:
    """Print one job's figures, and what each rank costs."""
    number, calls = row["ranks"], row["calls"]
    print(f"\n{number} ranks: {CASES[str(row['case'])]}")
    print(f"  files {row['files']}, {row['bytes']:,} bytes; per rank {row['files'] / number:.1f}")
    for where in ("run", "installed", "python"):
        n = calls.get(where, 0)
        print(f"  calls, {where:<10} {n:>9,}  per rank {n / number:8.1f}")
    print("  in the run's folder:", ", ".join(f"{name} {n}" for name, n in row["in_run"].items()))
    for name, n in sorted(row["by_program"].items()):
        program, where = name.split()
        if where in ("run", "installed", "python"):
            of = row["processes"][program]
            print(f"    {program} x {of}, {where}: {n / of:.1f} each")
    print(f"  alive after {row['alive_s']:.0f} s, ended {row['end_s']:.0f} s later (under strace), "
          f"{row['memory_mb']:.0f} MiB, {row['memory_mb'] / number:.1f} per rank")  # fmt: skip
    for name, (n, spent) in row["commands"].items():
        print(f"  hpckit {name}: {n} calls in the run's folder, {spent:.2f} s of processor time")


def main() -> None:
    """Measure all sizes and cases, and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default="8,64,512", help="sizes, multiples of 8")
    parser.add_argument("--case", default=",".join(CASES), help="which of " + ", ".join(CASES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("strace is not here: apt-get install strace")
    os.nice(19)
    rows = []
    for case in args.case.split(","):
        for number in map(int, args.ranks.split(",")):
            rows.append(measure(number, case))
            if not args.json:
                show(rows[-1])
                sys.stdout.flush()
    if args.json:
        json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
