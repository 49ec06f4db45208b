"""A scheduler of sixty lines: it starts each job at once, by `nohup bash job.sh`."""

import os
import re
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path

from hpckit.run_folders.runs import Run
from hpckit.schedulers.base import SCHEDULERS, Answers, Order, Scheduler, Sent
from hpckit.schedulers.local.state import cancel_asked, start_ticks
from hpckit.schedulers.pickles import hand_over, task_ids
from hpckit.slurm.states import JobRecord, JobState

STARTER = 'nohup bash "$0/job.sh" >"$0/job.out" 2>&1 </dev/null; echo $? >"$0/at.end"'


class At(Scheduler):
    name = "at"
    says = "at"
    job_id = re.compile(r"at-\w+")

    def submit(self, order: Order, sent: Sent) -> list[str]:
        def send() -> list[str]:
            ids = task_ids(f"at-{secrets.token_hex(3)}", len(order.calls), array=order.array)
            for job_id, folder in zip(ids, order.run_dirs, strict=True):
                environ = {**order.environ, "SUBMITIT_LOCAL_JOB_ID": job_id}
                argv = ["setsid", "sh", "-c", STARTER, folder]
                pid = os.spawnvpe(os.P_NOWAIT, "setsid", argv, environ)
                Path(folder, "at.pid").write_text(str(pid))
            return ids

        job_ids = hand_over(order, send)
        sent.begun = sent.answered = True
        return job_ids

    def query(self, runs: Sequence[Run]) -> Answers:
        return Answers(records={run.job_id: record(run) for run in runs})

    def cancel(self, runs: Sequence[Run]) -> None:
        for run in runs:
            os.killpg(int((run.dir / "at.pid").read_text()), signal.SIGTERM)


def record(run: Run) -> JobRecord:
    end, code = run.dir / "at.end", None
    state = JobState.CANCELLED if cancel_asked(run.dir) else JobState.NODE_FAIL
    if start_ticks(int((run.dir / "at.pid").read_text())) is not None:
        state = JobState.RUNNING
    elif end.exists():
        code = int(end.read_text())
        state = JobState.FAILED if code else JobState.COMPLETED
    return JobRecord(job_id=run.job_id, state=state, source="at", exit_code=code)


SCHEDULERS.register("at", At())
