"""What is known of how jobs used their GPUs: hpckit's own summaries, the site's record, ledgers.

A summary of hpckit's is believed in the user's own runs alone: others could have written any. The
site's record comes before what a colleague's job wrote of itself into a ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpckit.files import DamagedFileError, read_json
from hpckit.group_report.allocations import Allocation
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.run_files import SUMMARY
from hpckit.run_folders.runs import Run
from hpckit.stats.js1 import as_number, covers_attempt, decode
from hpckit.stats.summary.coverage import enough_of_each

# A run is written down some moments before Slurm says when it was submitted; its clock may be late.
_BEFORE_S = 60.0
_HUNDRED = 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What is known of one attempt's GPUs, beside what Slurm gave it.

    Attributes:
        utilization_percent: the mean over its GPUs and its time.
        energy_joules: of all its GPUs.
        workload, template: of a run of hpckit's: the user's own, or one that a ledger knows.
        advice: the first advice on it, in a sentence.
    """

    utilization_percent: float | None = None
    energy_joules: float | None = None
    workload: str | None = None
    template: str | None = None
    advice: str | None = None


NOTHING = Measured()


@dataclass
class Figures:
    """Looks up what was measured of attempts; reads each run's summary once.

    Attributes:
        runs: the user's own runs, by the ids of their jobs, newest first.
        ledger: what ledgers say, by job and attempt.
    """

    runs: Mapping[str, Sequence[Run]]
    ledger: Mapping[tuple[str, float], Measured] = field(default_factory=dict)
    _summaries: dict[Path, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, row: Allocation) -> Measured:
        """Return what is known of an attempt."""
        run = run_of(row, self.runs)
        mine = self._from_run(run, row) if run else NOTHING
        if mine.utilization_percent is None and row.comment:
            mine = _from_record(row, mine)
        theirs = self.ledger.get((row.job_id, row.start))
        return mine if theirs is None else _both(mine, theirs)

    def _from_run(self, run: Run, row: Allocation) -> Measured:
        document = self._summary(run)
        attempt = _attempt(document, row)
        used = attempt.get("gpu_utilization_percent")
        covered = _percent(attempt.get("gpu_coverage_percent"))
        advice: Mapping[str, Any] = next(iter(document.get("advice") or ()), {})
        # A summary of an older hpckit does not say of each GPU how much of it was read.
        lowest = _percent(attempt.get("gpu_coverage_lowest_percent"))
        elapsed_s = as_number(attempt.get("elapsed_s"))
        known = _percent(used) is not None and enough_of_each(covered, lowest, elapsed_s)
        return Measured(
            utilization_percent=_percent(used) if known else None,
            energy_joules=as_number(attempt.get("energy_joules"))
            if known and not _is_of_more(elapsed_s, row)
            else None,
            workload=run.workload,
            template=run.template,
            advice=str(advice.get("message") or "") or None,
        )

    def _summary(self, run: Run) -> Mapping[str, Any]:
        if run.dir not in self._summaries:
            self._summaries[run.dir] = _read(run)
        return self._summaries[run.dir]


def run_of(row: Allocation, runs: Mapping[str, Sequence[Run]]) -> Run | None:
    """Return the run that an attempt is of; `runs`: by the ids of their jobs, newest first."""
    begun = row.submit if row.submit is not None else row.start
    known = runs.get(row.job_id, ())
    return next((run for run in known if run.submitted_at - _BEFORE_S <= begun), None)


def as_planned(row: Allocation, runs: Mapping[str, Sequence[Run]]) -> Allocation:
    """Return an attempt, with the GPUs that its run asked for where Slurm does not count them."""
    if row.gpus is not None or row.first_start is not None:
        return row
    run = run_of(row, runs)
    return replace(row, gpus=run.gpus) if run and run.gpus else row


def own_runs(rows: Iterable[Allocation], root: Path) -> Mapping[str, Sequence[Run]]:
    """Return the user's own runs of some jobs, below `root` and in the index, newest first."""
    wanted = {row.job_id for row in rows}
    found: dict[str, list[Run]] = {}
    for run in newest_runs(root, None):
        for job in wanted.intersection(run.jobs):
            if run.mine and run.scheduler.accounting:
                found.setdefault(job, []).append(run)
    return found


def _both(mine: Measured, theirs: Measured) -> Measured:
    """Return what is known of an attempt that stands in a ledger as well, nothing of it twice."""
    figures = theirs if mine.utilization_percent is None else mine
    return replace(
        figures,
        workload=mine.workload or theirs.workload,
        template=mine.template or theirs.template,
        advice=mine.advice or theirs.advice,
    )


def _read(run: Run) -> Mapping[str, Any]:
    try:
        document = read_json(run.dir / SUMMARY)
    except (OSError, DamagedFileError):
        return {}  # a job that was killed wrote none; `hpckit stats` writes it again
    return document if isinstance(document, dict) else {}


def _attempt(document: Mapping[str, Any], row: Allocation) -> Mapping[str, Any]:
    """Return the part of a summary that is of this attempt: the one that began with it."""
    rows = [part for part in document.get("attempts") or () if isinstance(part, dict)]
    starts = [as_number(part.get("start")) for part in rows]
    near = [abs(start - row.start) if start is not None else None for start in starts]
    known = [(gap, at) for at, gap in enumerate(near) if gap is not None]
    if not known:
        return {}
    gap, at = min(known)
    ended = row.start if row.end is None else row.end
    return rows[at] if gap <= max(_BEFORE_S, ended - row.attempt_start) else {}


def _is_of_more(elapsed_s: float | None, row: Allocation) -> bool:
    """Say whether a figure is of all of an attempt that changed its size, and not of this part."""
    if row.first_start is None or row.end is None or elapsed_s is None:
        return False
    return elapsed_s > row.held_s + _BEFORE_S


def _from_record(row: Allocation, mine: Measured) -> Measured:
    record = decode(row.comment).record
    if record and not _is_of(record, row):
        return mine
    nodes = record["nodes"].values() if record else ()
    values = [
        _percent(value)
        for node in nodes
        if isinstance(node, dict) and isinstance(node.get("gpu_utilization"), dict)
        for value in node["gpu_utilization"].values()
    ]
    known = [value for value in values if value is not None]
    # The mean of the GPUs that answered would pass for the job's.
    if not known or len(known) < max(len(values), row.gpus or 0):
        return mine
    return Measured(
        utilization_percent=sum(known) / len(known),
        workload=mine.workload,
        template=mine.template,
        advice=mine.advice,
    )


def _is_of(record: Mapping[str, Any], row: Allocation) -> bool:
    """Say whether a record is of this attempt: one of another stays until it is replaced."""
    if row.nodes is not None and len(record["nodes"]) > row.nodes:
        return False
    if row.end is None:
        return True
    # jobstats' own time goes from the start to the end: a mean with suspended time in it is no use.
    return covers_attempt(record, row.held_s)


def _percent(value: object) -> float | None:
    number = as_number(value)
    return number if number is not None and number <= _HUNDRED else None
