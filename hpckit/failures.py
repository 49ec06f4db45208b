"""Why a run failed, from its folder: the cause, and the words that go with it."""

from collections.abc import Iterator, Sequence

from hpckit.causes import Cause, Evidence, Kind, find_cause, places
from hpckit.files import DamagedFileError, no_room, open_regular, reason
from hpckit.hints import hints
from hpckit.joblog import job_facts
from hpckit.launchers import recorded_launcher
from hpckit.logs import JOB_LOG
from hpckit.ranks import RankRecord
from hpckit.runs import Run
from hpckit.slurm.states import JobState
from hpckit.tracebacks import last_error, says_why

# Slurm's words of one attempt; what users' own set-up prints may be more.
_LOG_BYTES = 1 << 20
_TAIL_LINES = 20


def why(run: Run, ranks: Sequence[RankRecord], state: JobState) -> Cause | None:
    """Say why a run's last attempt, whose records `ranks` are, ended; None: not yet, or well."""
    return _cause(run, ranks, state, _attempt_log(run, ranks))


def error_report(run: Run, ranks: Sequence[RankRecord], state: JobState) -> str:
    """Return the cause, with the first traceback or the end of the job's own log; else nothing."""
    log = _attempt_log(run, ranks)
    cause = _cause(run, ranks, state, log)
    if cause is None:
        return ""
    said = list(_report(run, cause, log))
    return "\n".join([*said, *hints("\n".join(said), _terms(run))])


def _terms(run: Run) -> dict[str, str]:
    """Return what hints say of a run, in its own words."""
    plan, command = run.record["plan"], run.record["command"]
    # See `ProgramKind`: another program starts the Python that it finds. Older runs had no others.
    kind = (run.record.get("program") or {}).get("kind", "python")
    by_python = kind in ("python", "module")
    return {
        "job_id": run.job_id,
        "cwd": str(run.record["cwd"]),
        "environment": str(plan.get("environment") or "none"),
        "python": str(command[0]) if command and by_python else "the first python on PATH",
    }


def _cause(run: Run, ranks: Sequence[RankRecord], state: JobState, log: str) -> Cause | None:
    if run.scheduler.one_machine and state is JobState.NODE_FAIL:
        state = JobState.FAILED  # this machine is there; the run's controller is not
    launcher = recorded_launcher(run.record["plan"]["launcher"])
    ranks_are_tasks = launcher is not None and launcher.ranks_are_tasks
    known = Evidence(
        ranks=tuple(ranks),
        planned=run.ranks,
        state=state,
        facts=job_facts(log),
        srun=not run.scheduler.one_machine and ranks_are_tasks,
        full=no_room(run.dir) is not None,
    )
    return find_cause(known)


def _attempt_log(run: Run, ranks: Sequence[RankRecord]) -> str:
    """Return what the job's log has of this attempt's ranks: an earlier one may stand before."""
    start = min((row.log_start for row in ranks), default=0)
    try:
        with open_regular(run.dir / JOB_LOG) as stream:
            end = stream.seek(0, 2)
            stream.seek(max(start if start <= end else 0, end - _LOG_BYTES))
            return stream.read(_LOG_BYTES).decode(errors="replace")
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
        yield from _last_words(run, cause.lost)
    if cause.also:
        also = (f"{row.rank} ({row.host}, {row.exit_code})" for row in cause.also)
        yield f"{'also' if cause.rank else 'after that'} failed: rank(s) {', '.join(also)}"
    if cause.stopped:
        numbers = ", ".join(str(row.rank) for row in cause.stopped)
        yield f"{'stopped after that' if cause.rank else 'stopped'}: rank(s) {numbers}"
    if cause.lost and (cause.rank or cause.kind not in (Kind.LOST, Kind.CANCELLED)):
        yield f"rank(s) {places(cause.lost)} recorded no end"
    if cause.rank is None:
        yield from log.rstrip().splitlines()[-_TAIL_LINES:] or [f"{run.dir / JOB_LOG} is empty"]
    if full := no_room(run.dir):
        yield f"{full}: the last output is lost"


def _rank_words(run: Run, row: RankRecord) -> Iterator[str]:
    """Yield a rank's error, or the signal that ended it, and its last lines."""
    killed = row.error and row.error.startswith("killed by ")
    error = f"rank {row.rank} on {row.host}: {row.error}" if killed else row.error
    yield error or f"the rank printed no error; see {run.dir}/logs/{row.rank}.out"
    if row.last_words:
        yield row.last_words


def _last_words(run: Run, lost: Sequence[RankRecord]) -> Iterator[str]:
    """Yield the traceback of a rank without an end: MPI_Abort ends a rank and its supervisor."""
    for row in lost:
        words = last_error(run.dir / "logs" / f"{row.rank}.err")
        if words and says_why(words):
            yield f"rank {row.rank} on {row.host} wrote:\n{words}"
            return
