"""Compares what hpckit says of the jobs of benchmarks/soak.py with what is known of them."""

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak_jobs import CALLS, HPCKIT, Job, results_of

Record = dict[str, Any]
_OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
_SACCT_LIMIT_S = 60.0


def check(jobs: Sequence[Job], work: Path, runs: Path) -> tuple[list[str], dict[str, str]]:
    """Write down at each job what is wrong with it; return what was lost, and states by job."""
    ids = [job.job_id for job in jobs]
    status = by_job(ask(work, "status", *ids, "--json")["jobs"])
    listed = by_job(ask(work, "jobs", "--limit", "0", "--json")["jobs"])
    stats = by_job(ask(work, "stats", *ids, "--json")["jobs"])
    due = {job.job_id for job in jobs if not (job.kind.local or _never_counted(job))}
    known = accounting(work, due)
    lost = [f"job {row} of {work} has no record" for row in known.keys() - set(ids)]
    lost += [f"run {row} was not submitted here" for row in listed.keys() - set(ids)]
    for job in jobs:
        for name, found in (("status", status), ("jobs", listed), ("stats", stats)):
            if job.job_id not in found:
                lost.append(f"job {job.job_id} ({job.kind.name}) is not in hpckit {name}")
        if job.job_id in status:
            job.wrong += _of_status(job, status[job.job_id])
        for name, found in (("jobs", listed), ("stats", stats)):
            if (said := found.get(job.job_id, {}).get("state")) != job.ends[0]:
                job.wrong.append(f"hpckit {name} says {said}")
        if (said := known.get(job.job_id)) != job.ends[0] and (said or job.job_id in due):
            job.wrong.append(f"sacct says {known.get(job.job_id)}")
        job.wrong += _of_folder(job)
    _results(jobs)
    return lost, {job: str(row["state"]) for job, row in status.items()}


def _never_counted(job: Job) -> bool:
    """Say whether accounting has no row of a job: of an array's task that was cancelled waiting.

    Slurm gives such a task a record of its own only when it starts.
    """
    began = any((job.run_dir / "ranks").glob("*.json")) or (job.run_dir / "job.out").exists()
    return job.ends[0] == "CANCELLED" and "_" in job.job_id and not began


def ask(work: Path, *words: str) -> Record:
    """Return what a command of hpckit says as JSON; one that fails for some jobs says it of all."""
    done = subprocess.run(
        [HPCKIT, *words], cwd=work, capture_output=True, text=True, check=False, timeout=600
    )
    if not done.stdout or "Traceback" in done.stderr:
        raise RuntimeError(f"hpckit {words[0]}: exit status {done.returncode}\n{done.stderr}")
    record: Record = json.loads(done.stdout)
    return record if "jobs" in record else {"jobs": [record]}


def by_job(rows: Sequence[Record]) -> dict[str, Record]:
    """Return rows by their job's id."""
    return {row["job_id"]: row for row in rows}


def accounting(work: Path, ids: set[str]) -> dict[str, str]:
    """Return the state of each job that was submitted from a folder, once sacct has all ends."""
    argv = ["sacct", "-X", "-n", "-P", "--starttime=now-1days", "-o", "JobID,State,WorkDir"]
    deadline = time.monotonic() + _SACCT_LIMIT_S
    while True:
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        rows = [line.split("|") for line in said.splitlines()]
        found = {row[0]: row[1].split()[0] for row in rows if row[2] == str(work)}
        if {row for row in ids if found.get(row) in _OVER} == ids or time.monotonic() > deadline:
            return found
        time.sleep(1)


def _of_status(job: Job, row: Record) -> list[str]:
    state, code = job.ends
    wrong = []
    # Of many jobs at once Slurm is not asked for all it knows of each: the ranks tell how often one
    # began and how it ended, if any began.
    began = bool(row["ranks"])
    if row["state"] != state:
        wrong.append(f"status says {row['state']} ({row['reason_text']}), not {state}")
    if code is not None and row["exit_code"] != code:
        wrong.append(f"status says exit status {row['exit_code']}, not {code}")
    if state in ("COMPLETED", "FAILED") and code is None and not row["exit_code"] and began:
        wrong.append(f"status says exit status {row['exit_code']} of a job that {state}")
    unknown = row["restarts"] is None and not began
    if row["restarts"] != (restarts := int(job.kill == "requeue")) and not unknown:
        wrong.append(f"status says {row['restarts']} restarts, not {restarts}")
    if row["damaged"]:
        wrong.append(f"damaged: {row['damaged']}")
    return wrong


def _of_folder(job: Job) -> list[str]:
    """Say what is wrong in a run's folder: each rank's lines follow one another, none twice."""
    wrong = []
    for rank in range(job.kind.ranks):
        log = job.run_dir / "logs" / f"{rank}.out"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        found: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            words = line.split(" ")
            if len(words) == 3 and words[1] == str(rank):
                found[words[0]].append(words[2])
            else:
                wrong.append(f"{log.name} has {line!r}")
        last = found[max(found)] if found else []
        due = [*map(str, range(job.lines)), "end"]
        for attempt, numbers in found.items():
            if numbers != due[: len(numbers)]:
                wrong.append(f"{log.name}, attempt {attempt}: {numbers}")
        if last != due and (job.whole or job.kill in ("requeue", "sampler")):
            wrong.append(f"{log.name} has {len(last)} of {len(due)} lines at its end")
    if job.ends[0] == "COMPLETED" and not (job.run_dir / "summary.json").exists():
        wrong.append("there is no summary.json")
    return wrong


def _results(jobs: Sequence[Job]) -> None:
    """Compare what the functions returned with what their callers got."""
    seen: dict[int, object] = {}
    for job in (job for job in jobs if job.kind.program == CALLS):
        assert job.caller
        if job.caller.pid not in seen:
            seen[job.caller.pid] = results_of(job)
        due: object = [0, 2, 4, 6] if job.kind.jobs > 1 else [42]
        if job.kind.then == "raise":
            due = ["ValueError"]
        if job.kill:
            due = ["JobError"]
        if seen[job.caller.pid] != due:
            job.wrong.append(f"the caller got {seen[job.caller.pid]}, not {due}")
