"""Hundreds of short jobs of many kinds, a part of them killed: what hpckit says afterwards of each.

python benchmarks/soak.py [--jobs N] [--killed PART] [--seed N] [--at-once N] [--json]

It submits as users do (the command line, functions from Python; to Slurm and to this machine),
and kills some jobs at moments of chance: scancel, hpckit cancel, scontrol requeue, and kill -9 of
ranks and of hpckit's and Slurm's own processes. When all is over it compares what it knows of each
job with `hpckit status`, `jobs`, `stats` and `logs`, with sacct, and with the processes that are
left. Exit status 1: something was lost or wrong.

It needs root and a Slurm whose nodes are all this machine: eval "$(make -s slurm-up)".
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak_check import check
from soak_jobs import ARRAY, HPCKIT, KINDS, TIMEOUT, Job, Kind, submit
from soak_kills import disturb, processes

_NOT_OURS = ("HPCKIT_", "SLURM_JOB", "SBATCH", "SUBMITIT", "XDG_")
_OVER_LIMIT_S, _LEFT_LIMIT_S = 900.0, 60.0


@dataclass(kw_only=True)
class Soak:
    """One soak as it goes on.

    `work` is where jobs are submitted from: accounting tells these jobs by it.
    """

    folder: Path
    work: Path
    at_once: int
    jobs: list[Job] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    disturbing: list[tuple[Job, "Future[None]"]] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        """Where their runs are."""
        return self.folder / "runs"

    def in_flight(self) -> int:
        """Return how many jobs wait or run, here or in Slurm's queue."""
        argv = ["squeue", "--noheader", "--array", "--format=%i"]
        queued = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        mine = {job.job_id for job in self.jobs}
        return len(mine & set(queued)) + sum(map(_runs_here, self.jobs))

    def submit_all(self, plan: Sequence[tuple[Kind, str]], seed: int) -> None:
        """Submit all, some at once, and let those be disturbed that are to be."""
        with ThreadPoolExecutor(max_workers=max(len(plan), 1)) as pool:
            for number, (kind, kill) in enumerate(plan):
                while self.in_flight() > self.at_once - kind.jobs:
                    time.sleep(0.5)
                dice = random.Random(f"{seed} {number}")
                try:
                    found = submit(kind, kill, dice, self.work)
                except RuntimeError as error:
                    self.refused.append(str(error))
                    continue
                self.jobs += found
                if kill:
                    wait = pool.submit(disturb, found[-1], dice, self.work)
                    self.disturbing.append((found[-1], wait))
                note(f"\r{len(self.jobs)} jobs submitted")
        for job, wait in self.disturbing:
            if error := wait.exception():
                job.wrong.append(f"{job.kill}: {error}")
        note("\n")

    def wait(self) -> bool:
        """Wait until all are over; say whether they are."""
        return until(lambda: not self.in_flight(), _OVER_LIMIT_S)

    def clear(self) -> None:
        """End what is left of jobs, after an error or Ctrl-C."""
        if self.jobs and self.in_flight():
            ids = [job.job_id for job in self.jobs]
            subprocess.run([HPCKIT, "cancel", *ids], cwd=self.work, check=False)

    def left(self) -> list[str]:
        """Return the processes that outlive their jobs, after a while in which they may end."""
        until(lambda: not [*self._living()], _LEFT_LIMIT_S)
        return [*self._living()]

    def _living(self) -> Iterator[str]:
        callers = {job.caller.pid for job in self.jobs if job.caller}
        for pid, words in processes(bytes(self.runs)):
            # What submitted has the folder of all runs in its variables; a job, its own run's.
            text = words.replace(b"\0", b" ").decode(errors="replace")
            if pid not in (os.getpid(), *callers) and "soak.py" not in text:
                yield f"{pid} {text}"


def _runs_here(job: Job) -> bool:
    return job.kind.local and (job.run_dir / "local.json").exists() and _living(job)


def _living(job: Job) -> bool:
    return any(True for _ in processes(bytes(job.run_dir), job.job_id.encode()))


def until(check: Any, within_s: float) -> bool:  # noqa: ANN401
    """Say whether something comes true in time."""
    deadline = time.monotonic() + within_s
    while not (true := check()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return bool(true)


def make_plan(jobs: int, killed: float, seed: int) -> list[tuple[Kind, str]]:
    """Choose kinds until there are so many jobs, and what is done to some of them."""
    dice = random.Random(seed)
    limited = min(3, jobs // 50)
    kinds: list[Kind] = []
    while (missing := jobs - limited - sum(kind.jobs for kind in kinds)) > 0:
        fitting = [kind for kind in KINDS if kind.jobs <= missing]
        kinds += dice.choices(fitting, [kind.weight for kind in fitting])
    able = [number for number, kind in enumerate(kinds) if kind.kills]
    victims = set(dice.sample(able, min(round(jobs * killed), len(able))))
    # Those first that wait for their time limit, a minute.
    return [(TIMEOUT, "")] * limited + [
        (kind, dice.choice(kind.kills) if number in victims else "")
        for number, kind in enumerate(kinds)
    ]


def note(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def as_text(report: dict[str, Any]) -> str:
    """Return the report as a table of kinds, one of what was done, and what is wrong."""
    lines = []
    for title in ("kind", "done to it"):
        rows = report["by"][title]
        lines += [f"{title:<24} jobs  states", ""]
        for name, states in rows.items():
            said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            lines.append(f"{name:<24} {sum(states.values()):>4}  {said}")
        lines.append("")
    lines += [f"WRONG {row}" for row in report["wrong"]]
    lines += [f"LEFT {row}" for row in report["processes_left"]]
    lines.append(
        f"{report['jobs']} jobs ({report['killed']} killed), seed {report['seed']}: "
        f"{report['lost']} lost, {report['misreported']} misreported, "
        f"{len(report['processes_left'])} processes left; {report['minutes']:.1f} min, "
        f"load {report['load']:.1f}"
    )
    return "\n".join(lines)


def make_report(soak: Soak, seed: int, began: float, over: bool) -> dict[str, Any]:
    """Compare what hpckit says with what is known, and count."""
    left = soak.left()
    lost, states = check(soak.jobs, soak.work, soak.runs)
    by: dict[str, dict[str, Counter[str]]] = {"kind": {}, "done to it": {}}
    for job in soak.jobs:
        state = states.get(job.job_id, "LOST")
        by["kind"].setdefault(job.kind.name, Counter())[state] += 1
        if job.kill:
            by["done to it"].setdefault(job.kill, Counter())[state] += 1
    wrong = [
        f"{job.job_id} {job.kind.name} [{job.kill} {job.done}]: {text}"
        for job in soak.jobs
        for text in job.wrong
    ]
    return {
        "seed": seed,
        "jobs": len(soak.jobs),
        "killed": sum(bool(job.kill) for job in soak.jobs),
        "lost": len(lost),
        "misreported": sum(bool(job.wrong) for job in soak.jobs),
        "wrong": [
            *(f"not submitted: {row}" for row in soak.refused),
            *(f"lost: {row}" for row in lost),
            *wrong,
            *([] if over else ["not all ended"]),
        ],
        "processes_left": left,
        "by": by,
        "minutes": (time.monotonic() - began) / 60,
        "load": os.getloadavg()[2],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=300, metavar="N")
    parser.add_argument("--killed", type=float, default=0.1, metavar="PART")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--at-once", type=int, default=12, metavar="N", help="most in flight")
    parser.add_argument("--folder", type=Path, help="where runs stay; otherwise they are removed")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    options = parser.parse_args()
    if os.geteuid() != 0 or "SLURM_CONF" not in os.environ:
        parser.error('run it as root, with a Slurm of this machine: eval "$(make -s slurm-up)"')
    note(f"seed {options.seed}\n")
    with tempfile.TemporaryDirectory(prefix="hpckit-soak-") as name:
        report = run(options, options.folder or Path(name))
    print(json.dumps(report, indent=2) if options.json else as_text(report))
    sys.exit(bool(report["wrong"] or report["processes_left"]))


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Do it all in a folder; return the report."""
    for variable in [name for name in os.environ if name.startswith(_NOT_OURS)]:
        del os.environ[variable]
    os.environ |= {
        "HOME": str(folder / "home"),  # no site or template of whoever runs this
        "HPCKIT_RUNS": str(folder / "runs"),
        "XDG_STATE_HOME": str(folder / "state"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    work = folder / f"work-{os.urandom(4).hex()}"  # a folder of this name may have been before
    for path in (folder / "home", work):
        path.mkdir(parents=True)
    began = time.monotonic()
    soak = Soak(folder=folder, work=work, at_once=max(options.at_once, ARRAY))
    try:
        soak.submit_all(make_plan(options.jobs, options.killed, options.seed), options.seed)
        return make_report(soak, options.seed, began, soak.wait())
    finally:
        soak.clear()


if __name__ == "__main__":
    main()
