"""`--check`: what Slurm itself says of a job, without submitting it."""

import os
import tempfile
import time
from pathlib import Path

from hpckit.environ import scrubbed_environment
from hpckit.errors import SubmissionError
from hpckit.job.job import Job
from hpckit.schedulers.slurm.sbatch import refused
from hpckit.slurm import cluster, control
from hpckit.slurm.client import patience
from hpckit.text import format_minutes


@patience()
def preflight(job: Job, script: str) -> str:
    """Return one line that says whether and when a job would start.

    Raises:
        SubmissionError: Slurm would refuse it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.sh"
        path.write_text(script, encoding="utf-8")
        answer = control.test_only(path, scrubbed_environment(os.environ))
    if not answer.accepted:
        raise refused(answer.message)
    _refuse_endless_wait(job)
    if answer.start_time is None:
        return f"Slurm would accept this job: {answer.message}"
    seconds = answer.start_time - time.time()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.start_time))
    soon = "at once" if seconds < 60 else f"at {when} at the latest"
    nodes = f" on {', '.join(answer.nodes)}" if answer.nodes else ""
    return f"Slurm would accept this job and start it {soon}{nodes}."


def _refuse_endless_wait(job: Job) -> None:
    """Refuse a time over the partition's limit.

    Slurm itself takes such a job, unless EnforcePartLimits is set, and lets it wait for ever.
    """
    known, partition = cluster.partitions(), job.options["partition"]
    for row in known:
        chosen = row.name == partition if partition else row.default
        if chosen and row.max_time_min and job.time_min > row.max_time_min:
            raise SubmissionError(
                f"Slurm would accept this job, but it would never start: --time "
                f"{format_minutes(job.time_min)} is over the limit "
                f"{format_minutes(row.max_time_min)} of partition {row.name!r}."
            )
