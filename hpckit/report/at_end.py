"""`summary.json` at the end of a job, from its own folder alone: no Slurm is asked.

`python -m hpckit.report.at_end FOLDER`, which the job's rank zero starts: a process of its own, so
that nothing that goes wrong here can change how the job ends.
"""

import sys
from dataclasses import replace
from pathlib import Path

from hpckit.report.advising import advised
from hpckit.report.gather import gather_one
from hpckit.report.identity import Known
from hpckit.report.save import save
from hpckit.report.targets import Target
from hpckit.runs import read_run


def main() -> None:
    """Write the summary of the run in a folder."""
    run = read_run(Path(sys.argv[1]))
    found = gather_one(Target(job_id=run.job_id, known=Known(run=run)))
    job, advice = advised(found.job)
    save(replace(found, job=job), advice)


if __name__ == "__main__":
    main()
