"""Why a job ended as it did, and which rank, host or person did it. Pure.

The rank whose end was written first is often not the one to blame: what kills a node, a whole rank
or a job leaves no record, and the others then end by a signal from outside, or by an error that
says no more than that somebody else is gone.
"""

from collections.abc import Sequence
from enum import StrEnum

from hpckit.frozen import frozen
from hpckit.job_ends.joblog import JobFacts
from hpckit.job_ends.tracebacks import (
    HANGS_AT_END,
    OUT_OF_MEMORY,
    OUT_OF_MEMORY_SAMPLED,
    START,
    status_words,
)
from hpckit.run_folders.ranks import RankRecord, is_about_a_peer, own_failures
from hpckit.slurm.states import JobState, is_finished
from hpckit.text import listed, plural

_KILLED = 137  # by SIGKILL
NEVER_BEGUN = "no rank had started: srun gave up ({})"
_NO_LOG = "the job wrote no log"
_UNSEEN = (
    "under Slurm its node then most often does not see the folder of runs "
    "(`hpckit doctor` checks it)"
)
_FULL = "the disk of the run's folder is full, so not all could be written there"
_UNLESS_OLD = (
    ", unless its lines are all of the attempt before: then Slurm could not start the job again"
)


class Kind(StrEnum):
    """What kind of thing ended the job."""

    RANK = "rank"  # one rank's own failure
    OUT_OF_MEMORY = "out of memory"
    LOST = "lost"  # a whole node
    KILLED = "killed"  # ranks that were killed together with what watched them
    UNKNOWN = "unknown"  # of ranks that recorded no start, or could not write their end
    TIME_LIMIT = "time limit"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # by a signal from outside, or all at once with their step
    JOB_SCRIPT = "job script"  # no rank began, or all ended well


@frozen(kw_only=True)
class Cause:
    """Why a job ended.

    Attributes:
        text: one line, for people.
        rank: the one to look at; None where no rank is to blame.
        also: other ranks that failed by themselves.
        stopped: ranks ended from outside, because of the cause.
        lost: ranks that wrote no end.
    """

    kind: Kind
    text: str
    rank: RankRecord | None = None
    also: tuple[RankRecord, ...] = ()
    stopped: tuple[RankRecord, ...] = ()
    lost: tuple[RankRecord, ...] = ()


@frozen(kw_only=True)
class Evidence:
    """All that is known of an attempt.

    Attributes:
        ranks: records of this attempt's ranks; see `hpckit.run_folders.ranks.current`.
        planned: how many ranks there should be.
        state: Slurm's word for the job.
        facts: what the job's log says of this attempt.
        srun: whether the tasks in that log are ranks.
        full: the disk of the run's folder has no room left.
        was_full: a rank's record found no room there, or in its user's quota.
        unwritten: why a rank's record could not be written, as the job's log says.
        alone: a supervisor has said that its slurmstepd was killed.
        again: an attempt before this one had ranks.
        preempted: a supervisor has learned from Slurm that a preemption's grace time had begun.
        by_mpi: of `ranks`, those without an end that MPI ended as it says in their logs, with the
            exit status and the error that these tell, the first to look at first.
    """

    ranks: tuple[RankRecord, ...]
    planned: int
    state: JobState
    facts: JobFacts
    srun: bool = True
    full: bool = False
    was_full: bool = False
    unwritten: str | None = None
    alone: bool = False
    again: bool = False
    preempted: bool = False
    by_mpi: tuple[RankRecord, ...] = ()

    @property
    def own(self) -> tuple[RankRecord, ...]:
        """Ranks that failed by themselves, the first one first."""
        return tuple(own_failures(self.ranks))

    @property
    def lost(self) -> tuple[RankRecord, ...]:
        """Ranks that wrote no end, of a job that is over."""
        over = is_finished(self.state)
        return tuple(row for row in self.ranks if row.ended is None) if over else ()

    @property
    def stopped(self) -> tuple[RankRecord, ...]:
        """Ranks ended from outside."""
        return tuple(row for row in self.ranks if row.consequence)

    @property
    def step_ended(self) -> bool:
        """Whether the step may have been ended as a whole, as by scancel: nobody died first."""
        tasks, told = self.facts.tasks, any(row.ended is not None for row in self.ranks)
        if self.facts.why == "":
            return not tasks or tasks[0].aborted or not told
        # Slurm does not always write so. Of several nodes, one alone runs out of memory.
        return bool(tasks) and not told and len({row.host for row in self.ranks}) > 1

    @property
    def silent(self) -> RankRecord | None:
        """The first rank that had failed or was done, and hung until it was ended from outside."""
        words = START, HANGS_AT_END
        return next((row for row in self.stopped if _has(row, *words)), None)


TAKEN_AWAY = "a job of higher priority took its place"
# What Slurm calls the end of a job that was not its ranks' doing, and the words it has in the log.
_TAKEN: tuple[tuple[JobState, str, Kind, str], ...] = (
    (JobState.TIMEOUT, "TIME LIMIT", Kind.TIME_LIMIT, "the job reached its time limit"),
    (JobState.DEADLINE, "DEADLINE", Kind.TIME_LIMIT, "the job reached its deadline"),
    (JobState.PREEMPTED, "PREEMPTION", Kind.PREEMPTED, TAKEN_AWAY),
    (JobState.REQUEUED, "JOB REQUEUE", Kind.PREEMPTED, "the job was put back into the queue"),
    (JobState.CANCELLED, "", Kind.CANCELLED, "the job was cancelled"),
)


def find_cause(known: Evidence) -> Cause | None:
    """Say why a job's last attempt ended; None while it has not, or when it ended well."""
    if known.state is JobState.COMPLETED:
        return None
    if known.own and not _others_first(known):
        return _ranks_own(known)
    if not is_finished(known.state):
        return None
    for look in (_lost_node, _out_of_memory, _taken):
        if found := look(known):
            return _from_outside(known, *found, silent=look is _taken)
    if known.by_mpi:
        return _ended_by_mpi(known)
    for look in (_lost_ranks, _signalled):
        if found := look(known):
            return _from_outside(known, *found, silent=look is _signalled)
    if known.own:  # they only say that a peer is gone, and none is
        return _ranks_own(known)
    if not known.ranks and (words := known.facts.never_begun(again=known.again)):
        return Cause(kind=Kind.JOB_SCRIPT, text=NEVER_BEGUN.format(words))
    well = "every rank ended well" if known.ranks else "no rank had started"
    unless = _UNLESS_OLD if known.again else ""
    if known.facts.written:
        log = f"the job's own log says why it failed{unless}"
        log += f"; {_FULL}" if known.full else ""
    else:
        unseen = "" if known.ranks else f"; {_UNSEEN}"
        log = f"{_NO_LOG}: {_FULL}" if known.full else f"{_NO_LOG}{unseen}"
    return Cause(kind=Kind.JOB_SCRIPT, text=f"{well}: {log}")


def _from_outside(known: Evidence, kind: Kind, text: str, *, silent: bool) -> Cause:
    """Return a cause that is no rank's own end; `silent` ranks may have had a part in it."""
    failed = known.silent if silent else None
    if failed:
        was = "had failed" if _has(failed, START) else "was done"
        text = f"rank {failed.rank} on {failed.host} {was} and did not end; {text}"
    elif kind in (Kind.TIME_LIMIT, Kind.PREEMPTED, Kind.CANCELLED):
        text = f"{text}; no rank is the cause"
    stopped = tuple(row for row in known.stopped if row is not failed)
    return Cause(
        kind=kind, text=text, rank=failed, also=known.own, stopped=stopped, lost=known.lost
    )


def _others_first(known: Evidence) -> bool:
    """Say whether something else came before the first failure of a rank's own."""
    if _lost_node(known):
        return True
    if is_about_a_peer(known.own[0]):
        return bool(known.lost or _taken(known))
    # SIGKILL to the whole step may look like a failure of a rank's own; an error is one.
    errors = known.own[0].exit_code != _KILLED
    if known.by_mpi and not errors:  # it had the whole step killed
        return True
    lost = _first_told(known.lost, known, in_order=errors)
    return known.srun and lost < _first_told(known.own, known, in_order=errors)


def _first_told(rows: Sequence[RankRecord], known: Evidence, *, in_order: bool) -> int:
    """Return the place in the log of the first of these ranks to end, or past its end.

    `in_order`: only of ends from before the whole step was ended.
    """
    numbers = {row.rank for row in rows}
    tasks = [end for end in known.facts.tasks if not (in_order and end.aborted)]
    return next((at for at, end in enumerate(tasks) if numbers & {*end.tasks}), len(tasks))


def _ranks_own(known: Evidence) -> Cause:
    first, *also = known.own
    said = known.state is JobState.OUT_OF_MEMORY or known.facts.out_of_memory
    memory = (said and first.exit_code == _KILLED) or _has(
        first, OUT_OF_MEMORY, OUT_OF_MEMORY_SAMPLED
    )
    words = f"rank {first.rank} on {first.host} failed first, exit status {first.exit_code}"
    ran_s = (first.ended or first.started) - first.started
    # Less than nothing where its node's clock was set in between.
    after = f", {ran_s:.1f} s after its start" if ran_s >= 0 else ""
    means = "out of memory" if memory else status_words(first.exit_code)
    return Cause(
        kind=Kind.OUT_OF_MEMORY if memory else Kind.RANK,
        text=f"{words}{means and f' ({means})'}{after}",
        rank=first,
        also=tuple(also),
        stopped=known.stopped,
        lost=known.lost,
    )


def _ended_by_mpi(known: Evidence) -> Cause:
    """Return the cause where MPI ended a rank, and then Slurm the step with all that watched it."""
    first, *also = known.by_mpi
    code = "" if first.exit_code is None else f", exit status {first.exit_code}"
    numbers = {row.rank for row in known.by_mpi}
    return Cause(
        kind=Kind.RANK,
        text=f"rank {first.rank} on {first.host} failed first{code}",
        rank=first,
        also=(*also, *known.own),
        stopped=known.stopped,
        lost=tuple(row for row in known.lost if row.rank not in numbers),
    )


_Found = tuple[Kind, str] | None


def _lost_node(known: Evidence) -> _Found:
    if not _is_node_lost(known):
        return None
    nodes, hosts = known.facts.lost_nodes, _may_be_lost(known)
    if not nodes and len(hosts) > 1:  # ranks of the others may still be on their way out
        told = "`sinfo -R` shows which node Slurm holds down"
        return Kind.LOST, f"a node was lost; ranks on {listed(hosts)} recorded no end ({told})"
    return Kind.LOST, f"node {listed(hosts)} was lost" if hosts else "a node was lost"


def _is_node_lost(known: Evidence) -> bool:
    failed = known.state in (JobState.NODE_FAIL, JobState.BOOT_FAIL)
    return failed or bool(known.facts.lost_nodes)


def _may_be_lost(known: Evidence) -> tuple[str, ...]:
    return known.facts.lost_nodes or tuple(dict.fromkeys(row.host for row in known.lost))


def lost_hosts(known: Evidence) -> tuple[str, ...]:
    """Return the nodes that were lost, as srun or their ranks call them; none where it is open.

    Without srun's word: the one node whose ranks recorded no end, if every rank had begun.
    """
    hosts = _may_be_lost(known) if _is_node_lost(known) else ()
    sure = len(hosts) == 1 and len(known.ranks) == known.planned
    return hosts if known.facts.lost_nodes or sure else ()


def _out_of_memory(known: Evidence) -> _Found:
    if known.state is not JobState.OUT_OF_MEMORY and not known.facts.out_of_memory:
        return None
    return Kind.OUT_OF_MEMORY, "the job ran out of memory"


def _taken(known: Evidence) -> _Found:
    """Return how Slurm, or somebody who told it to, took the job away."""
    by_state = (row for row in _TAKEN if row[0] is known.state)
    # The log may also speak of an attempt before, where this one had not begun.
    by_log = (row for row in _TAKEN if row[1] and row[1] == known.facts.why)
    if taken := next(by_state, None) or next(by_log, None):
        return taken[2], taken[3]
    # A job that ends in its grace time is FAILED, and Slurm's log has no reason.
    return (Kind.PREEMPTED, TAKEN_AWAY) if known.preempted else None


def _why_no_end(known: Evidence) -> str:
    """Return why ranks recorded no end: what they could not write says nothing of it."""
    if known.full:
        return "their folder's disk is full"
    if known.was_full:
        return "their folder's disk or quota was full"
    if known.unwritten:
        return f"it cannot be written ({known.unwritten})"
    return "killed from outside"


def _lost_ranks(known: Evidence) -> _Found:
    begun = {row.rank for row in known.ranks}
    never = sorted({*range(known.planned)} - begun) if begun else []
    if not known.lost and not never:
        return None
    parts = []
    if known.lost:
        parts.append(f"{places(known.lost)} recorded no end: {_why_no_end(known)}")
        numbers = {row.rank for row in known.lost}
        tasks = (end for end in known.facts.tasks if known.srun and numbers & {*end.tasks})
        told = next((end for end in tasks if not end.aborted), None)
        if told:
            first = f"{named('task', told.tasks)} of {told.host}"
            parts.append(f"srun saw {first} end first: {told.words}")
    if never:
        parts.append(f"{named('rank', never)} never started")
    kind = Kind.STOPPED if known.step_ended else Kind.KILLED
    # Of ranks that could not write their end nobody knows whether they were killed.
    sure = known.lost and not (known.full or known.was_full or known.unwritten)
    return kind if sure else Kind.UNKNOWN, "; ".join(parts)


def _signalled(known: Evidence) -> _Found:
    if known.alone and known.stopped:
        return Kind.KILLED, "a slurmstepd was killed, and hpckit ended the ranks"
    return (Kind.STOPPED, "ranks were ended from outside, by a signal") if known.stopped else None


def _has(row: RankRecord, *words: str) -> bool:
    return any(word in (row.error or "") for word in words)


def places(rows: Sequence[RankRecord]) -> str:
    """Name ranks with their hosts: 'ranks 0 (n1), 3 (n2)'."""
    return named("rank", [f"{row.rank} ({row.host})" for row in rows])


def named(noun: str, items: Sequence[object]) -> str:
    """Return 'rank 3' or 'ranks 1, 2'."""
    return f"{plural(noun, len(items))} {listed([str(item) for item in items])}"
