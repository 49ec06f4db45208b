"""`summary.json` and `timeseries.json` of a run: written at its end, and again by `stats`.

`python -m hpckit.report.at_end FOLDER`, which the job's rank zero starts, writes them from the
folder alone: no Slurm is asked. It is a process of its own: what goes wrong here cannot
change how the job ends.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.paths import is_mine_alone
from hpckit.report.gather import Gathered, gather_one
from hpckit.report.identity import KnownJob
from hpckit.report.targets import Target
from hpckit.runs import read_run, write_json
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.loading import advised
from hpckit.stats.document import job_document, timeline_document
from hpckit.stats.summary.figures import SourceNote

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


def main() -> None:
    """Write the summary of the run in a folder."""
    run = read_run(Path(sys.argv[1]))
    found = gather_one(Target(job_id=run.job_id, known=KnownJob(run=run)))
    job, advice = advised(found.job)
    save(replace(found, job=job), advice)


if __name__ == "__main__":
    main()
