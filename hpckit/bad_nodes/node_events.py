"""Which nodes a run's attempts speak ill of: lost ones, by Slurm, and broken hardware, by ranks.

A rank's words are about its own node, whose name stands beside them in the rank's record. What is
not known to be one node's fault blames none.
"""

from collections.abc import Iterable, Iterator, Sequence

from hpckit.bad_nodes.faults import blamed
from hpckit.bad_nodes.node_memory import NodeEvent
from hpckit.job_ends.failures import lost_nodes
from hpckit.job_ends.restarts import EarlierEnd, earlier_ends
from hpckit.run_folders.ranks import Fault, RankRecord, own_failures, read_all_attempts, read_ranks
from hpckit.run_folders.runs import Run
from hpckit.slurm.hostlist import is_host
from hpckit.slurm.states import JobState, is_finished

LOST = "the node was lost (Slurm)"


def events_of(
    run: Run, ranks: Sequence[RankRecord], state: JobState, earlier: Iterable[EarlierEnd]
) -> list[NodeEvent]:
    """Return what the attempts of a run that are over tell of its nodes; none of a local run.

    Args:
        run: which may be over, or not.
        ranks: of its newest attempt.
        state: the run's.
        earlier: how the attempts before that one ended.
    """
    if run.scheduler.one_machine:
        return []
    found: list[NodeEvent] = []
    for end in earlier:
        found += [*_lost(run, end.ranks, end.lost), *by_fault(run, end.ranks)]
    if is_finished(state) and state is not JobState.COMPLETED:
        found += [*_lost(run, ranks, lost_nodes(run, ranks, state)), *by_fault(run, ranks)]
    return found


def events_at_end(run: Run) -> list[NodeEvent]:
    """Return the same of a run whose newest attempt is over, without asking Slurm for it."""
    return events_of(run, read_ranks(run.dir), JobState.FAILED, earlier_ends(run, None))


def _lost(run: Run, ranks: Sequence[RankRecord], hosts: Iterable[str]) -> Iterator[NodeEvent]:
    """Yield lost nodes that the attempt's ranks were on: anything may stand in a job's log."""
    when = max((row.ended or row.started for row in ranks), default=0.0)
    for row in {row.node: row for row in ranks if {row.host, row.node} & {*hosts}}.values():
        yield from _event(run, row, LOST, f"job {run.job_id} lost node {row.host}", when)


def by_fault(run: Run, ranks: Sequence[RankRecord]) -> Iterator[NodeEvent]:
    """Yield what ranks of one attempt wrote of their nodes' hardware."""
    faults: dict[str, list[Fault]] = {row.host: [] for row in ranks}
    told: dict[tuple[str, str], RankRecord] = {}
    for row in ranks:
        asked = row.fault and (row.fault.sure or run.gpus)
        if row.fault and asked:
            faults[row.host].append(row.fault)
            told.setdefault((row.host, row.fault.what), row)
    for host, rows in blamed(faults, _working(ranks)).items():
        for fault in rows:
            row = told[host, fault.what]
            yield from _event(run, row, fault.what, fault.words, row.ended or row.started)


def _working(ranks: Sequence[RankRecord]) -> Iterator[str]:
    """Yield the hosts of ranks that ended well, or failed by themselves and not for their node."""
    failed = {row.rank for row in own_failures(ranks)}
    for row in ranks:
        if row.fault is None and (row.exit_code == 0 or row.rank in failed):
            yield row.host


def _event(run: Run, row: RankRecord, what: str, words: str, when: float) -> Iterator[NodeEvent]:
    """Yield an event of a rank's node, if Slurm's names of it and of its cluster are known."""
    if row.node is None or row.cluster is None or not is_host(row.node):
        return
    jobs = run.jobs
    job_id = jobs[row.restart] if row.restart < len(jobs) > 1 else run.job_id
    yield NodeEvent(
        cluster=row.cluster, host=row.node, what=what, words=words, when=when, job_id=job_id,
        restart=row.restart,
    )  # fmt: skip


def by_counter(run: Run, host: str, what: str, words: str, when: float) -> Iterator[NodeEvent]:
    """Yield an event that the sampler saw on a host, if a rank's record says which node that is."""
    rows = [row for row in read_all_attempts(run.dir, []) if host in (row.host, row.node)]
    if rows and not run.scheduler.one_machine:
        yield from _event(run, rows[-1], what, words, when)
