"""What it costs to keep the code of a submission, beside what NeMo-Run does with a git work tree.

python benchmarks/code.py [--files N] [--repeat N]

A work tree of N files (10,000) in folders of 100 is committed once. Each round submits the same
program on this machine with and without a copy of the code, and packs the work tree with `git
archive` and gzip, which is what NeMo-Run's GitArchivePackager does at each submission (it takes
committed files only). The first submission, which copies all files, is not in the medians. It
asserts nothing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
HPCKIT = Path(sys.executable).with_name("hpckit")
GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")


def make_tree(folder: Path, files: int) -> None:
    """Write and commit so many small files, and a program."""
    for number in range(files):
        path = folder / f"part{number // 100}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VALUE = {number}\n")
    (folder / "noop.py").write_text("")
    (folder / ".gitignore").write_text("runs/\n")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*GIT, *words], cwd=folder, check=True)


def timed(argv: Sequence[str], folder: Path, env: dict[str, str]) -> float:
    """Return how many seconds a command took, in wall time; a job it submitted is over then."""
    before = time.perf_counter()
    subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True)
    took = time.perf_counter() - before
    if argv[0] == str(HPCKIT):
        wait = [str(HPCKIT), "wait", "latest"]
        subprocess.run(wait, cwd=folder, env=env, check=True, capture_output=True)
    return took


def disk_bytes(folder: Path) -> int:
    """Return the bytes of a folder on the disk, each hard link once."""
    done = subprocess.run(["du", "-sb", str(folder)], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=7)
    asked = parser.parse_args()
    submit = [str(HPCKIT), "submit", "serial", "noop.py", "--executor", "local", "--gpus", "0",
              "--sample-interval", "0"]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="hpckit-code-") as name:
        folder = Path(name, "work")
        folder.mkdir()
        make_tree(folder, asked.files)
        env = {**os.environ, "HOME": name, "XDG_CACHE_HOME": f"{name}/cache"}
        ways = {
            "with a copy": submit,
            "--no-code": [*submit, "--no-code"],
            "git archive | gzip": ["bash", "-c", "git archive HEAD | gzip > ../packed.tar.gz"],
            "git status": ["git", "status", "--porcelain"],
        }
        first = timed(submit, folder, env)
        sizes = [disk_bytes(folder / "runs" / ".code")]
        rounds: dict[str, list[float]] = {way: [] for way in ways}
        time.sleep(2)  # a file that has just changed is read again, as git does
        timed(submit, folder, env)
        for _ in range(asked.repeat):
            for way, argv in ways.items():
                rounds[way].append(timed(argv, folder, env))
        sizes.append(disk_bytes(folder / "runs" / ".code"))
    middle = {way: median(found) for way, found in rounds.items()}
    least = {way: min(found) for way, found in rounds.items()}
    print(
        f"{asked.files:,} files, medians of {asked.repeat} rounds; first submission {first:.2f} s"
    )
    for way, seconds in middle.items():
        print(f"{way:<20} {seconds * 1000:7.0f} ms, at least {least[way] * 1000:.0f} ms")
    more = middle["with a copy"] - middle["--no-code"]
    ratio = more / middle["git archive | gzip"]
    print(f"a copy costs {more * 1000:.0f} ms, {ratio:.2f} x git archive | gzip")
    print(f"space: {sizes[0] / 1e6:.1f} MB after the first, {sizes[1] / 1e6:.1f} MB after all")


if __name__ == "__main__":
    main()
