"""Finding a job by what hpckit wrote into it, when Slurm did not say which number it has.

sbatch may die, or give up waiting, after Slurm has taken a job. The run's id is in the job's
comment and in the name of its log: squeue shows both, accounting the command line of sbatch.
"""

import os
import re
import time
from typing import TYPE_CHECKING

from hpckit.errors import CommandError
from hpckit.slurm.client import ask, is_answer, refusal

if TYPE_CHECKING:
    from hpckit.job.script import ArrayPart

_ASK_S = 20.0
# Slurm forgets finished jobs after MinJobAge, 300 s unless a site says otherwise.
_REMEMBERED_S = 240.0
_COMMENT = re.compile(r"^#SBATCH\s(?:.*\s)?--comment\b", re.MULTILINE)
_JOB = re.compile(r"\d+")


def token_options(
    run_id: str, script: str, arguments: tuple[str, ...], part: "ArrayPart | None" = None
) -> tuple[str, ...]:
    """Return the option of sbatch that writes a run's id into its job.

    A comment of the user's own stays; the log's name then has to do.
    """
    own = _COMMENT.search(script) or any(word.startswith("--comment") for word in arguments)
    return () if own else (f"--comment=hpckit:{_token(run_id, part)}",)


def _token(run_id: str, part: "ArrayPart | None") -> str:
    """Return what a job carries: a run's id; of a later array, the id of its first task's run."""
    return f"{run_id}_{part.first}" if part and part.first else run_id


def job_of(run_id: str, since: float, part: "ArrayPart | None" = None) -> str | None:
    """Return the id (an array's own) of this user's job that carries a run's id, None without one.

    `since` is when it was handed over, in epoch seconds; `part` which array of several it is.

    Raises:
        CommandError: Slurm does not answer, or may have forgotten it.
    """
    argv = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}"]
    # Fields of a width of their own: a column that is cut would lose the id.
    argv.append("--Format=ArrayJobID:32,Comment:600,StdOut:4096")
    if found := _carrier(argv, run_id, part):
        return found
    try:
        return _carrier(_accounting(since), run_id, part)
    except CommandError:
        if time.time() - since > _REMEMBERED_S:
            raise
    return None


def _accounting(since: float) -> list[str]:
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 60))
    argv = ["sacct", "--allocations", "--noheader", "--parsable2", f"--user={os.getuid()}"]
    return [*argv, f"--starttime={start}", "--format=JobID,Comment,SubmitLine"]


def _carrier(argv: list[str], run_id: str, part: "ArrayPart | None") -> str | None:
    """Return the first job in whose line our comment or our log stands."""
    result = ask(argv, timeout_s=_ASK_S)
    jobs = [(_JOB.match(line.strip()), line) for line in result.stdout.splitlines()]
    for job, line in jobs:
        if job and _carries(line, run_id, part):
            return job[0]
    if not is_answer(result, rows=any(job for job, _ in jobs)):
        raise refusal(result)
    return None


def _carries(line: str, run_id: str, part: "ArrayPart | None") -> bool:
    """Say whether our comment, or the log of one of our tasks, stands in a line."""
    if re.search(rf"\bhpckit:{re.escape(_token(run_id, part))}(?![\w.-])", line):
        return True
    pattern = re.escape(part.log if part else "%a")
    log = re.search(rf"/{re.escape(run_id)}(?:_({pattern}|\d+))?/job\.out", line)
    if log is None:
        return False
    number = log[1]
    if part is None or not number or not number.isdecimal():
        return part is None or bool(number)
    return part.first <= int(number) < part.first + part.count
