"""Giving a script to sbatch, and finding out whether there is a job if sbatch does not say so.

sbatch may die, or give up waiting, after Slurm has taken the job. So the run's id is in the job's
comment and in the name of its log. squeue shows both, and accounting shows sbatch's command line.
"""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import (
    CommandError,
    HpckitError,
    NotTakenError,
    SubmissionError,
    TooSlowError,
    UnknownOutcomeError,
)
from hpckit.schedulers.base import Order, Sent
from hpckit.slurm.client import NO_CONTROLLER, ask, is_answer, patience, refusal, told_after
from hpckit.slurm.control import parse_job_id

if TYPE_CHECKING:
    from hpckit.job.place import ArrayPart

# What sbatch says when it exits with status 1, which a site's wrapper around it may lose.
_REFUSED = r"Batch job submission failed|allocation failure"
# sbatch gave up waiting for the answer, or lost it: Slurm may have taken the job. If sbatch could
# not even connect, Slurm has not.
_UNCLEAR = (
    r"(?i)timed out|send failure|receive failure|Zero Bytes|Unexpected message|shutdown failure|"
    r"Connection reset|Broken pipe|Communication"
)
_UNREACHED = f"{NO_CONTROLLER} (connect failure)"
_UNREACHED_S, _LONGEST_PAUSE_S = 60.0, 8.0
_COMPLAINT = r"(?i)\b(?:error|fatal)\b"
_SHOWN = 300  # characters
_SBATCH_S, _SILENT_S = 120.0, 8.0
# The controller may still be working on the job when it answers squeue.
_ASKS, _PAUSE_S = 3, 1.0
_ASK_S = 20.0
# Slurm forgets finished jobs after MinJobAge, 300 s unless a site says otherwise.
_REMEMBERED_S = 240.0
# A login node's clock may be so far ahead of the controller's, or of another login node's.
_SKEW_S = 60.0
_LONG_BEFORE_S = 86400.0
_COMMENT = r"(?m)^#SBATCH\s(?:.*\s)?--comment\b"
_JOB = r"\d+"


def send(order: Order, sent: Sent) -> str:
    """Submit an order's script, and return the job's id; `sent` says how far it came.

    Raises:
        SubmissionError: there is no job: Slurm refused, or did not answer (NotTakenError).
        CommandError: sbatch cannot be started. UnknownOutcomeError: Slurm does not say whether
            there is one.
    """
    # The script goes to sbatch's standard input, since a file could be replaced before sbatch reads
    # it. The job inherits sbatch's environment, so that has the user's own locale, and not the one
    # for parsing. sbatch does not get the terminal's Ctrl-C: it would die without saying what it
    # has done.
    run_id, arguments = order.run_id, order.job.site.sbatch_args
    if order.token:  # the jobs of a chain share their log, so nothing else tells them apart
        argv = ["sbatch", "--parsable", *arguments, f"--comment=hpckit:{order.token}"]
    else:
        token = token_options(run_id, order.script, arguments, order.part)
        argv = ["sbatch", "--parsable", *token, *arguments]
    if order.follows:
        # It replaces the dependency in the header.
        before = ":".join(order.follows)
        argv.append(f"--dependency={','.join([*order.after, f'afterany:{before}'])}")
    since = time.time()
    sent.begun, sent.answered = True, False
    unclear: HpckitError | None = None
    job: str | None = None
    try:
        job = _job_id(_run(argv, order, sent))
    except (_UnclearError, TooSlowError) as error:
        unclear = error
        job = _ask(order, since, unclear)
    except (SubmissionError, CommandError):
        sent.answered = True
        raise
    if job is None and isinstance(unclear, _UnconfirmedError):
        why = f"{unclear} Slurm shows no job of this run."
        raise _nobody_knows(run_id, why, order.token) from unclear
    sent.answered = True
    if job is None:
        raise NotTakenError(str(unclear)) from unclear
    sent.jobs.append(job)
    return job


def _run(argv: list[str], order: Order, sent: Sent) -> shell.Completed:
    """Run sbatch; if it cannot even connect, so that there is no job, try again for a while.

    slurmctld takes longer to restart than sbatch waits (MessageTimeout, 10 s).

    Raises:
        CommandError: sbatch cannot be started, or is too slow. KeyboardInterrupt: the user asked to
            stop, and there is no job.
    """
    until = time.monotonic() + _UNREACHED_S
    for number in itertools.count():
        said = shell.run(
            argv,
            env=dict(order.environ),
            timeout_s=_SBATCH_S,
            check=False,
            own_locale=True,
            input=order.script,
            own_group=True,
        )
        if not _never_arrived(said):
            return said
        import random  # as seldom as Slurm restarts

        pause = min(2.0**number, _LONGEST_PAUSE_S) * random.uniform(0.5, 1)  # noqa: S311
        if time.monotonic() + pause > until:
            return said
        if sent.given_up():
            sent.answered = True
            raise KeyboardInterrupt
        time.sleep(pause)
    raise AssertionError  # it has no end


def _never_arrived(said: shell.Completed) -> bool:
    """Say whether sbatch reached no controller, and printed nothing that may mean a job."""
    words = said.stderr + said.stdout
    unclear = re.search(_UNCLEAR, words) or _printed_id(said.stdout)
    return said.returncode > 0 and _UNREACHED in words and not unclear


def told_if_slow(tell: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    """Say once, while the block runs, that the answer takes long."""
    text = (
        f"Slurm has not answered sbatch for {_SILENT_S:g} s; hpckit waits up to "
        f"{_SBATCH_S:g} s. Press Ctrl-C twice to stop waiting."
    )
    return told_after(_SILENT_S, lambda: tell(text))


class _UnclearError(SubmissionError):
    """sbatch does not say whether there is a job."""


class _UnconfirmedError(_UnclearError):
    """sbatch printed a number that may be a job's id, and something else is wrong."""


def _job_id(said: shell.Completed) -> str:
    words = said.stderr if said.stderr.strip() else said.stdout
    if said.returncode < 0 or (said.returncode and re.search(_UNCLEAR, words)):
        raise _UnclearError(str(refused(words)))
    if said.returncode and not _printed_id(said.stdout):
        raise refused(words)
    if said.returncode and (re.search(_REFUSED, words) or re.search(_COMPLAINT, words)):
        raise _UnclearError(str(refused(words)))
    if said.returncode:
        raise _UnconfirmedError(_late_failure(said))
    try:
        job = parse_job_id(said.stdout)
    except SubmissionError as error:
        if re.search(_REFUSED, words):
            raise _UnclearError(str(refused(words))) from error
        kind = _UnconfirmedError if any(map(str.isdigit, said.stdout)) else _UnclearError
        raise kind(str(error)) from error
    if not said.stdout.endswith("\n"):  # half of it, perhaps
        raise _UnconfirmedError(f"sbatch's answer, {said.stdout.strip()!r}, has no end.")
    return job


def _printed_id(stdout: str) -> bool:
    """Say whether the output may have a job's id, after which sbatch or a wrapper failed."""
    for line in stdout.splitlines():
        with contextlib.suppress(SubmissionError):
            return bool(parse_job_id(line))
    return False


def _late_failure(said: shell.Completed) -> str:
    printed = " / ".join(line.strip() for line in said.stdout.splitlines() if line.strip())
    return f"sbatch exited with status {said.returncode}, and it printed {printed[:_SHOWN]!r}."


def _ask(order: Order, since: float, unclear: HpckitError) -> str | None:
    """Ask Slurm for the job that carries a run's id; None: it has none."""
    try:
        with patience():
            for number in range(_ASKS):
                time.sleep(_PAUSE_S * bool(number))
                if job := job_of(order.token or order.run_id, since, order.part):
                    return job
    except CommandError as error:
        raise _nobody_knows(
            order.run_id, f"{unclear} hpckit asked Slurm for the job: {error}", order.token
        ) from error
    return None


def _nobody_knows(run_id: str, why: str, token: str | None = None) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"hpckit does not know whether Slurm took the job: {why} The run's folder is kept. Ask "
        f"`hpckit status {run_id}`, and do not submit again before it knows. To look for the job "
        f"by hand, its comment is hpckit:{token or run_id}: squeue --me --Format=JobID,Comment:100"
    )


def refused(message: str) -> SubmissionError:
    """Return the error of a submission that sbatch refused, in its own words."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    hint = _HINTS.get(next((word for word in _HINTS if word in message), ""), "")
    for prefix in ("sbatch:", "error:", "Batch job submission failed:", "allocation failure:"):
        reason = reason.removeprefix(prefix).strip()
    why = reason.rstrip(".") or "it gave no reason"
    return SubmissionError(f"sbatch refused the job: {why}. {hint}".strip())


# sbatch(1) itself says it of a job that no node could ever run; --test-only also while nodes that
# could are down or drained.
NO_SUCH_NODE = "Requested node configuration is not available"
ASK_LESS = (
    "lower --gpus, --tasks-per-node, --cpus-per-task or --mem-gb, "
    "or leave out fewer nodes by --exclude"
)
_HINTS = {
    "Invalid partition": "See `sinfo -s` for partitions; give one with --partition.",
    "Invalid account": "See `sacctmgr show assoc user=$USER` for yours; give one with --account.",
    "Invalid qos": "See `sacctmgr show qos` for QOS names; give one with --qos.",
    "Invalid feature": "See `sinfo -o '%n %f'` for node features; correct --constraint.",
    "Invalid generic resource": "See `sinfo -o '%n %G'` for GPUs per node; correct --gpus.",
    "Invalid node name": "See `sinfo -N` for nodes; correct --exclude, or --sbatch nodelist.",
    NO_SUCH_NODE: f"No node is like that: {ASK_LESS}.",
    "time limit": "Lower --time, or choose a partition with a longer limit.",
    NO_CONTROLLER: "The controller does not answer; try again in a minute.",
}


def token_options(
    run_id: str, script: str, arguments: tuple[str, ...], part: "ArrayPart | None" = None
) -> tuple[str, ...]:
    """Return the option of sbatch that puts a run's id into its job's comment.

    If the user gives a comment, that stays, and the run's id is only in the name of the log.
    """
    own = re.search(_COMMENT, script) or any(word.startswith("--comment") for word in arguments)
    return () if own else (f"--comment=hpckit:{_token(run_id, part)}",)


def _token(run_id: str, part: "ArrayPart | None") -> str:
    """Return what a job carries: the run's id; for a later array, that of its first task."""
    return f"{run_id}_{part.first}" if part and part.first else run_id


def job_of(run_id: str, since: float, part: "ArrayPart | None" = None) -> str | None:
    """Return the id of this user's job (for an array, its own) that carries a run's id, or None.

    `since` is when it was submitted, in epoch seconds; `part` says which array of several it is.

    Raises:
        CommandError: Slurm does not answer, or may have forgotten the job.
    """
    argv = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}"]
    # With explicit widths: a column that is cut off would lose the id.
    argv.append("--Format=ArrayJobID:32,Comment:600,StdOut:4096")
    if found := _carrier(argv, run_id, part):
        return found
    try:
        return _carrier(_accounting(since), run_id, part)
    except CommandError:
        if not -_SKEW_S < time.time() - since < _REMEMBERED_S:  # or the clock was set meanwhile
            raise
    return None


def _accounting(since: float) -> list[str]:
    # A day more than needed, since this clock may be wrong by hours; it is seldom asked.
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - _LONG_BEFORE_S))
    argv = ["sacct", "--allocations", "--noheader", "--parsable2", f"--user={os.getuid()}"]
    return [*argv, f"--starttime={start}", "--format=JobID,Comment,SubmitLine"]


def _carrier(argv: list[str], run_id: str, part: "ArrayPart | None") -> str | None:
    """Return the first job whose line has the run's comment or log."""
    result = ask(argv, timeout_s=_ASK_S)
    jobs = [(re.match(_JOB, line.strip()), line) for line in result.stdout.splitlines()]
    for job, line in jobs:
        if job and _carries(line, run_id, part):
            return job[0]
    if not is_answer(result, rows=any(job for job, _ in jobs)):
        raise refusal(result)
    return None


def _carries(line: str, run_id: str, part: "ArrayPart | None") -> bool:
    """Say whether a line has the run's comment, or the log of one of its tasks."""
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
