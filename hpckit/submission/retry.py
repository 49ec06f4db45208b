"""`--retry`: why a job failed, as its rules say it, what is asked for next, and who followed it.

Inside the job, at its end, `hpckit.submission.retried` finds out why, and `hpckit.api.retry`
submits it again. Both runs say so: the record of the new one, and a note in the folder of the old.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from hpckit.errors import HpckitError, RequestError
from hpckit.frozen import frozen
from hpckit.job import Job
from hpckit.job_ends.causes import Cause, Kind
from hpckit.job_spec.retry_rules import FAIL, KINDS, OOM, TIMEOUT, Rule, parse_rules
from hpckit.paths import is_there
from hpckit.run_folders import run_files
from hpckit.run_folders.run_files import patiently, write_json
from hpckit.run_folders.run_record import RetryOf
from hpckit.run_folders.runs import Run, following
from hpckit.slurm.states import JobState, is_finished
from hpckit.submission.handover import HANDOVER
from hpckit.submission.task_numbers import lost_by_retry
from hpckit.text import in_line
from hpckit.units import format_minutes
from hpckit.values import Count, Word

# What a job's log says of it where no rule is for its end.
NOT_AGAIN = "is not tried again: "
_NOTE = "retry.json"
_OPTIONS = {"mem_gb": "--mem-gb", "time_min": "--time"}
# What no rule is for; a job that was cancelled needs no word.
_NO_RULE = {
    Kind.LOST: "a lost node (--max-requeues N is for these)",
    Kind.UNKNOWN: "ranks that recorded no start or no end",
    Kind.PREEMPTED: "a preemption (--max-requeues N is for these)",
    Kind.STOPPED: "ranks that a signal from outside has ended, or scancel of a step",
    Kind.JOB_SCRIPT: "a job script that failed",
}
_LABELS = {"mem_gb": "memory per node", "time_min": "time"}


@frozen(kw_only=True)
class Had:
    """What a job had, and the most that its partition gives; None: not known, or no limit."""

    mem_gb: int | None
    time_min: int
    most_mem_gb: int | None = None
    most_time_min: int | None = None
    partition: str | None = None


@frozen(kw_only=True)
class Change:
    """One thing that is asked for otherwise."""

    field: str
    before: int
    after: int
    note: str = ""

    @property
    def line(self) -> str:
        """Both values, as `memory per node: 1 GiB -> 2 GiB`."""
        said = f"{_written(self.field, self.before)} -> {_written(self.field, self.after)}"
        return f"{_LABELS[self.field]}: {said}{self.note}"

    @property
    def words(self) -> tuple[str, str]:
        """The option of `hpckit resubmit` that makes this change."""
        value = str(self.after) if self.field == "mem_gb" else format_minutes(self.after)
        return _OPTIONS[self.field], value


def _written(field: str, value: int) -> str:
    return f"{value} GiB" if field == "mem_gb" else format_minutes(value)


def kind_of(state: JobState, cause: Cause | None) -> str | None:
    """Return the kind of failure that a job ended with; None: it did not fail by itself."""
    kind = cause.kind if cause else None
    if kind is Kind.OUT_OF_MEMORY or state is JobState.OUT_OF_MEMORY:
        return OOM
    if kind is Kind.TIME_LIMIT or state is JobState.TIMEOUT:
        return TIMEOUT
    return FAIL if kind in (Kind.RANK, Kind.KILLED) and state is JobState.FAILED else None


def rules_of(run: Run) -> list[str]:
    """Return the rules that a run was submitted with, as its record has them."""
    return [str(text) for text in run.record["request"].get("retry") or ()]


def has_rule(rules: Sequence[str], kind: str) -> bool:
    """Say whether one of the rules is for a kind of failure."""
    return any(text.partition(":")[0] == kind for text in rules)


def why_not(rules: Sequence[str], state: JobState, cause: Cause | None) -> str | None:
    """Say why no rule was for a job's end; None: one was, or it needs no word."""
    kind = kind_of(state, cause)
    if kind is None:
        what = _NO_RULE.get(cause.kind) if cause else None
        return what and f"--retry has no rule for {what}"
    if has_rule(rules, kind):
        return None
    return f"it {KINDS[kind]}, and --retry {','.join(rules)} has no rule of the kind {kind}"


def changes(rules: Sequence[Rule], kind: str, had: Had) -> tuple[Change, ...] | str:
    """Return what a job asks for after a failure, or why it cannot be tried again.

    A value is never above what the partition gives.
    """
    found: list[Change] = []
    mine = [rule for rule in rules if rule.kind == kind]
    for rule in mine:
        if rule.field is None:
            continue
        before = getattr(had, rule.field)
        if before is None:
            return f"how much {_LABELS[rule.field]} it had is unknown"
        wanted = rule.value or math.ceil(before * (rule.factor or 1.0) - 1e-9)
        most, note = getattr(had, f"most_{rule.field}"), ""
        if most is not None and wanted > most:
            where = f"partition {had.partition}" if had.partition else "the site"
            limit = f"{where} gives at most {_written(rule.field, most)}"
            wanted, note = most, f" ({limit})"
        if wanted <= before:
            why = note.strip(" ()") or f"the rule asks for {_written(rule.field, wanted)}"
            return f"it had {_written(rule.field, before)} of {_LABELS[rule.field]}, and {why}"
        found.append(Change(field=rule.field, before=before, after=wanted, note=note))
    return tuple(found)


def look_at_rules(job: Job, retries: int, *, again: bool) -> tuple[str, ...]:
    """Return notes on rules that cannot act, or not as often as they may.

    `again` is for a request that was made before: the last of its retries has rules that have done
    their work, and they are told, not refused.

    Raises:
        RequestError: a rule can never act.
    """
    rules = parse_rules(job.retry)
    idle = tuple(_idle_rules(rules, _asked(job)))
    if idle and not again:
        raise RequestError(f"{idle[0]}. Give more, or leave the rule out.")
    once = {rule.kind for rule in rules if rule.value is not None}
    if once == {rule.kind for rule in rules} and retries > len(once) and not idle:
        rule = ",".join(job.retry)
        often = "once for each kind of failure" if len(once) > 1 else "once"
        idle = (f"--retries {retries}: --retry {rule} names fixed sizes and can act only {often}",)
    return (*idle, *lost_by_retry(job.program.file if job.is_array and not again else None))


def _asked(job: Job) -> Had:
    """Return what a job will have, as far as that is certain before it is submitted."""
    partition = job.options["partition"]
    limits = job.site.partitions.get(partition or "")
    return Had(
        mem_gb=job.mem_gb,
        time_min=job.time_min,
        most_mem_gb=limits.mem_gb_per_node if limits else None,
        most_time_min=limits.max_time_min if limits else None,
        partition=partition,
    )


def _idle_rules(rules: Sequence[Rule], had: Had) -> Iterator[str]:
    for rule in rules:
        known = rule.field is not None and getattr(had, rule.field) is not None
        why = changes([rule], rule.kind, had) if known else ()
        if isinstance(why, str):
            yield f"--retry {rule.text} can never act: {why.replace('it had', 'the job has', 1)}"


@frozen(kw_only=True)
class RetryNote:
    """What followed a failed job: another run, or nothing, and why.

    Attributes:
        text: for people.
        run_id, job_id: the other run's; the second is None while it is being submitted.
        log_bytes: how long the job's log was when the job had failed; None: it does not count.
    """

    text: Word
    run_id: Word | None = None
    job_id: Word | None = None
    log_bytes: Count | None = None

    @property
    def open(self) -> bool:
        """Whether the other run was about to be submitted, and nobody said what came of it."""
        return self.run_id is not None and self.job_id is None


def write_note(run_dir: Path, note: RetryNote) -> None:
    """Write down what followed a job.

    Raises:
        OSError: the run's folder cannot be written.
    """
    patiently(lambda: write_json(run_dir / _NOTE, asdict(note)))


def read_note(run_dir: Path, *, in_job: bool = False) -> RetryNote | None:
    """Return what followed a job; None: nothing, or nobody could say so.

    `in_job` is that of `run_files.read_note`.
    """
    return run_files.read_note(run_dir / _NOTE, RetryNote, in_job=in_job)


def retry_after(run: Run) -> Run | None:
    """Return the run that was submitted after this one had failed; None: there is none."""
    note = read_note(run.dir)
    if note is None or note.run_id is None or "/" in note.run_id:
        return None
    return following(run, "retry", note.run_id, run.dir.with_name(note.run_id))


def last_retry(run: Run) -> Run:
    """Return the run that tried a run again last; itself if none did."""
    while run.record["request"].get("retry") and (new := retry_after(run)):
        run = new
    return run


def retry_lines(run: Run, state: JobState, cause: Cause | None, limit_min: int | None) -> list[str]:
    """Say of a run which run it tries again, and what tries it again; or what was to do so.

    `limit_min` is its time limit by Slurm, which may not be the one asked for; None: unknown.
    """
    before: RetryOf | None = run.record.get("retry")
    said = [in_line(f"job {before['job_id']} {before['text']}")] if before else []
    if line := _noted(run):
        return [*said, in_line(line)]
    rules = rules_of(run)
    if not rules or not is_finished(state) or state is JobState.COMPLETED:
        return said
    killed = has_rule(rules, FAIL) and _was_killed(run, cause)
    if not killed and (no := why_not(rules, state, cause)):
        return [*said, in_line(f"not tried again: {no}")]
    kind = FAIL if killed else kind_of(state, cause)
    if kind is None:
        return said
    how = f"hpckit resubmit {run.job_id} {_by_hand(run, kind, limit_min)}".rstrip()
    return [*said, f"it {KINDS[kind]}, and could not submit itself again. To do so: {how}"]


def _was_killed(run: Run, cause: Cause | None) -> bool:
    """Say whether the process that was to submit a run again was killed before its ranks were told.

    Of ranks that a signal has ended it says in the log why they are not tried again.
    """
    if cause is None or cause.kind is not Kind.STOPPED:
        return False
    from hpckit.job_ends.failures import attempt_log  # noqa: PLC0415  # few end so

    return NOT_AGAIN not in attempt_log(run.dir, 0)


def _noted(run: Run) -> str | None:
    """Return what a run's note says of the run that follows it; None: nothing that counts."""
    note = read_note(run.dir)
    if note is None:
        return None
    if not note.open:
        return note.text
    if new := retry_after(run):
        return note.text.replace(f"run {new.run_id}", f"job {new.job_id}", 1)
    if not is_there(run.dir.with_name(str(note.run_id)) / HANDOVER):
        return None
    ask = f"hpckit status {note.run_id}"
    return f"{note.text}; whether Slurm has taken that run is not known yet. To know: {ask}"


def _by_hand(run: Run, kind: str, limit_min: int | None) -> str:
    """Return the options of `hpckit resubmit` that do what the rules say, as far as is known."""
    plan = run.record["plan"]
    had = Had(mem_gb=plan.get("mem_gb"), time_min=limit_min or plan["time_min"])
    try:
        found = changes(parse_rules(run.record["request"]["retry"]), kind, had)
    except (HpckitError, ValueError, TypeError):  # of another version
        return "--right-size"
    if isinstance(found, str):
        return "--right-size"
    return " ".join(f"{option} {value}" for option, value in (row.words for row in found))
