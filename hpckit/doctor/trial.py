"""Short jobs by hpckit's own way of submitting: sent together, waited for, read, cleared away."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpckit import shell
from hpckit.errors import OutsideError, RequestError
from hpckit.files import DamagedFileError, open_regular, parse_json
from hpckit.logs import JOB_LOG
from hpckit.runs import Run
from hpckit.submission.ending import is_unheeded
from hpckit.submission.folders import remove_run
from hpckit.submission.model import Submission
from hpckit.submission.states import RunStatus, statuses
from hpckit.submission.submit import submit
from hpckit.submission.waiting import cancel, wait

# What the scripts of `jobs/` print before their line of JSON.
_MARK = "hpckit-doctor "
_MOST_BYTES = 1 << 20
# What MPI says over many lines, in one.
_KNOWN = {
    "OMPI was not built with SLURM's PMI support": "this Open MPI was not built for this kind",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What became of one job.

    Attributes:
        refused: why it was not submitted.
        late: it was not over in time, and hpckit asked for its end.
        goes_on: it was late, and still runs or waits.
        said: the line of JSON of each rank that printed one, by rank.
        why: what it says about its failure.
    """

    label: str
    refused: str = ""
    job_id: str = ""
    good: bool = False
    late: bool = False
    goes_on: bool = False
    said: dict[int, dict[str, Any]] = field(default_factory=dict)
    why: str = ""

    @property
    def lateness(self) -> str:
        """What became of a late one, as a part of a sentence."""
        end = "goes on although Slurm was asked to cancel it" if self.goes_on else "was cancelled"
        return f"job {self.job_id} did not end in time and {end} ({self.why})"


def run_trials(submissions: dict[str, Submission], within_s: float) -> list[Trial]:
    """Submit all jobs, by label, wait for them, and say what became of each."""
    runs: dict[str, Run] = {}
    refused: dict[str, str] = {}
    try:
        for label, submission in submissions.items():
            try:
                runs[label] = submit(submission)[0]
            except (OutsideError, RequestError) as error:
                refused[label] = str(error)
        found, going_on = _wait(list(runs.values()), within_s)
    except BaseException:
        if runs:
            cancel(list(runs.values()))
        raise
    ended = dict(zip(runs, found, strict=True))
    return [
        Trial(label=label, refused=refused[label])
        if label in refused
        else _trial(label, ended[label], going_on)
        for label in submissions
    ]


def _wait(runs: list[Run], within_s: float) -> tuple[list[RunStatus], frozenset[str]]:
    """Return what runs are when the time is up, and the jobs that go on although cancelled."""
    if not runs:
        return [], frozenset()
    try:
        return wait(runs, timeout_s=within_s), frozenset()
    except OutsideError:  # some are not over: that is a finding
        found = statuses(runs)
        left = cancel([row.run for row in found if not row.finished])
        return found, frozenset(row.run.job_id for row in left if is_unheeded(row.state))


def _trial(label: str, status: RunStatus, going_on: frozenset[str]) -> Trial:
    run = status.run
    trial = Trial(
        label=label,
        job_id=run.job_id,
        good=status.good,
        late=not status.finished,
        goes_on=run.job_id in going_on,
        said={rank: said for rank in range(run.ranks) if (said := _said(run, rank))},
        why="" if status.good else _why(run, status),
    )
    if status.good:
        remove_run(run.dir)
    return trial


def _said(run: Run, rank: int) -> dict[str, Any]:
    """Return a rank's line of JSON."""
    for text in _text(run.dir / "logs" / f"{rank}.out").splitlines():
        if text.startswith(_MARK):
            try:
                said = parse_json(text.removeprefix(_MARK))
            except DamagedFileError:  # another's words in the middle of it: as good as not said
                return {}
            return said if isinstance(said, dict) else {}
    return {}


def _why(run: Run, status: RunStatus) -> str:
    """Return the line that says most about a failure: our script's, MPI's, then the job's."""
    if not status.finished:
        return status.reason_text or status.reason or str(status.state)
    logs: Sequence[Path] = sorted((run.dir / "logs").glob("*.err"))
    texts = [_text(path) for path in (*logs, run.dir / JOB_LOG)]
    own = [line for text in texts for line in text.splitlines() if line.startswith("error: ")]
    if own:
        return own[0].removeprefix("error: ")
    for text in texts:
        if known := next((short for words, short in _KNOWN.items() if words in text), None):
            return known
        said = shell.first_meaningful_line(text)
        if "error" in said.lower():
            return said
    return status.reason_text or f"it ended {status.state}"


def _text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            return stream.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, DamagedFileError):
        return ""
