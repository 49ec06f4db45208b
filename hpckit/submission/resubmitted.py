"""Which run was submitted again as which, by `hpckit resubmit`.

The record of the new run says it, and so does a note in the folder of the old one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from hpckit.errors import HpckitError
from hpckit.files import DamagedFileError, read_json, reason
from hpckit.frozen import frozen
from hpckit.run_files import write_json
from hpckit.run_record import ResubmitOf
from hpckit.runs import RESUBMITTED, Run, read_run
from hpckit.values import Word, rebuild

_MOST_BYTES = 1 << 16


@frozen(kw_only=True)
class _Note:
    """The last run that was submitted in the place of another."""

    run_id: Word
    job_id: Word
    dir: str


def write_notes(runs: Sequence[Run], tell: Callable[[str], None]) -> None:
    """Write down in the folders of the user's earlier runs that these were submitted again."""
    told = False
    for run in runs:
        before: ResubmitOf | None = run.record.get("resubmit")
        old = _own(before) if before else None
        if old is None:
            continue
        note = _Note(run_id=run.run_id, job_id=run.job_id, dir=str(run.dir))
        try:
            write_json(old.dir / RESUBMITTED, asdict(note))
        except OSError as error:
            if not told:
                tell(
                    f"note: {old.dir} cannot be written ({reason(error)}): `hpckit status "
                    f"{old.job_id}` will not say that it was submitted again"
                )
            told = True


def _own(before: ResubmitOf) -> Run | None:
    """Return a run that was submitted again; None: it is gone, or another user's."""
    try:
        found = read_run(Path(before["dir"]))
    except HpckitError:
        return None
    return found if found.mine and found.run_id == before["of"] else None


def resubmitted_as(run: Run) -> Run | None:
    """Return the last run that was submitted in the place of this one; None: there is none."""
    try:
        note = rebuild(_Note, read_json(run.dir / RESUBMITTED, most=_MOST_BYTES), newer=True)
        found = read_run(Path(note.dir))
    except (OSError, DamagedFileError, HpckitError):
        return None  # there is no note, or the other run was removed since
    same = found.run_id == note.run_id and found.mine == run.mine
    return found if same and (found.record.get("resubmit") or {}).get("of") == run.run_id else None


def before_and_after(run: Run) -> tuple[str | None, str | None]:
    """Return the jobs' ids of the run in whose place it was submitted, and of the one in its."""
    before: ResubmitOf | None = run.record.get("resubmit")
    after = resubmitted_as(run)
    return before["job_id"] if before else None, after.job_id if after else None
