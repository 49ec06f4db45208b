"""`summary.json` and `timeseries.json` of a run: written at its end, and again by `stats`."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.paths import is_mine_alone
from hpckit.report.gather import Gathered
from hpckit.runs import write_json
from hpckit.stats.advice.engine import Advice
from hpckit.stats.document import job_document, timeline_document
from hpckit.stats.summary.values import SourceNote

SUMMARY, TIMESERIES = "summary.json", "timeseries.json"


def save(found: Gathered, advice: Sequence[Advice]) -> Gathered:
    """Write a run's summary and timelines; return the account with where the timelines are.

    Somebody else's run is only read, and a job without a run has no folder to write to.
    """
    job = found.job
    if job.run_dir is None or "." in job.job_id or not _is_mine(Path(job.run_dir)):
        return found
    folder = Path(job.run_dir)
    # What was written while accounting answered says more.
    if (folder / SUMMARY).exists() and any(note.code == "no_accounting" for note in job.notes):
        return found
    try:
        if found.timelines:
            document = timeline_document(job.job_id, found.timelines)
            write_json(folder / TIMESERIES, document, indent=None)
            job = replace(job, timeseries_file=str(folder / TIMESERIES))
        write_json(folder / SUMMARY, job_document(job, advice))
    except OSError as error:
        note = SourceNote(code="disk", text=f"{SUMMARY} could not be written: {error.strerror}.")
        job = replace(job, notes=(*job.notes, note))
    return replace(found, job=job)


def _is_mine(folder: Path) -> bool:
    try:
        return is_mine_alone(folder, folder.stat()) and os.access(folder, os.W_OK)
    except OSError:
        return False
