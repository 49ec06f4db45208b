"""The process in a job that tells of it: `python -m hpckit.notify.in_job FOLDER WORDS`.

The job script starts it, and tells it on stdin what it ends with; it closes stdout once all is
told. Whatever goes wrong here is a line in the job's log. It is a process of its own, never waited
for longer than the script's few seconds, and its status is nobody's.
"""

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from hpckit.errors import CommandError, HpckitError
from hpckit.frozen import frozen
from hpckit.job_ends.failures import never_begun
from hpckit.notify.claims import Claims
from hpckit.notify.event import COMPLETED, FAILED, Event
from hpckit.notify.idling import IdleGpus
from hpckit.notify.outbox import Outbox, say
from hpckit.notify.watching import Errors, ending
from hpckit.owners import user_name
from hpckit.rank_variables import restart_count
from hpckit.sinks import (
    ALL,
    END,
    ERROR,
    FAILURE,
    IDLE,
    PROGRAM,
    RESTART,
    START,
    Mail,
    Notify,
    find_notify,
)
from hpckit.stop_marks import PREEMPTED, marks, marks_of
from hpckit.units import parse_moment

_POLL_S = 1.0
# A look into the samples reads some kilobytes.
_IDLE_POLL_S = 15.0
_ASK_S = 3.0
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DEAF_TO = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)


@frozen(kw_only=True)
class Watched:
    """What the job script says of its job; `base` is an array's own folder, else the run's.

    ready: the script waits for a line before it starts ranks.
    """

    base: Path
    name: str
    nodes: int
    limit_min: int
    max_requeues: int
    of_site: Notify | None = None
    task: int | None = None
    tasks: int | None = None
    ready: bool = False

    @property
    def folder(self) -> Path:
        """The run's folder."""
        if self.task is None:
            return self.base
        return self.base.with_name(f"{self.base.name}_{self.task}")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Watched:
    """Read the command line in a job script, which `hpckit.job.script` writes."""
    parser = argparse.ArgumentParser(prog="hpckit.notify.in_job", allow_abbrev=False)
    parser.add_argument("base", type=Path)
    parser.add_argument("--name", required=True)
    for word in ("--nodes", "--limit-min", "--max-requeues"):
        parser.add_argument(word, type=int, required=True)
    parser.add_argument("--first", type=int)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--site-mail")
    parser.add_argument("--idle-s", type=float, default=0.0)
    parser.add_argument("--idle-gpus", default=ALL)
    parser.add_argument("--ready", action="store_true")
    found = parser.parse_args(argv)
    task = None if found.first is None else found.first + _index(environ)
    of_site = None
    if found.site_mail:
        mail = Mail(events=tuple(found.site_mail.split(",")), by=PROGRAM)
        of_site = Notify(
            sinks=(mail,), of_site=True, idle_s=found.idle_s, idle_gpus=found.idle_gpus
        )
    return Watched(
        base=found.base,
        name=found.name,
        nodes=found.nodes,
        limit_min=found.limit_min,
        max_requeues=found.max_requeues,
        of_site=of_site,
        task=task,
        tasks=found.tasks,
        ready=found.ready,
    )


def _index(environ: Mapping[str, str]) -> int:
    """Return the number of an array's task: Slurm's, or the end of a local job's name."""
    local = environ.get("SUBMITIT_LOCAL_JOB_ID", "").rpartition("_")[2]
    return int(environ.get("SLURM_ARRAY_TASK_ID") or local or 0)


class Teller:
    """Watches one attempt of one job, and tells of it."""

    def __init__(
        self, job: Watched, settings: Notify, outbox: Outbox, claims: Claims, attempt: int
    ) -> None:
        self._job = job
        self._settings = settings
        self._outbox = outbox
        self._claims = claims
        self._attempt = attempt
        self._began = parse_moment(os.environ.get("SLURM_JOB_START_TIME", "")) or time.time()
        self._errors = Errors(job.folder)
        self._idle = IdleGpus(job.folder / "samples")
        self._idle_due = 0.0
        self._failed = False

    def begin(self) -> None:
        """Tell of the attempt's start."""
        self._outbox.knock()
        if self._attempt:
            self._outbox.post(self._event(RESTART), f"restart-{self._attempt}{self._of_task()}")
        else:
            self._outbox.post(self._event(START), START)

    def look(self) -> None:
        """Tell of what is new."""
        if not self._failed and (trouble := self._errors.first()):
            self._failed = True
            self._outbox.post(self._event(ERROR, detail=str(trouble)), ERROR)
        settings = self._settings
        if time.monotonic() >= self._idle_due:
            self._idle_due = time.monotonic() + min(_IDLE_POLL_S, settings.idle_s / 4)
            idle = self._idle.look(settings.idle_s, settings.idle_gpus, self._job.nodes)
            if idle:
                claim = f"idle-{self._attempt}{self._of_task()}"
                self._outbox.post(self._event(IDLE, detail=str(idle)), claim)

    def end(self, status: int | None, stopped_at: float | None) -> None:
        """Tell of the end, unless the job goes on; of an array's, once all tasks have ended."""
        self.look()
        job = self._job
        found = ending(
            status,
            stopped_at=stopped_at,
            ranks=self._errors.ranks(),
            elapsed_s=time.time() - self._began,
            limit_min=job.limit_min,
            attempts_left=self._attempt < job.max_requeues,
            preempted=PREEMPTED in marks(marks_of(job.folder, 0), self._attempt),
            taken_away=_taken_away,
            never_begun=lambda: never_begun(job.folder),
        )
        if not found.goes_on:
            kind = END if found.state == COMPLETED else FAILURE
            event = self._event(kind, state=found.state, detail=found.detail)
            if job.tasks is None or job.task is None:
                self._outbox.post(event, END)
            else:
                self._end_of_task(event, found.state, job.task, job.tasks)
        self._outbox.finish()

    def _end_of_task(self, event: Event, state: str, task: int, tasks: int) -> None:
        """Tell of an array's first failure, and of its end when the last task has ended."""
        ended = self._claims.task_ended(task, state)
        if event.event == FAILURE and len(ended) < tasks:
            self._outbox.post(event, FAILURE)
        if len(ended) < tasks:
            return
        counts = Counter(ended.values())
        bad = len(ended) - counts[COMPLETED]
        detail = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        whole = self._event(
            FAILURE if bad else END,
            state=FAILED if bad else COMPLETED,
            detail=f"{tasks} tasks: {detail}",
            whole=True,
        )
        self._outbox.post(whole, END)

    def _of_task(self) -> str:
        return "" if self._job.task is None else f"-task-{self._job.task}"

    def _event(
        self,
        kind: str,
        *,
        state: str | None = None,
        detail: str | None = None,
        whole: bool = False,
    ) -> Event:
        environ, job = os.environ, self._job
        array = environ.get("SLURM_ARRAY_JOB_ID")
        job_id = environ.get("SLURM_JOB_ID") or environ.get("SUBMITIT_LOCAL_JOB_ID") or "?"
        return Event(
            event=kind,
            at=time.time(),
            job_id=array or job_id,
            name=job.name,
            run_id=job.base.name if whole else job.folder.name,
            attempt=self._attempt,
            state=state,
            detail=detail,
            # A node may not know the names of users; Slurm tells its jobs.
            user=environ.get("SLURM_JOB_USER") or user_name(),
            cluster=environ.get("SLURM_CLUSTER_NAME"),
            host=socket.gethostname(),
            task=None if whole else job.task,
            tasks=job.tasks,
            elapsed_s=round(time.time() - self._began, 1),
        )


def _taken_away() -> bool:
    """Say whether Slurm is ending the job: while its script runs, it would be RUNNING else."""
    from hpckit.slurm.client import ask, own_job_id, patience  # noqa: PLC0415  # few jobs need it

    job_id = own_job_id()
    if job_id is None:
        return False
    try:
        with patience(_ASK_S, anew=True):
            said = ask(("squeue", "-h", "-j", job_id, "-o", "%T")).stdout.split()
    except CommandError:
        return False
    return bool(said) and said[0] != "RUNNING"


def attempt_number(claims: Claims, environ: Mapping[str, str], task: str) -> int:
    """Return how often this job was started before, and write down that it is now.

    Slurm's count, or the local controller's. Jobs of a chain begin at 0 each: what was written
    down before counts.
    """
    number = restart_count(environ)
    while not claims.take(f"attempt-{number}{task}"):
        number += 1
    return number


def watch(teller: Teller) -> None:
    """Tell of the job until its script ends, or this node is told to end it."""
    told: list[float] = []

    def stopped(_signum: int, _frame: FrameType | None) -> None:
        told.append(time.time())

    for signum in _STOPPING:
        signal.signal(signum, stopped)
    wake = _wake_on_signals()
    teller.begin()
    script, words = os.getppid(), ""
    heard: list[IO[str] | int] = [wake, sys.stdin]
    while not told:
        ready, _, _ = select.select(heard, [], [], _POLL_S)
        if sys.stdin in ready:
            if words := sys.stdin.readline().strip():
                break
            heard = [wake]  # a template has put something in its place that tells nothing
        if len(heard) == 1 and os.getppid() != script:
            break
        teller.look()
    # Slurm kills what is left some seconds after a signal, and the shell may be gone by then.
    status = int(words) if words.isdecimal() and not told else None
    teller.end(status, told[0] if told else None)


def _wake_on_signals() -> int:
    """Return a descriptor that can be read once a signal came: no time between look and sleep."""
    wake, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return wake


def _say_ready() -> None:
    """Let the job script start its ranks: what is in the run's folder by now is known."""
    with contextlib.suppress(OSError):  # the script may have ended, or not have waited so long
        os.write(1, b"\n")


def main() -> None:
    """Tell of a job until its end; whatever happens, end well."""
    for signum in _DEAF_TO:
        signal.signal(signum, signal.SIG_IGN)
    try:
        job = parse(sys.argv[1:], os.environ)
        settings = job.of_site or find_notify(None)
        if settings and settings.told_in_job:
            claims = Claims(job.base)
            task = "" if job.task is None else f"-task-{job.task}"
            outbox = Outbox(settings.told_in_job, claims)
            teller = Teller(job, settings, outbox, claims, attempt_number(claims, os.environ, task))
            if job.ready:
                _say_ready()
            watch(teller)
        else:
            say("notify: nobody is told of this job: this node does not see your config.yaml.")
    except HpckitError as error:
        say(f"notify: nobody is told of this job: {error}")
    except Exception:  # noqa: BLE001  # a fault of ours is not the job's
        say(f"notify: {traceback.format_exc(limit=-3)}")
    finally:
        # Not by the interpreter's own end: threads may wait for servers.
        os._exit(0)


if __name__ == "__main__":
    main()
