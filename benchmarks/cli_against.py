"""Processor time of commands, beside the same commands of another commit.

git worktree add /tmp/old eb37c8c; python benchmarks/cli_against.py /tmp/old [--repeat N]

Both trees are started by the same Python, in turns: user and system time of each process and of
those it waits for (wait4), which other work on the machine changes less than the time on the wall.
It asserts nothing, and submits nothing to Slurm: three local runs that do nothing are looked at.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent.parent
_RUNS = "status", "logs", "stats", "wait", "cancel"
COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "submit --help": ["submit", "--help"],
    "submit, dry run 2x4": ["submit", "ddp", "--nodes", "2", "--gpus", "4", "--dry-run"],
    "resubmit, dry run": ["resubmit", "latest", "--dry-run"],
    "jobs": ["jobs"],
    **{name: [name, "latest"] for name in _RUNS},
    "workloads list": ["workloads", "list"],
    "sites list": ["sites", "list"],
    "templates list": ["templates", "list"],
    "templates lint": ["templates", "lint", "base"],
    "collections list": ["collections", "list"],
    "doctor": ["doctor"],
    "python -c pass": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, help="a checkout of the other commit")
    parser.add_argument("--repeat", type=int, default=15, metavar="N", help="rounds (default: 15)")
    options = parser.parse_args()
    trees = {"then": options.other.resolve(), "now": HERE}
    with tempfile.TemporaryDirectory(prefix="hpckit-bench-") as name:
        folder = Path(name)
        (folder / "noop.py").write_text("")
        places = {word: environment(tree, folder / word) for word, tree in trees.items()}
        for place in places.values():
            for _ in range(3):
                run(["submit", "serial", "noop.py", "--executor", "local", "--wait"], place, folder)
        times = measure(places, folder, options.repeat)
    print(f"{'command':<22}{'then ms':>9}{'now ms':>9}{'ratio':>8}{'fastest':>9}")
    for command, both in times.items():
        then, now = median(both["then"]), median(both["now"])
        least = min(both["now"]) / min(both["then"])
        ratio = f"{now / then:>8.2f}{least:>9.2f}"
        print(f"{command:<22}{then * 1000:>9.0f}{now * 1000:>9.0f}{ratio}")


def environment(tree: Path, place: Path) -> dict[str, str]:
    """Return where a tree's commands find it, and a home of their own; bytecode is kept there."""
    prefixes = ("HPCKIT_", "SLURM", "SBATCH_", "PYTHON", "VIRTUAL_ENV", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {
        **kept,
        "PYTHONPATH": str(tree),
        "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
        "HOME": str(place / "home"),
        "HPCKIT_RUNS": str(place / "runs"),
    }


def measure(
    places: dict[str, dict[str, str]], folder: Path, repeat: int
) -> dict[str, dict[str, list[float]]]:
    times = {name: {word: list[float]() for word in places} for name in COMMANDS}
    for turn in range(repeat + 1):
        for name, words in COMMANDS.items():
            for word, place in (places if turn % 2 else dict(reversed(places.items()))).items():
                seconds = run(words, place, folder)
                if turn:  # the first round only warms the caches
                    times[name][word].append(seconds)
    return times


def run(words: list[str], environ: dict[str, str], folder: Path) -> float:
    """Run a command; return its processor time in seconds."""
    argv = [sys.executable, *(["-m", "hpckit", *words] if words else ["-c", "pass"])]
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(argv, cwd=folder, env=environ, stdin=quiet, stdout=quiet, stderr=quiet)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
