"""Why the attempts before the newest one ended: by each one's part of the job's log, and its ranks.

Accounting has a state for each, and neither a node nor a rank; it may be off, or silent.
"""

from collections.abc import Sequence

from hpckit.frozen import frozen
from hpckit.job_ends.causes import TAKEN_AWAY, Evidence, find_cause, lost_hosts
from hpckit.job_ends.failures import as_told, attempt_log, ranks_are_tasks
from hpckit.job_ends.joblog import job_facts
from hpckit.run_folders.ranks import RankRecord, read_all_attempts
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState
from hpckit.stop_marks import LIMIT, PREEMPTED, marks, marks_of
from hpckit.text import by_number, listed

_NO_CAUSE = "; no rank is the cause"
_NEAR_LIMIT = "requeued before its time limit"
_WARNED = "requeued after the signal that its time limit was near"


@frozen(kw_only=True)
class EarlierEnd:
    """How one attempt ended that another one followed.

    Attributes:
        ranks: those that had begun, at least one.
        why: in words.
        lost: the nodes that were lost, where that is known.
    """

    ranks: tuple[RankRecord, ...]
    why: str
    lost: tuple[str, ...] = ()

    @property
    def restart(self) -> int:
        """Which attempt it was."""
        return self.ranks[0].restart

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where its ranks had begun."""
        return tuple(sorted({row.host for row in self.ranks}, key=by_number))

    @property
    def text(self) -> str:
        """The same in one line."""
        return f"attempt {self.restart} on {listed(self.hosts)}: {self.why}"


def earlier_ends(run: Run, restarts: int | None) -> list[EarlierEnd]:
    """Return the ends of attempts whose ranks had begun, oldest first.

    Args:
        run: which may be over, or not.
        restarts: of the newest attempt; None: not known, then the newest that has ranks.
    """
    rows: dict[int, list[RankRecord]] = {}
    for row in read_all_attempts(run.dir, []):
        rows.setdefault(row.restart, []).append(row)
    newest = max(rows, default=0) if restarts is None else restarts
    begun = {number: min(row.log_start for row in rows[number]) for number in sorted(rows)}
    later = {number: begun.get(number + 1) for number in begun}
    return [
        _end(run, tuple(rows[number]), attempt_log(run.dir, begun[number], later[number]))
        for number in begun
        if number < newest
    ]


def _end(run: Run, ranks: tuple[RankRecord, ...], log: str) -> EarlierEnd:
    if run.scheduler.one_machine:  # this machine's only cause for another start
        return EarlierEnd(ranks=ranks, why=_NEAR_LIMIT)
    known = _known(run, ranks, log)
    lost_node = known.facts.lost_nodes or known.state is JobState.NODE_FAIL
    if not lost_node and (told := _requeued(run, ranks[0].restart)):
        return EarlierEnd(ranks=ranks, why=told)
    cause = find_cause(known)
    cause = cause and as_told(run, ranks, cause)
    why = cause.text.removesuffix(_NO_CAUSE) if cause else f"it ended {known.state}"
    return EarlierEnd(ranks=ranks, why=why, lost=lost_hosts(known))


def _requeued(run: Run, attempt: int) -> str | None:
    """Say why hpckit, or the script, has requeued the job; None: that is not known.

    Slurm's log then has its words for `scontrol requeue`, which a user may also have typed.
    """
    words = marks(marks_of(run.dir, 0), attempt)
    if PREEMPTED in words:
        return TAKEN_AWAY
    return _WARNED if LIMIT in words else None


def _known(run: Run, ranks: Sequence[RankRecord], log: str) -> Evidence:
    facts = job_facts(log)
    # Slurm starts a job again by itself, without a word in its log, where the log's node is gone.
    # The next job of a chain starts however this one ended.
    again = len(run.jobs) == 1
    silent = again and facts.why is None and any(row.ended is None for row in ranks)
    lost = facts.lost_nodes or silent
    return Evidence(
        ranks=tuple(sorted(ranks, key=lambda row: row.rank)),
        planned=run.ranks,
        state=facts.state or (JobState.NODE_FAIL if lost else JobState.FAILED),
        facts=facts,
        srun=ranks_are_tasks(run),
    )
