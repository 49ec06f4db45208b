"""What is left to do on a node whose slurmstepd was killed: Slurm itself will not notice.

srun hears no more of the ranks that this slurmstepd had, and waits for them for ever; or it is told
to give up, and then reports the worst of the exits it knows, which is 0 when the others end well:
Slurm would call the job COMPLETED (seen with 22.05.8). Ending the batch script makes it FAILED.
"""

import os

from hpckit.errors import CommandError
from hpckit.logs import JOB_LOG
from hpckit.payload.task import Task
from hpckit.runs import open_to_write


def end_job(task: Task) -> None:
    """End the job that this process is part of, after its ranks have written their ends."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if task.executor == "local" or not job_id:
        return
    # Only here: no rank that ends as it should needs to know how Slurm's programs are asked.
    from hpckit.slurm.control import end_batch_script  # noqa: PLC0415

    try:
        end_batch_script(job_id)
    except CommandError as error:
        # Nothing more can be done from here; the ranks' records tell what became of them. Our own
        # stderr led to the slurmstepd that is gone.
        with open_to_write(task.folder / JOB_LOG, "ab") as log:
            log.write(f"hpckit: job {job_id} cannot be ended: {error}\n".encode())
