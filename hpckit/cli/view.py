"""How a run's status reads: as JSON, as a line, as a page, and live while it is followed."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpckit.cli.output import by, note, redraw
from hpckit.errors import DamagedRunError
from hpckit.text import counted, in_line, settings_text, simulated
from hpckit.units import format_seconds

if TYPE_CHECKING:
    from hpckit import RunStatus  # `hpckit logs` needs no status

# How many files of a run that cannot be read are named.
_DAMAGED = 5
# How many runs, mostly the tasks of an array, are shown one by one.
_MOST = 12
# Of what a task of an array was given, so many columns stand in a line that says more.
_GIVEN = 40


def status_document(statuses: list[RunStatus], *, many: bool = False) -> dict[str, Any]:
    """Return `--json` of one run, or of several under `jobs`; `many`: several were asked for."""
    records = [status.document() for status in statuses]
    return records[0] if len(records) == 1 and not many else {"jobs": records}


def submit_record(status: RunStatus) -> dict[str, Any]:
    """Return `submit --json` of one run."""
    return {
        "job_id": status.run.job_id,
        "run_id": status.run.run_id,
        "run_dir": str(status.run.dir),
        "executor": status.run.executor,
        "state": str(status.state),
        "exit_code": status.exit_code,
    }


def given(values: Mapping[str, str]) -> str:
    """Return ` (lr=0.1)` of what a task of an array was given, "" of nothing."""
    text = settings_text(values, _GIVEN)
    return f" ({text})" if text else ""


def status_line(status: RunStatus) -> str:
    """Return a run's state and what matters in it, on one line."""
    return _line(status, given(status.run.parameters), _progress(status)[0])


def _line(status: RunStatus, parameters: str, progress: str) -> str:
    parts = [f"{status.run.job_id} {status.state}{parameters}"]
    if status.elapsed_s is not None and not status.waiting:
        parts.append(format_seconds(status.elapsed_s))
    if status.never_started:
        parts.append("never started")
    if status.reason_text:
        parts.append(status.reason_text.rstrip("."))
    if status.never_starts:
        parts.append(f"remove it from the queue: hpckit cancel {status.run.job_id}")
    elif status.waiting and status.expected_start:
        parts.append(f"expected start {clock(status.expected_start)}")
    if status.restarts:
        parts.append(f"restarted {status.restarts}x")
    if progress:
        parts.append(progress)
    if status.finished and status.exit_code:
        parts.append(status.exit_words)
    return ": ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]


def silent_line(status: RunStatus) -> str:
    """Return, of a job without a log, whether one may still come."""
    job_id = status.run.job_id
    if status.never_started:
        return f"{job_id} is {status.state}: it never started, and wrote nothing."
    yet = "" if status.finished else " yet"
    return f"{job_id} has written nothing{yet}. See `hpckit status {job_id}`."


def status_lines(found: Sequence[RunStatus]) -> str:
    """Return a line per run; of very many how many are in which state, and those to look at."""
    if len(found) <= _MOST:
        return "\n".join(map(status_line, found))
    shown = sorted(found, key=_urgency)[:_MOST]
    more = f"and {len(found) - _MOST} more: hpckit status --all, or --json"
    return "\n".join(
        [f"{len(found)} jobs: {counted_states(found)}", *map(status_line, shown), more]
    )


def counted_states(found: Iterable[RunStatus]) -> str:
    """Return how many are in which state."""
    counts = sorted(Counter(str(status.state) for status in found).items())
    return ", ".join(f"{count} {state}" for state, count in counts)


def _urgency(status: RunStatus) -> int:
    """Return 0 for what went wrong, then what runs, waits, and has ended well."""
    return (2 if status.waiting else 1) if not status.finished else 3 if status.good else 0


def status_pages(found: Sequence[RunStatus], *, everything: bool) -> str:
    """Return what `hpckit status` shows: a page per run, or lines of very many."""
    if len(found) > _MOST and not everything:
        return status_lines(found)
    return "\n".join(map(status_page, found))


def progress_text(status: RunStatus) -> str | None:
    """Return how far a run is, by what it logs; None: it logs nothing."""
    return _logged(status)[0] or None


def _progress(status: RunStatus) -> tuple[str, list[str]]:
    """Return the same, and notes; nothing before a rank has begun."""
    return _logged(status) if status.ranks else ("", [])


def _logged(status: RunStatus) -> tuple[str, list[str]]:
    try:
        found = status.progress()
    except DamagedRunError as error:
        return f"damaged: {error}", []
    if found is None:
        return "", []
    odd = found.odd_times
    notes = [odd.text("timed", newest=True)] if odd else []
    return found.text(over=status.finished), notes


def status_page(status: RunStatus) -> str:
    """Return what `hpckit status` shows of one run."""
    plan = status.run.record["plan"]
    progress, of_progress = _progress(status)
    lines = [
        _line(status, "", progress),  # what a task of an array was given stands below
        *_task(status),
        f"  run      {status.run.run_id}",
        f"  folder   {status.run.dir}",
        f"  shape    {counted(plan['nodes'], 'node')} x {counted(plan['tasks_per_node'], 'rank')}, "
        f"{counted(plan['total_gpus'], 'GPU')}{simulated(plan['total_gpus'], plan.get('device'))}, "
        f"{plan['strategy']}" + by(status.launched_by),
    ]
    if status.chain:
        lines.append(f"  chain    {status.chain}")
    lines += _resubmits(status)
    if status.nodes:
        lines.append(f"  nodes    {', '.join(status.nodes)}")
    lines += [f"  {'before':<8} {row.text}" for row in status.earlier()]
    lines += [f"  {word:<8} {text}" for word, text in status.why()]
    lines += [f"  note     {text}" for text in (*status.notes, *of_progress)]
    lines += [f"  damaged  {text}" for text in status.damaged[:_DAMAGED]]
    if len(status.damaged) > _DAMAGED:
        lines.append(f"  damaged  {len(status.damaged) - _DAMAGED} more files")
    if status.finished and not (status.good or status.never_started):
        lines.append(f"  see      hpckit logs {status.run.job_id} --errors")
    return "\n".join(lines)


def _task(status: RunStatus) -> list[str]:
    run = status.run
    if run.array_job_id is None:
        return []
    values = settings_text(run.parameters)
    return [f"  task     {run.task} of array {run.whole}" + (f": {values}" if values else "")]


def _resubmits(status: RunStatus) -> list[str]:
    before, after = status.resubmits()
    said = [f"of job {in_line(before)}"] if before else []
    said += [f"again as job {after}"] if after else []
    return [f"  resubmit {', '.join(said)}"] if said else []


def clock(moment: float) -> str:
    """Return a moment as people say it: the time today, else date and time."""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


class LiveView:
    """Prints a line per run: rewritten in place on a terminal, printed once per change in a log."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._drawn = 0
        self._terminal = sys.stderr.isatty()
        self._silence = Silence()

    def __call__(self, statuses: list[RunStatus]) -> None:
        """Show a round of statuses."""
        lines = {status.run.job_id: self._line(status) for status in statuses}
        if self._terminal:
            redraw([*lines.values()], _width(), drawn=self._drawn)
            self._drawn = len(lines)
        else:
            self._silence(statuses)
            for job_id, line in lines.items():
                if self._shown.get(job_id) != line:
                    note(line)
        self._shown = lines

    def _line(self, status: RunStatus) -> str:
        if self._terminal:
            return status_line(status)
        # The seconds alone are no news, nor is what the services that are silent cannot say.
        before = self._shown.get(status.run.job_id)
        if before and status.unanswered and not status.finished:
            return before
        return status_line(status if status.finished else replace(status, elapsed_s=None))


class NeverStarting:
    """Says once of each run that it will never start, or not without a change, while one waits.

    And that one waits for GPUs of this machine: of an array's tasks once. `last` is the last round.
    """

    def __init__(self) -> None:
        self.last: list[RunStatus] = []
        self._said: set[str] = set()
        self._silence = Silence()

    def __call__(self, statuses: list[RunStatus]) -> None:
        """Look at a round of statuses; the last one is shown by who waited."""
        self.last = statuses
        self._silence(statuses)
        if all(status.finished or status.never_starts for status in statuses):
            return
        for status in statuses:
            stuck = status.never_starts or status.needs_change or status.waits_here
            whole = status.run.whole if status.waits_here else None
            if stuck and (name := whole or status.run.job_id) not in self._said:
                self._said.add(name)
                note(status_line(status))


class Silence:
    """Says, to who waits, that Slurm does not answer and since when; and when it does again."""

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self, statuses: Sequence[RunStatus]) -> None:
        """Look at a round of statuses."""
        silent = next((row for row in statuses if row.unanswered and not row.finished), None)
        if silent and self._since is None:
            self._since = time.time()
            note(
                f"{time.strftime('%H:%M:%S')} hpckit does not know what became of the jobs: "
                f"{str(silent.silence).rstrip('.')}. The jobs go on without an answer; hpckit "
                "keeps asking."
            )
        elif not silent and self._since is not None:
            lasted = format_seconds(time.time() - self._since)
            note(f"{time.strftime('%H:%M:%S')} Slurm answers again, after {lasted}.")
            self._since = None


def say_uncertain(found: Sequence[RunStatus]) -> None:
    """Say which of many states a service that is silent leaves open, and why."""
    silent = [row for row in found if row.unanswered and not row.finished]
    if silent:
        note(
            f"note: {len(silent)} of {len(found)} states may be old, because Slurm did not "
            f"answer. {silent[0].silence}"
        )


def say_notes(ended: Sequence[RunStatus]) -> None:
    """Say what people should know of runs that are over: of an array's tasks once."""
    first = {text: status.run.job_id for status in reversed(ended) for text in status.notes}
    for text, job_id in first.items():
        note(f"note: {job_id}: {text}")


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns
