"""kill -9 at random moments of submit, running, checkpointing, summarising and of other commands.

    python benchmarks/kills.py [--rounds 200] [--seed N]
    python benchmarks/kills.py --seed 7 --only 31             one round again
    python benchmarks/kills.py --executor slurm --rounds 20   where sbatch answers (make slurm-up)

Each round starts something, kills one process of it or all of them after a while, and waits until
nothing of it runs. Then: every command works; each run that was over before is as it was; each
script that began has a record, and each record a known end. The last round is followed by `clean`,
after which no folder without a record is left. It prints a table, and what failed; status 1 then.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HPCKIT = (sys.executable, "-m", "hpckit")
OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"}
# What a keeper gives a script to end, and a machine that others use, too.
SETTLE_S, COMMAND_S = 90.0, 120.0
BEGAN = 'open(os.environ["BEGAN"], "a").write(os.environ["HPCKIT_RUN_ID"] + "\\n")\n'
SCRIPTS = {
    "quick.py": f"import os\n{BEGAN}print('hello', flush=True)\n",
    "long.py": f"""\
import json, os, time
{BEGAN}for step in range(30):
    with open(os.environ["HPCKIT_RUN_DIR"] + "/metrics.jsonl", "a") as stream:
        stream.write(json.dumps({{"step": step, "loss": 1.0, "time": time.time()}}) + "\\n")
    print(step, flush=True)
    time.sleep(0.05)
""",
    "checkpoints.py": f"""\
import os, pathlib, torch
from hpckit.parallel.run_folder import make_folder, save_checkpoint
{BEGAN}folder = make_folder(pathlib.Path(os.environ["HPCKIT_RUN_DIR"]))
if os.environ["RANK"] != "0":  # rank 0 alone writes, as in the workloads
    raise SystemExit
for step in range(40):
    save_checkpoint(folder, {{"step": step, "weights": torch.full((200_000,), step)}}, ["last.pt"])
""",
}
Act = Callable[["Place", "Round"], None]
LOOKING = (
    ("jobs",), ("status", "latest"), ("logs", "JOB"), ("stats", "latest"),
    ("clean", "--state", "FAILED", "--dry-run"), ("resubmit", "latest", "--dry-run"),
)  # fmt: skip


@dataclass
class Place:
    """A home, a project and a folder of runs; what is started here has the home as its own."""

    folder: Path
    executor: str
    known: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("home", "project"):
            (self.folder / name).mkdir()
        for name, text in SCRIPTS.items():
            (self.folder / "project" / name).write_text(text)

    @property
    def environ(self) -> dict[str, str]:
        """Return what commands here start with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        home = {"HOME": str(self.folder / "home"), "BEGAN": str(self.folder / "began")}
        return {**kept, **home, "HPCKIT_RUNS": str(self.runs)}

    @property
    def runs(self) -> Path:
        """Return the folder of runs."""
        return self.folder / "runs"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of hpckit's."""
        return subprocess.Popen(
            [*HPCKIT, *words], cwd=self.folder / "project", env=self.environ, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def say(self, *words: str) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr of a command of hpckit's."""
        done = self.start(*words)
        try:
            out, err = done.communicate(timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            done.kill()
            return 124, "", f"hpckit {' '.join(words)} did not end in {COMMAND_S:.0f} s"
        return done.returncode, out, err

    def processes(self) -> dict[int, str]:
        """Return the living processes that were started here, by their ids, with their words."""
        mark, found = f"HOME={self.folder}/home".encode(), {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = words
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """Return what `hpckit jobs` says of each."""
        status, out, err = self.say("jobs", "--limit", "0", "--json")
        if status:
            raise AssertionError(f"jobs: {status}: {err}")
        found: list[dict[str, Any]] = json.loads(out)["jobs"]
        return found


@dataclass
class Round:
    """One kill: what was done, to which process, and what is wrong afterwards."""

    number: int
    kind: str
    chance: random.Random
    victim: str = "nothing (it was over)"
    after_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def submit(place: Place, *words: str) -> tuple[str, ...]:
    return ("submit", *words, "--executor", place.executor)


def of_submit(place: Place, row: Round) -> tuple[str, ...]:
    shapes = (
        ("serial", "quick.py"), ("serial", "quick.py", "--array", "x=1,2,3"),
        ("ddp", "quick.py", "--tasks-per-node", "2"),
    )  # fmt: skip
    return submit(place, *row.chance.choice(shapes))


def of_other(place: Place, row: Round) -> tuple[str, ...]:
    return row.chance.choice(
        [("jobs", "--rebuild"), ("stats", "latest"), ("cancel", "latest"), ("status", "latest"),
         ("resubmit", "latest"), ("clean", "--state", "NODE_FAIL", "--yes")]
    )  # fmt: skip


def killed_command(words: Callable[[Place, Round], tuple[str, ...]], span_s: float) -> Act:
    """Kill a command, alone or with all that it has started, within a span of time."""

    def act(place: Place, row: Round) -> None:
        argv = words(place, row)
        command = place.start(*argv)
        row.after_s = row.chance.uniform(0.0, span_s)
        time.sleep(row.after_s)
        with_all = row.chance.random() < 0.5
        row.victim = f"{argv[0]} {'and all it started' if with_all else 'alone'}"
        kill([*place.processes(), command.pid] if with_all else [command.pid])
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.communicate(timeout=SETTLE_S)

    return act


def killed_job(script: str, span_s: float, until: str = "", *more: str) -> Act:
    """Kill a process of a job, or all, within a span of time after one with a word has begun."""

    def act(place: Place, row: Round) -> None:
        status, _, err = place.say(*submit(place, "ddp", script, "--tasks-per-node", "2", *more))
        if status:
            row.wrong.append(f"submit: {status}: {err}")
            return
        wait_for(lambda: any(until in words for words in place.processes().values()), 20.0)
        row.after_s = row.chance.uniform(0.0, span_s)
        time.sleep(row.after_s)
        found = place.processes()
        if not found:
            return
        if row.chance.random() < 0.25:
            row.victim = "all of the job"
            kill(list(found))
        else:
            pid = row.chance.choice(sorted(found))
            row.victim = role(found[pid])
            kill([pid])

    return act


def role(words: str) -> str:
    """Say what a process is, by its command line."""
    names = ("controller", "keeper", "spawn", "in_job", "sampler", "at_end", "rendezvous",
             "quick.py", "long.py", "checkpoints.py", "slurmstepd", "bash")  # fmt: skip
    return next((name for name in names if name in words), words[:30])


KINDS = {
    "submit": (killed_command(of_submit, 1.2), 5),
    "running": (killed_job("long.py", 2.5), 4),
    "checkpointing": (killed_job("checkpoints.py", 1.0, "checkpoints.py"), 2),
    "summarising": (killed_job("quick.py", 0.4, "at_end", "--sample-interval", "1"), 3),
    "other command": (killed_command(of_other, 0.6), 3),
}


def kill(pids: list[int]) -> None:
    """Kill processes with SIGKILL, all before any of them sees it of another."""
    for signum in (signal.SIGSTOP, signal.SIGKILL) if len(pids) > 1 else (signal.SIGKILL,):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)


def wait_for(check: Callable[[], object], most_s: float) -> bool:
    until = time.monotonic() + most_s
    while not check():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def look(place: Place, row: Round) -> None:
    """Look whether all is well."""
    if not wait_for(lambda: not place.processes(), SETTLE_S):
        row.wrong.append(f"processes are left: {sorted(place.processes().values())}")
        kill(list(place.processes()))
    found = {job["run_id"]: job for job in place.jobs()}
    if place.executor == "slurm":  # accounting is late
        wait_for(lambda: all(job["state"] in OVER for job in place.jobs()), SETTLE_S)
        found = {job["run_id"]: job for job in place.jobs()}
    for words in LOOKING:
        newest = next(iter(found.values()), {"job_id": "latest"})["job_id"]
        status, out, err = place.say(*(newest if word == "JOB" else word for word in words))
        empty = status == 2 and not found
        if "Traceback" in (err if words[0] == "logs" else out + err) or (status and not empty):
            row.wrong.append(f"{' '.join(words)}: {status}: {err.strip()}")
    began = (place.folder / "began").read_text().split() if found else []
    removed = set(place.known) - set(found) if row.victim.startswith("clean") else set()
    row.wrong += [f"a job without a record: {name}" for name in {*began} - {*found} - GONE]
    for name, job in found.items():
        if job["state"] not in OVER:
            row.wrong.append(f"a record without a job: {name} {job['state']} {job['reason_text']}")
    for name, (state, digest) in place.known.items():
        if name in removed and state == "NODE_FAIL":
            GONE.add(name)
        elif name not in found or (state, digest) != (found[name]["state"], recorded(place, name)):
            row.wrong.append(f"{name} was {state}, and is {found.get(name)}")
    row.wrong += list(unreadable_checkpoints(place))
    place.known = {name: (job["state"], recorded(place, name)) for name, job in found.items()}
    if place.known:
        name = row.chance.choice(sorted(place.known))
        status, _, err = place.say("status", found[name]["job_id"])
        if status:
            row.wrong.append(f"status of an old job: {status}: {err}")


GONE: set[str] = set()


def recorded(place: Place, name: str) -> str:
    """Return a hash of what says how a run was submitted and ended."""
    files = [place.runs / name / "run.json", *sorted((place.runs / name / "ranks").glob("*.json"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def unreadable_checkpoints(place: Place) -> Iterator[str]:
    """Yield the runs that have checkpoints, none of which can be read."""
    for folder in place.runs.glob("*/checkpoints"):
        files = [path for path in (folder / "last.pt", folder / "previous.pt") if path.exists()]
        if files and not any(map(_is_whole, files)):
            yield f"no checkpoint of {folder} can be read"


def _is_whole(path: Path) -> bool:
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return archive.testzip() is None
    return False


def tidy(place: Place) -> list[str]:
    """Let everything be old, and clean; return what is wrong."""
    then = time.time() - 7200
    for path in (*place.runs.rglob("*"), *place.runs.iterdir()):
        with contextlib.suppress(OSError):
            os.utime(path, (then, then), follow_symlinks=False)
    status, _, err = place.say("clean", "--yes")
    wrong = [f"clean: {status}: {err}"] if status else []
    bases = {path.name.rpartition("_")[0] for path in place.runs.iterdir()}
    for path in place.runs.iterdir():
        if not (path / "run.json").exists() and path.name not in bases:
            wrong.append(f"left after clean: {path} with {[*map(str, path.iterdir())]}")
    return wrong


def table(rows: list[Round]) -> str:
    counts = Counter((row.kind, row.victim) for row in rows)
    bad = Counter((row.kind, row.victim) for row in rows if row.wrong)
    lines = [f"{'KIND':<16} {'KILLED':<28} {'TIMES':>5} {'WRONG':>5}"]
    lines += [f"{k[0]:<16} {k[1]:<28} {n:>5} {bad[k]:>5}" for k, n in sorted(counts.items())]
    return "\n".join([*lines, f"{'all':<45} {len(rows):>5} {sum(bad.values()):>5}"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--executor", default="local")
    words = parser.parse_args()
    seed = random.randrange(10**6) if words.seed is None else words.seed
    print(f"seed {seed}", flush=True)
    place = Place(folder=Path(tempfile.mkdtemp(prefix="kills-")), executor=words.executor)
    status, _, err = place.say(*submit(place, "serial", "quick.py", "--wait"))
    assert status == 0, err  # a finished record to lose
    rows: list[Round] = []
    for number in range(words.rounds) if words.only is None else [words.only]:
        chance = random.Random(f"{seed}:{number}")
        (kind,) = chance.choices([*KINDS], weights=[weight for _, weight in KINDS.values()])
        row = Round(number=number, kind=kind, chance=chance)
        try:
            KINDS[kind][0](place, row)
            look(place, row)
        except KeyboardInterrupt:
            break
        rows.append(row)
        if len(rows) % 20 == 0:
            print(f"{len(rows)} rounds", flush=True)
        for text in row.wrong:
            print(f"{number}: {kind}, {row.victim} after {row.after_s:.3f} s: {text}", flush=True)
    wrong = tidy(place)
    print("\n".join([table(rows), *wrong]))
    if wrong or any(row.wrong for row in rows):
        print(f"kept: {place.folder}; again: --seed {seed} --only NUMBER")
        sys.exit(1)
    shutil.rmtree(place.folder)


if __name__ == "__main__":
    main()
