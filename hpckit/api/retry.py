"""A failed job submits itself again: `python -m hpckit.api.retry RUN_DIR KIND [LOG_BYTES]`, in it.

`hpckit.submission.retried` has found out which kind of failure it is. What is asked for changes
as the rules of `--retry` say, within the partition's limits. After so many bytes of the job's log
a line of Slurm's tells that the job was cancelled: see `hpckit.submission.called_off`.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.api.retry")

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from hpckit.api.evidence import limits
from hpckit.api.prepare import Submission
from hpckit.api.resubmit import asked_again
from hpckit.api.run import Run as RunHandle
from hpckit.api.run import handle
from hpckit.api.submit import send
from hpckit.errors import (
    CommandError,
    HpckitError,
    NotTakenError,
    OutsideError,
    SubmissionError,
    UnknownOutcomeError,
    refused_by_disk,
)
from hpckit.files import reason
from hpckit.job import Job
from hpckit.job_spec.recorded_spec import spec_from_record
from hpckit.job_spec.retry_rules import FAIL, KINDS, parse_rules
from hpckit.job_spec.sbatch_words import is_hold
from hpckit.paths import is_there
from hpckit.payload.last_line import end_with
from hpckit.run_folders.run_record import RetryOf
from hpckit.run_folders.runs import Run, read_run
from hpckit.schedulers.slurm.sbatch import job_of
from hpckit.slurm import control
from hpckit.slurm.jobs import squeue
from hpckit.slurm.states import JobRecord, JobState, is_finished
from hpckit.submission.awaited import take_along
from hpckit.submission.called_off import is_called_off, next_run, refuse_called_off
from hpckit.submission.code_plan import same_code
from hpckit.submission.resubmitted import one_at_a_time, refuse_resubmitted
from hpckit.submission.retry import Change, Had, RetryNote, changes, read_note, write_note
from hpckit.units import whole_number

_ENDS = JobState.COMPLETING
# The pause before a second attempt, where a disk or Slurm has refused something in the first.
_AGAIN_S = 5.0
# So long a retry waits for who submits the same job, or another task of its array, at that moment.
_OTHERS_S = 10.0


def retry(
    run: Run, kind: str, environ: Mapping[str, str], log_bytes: int | None = None
) -> RetryNote:
    """Submit a run again after a failure of a kind; return what was done, or why nothing was.

    `log_bytes` is a note's.

    Raises:
        RequestError: the request is wrong by now. OutsideError: Slurm refuses or does not answer.
        StoppedError: the job was cancelled meanwhile.
    """
    spec = spec_from_record(run.record["request"])
    before: RetryOf | None = run.record.get("retry")
    number = (before["number"] if before else 0) + 1
    failed = f"it {KINDS[kind]}"
    if number > spec.retries:
        return RetryNote(text=f"{failed}, and no retry is left (--retries {spec.retries})")
    kept = same_code(run) is not None  # what was edited since is not this job's
    ask = partial(
        asked_again, handle(run), root=run.dir.parent, alone=True, unset=_holds(spec.sbatch),
        same_code=kept,
    )  # fmt: skip
    same = ask({"after": ()})
    slurms = _slurms_word(run)
    if kind == FAIL and slurms and (is_finished(slurms.state) or slurms.state is _ENDS):
        why = "Slurm was ending the job already, as it does for scancel, a preemption, a lost node"
        return RetryNote(text=f"{failed}, and is not tried again: {why}")
    given_min = slurms.time_limit_min if slurms else None
    had = _had(same.submission.job, environ, given_min)
    found = changes(parse_rules(spec.retry), kind, had)
    if isinstance(found, str):
        return RetryNote(text=f"{failed}, and is not tried again: {found}")
    again = ask({"after": (), **{row.field: row.after for row in found}})
    what = f"(retry {number} of {spec.retries}): {_said(found)}"
    by = RetryOf(
        of=run.run_id,
        job_id=run.job_id,
        number=number,
        kind=kind,
        changes={row.field: row.after for row in found},
        text=f"{KINDS[kind]}; this job tries again {what}",
    )
    for line in again.submission.job.notes:
        _say(f"note: {line}")
    run_id = again.submission.place.run_id
    text = f"{failed}; run {run_id} tries again {what}"
    note = RetryNote(text=text, run_id=run_id, log_bytes=log_bytes)
    try:
        write_note(run.dir, note)
    except OSError as error:
        raise OutsideError(f"{run.dir} cannot be written: {reason(error)}") from error
    submission = replace(again.submission, retry=by, again=())
    new = _sent(run, submission, same.known)
    text = f"{failed}; job {new.job_id} tries again {what}"
    note = replace(note, text=text, job_id=new.job_id)
    _note_down(run, note)
    if is_called_off(run.dir):
        return _ended_too(note, new._folder, run)
    take_along(run.job_id, new.job_id, _say)
    return note


def _sent(run: Run, submission: Submission, known: frozenset[str]) -> RunHandle:
    """Submit what tries a run again, unless it was cancelled or submitted by its user meanwhile."""
    with ExitStack() as held:

        def ready() -> None:
            refuse_called_off(run)
            held.enter_context(one_at_a_time(run, f"job {run.job_id}", patience_s=_OTHERS_S))
            refuse_resubmitted(run, known)

        return send(submission, tell=_say, ready=ready)[0]


def _holds(sbatch: Sequence[str]) -> list[str]:
    """Return the words for `unset` of what holds a job: nobody watches, to release the new one."""
    return [f"sbatch:{text.removeprefix('--')}" for text in sbatch if is_hold(text)]


def _note_down(run: Run, note: RetryNote) -> None:
    """Write down what followed a job; where its folder cannot be written, the log tells alone."""
    try:
        write_note(run.dir, note)
    except OSError as error:
        _say(f"{run.dir} cannot be written ({reason(error)}), so no command can tell what follows:")


def _ended_too(note: RetryNote, new: Run, run: Run) -> RetryNote:
    """End a run that was submitted while the one before it was cancelled; say what came of it."""
    why = f"job {run.job_id} was cancelled meanwhile"
    try:
        new.scheduler.cancel([new])
    except CommandError as error:
        return replace(note, text=f"{note.text}; {why}, but the new one could not be: {error}")
    return replace(note, text=f"{note.text}; {why}, and so the new one, too")


def _said(rows: tuple[Change, ...]) -> str:
    return ", ".join(row.line for row in rows) or "the same again"


def _had(job: Job, environ: Mapping[str, str], given_min: int | None) -> Had:
    """Return what this job has: what Slurm gave, who may be told otherwise than was asked for.

    The user, the cluster's support or its plugins change time and memory of a job that is there.
    """
    megabytes = whole_number(environ.get("SLURM_MEM_PER_NODE", "")) or 0
    per_cpu = whole_number(environ.get("SLURM_MEM_PER_CPU", "")) or 0
    megabytes = megabytes or per_cpu * (whole_number(environ.get("SLURM_CPUS_ON_NODE", "")) or 0)
    name, most_time_min, most_mem_gb = limits(job)
    return Had(
        mem_gb=-(-megabytes // 1024) or job.mem_gb,
        time_min=given_min or job.time_min,
        most_mem_gb=most_mem_gb,
        most_time_min=most_time_min,
        partition=name,
    )


def _slurms_word(run: Run) -> JobRecord | None:
    """Return what Slurm has of a job now, its time limit and its state; None: it does not say."""
    try:
        return squeue([run.job_id]).get(run.job_id)
    except CommandError as error:
        _say(f"job {run.job_id}: its time limit is taken to be the one asked for: {error}")
        return None


def _say(text: str) -> None:
    sys.stderr.write(f"hpckit: {text}\n")


def _unless_done(run: Run, kind: str, seen: int | None) -> RetryNote | None:
    """Submit a run again; None: an attempt before this one did, and may have been ended by it."""
    before = read_note(run.dir, in_job=True)
    if before and not (before.open and next_run(run) is None):
        return None
    return retry(run, kind, os.environ, seen)


def _tried(run: Run, kind: str, seen: int | None) -> RetryNote | None:
    """Do the same, and once more where a disk has refused something, or Slurm did not answer."""
    since = time.time()
    try:
        return _unless_done(run, kind, seen)
    except OutsideError as error:
        refused = isinstance(error, SubmissionError) and not isinstance(error, NotTakenError)
        if refused or isinstance(error, UnknownOutcomeError):
            raise
        _say(f"job {run.job_id}: {str(error).rstrip('.')}. hpckit tries once more")
        no_answer = isinstance(error, NotTakenError)
    time.sleep(_AGAIN_S)
    if no_answer:
        _end_late_one(run, since)
    return _unless_done(run, kind, seen)


def _end_late_one(run: Run, since: float) -> None:
    """End a job that Slurm took after all when sbatch had given up, and was then asked for in vain.

    It would not run either: the folder of its log is gone, and Slurm begins no such job.

    Raises:
        CommandError: Slurm does not say whether there is one, or whether it ends. OutsideError: its
            folder is still there.
    """
    note = read_note(run.dir, in_job=True)
    if note is None or note.run_id is None:
        return
    folder = run.dir.with_name(note.run_id)
    if is_there(folder):
        raise OutsideError(f"{folder} of the first attempt could not be removed")
    if late := job_of(note.run_id, since):
        control.cancel([late])


def main() -> None:
    """Submit the run again whose job this is, once; write down what came of it."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    seen = int(sys.argv[3]) if len(sys.argv) > 3 else None
    try:
        run = read_run(folder, in_job=True)
    except HpckitError as error:
        end_with(f"hpckit: it {KINDS[kind]}, and could not be submitted again: {error}")
    try:
        note = _tried(run, kind, seen)
    except UnknownOutcomeError as error:
        _say(f"job {run.job_id}: {error}")
        return  # the note names the run, whose job is looked for by whoever asks
    except (HpckitError, OSError) as error:
        why = error if isinstance(error, HpckitError) else refused_by_disk(error)
        note = RetryNote(text=f"it {KINDS[kind]}, and could not be submitted again: {why}")
    if note is not None:
        _note_down(run, note)
        _say(f"job {run.job_id}: {note.text}")
