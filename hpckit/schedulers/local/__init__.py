"""This machine: a controller of ours runs the same scripts."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.schedulers.base import Answers, Order, Scheduler, Sent

if TYPE_CHECKING:
    from hpckit.job.job import Job
    from hpckit.runs import Run
    from hpckit.slurm.record import JobRecord

# Each verb imports what it needs: few commands need all of them.


class Local(Scheduler):
    """This machine, which plays all nodes."""

    name = "local"
    job_id = re.compile(r"local-[\w-]{1,40}", re.ASCII)
    starts_at_once = True
    by_mark = True
    most_pause_s = 1.0

    def where(self, job: "Job") -> str:
        """Say that it is here."""
        del job
        return "this machine"

    def submit(self, order: Order, sent: Sent) -> list[str]:
        """Start a controller for all tasks."""
        from hpckit.schedulers.local.executor import start

        job_ids = start(order)
        sent.begun = sent.answered = True
        return job_ids

    def query(self, runs: Sequence["Run"]) -> Answers:
        """Read what the controllers wrote, and look for them where they wrote nothing."""
        from hpckit.schedulers.local.state import states_of_runs

        return states_of_runs(runs)

    def cancel(self, runs: Sequence["Run"]) -> None:
        """Leave it to the mark in the run's folder, which its controller sees."""

    def take_back(self, run_dirs: Sequence[Path], sent: Sent) -> str | None:
        """End what was started, and wait until its controller is gone."""
        from hpckit.schedulers.local.executor import end_local

        del sent
        end_local(run_dirs)
        return None

    def explain(self, run: "Run", record: "JobRecord") -> str | None:
        """Say why a task waits, or what its controller wrote."""
        from hpckit.slurm.reasons import explain
        from hpckit.slurm.states import JobState

        if record.state is not JobState.PENDING or record.reason != "Resources":
            return explain(record.reason)
        # Nothing but other tasks of its own array keeps a run of this machine waiting.
        tasks = "It waits until another task of its array has ended: --parallel says how many run."
        return tasks if run.record.get("array") else "It is about to start."


LOCAL = Local()
