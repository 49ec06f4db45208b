"""Slurm: sbatch, squeue and sacct, scancel, by the questions of `hpckit.slurm`.

`sbatch` submits, and finds a job again by its run's id; `asking` is squeue, then sacct; `ending` is
scancel; `preflight` is for `--check`.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.schedulers.base import Answers, Order, Scheduler, Sent

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.job.place import ArrayPart, RunPlace
    from hpckit.run_folders.runs import Run
    from hpckit.slurm.states import JobRecord

# Each verb imports what it needs: few commands need all of them.


class Slurm(Scheduler):
    """Slurm, as this machine's sbatch, squeue, sacct and scancel reach it."""

    name = "slurm"
    says = "Slurm"
    job_id = re.compile(r"\d{1,20}([_+]\d{1,10})?", re.ASCII)
    one_machine = False
    environment = "slurm"
    takes_jobs = "Slurm"
    names_jobs = True
    accounting = True
    chains = True

    def why_not(self) -> str | None:
        """Say that no sbatch finds its cluster's configuration, as on a workstation."""
        from hpckit.slurm.client import sbatch_answers

        if sbatch_answers():
            return None
        return (
            "No sbatch here can reach a cluster. "
            "Log in to the cluster, or use --executor local for this machine."
        )

    def where(self, job: "Job") -> str:
        """Name the site."""
        return f"Slurm, site {job.site.name}"

    def header(self, job: "Job", place: "RunPlace") -> list[dict[str, str | None]]:
        """Return the `#SBATCH` options."""
        from hpckit.job.header import header

        return header(job, place)

    def most_tasks(self) -> int | None:
        """Ask for MaxArraySize, which is the highest index plus one: slurm.conf(5)."""
        from hpckit.errors import CommandError
        from hpckit.slurm.cluster import config

        try:
            most = config().get("MaxArraySize", "")
        except CommandError:
            return None  # sbatch will say what is wrong
        return int(most) if most.isdecimal() and int(most) > 0 else None

    def refuse_folder(self, folder: Path) -> str | None:
        """Refuse what Slurm takes out of names: sbatch(1), "FILENAME PATTERN"."""
        name = str(folder)
        return "a backslash, which Slurm removes from the names of logs" if "\\" in name else None

    def submit(self, order: Order, sent: Sent) -> list[str]:
        """Give the script to sbatch, with the site's own arguments."""
        from hpckit.schedulers.pickles import hand_over, task_ids
        from hpckit.schedulers.slurm.sbatch import send

        def give() -> list[str]:
            return task_ids(send(order, sent), len(order.calls), array=order.array)

        return hand_over(order, give)

    def query(self, runs: Sequence["Run"]) -> Answers:
        """Ask squeue for all jobs, then sacct for the rest."""
        from hpckit.schedulers.slurm.asking import ask_of_runs

        return ask_of_runs(runs)

    def in_full(self, said: Answers) -> Answers:
        """Ask squeue for the exit statuses of jobs that failed, and for how often they started."""
        from hpckit.schedulers.slurm.asking import in_full

        return in_full(said)

    def cancel(self, runs: Sequence["Run"]) -> None:
        """Run scancel."""
        from hpckit.slurm import control

        # Of a chain the last job first: the one that runs would make room for the next.
        control.cancel([job for run in runs for job in reversed(run.jobs)])

    def take_back(self, run_dirs: Sequence[Path], sent: Sent) -> str | None:
        """Run scancel, and make sure of it."""
        from hpckit.schedulers.slurm.ending import take_back

        del run_dirs
        troubles = [trouble for job in reversed(sent.jobs) if (trouble := take_back(job))]
        return " ".join(troubles) or None

    def job_of(self, run_id: str, since: float, part: "ArrayPart | None" = None) -> str | None:
        """Ask squeue and sacct for the comment, or the log, that has a run's id."""
        from hpckit.schedulers.slurm.sbatch import job_of

        return job_of(run_id, since, part)

    def preflight(self, job: "Job", script: str) -> str:
        """Ask sbatch --test-only."""
        from hpckit.schedulers.slurm.preflight import preflight

        return preflight(job, script)

    def explain(self, run: "Run", record: "JobRecord") -> str | None:
        """Say what Slurm's code means."""
        from hpckit.slurm.reasons import explain

        del run
        if record.held_by:
            return (
                f"It waits for job {record.held_by}, which will never start, because the job of "
                "its --after did not end as required. So this one will never start either."
            )
        return explain(record.reason, record.job_id)

    def forbid_requeue(self) -> None:
        """Switch --requeue off, by which Slurm requeues on preemption or a node's failure."""
        from hpckit.slurm import client, control

        control.forbid_requeue(client.own_job_id() or "")

    def requeue(self) -> None:
        """Run scontrol requeue, which ends the job here."""
        from hpckit.slurm import client, control

        control.requeue(client.own_job_id() or "")

    def fate(self) -> str:
        """Ask squeue."""
        from hpckit.errors import CommandError
        from hpckit.slurm import preemption

        job_id = os.environ.get("SLURM_JOB_ID")
        if job_id is None:  # of a rank that a launcher started without Slurm's variables
            raise CommandError("This process does not know its job's number.", argv=("squeue",))
        return preemption.fate(job_id, int(os.environ.get("SLURM_RESTART_COUNT") or 0))

    def unheeded(self, job_id: str, state: str) -> str | None:
        """Say that scancel did nothing."""
        from hpckit.schedulers.slurm.ending import is_unheeded, unheeded
        from hpckit.slurm.states import JobState

        known = JobState(state)
        return unheeded(job_id, known) if is_unheeded(known) else None

    def by_hand(self, job_id: str) -> str:
        """Name scancel."""
        return f" If you may end any job: scancel {job_id}"


SLURM = Slurm()
