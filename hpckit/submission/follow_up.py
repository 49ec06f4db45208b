"""What takes a job script's place if another job may follow: it starts the job's own command.

`python -m hpckit.submission.follow_up KIND RUN_DIR NUMBER [--checkpoint=PATTERN] -- COMMAND...`.
It outlives the job's ranks, even when the kernel kills them for their memory, and it outlives
Slurm's SIGTERM at the time limit.

`retry`: a job that has failed is submitted again. `chain`: each job but the first waits for the end
of those before (`afterany`), however they ended. So each job says at its end whether work is
left; if none is, it takes the others out of the queue. And before a job begins, it looks whether
the one before could still say so.
"""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.environ import own_python
from hpckit.errors import CommandError, HpckitError
from hpckit.failures import ended_as, never_begun, why_from_inside
from hpckit.notify.told import told_at_the_end
from hpckit.payload.children import (
    PASSED,
    prepare_child,
    prepare_script,
    shell_status,
    until_ended,
)
from hpckit.payload.notice import handles
from hpckit.payload.task import GOES_ON
from hpckit.rank_variables import restart_count
from hpckit.ranks import RankRecord, own_failures, read_all_attempts
from hpckit.retry_rules import TIMEOUT
from hpckit.runs import Run, read_run
from hpckit.slurm import control
from hpckit.slurm.states import JobRecord, JobState
from hpckit.stop_marks import NO_CHECKPOINT, add_mark, marks_of
from hpckit.submission.chain import LinkEnd, Outcome, read_end, write_end
from hpckit.submission.checkpoints import Checkpoints
from hpckit.submission.container_step import step_ended_at_the_end
from hpckit.submission.retry import kind_of
from hpckit.submission.verdict import LATE_S, contradiction, not_begun

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# A job may end while hpckit is still submitting the next ones: how long it waits for their ids.
_RECORD_S, _PAUSE_S = 30.0, 0.5
_POLL_S = 0.2
_CHECKPOINT = "--checkpoint="


class Watched:
    """A job that another one may follow; `argv` is its own command."""

    def __init__(self, run_dir: Path, argv: tuple[str, ...]) -> None:
        self.run_dir = run_dir
        self.argv = argv
        self.job_id = os.environ.get("SLURM_JOB_ID", "")
        self._child: Popen[bytes] | None = None
        self._told = False
        # Whether argv is hpckit's supervisor; it is srun otherwise, whose tasks Slurm signals.
        self._supervises = argv[0] == sys.executable
        self._held: list[int] = []

    def run(self) -> int:
        """Run the job's command, and see to what follows; return the exit status."""
        for signum in (signal.SIGTERM, signal.SIGINT, *PASSED):
            signal.signal(signum, self._pass_on)
        if (status := self.ends_at_once()) is not None:
            return status
        environ = {**os.environ, **self.variables()}
        prepare = prepare_child if self._supervises else prepare_script
        self._child = shell.spawn(self.argv, env=environ, prepare=prepare)
        for _ in until_ended(self._child, _POLL_S):
            self._hand_on(self._child)
            if self._told:
                self.ending()
        status = shell_status(self._child.returncode)
        if not status and (why := self._never_begun() or self.contradicted()):
            self.say(f"has FAILED, though srun ended with 0: {why}")
            status = 1
        self.ended(status)
        return status

    def _never_begun(self) -> str | None:
        if any(row.restart == self.attempt for row in read_all_attempts(self.run_dir)):
            return None
        return never_begun(self.run_dir)

    @property
    def attempt(self) -> int:
        """Which attempt of the run this is, from 0."""
        return restart_count()

    def ends_at_once(self) -> int | None:
        """Return the exit status of a job that has nothing to do; None: it has."""
        return None

    def contradicted(self) -> str | None:
        """Say which ranks did not end well where the job's command ended with 0; None: all did."""
        return None

    def variables(self) -> dict[str, str]:
        """Return variables to add to the job's environment."""
        return {}

    def ending(self) -> None:
        """Look at a job that was told to end and still runs; called again and again."""

    def ended(self, status: int) -> None:
        """See to what follows the job, which has ended with an exit status."""
        raise NotImplementedError

    def _pass_on(self, signum: int, _frame: FrameType | None) -> None:
        """Outlive a signal, and keep it for a supervisor; Slurm itself signals srun's tasks."""
        self._told = self._told or signum == signal.SIGTERM
        if self._supervises:
            self._held.append(signum)

    def _hand_on(self, child: "Popen[bytes]") -> None:
        """Pass on the signals that have come, as soon as the supervisor handles them."""
        held, self._held = self._held, []
        for signum in held if child.poll() is None else ():
            if signum in PASSED and not handles(child.pid, signum):
                self._held.append(signum)  # it is still starting
            else:
                child.send_signal(signum)

    def recorded(self) -> Run | None:
        """Wait until hpckit has submitted all of the run, and return it; None: it never did."""
        until = time.monotonic() + _RECORD_S
        while True:
            try:
                return read_run(self.run_dir)
            except HpckitError:
                if time.monotonic() > until:
                    return None
            time.sleep(_PAUSE_S)

    def say(self, text: str) -> None:
        """Write a sentence about this job into its log."""
        sys.stderr.write(f"hpckit: job {self.job_id} {text.rstrip('.')}.\n")
        sys.stderr.flush()


def _ranks(run: Run, attempt: int) -> list[RankRecord]:
    return [row for row in read_all_attempts(run.dir) if row.restart == attempt]


class Retried(Watched):
    """A job that is submitted again once it has failed."""

    _done = False

    def ending(self) -> None:
        """Submit it again before Slurm kills all of it, if its time limit has come."""
        run = None if self._done else self.recorded()
        if run and ended_as(run, _ranks(run, self.attempt))[0] is JobState.TIMEOUT:
            self._retry(run, TIMEOUT)

    def ended(self, status: int) -> None:
        """Submit it again, if there is a rule for its kind of failure."""
        run = self.recorded() if status and not self._done else None
        if run and (kind := kind_of(*ended_as(run, _ranks(run, self.attempt)))):
            self._retry(run, kind)

    def _retry(self, run: Run, kind: str) -> None:
        self._done = True
        rules = run.record["request"].get("retry") or ()
        if kind in {text.partition(":")[0] for text in rules}:
            # In a process of its own, which works out the request as the command line does.
            argv = (*own_python(), "-m", "hpckit.api.retry", str(self.run_dir), kind)
            shell.spawn(argv, prepare=prepare_script).wait()


class Link(Watched):
    """Job `number` of a chain, in the folder of the run.

    If nothing that `pattern` names (`--checkpoint`) is new at its end, the next job would only do
    the same again.
    """

    def __init__(
        self, run_dir: Path, number: int, argv: tuple[str, ...], pattern: str | None = None
    ) -> None:
        super().__init__(run_dir, argv)
        self.number = number
        self._pattern = pattern
        self._checkpoints = Checkpoints(run_dir, pattern, Path.cwd()) if pattern else None
        # Whether srun gave its step up, as it does with status 0 where a node is lost.
        self._lost = False

    def ends_at_once(self) -> int | None:
        """Return an exit status if the jobs before this one have left nothing to do."""
        before = self._before()
        if not before or not before.over:
            return None
        self.say(f"is not needed: job {before.job_id} {_how(before)}. It ends at once")
        self._cancel(self._rest())
        # Jobs that wait for a chain (`--after`) look at the status of each of its jobs.
        return int(before.outcome is Outcome.FAILED)

    def contradicted(self) -> str | None:
        """Say which ranks did not end well; what another node has written may come late."""
        until = time.monotonic() + LATE_S
        while run := self.recorded():
            ranks = _ranks(run, self.number)
            wrong = contradiction(ranks, run.ranks, lambda: None)
            failed = any(row.exit_code for row in ranks)
            if wrong is None or failed or time.monotonic() > until:
                self._lost = bool(wrong) and not own_failures(ranks)
                return wrong
            time.sleep(_PAUSE_S)
        return None

    @property
    def attempt(self) -> int:
        """Its number in the chain, from 0."""
        return self.number

    def variables(self) -> dict[str, str]:
        """Count the jobs before this one as restarts."""
        return {"HPCKIT_RESTART": str(self.number)}

    def ended(self, status: int) -> None:
        """Decide whether the jobs after this one have something to do."""
        self._settle(self._end(status))

    def _before(self) -> LinkEnd | None:
        """Return how the last job before this one that had begun ended.

        Even if it could not say so itself. None: none had, or this is the first one.
        """
        said = read_end(self.run_dir) if self.number else None
        if said and said.over:
            return said
        for number in reversed(range(self.number)):
            if said and said.link == number:
                return said
            if end := self._silent(number):
                write_end(self.run_dir, end)
                return end
        return None

    def _silent(self, number: int) -> LinkEnd | None:
        """Return how a job ended that could not say so; None: it was cancelled before it began."""
        end, run = self._judged(number), self.recorded()
        record = _slurms_word(end.job_id) if end.over and run else None
        if run is None or record is None:
            return end
        if record.state in (JobState.NODE_FAIL, JobState.BOOT_FAIL):
            return LinkEnd(link=number, job_id=end.job_id, outcome=Outcome.GOES_ON)
        return None if not_begun(record, _ranks(run, number)) else end

    def _end(self, status: int) -> LinkEnd:
        """Return how this job ended, by the exit status of its command."""
        if status in (0, GOES_ON) or self._lost:
            outcome = Outcome.GOES_ON if status else Outcome.COMPLETE
            end = LinkEnd(link=self.number, job_id=self.job_id, outcome=outcome)
        else:
            end = self._judged(self.number)
        if end.over or self._checkpoints is None or self._checkpoints.newer():
            return end
        add_mark(marks_of(self.run_dir, 0), self.number, NO_CHECKPOINT)
        why = (
            f"it ended before its work was done, and nothing that --checkpoint {self._pattern} "
            "names, and nothing in the run's checkpoints/, is newer than its start"
        )
        return replace(end, outcome=Outcome.FAILED, why=why)

    def _judged(self, number: int) -> LinkEnd:
        """Return how a job ended, by its log and the records of its ranks."""
        run, cause = self.recorded(), None
        if run is not None:
            cause = why_from_inside(run, _ranks(run, number))
        return LinkEnd(
            link=number,
            job_id=run.jobs[number] if run else self.job_id,
            outcome=Outcome.FAILED if cause else Outcome.GOES_ON,
            why=cause.text if cause else "",
        )

    def _settle(self, end: LinkEnd) -> None:
        """Write down how this job ended; if all work is over, cancel the jobs after it."""
        write_end(self.run_dir, end)
        rest = self._rest()
        if end.outcome is Outcome.FAILED:
            so_none = f". {_count(rest)} would fail again, so none runs" if rest else ""
            self.say(f"failed: {end.why}{so_none}")
        elif end.outcome is Outcome.GOES_ON and rest:
            self.say(f"has ended before the work was done; job {rest[0]} goes on")
        elif end.outcome is Outcome.GOES_ON:
            self.say(
                "has ended before the work was done, and it was the last of its chain. `hpckit "
                f"resubmit {self.job_id}` begins anew; what was saved is in {self.run_dir}"
            )
        if end.over:
            self._cancel(rest)

    def _rest(self) -> tuple[str, ...]:
        run = self.recorded()
        return run.jobs[self.number + 1 :] if run else ()

    def _cancel(self, jobs: tuple[str, ...]) -> None:
        """Take jobs out of the queue, the last one first, so that none starts meanwhile."""
        try:
            if jobs:
                control.cancel(jobs[::-1])
        except CommandError as error:
            self.say(f"cannot cancel {', '.join(jobs)}, which will end at once: {error}")


def _slurms_word(job_id: str) -> JobRecord | None:
    """Return what Slurm says of a job that is over; None: it does not answer, or has forgotten."""
    from hpckit.schedulers.slurm.asking import records_of  # noqa: PLC0415  # few are asked for

    return next(iter(records_of(job_id) or ()), None)


def _how(end: LinkEnd) -> str:
    return "has COMPLETED" if end.outcome is Outcome.COMPLETE else f"failed ({end.why})"


def _count(jobs: tuple[str, ...]) -> str:
    return "The next job of the chain" if len(jobs) == 1 else f"The next {len(jobs)} jobs"


def watched(
    kind: str, folder: str, number: int, argv: tuple[str, ...], pattern: str | None = None
) -> Watched:
    """Return the job that a job script names: one of a chain, or one that may be retried."""
    if kind == "chain":
        return Link(Path(folder), number, argv, pattern)
    task = os.environ.get("SLURM_ARRAY_TASK_ID")  # of an array, `number` is the first task's
    return Retried(Path(f"{folder}_{number + int(task)}" if task else folder), argv)


def main() -> None:
    """Run a job that another one may follow."""
    kind, folder, number, *rest = sys.argv[1:]
    at = rest.index("--")
    options, argv = rest[:at], tuple(rest[at + 1 :])
    pattern = next((word.removeprefix(_CHECKPOINT) for word in options), None)
    with told_at_the_end(), step_ended_at_the_end():
        try:
            sys.exit(watched(kind, folder, int(number), argv, pattern).run())
        except (HpckitError, OSError) as error:
            sys.exit(f"hpckit: {error}")


if __name__ == "__main__":
    main()
