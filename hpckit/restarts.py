"""Why the attempts before the newest one ended: by each one's part of the job's log, and its ranks.

Accounting has a state for each, and neither a node nor a rank; it may be off, or silent.
"""

from collections.abc import Sequence

from hpckit.causes import Evidence, find_cause, listed
from hpckit.failures import attempt_log, ranks_are_tasks
from hpckit.frozen import frozen
from hpckit.joblog import job_facts
from hpckit.ranks import RankRecord, read_all_attempts
from hpckit.runs import Run
from hpckit.slurm.states import JobState

# What slurmstepd writes of a job that it is told to end, and the state that accounting then has.
_STATES = {
    "PREEMPTION": JobState.PREEMPTED,
    "TIME LIMIT": JobState.TIMEOUT,
    "NODE FAILURE": JobState.NODE_FAIL,
}
_NO_CAUSE = "; no rank is the cause"


@frozen(kw_only=True)
class EarlierEnd:
    """How one attempt ended that another one followed.

    Attributes:
        hosts: of the ranks that had begun.
        why: in words.
    """

    restart: int
    hosts: tuple[str, ...]
    why: str

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
        EarlierEnd(
            restart=number,
            hosts=tuple(sorted({row.host for row in rows[number]})),
            why=_why(run, rows[number], attempt_log(run, begun[number], later[number])),
        )
        for number in begun
        if number < newest
    ]


def _why(run: Run, ranks: Sequence[RankRecord], log: str) -> str:
    if run.scheduler.one_machine:
        return "requeued before its time limit"  # this machine's only cause for another start
    facts = job_facts(log)
    said = next((state for words, state in _STATES.items() if words in (facts.why or "")), None)
    # Slurm starts a job again by itself, without a word in its log, where the log's node is gone.
    silent = facts.why is None and any(row.ended is None for row in ranks)
    lost = facts.lost_nodes or silent
    state = said or (JobState.NODE_FAIL if lost else JobState.FAILED)
    known = Evidence(
        ranks=tuple(sorted(ranks, key=lambda row: row.rank)),
        planned=run.ranks,
        state=state,
        facts=facts,
        srun=ranks_are_tasks(run),
    )
    cause = find_cause(known)
    return cause.text.removesuffix(_NO_CAUSE) if cause else f"it ended {state}"
