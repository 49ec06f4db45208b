"""Why a run failed, from its folder: the cause, and the words that go with it."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.files import DamagedFileError, no_room, open_regular, read_bytes, reason
from hpckit.job_ends.causes import (
    NEVER_BEGUN,
    Cause,
    Evidence,
    Kind,
    find_cause,
    lost_hosts,
    named,
    places,
)
from hpckit.job_ends.joblog import job_facts, was_cancelled
from hpckit.job_ends.mpi_ends import is_mpi_end
from hpckit.job_ends.tracebacks import ended_by_mpi, error_line, last_error, last_words, says_why
from hpckit.launchers import recorded_launcher
from hpckit.paths import is_program
from hpckit.run_folders.ranks import RankRecord, read_all_attempts
from hpckit.run_folders.run_files import JOB_LOG
from hpckit.run_folders.run_record import once_more
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState

# Slurm's words of one attempt; what users' own set-up prints may be more.
_LOG_BYTES = 1 << 20
# Of srun's last words alone, which may be asked of each of many runs.
_LAST_BYTES = 1 << 16
_TAIL_LINES = 20
_SCRIPT, _SUPERVISOR = "job.sh", b"hpckit.submission.in_job"
# Whose text names the ranks that recorded no end, or for which there is no need to.
_NAMES_LOST = (Kind.LOST, Kind.KILLED, Kind.UNKNOWN, Kind.STOPPED, Kind.CANCELLED)
# As `hpckit.payload.recorder` says it.
_UNWRITTEN = r"hpckit: rank \d+ on \S+ cannot write to .+: (.+)\. The rank's end is not recorded\."
_TOLD = "its script ended after the signal that the time limit or a preemption was near"


def why(run: Run, ranks: Sequence[RankRecord], state: JobState) -> Cause | None:
    """Say why a run's last attempt, whose records `ranks` are, ended; None: not yet, or well."""
    return _cause(run, ranks, state, _attempt_log(run, ranks))


def ended_as(run: Run, ranks: Sequence[RankRecord]) -> tuple[JobState, Cause | None]:
    """Return how an attempt ended, at its end and inside its job, by its log and its ranks."""
    log = _attempt_log(run, ranks)
    state = job_facts(log).state or JobState.FAILED
    return state, _cause(run, ranks, state, log)


def why_from_inside(run: Run, ranks: Sequence[RankRecord]) -> Cause | None:
    """Say why an attempt failed by itself, at its end and inside its job; None: it did not.

    A time limit, a preemption or a lost node is no failure of its own, nor is an end that the
    signal before these has asked for. `ranks` are its records.
    """
    _, cause = ended_as(run, ranks)
    facts = job_facts(_attempt_log(run, ranks))
    if cause is None or cause.kind in (Kind.TIME_LIMIT, Kind.PREEMPTED) or cause.text == _TOLD:
        return None
    # Ended by a signal, and Slurm did not say that somebody had sent it.
    silent = cause.kind is Kind.STOPPED and facts.why is None and not cause.lost
    lost = cause.kind is Kind.LOST and (facts.lost_nodes or facts.why == "NODE FAILURE")
    return None if silent or lost else cause


def never_begun(folder: Path) -> str | None:
    """Say why the newest attempt of a run has no rank, by srun's last words in its log.

    For an attempt without a rank's record, since srun ends with 0 when it gives its step up. None:
    the log does not say so, or the job script is one that starts no rank of hpckit's.
    """
    if _starts_none(folder):
        return None
    before = read_all_attempts(folder, [])
    start = max((row.log_start for row in before), default=0)
    facts = job_facts(attempt_log(folder, start, most=_LAST_BYTES))
    words = facts.never_begun(again=bool(before))
    return NEVER_BEGUN.format(words) if words else None


def _starts_none(folder: Path) -> bool:
    try:
        return _SUPERVISOR not in read_bytes(folder / _SCRIPT)
    except (OSError, DamagedFileError):
        return False  # of an array's task it lies elsewhere


def cause_rows(run: Run, ranks: Sequence[RankRecord], state: JobState) -> list[tuple[str, str]]:
    """Return the cause in rows of a word (`why`, `rank 1`, `lost`, `stopped`) and a text."""
    cause = why(run, ranks, state)
    return list(_rows(cause)) if cause else []


def _rows(cause: Cause) -> Iterator[tuple[str, str]]:
    if cause.rank is None or cause.kind is not Kind.RANK:
        yield "why", cause.text
    for rank in (*([cause.rank] if cause.rank else []), *cause.also):
        error = f": {error_line(rank.error)}" if rank.error else ""
        code = "" if rank.exit_code is None else f", exit status {rank.exit_code}"
        yield f"rank {rank.rank}", f"{rank.host}{code}{error}"
    if cause.lost and cause.kind not in _NAMES_LOST:
        yield "lost", f"{places(cause.lost)} recorded no end"
    if cause.stopped:
        yield "stopped", f"{named('rank', [row.rank for row in cause.stopped])}, after that"


def error_report(run: Run, ranks: Sequence[RankRecord], state: JobState) -> str:
    """Return the cause, with the first traceback or the end of the job's own log; else nothing."""
    log = _attempt_log(run, ranks)
    cause = _cause(run, ranks, state, log)
    if cause is None:
        return ""
    from hpckit.job_ends.hints import hints  # noqa: PLC0415  # most who ask why want no advice

    said = list(_report(run, cause, log))
    return "\n".join([*said, *hints("\n".join(said), _terms(run))])


def _terms(run: Run) -> dict[str, str]:
    """Return what hints say of a run, in its own words."""
    plan, command = run.record["plan"], run.record["command"]
    # See `ProgramKind`: another program starts the Python that it finds. Older runs had no others.
    kind = (run.record.get("program") or {}).get("kind", "python")
    python = Path(command[0]) if command and kind in ("python", "module") else None
    # An environment that others look after, as hpckit's own where it is installed for all.
    closed = python is not None and is_program(python) and not os.access(python.parent, os.W_OK)
    return {
        "job_id": run.job_id,
        "again": once_more(run.record, run.job_id),
        "cwd": str(run.record["cwd"]),
        "environment": str(plan.get("environment") or "none"),
        "python": str(python or "the first python on PATH"),
        "install": "You may not install it there: choose"
        if closed
        else "Install it there, or choose",
    }


def lost_nodes(run: Run, ranks: Sequence[RankRecord], state: JobState) -> tuple[str, ...]:
    """Return the nodes that a run's last attempt, whose records `ranks` are, lost; see `causes`."""
    return lost_hosts(_known(run, ranks, state, _attempt_log(run, ranks)))


def _cause(run: Run, ranks: Sequence[RankRecord], state: JobState, log: str) -> Cause | None:
    cause = find_cause(_known(run, ranks, state, log))
    return cause and as_told(run, ranks, cause)


def _known(run: Run, ranks: Sequence[RankRecord], state: JobState, log: str) -> Evidence:
    if run.scheduler.one_machine and state is JobState.NODE_FAIL:
        state = JobState.FAILED  # this machine is there; the run's controller is not
    return Evidence(
        ranks=tuple(ranks),
        planned=run.ranks,
        state=state,
        facts=job_facts(log),
        srun=ranks_are_tasks(run),
        full=no_room(run.dir) is not None,
        was_full=_was_full(run, ranks),
        unwritten=found[1] if (found := re.search(_UNWRITTEN, log)) else None,
        alone=_is_alone(run, ranks),
        again=not ranks and bool(read_all_attempts(run.dir, [])),
        preempted=state is JobState.FAILED and _is_preempted(run, ranks, log),
        by_mpi=_by_mpi(run, ranks) if state is JobState.FAILED else (),
    )


def _by_mpi(run: Run, ranks: Sequence[RankRecord]) -> tuple[RankRecord, ...]:
    """Return ranks without an end that MPI ended, by their logs; who called MPI_Abort first."""
    found: list[tuple[bool, RankRecord]] = []
    for row in (row for row in ranks if row.ended is None):
        err = run.dir / "logs" / f"{row.rank}.err"
        if end := ended_by_mpi(err, row.err_start):
            error = last_error(err, row.err_start)
            found.append((end.aborted, replace(row, exit_code=end.status, error=error)))
    return tuple(row for _, row in sorted(found, key=lambda one: (not one[0], one[1].rank)))


def _was_full(run: Run, ranks: Sequence[RankRecord]) -> bool:
    if all(row.ended is not None for row in ranks):
        return False
    from hpckit.stop_marks import was_full  # noqa: PLC0415  # few end so

    return was_full(run.dir, ranks[0].restart)


def _is_alone(run: Run, ranks: Sequence[RankRecord]) -> bool:
    if not any(row.consequence for row in ranks):
        return False
    from hpckit.stop_marks import ALONE  # noqa: PLC0415  # few end so

    return ALONE in _said(run, ranks)


def _is_preempted(run: Run, ranks: Sequence[RankRecord], log: str) -> bool:
    from hpckit.stop_marks import PREEMPTED  # noqa: PLC0415  # few end so

    return PREEMPTED in _said(run, ranks) and not was_cancelled(log)


def as_told(run: Run, ranks: Sequence[RankRecord], cause: Cause) -> Cause:
    """Return the cause of an attempt; that its ranks ended well because they were told to."""
    if cause.kind is not Kind.JOB_SCRIPT:
        return cause
    from hpckit.stop_marks import SENT, STOPPED, UNDONE  # noqa: PLC0415  # few end so

    told = _said(run, ranks)
    return cause if told.isdisjoint({STOPPED, SENT, UNDONE}) else replace(cause, text=_TOLD)


def _said(run: Run, ranks: Sequence[RankRecord]) -> set[str]:
    """Return the words that `stop_marks` has of an attempt, by its ranks."""
    from hpckit.stop_marks import marks, marks_of  # noqa: PLC0415  # few end so

    return marks(marks_of(run.dir, 0), ranks[0].restart) if ranks else set()


def ranks_are_tasks(run: Run) -> bool:
    """Say whether the tasks that srun names in a run's log are its ranks."""
    launcher = recorded_launcher(run.record["plan"]["launcher"])
    return not run.scheduler.one_machine and launcher is not None and launcher.ranks_are_tasks


def _attempt_log(run: Run, ranks: Sequence[RankRecord]) -> str:
    """Return what the job's log has of this attempt's ranks: an earlier one may stand before."""
    return attempt_log(run.dir, min((row.log_start for row in ranks), default=0))


def log_bytes(folder: Path) -> int:
    """Return how long a job's log is, in bytes; 0 where there is none."""
    try:
        return (folder / JOB_LOG).stat().st_size
    except FileNotFoundError:
        return 0


def attempt_log(
    folder: Path, start: int, until: int | None = None, *, most: int = _LOG_BYTES
) -> str:
    """Return what the job's log has from one attempt's start, until another's, if there is one.

    Of a longer part it is the last `most` bytes.
    """
    try:
        with open_regular(folder / JOB_LOG) as stream:
            end = stream.seek(0, 2)
            end = end if until is None else min(until, end)
            stream.seek(max(start if start <= end else 0, end - most))
            return stream.read(max(end - stream.tell(), 0)).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except (OSError, DamagedFileError) as error:
        return f"damaged: {JOB_LOG}: {reason(error)}"


def _report(run: Run, cause: Cause, log: str) -> Iterator[str]:
    if cause.rank:
        yield f"{cause.text}:"
        yield from _rank_words(run, cause.rank)
    else:
        yield cause.text
        yield from _last_words(run, cause)
    if cause.also:
        also = [f"{row.rank} ({_host_and_code(row)})" for row in cause.also]
        yield f"{'also' if cause.rank else 'after that'} failed: {named('rank', also)}"
    if cause.stopped:
        numbers = [row.rank for row in cause.stopped]
        yield f"{'stopped after that' if cause.rank else 'stopped'}: {named('rank', numbers)}"
    if cause.lost and (cause.rank or cause.kind not in _NAMES_LOST):
        yield f"{places(cause.lost)} recorded no end"
    if cause.rank is None:
        yield from log.rstrip().splitlines()[-_TAIL_LINES:] or [f"{run.dir / JOB_LOG} is empty"]
    if full := no_room(run.dir):
        yield f"{full}: the last output is lost"


def _host_and_code(row: RankRecord) -> str:
    return row.host if row.exit_code is None else f"{row.host}, {row.exit_code}"


def _rank_words(run: Run, row: RankRecord) -> Iterator[str]:
    """Yield a rank's error, or the signal that ended it, and its last lines."""
    killed = row.error and row.error.startswith("killed by ")
    error = f"rank {row.rank} on {row.host}: {row.error}" if killed else row.error
    yield error or f"the rank printed no error; see {run.dir}/logs/{row.rank}.out"
    if words := row.last_words or _before_mpi(run, row):
        yield words


def _before_mpi(run: Run, row: RankRecord) -> str | None:
    """Return what a rank without an end wrote before MPI ended it."""
    if row.ended is not None or not is_mpi_end(row.error or ""):
        return None
    out, err = (run.dir / "logs" / f"{row.rank}.{end}" for end in ("out", "err"))
    return last_words((err, row.err_start), (out, row.out_start))


def _last_words(run: Run, cause: Cause) -> Iterator[str]:
    """Yield the traceback of a rank without an end: MPI_Abort ends a rank and its supervisor.

    Where nobody says why they were killed, a last line of stderr may: Open MPI 5 under srun
    writes nothing.
    """
    last = None
    for row in cause.lost:
        words = last_error(run.dir / "logs" / f"{row.rank}.err", row.err_start)
        if words and says_why(words):
            yield f"rank {row.rank} on {row.host} wrote:\n{words}"
            return
        last = last or (words and f"rank {row.rank} on {row.host} wrote last: {words}")
    if last and cause.kind in (Kind.KILLED, Kind.STOPPED):
        yield last
