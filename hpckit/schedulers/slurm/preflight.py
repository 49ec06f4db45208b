"""What Slurm says of a job that is not submitted, for `--check`."""

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.environ import scrubbed_environment
from hpckit.errors import CommandError, SubmissionError, refused_by_disk
from hpckit.schedulers.slurm.sbatch import ASK_LESS, NO_SUCH_NODE, refused
from hpckit.slurm import cluster, control
from hpckit.slurm.client import patience
from hpckit.slurm.nodes import nodes
from hpckit.text import listed, plural
from hpckit.units import format_minutes

if TYPE_CHECKING:
    from hpckit.job import Job

_NAMED = 4


@patience()
def preflight(job: "Job", script: str) -> str:
    """Return one line that says whether and when a job would start.

    Raises:
        SubmissionError: Slurm would refuse it. OutsideError: no temporary file can be written.
    """
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "job.sh"
            path.write_text(script, encoding="utf-8")
            answer = control.test_only(path, scrubbed_environment(os.environ))
    except OSError as error:
        raise refused_by_disk(error, tempfile.gettempdir()) from error
    if not answer.accepted:
        raise _refusal(job, answer.message)
    _refuse_endless_wait(job)
    if answer.start_time is None:
        return f"Slurm would accept this job: {answer.message}"
    seconds = answer.start_time - time.time()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.start_time))
    soon = "at once" if seconds < 60 else f"at {when} at the latest"
    nodes = f" on {', '.join(answer.nodes)}" if answer.nodes else ""
    return f"Slurm would accept this job and start it {soon}{nodes}."


def _refusal(job: "Job", message: str) -> SubmissionError:
    """Return the error of a job that Slurm would refuse, or that waits for nodes that are out."""
    error = refused(message)
    if NO_SUCH_NODE not in message:
        return error
    try:
        names = {row.name for row in cluster.meant(cluster.partitions(), job.options["partition"])}
        here = [node for node in nodes() if names.intersection(node.partitions)]
    except CommandError:
        return error
    out = [node.name for node in here if node.out]
    if not out:
        return error
    return SubmissionError(
        f"sbatch --test-only found no node for the job now: {len(out)} of {len(here)} nodes of "
        f"{plural('partition', len(names))} {', '.join(sorted(names))} are down or drained "
        f"({listed(out, _NAMED)}). If the job fits these, submit it: it waits for them. If it fits "
        f"no node, {ASK_LESS}."
    )


def _refuse_endless_wait(job: "Job") -> None:
    """Refuse a time limit over the partition's; of several partitions, over that of each.

    Slurm itself accepts such a job, unless EnforcePartLimits is set, and lets it wait for ever.
    """
    rows = cluster.meant(cluster.partitions(), job.options["partition"])
    most = cluster.longest_min(rows)
    if most is not None and job.time_min > most:
        names = ", ".join(repr(row.name) for row in rows)
        raise SubmissionError(
            f"Slurm would accept this job, but it would never start: --time "
            f"{format_minutes(job.time_min)} is over the limit {format_minutes(most)} of "
            f"{plural('partition', len(rows))} {names}."
        )
