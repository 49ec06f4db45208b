"""A job of `--retry`, inside the job: it is submitted again once it has failed."""

from hpckit import shell
from hpckit.environ import own_python
from hpckit.job_ends.causes import Cause, Kind
from hpckit.job_ends.failures import attempt_log, ended_as, log_bytes
from hpckit.job_ends.joblog import was_cancelled
from hpckit.job_spec.retry_rules import FAIL, OOM, TIMEOUT
from hpckit.payload.children import prepare_shielded_child
from hpckit.run_folders.ranks import RankRecord
from hpckit.run_folders.run_files import patiently
from hpckit.run_folders.runs import Run
from hpckit.slurm import control
from hpckit.slurm.states import JobState
from hpckit.stop_marks import marks_of, marks_until
from hpckit.submission.called_off import before_it, is_called_off
from hpckit.submission.retry import NOT_AGAIN, has_rule, kind_of, rules_of, why_not
from hpckit.submission.verdict import unless_over
from hpckit.submission.watched import Watched, ranks_of


class Retried(Watched):
    """A job that is submitted again once it has failed."""

    _done = False

    def ends_at_once(self) -> int | None:
        """End a job that tries another one again which was cancelled in that moment."""
        before = before_it(self.run_dir)
        if not before or not is_called_off(self.run_dir):
            return None
        self.say(f"is not needed: job {before['job_id']} was cancelled. It ends at once")
        control.cancel([self.job_id])
        return 1

    def ending(self) -> None:
        """Submit it again before Slurm kills all of it, if its time limit has come."""
        run = None if self._done else self.recorded()
        if run is None:
            return
        if self._end(run)[1] is JobState.TIMEOUT:
            self._retry(run, TIMEOUT, None)

    def ended(self, status: int) -> None:
        """Submit it again, if there is a rule for its kind of failure."""
        # Slurm's words on a job that it ends for its memory are those of a cancelled one.
        oom_until = patiently(lambda: log_bytes(self.run_dir))
        run = self.recorded() if status and not self._done else None
        if run is None:
            return
        ranks, state, cause = self._end(run)
        if state is JobState.COMPLETED:  # what the limit has ended is the job's own end
            return
        began = min((row.log_start for row in ranks), default=0)
        if kind := kind_of(state, cause):
            self._retry(run, kind, {OOM: oom_until, FAIL: began}.get(kind))
        if cause and cause.kind in (Kind.PREEMPTED, Kind.LOST) and self._goes_on(run):
            return
        no = why_not(rules_of(run), state, cause)
        if no and not was_cancelled(attempt_log(self.run_dir, began)):
            self.say(f"{NOT_AGAIN}{no}")

    def _end(self, run: Run) -> tuple[list[RankRecord], JobState, Cause | None]:
        """Return this attempt's ranks, the state that `status` will show, and why it ended."""
        ranks = ranks_of(run, self.attempt)
        state, cause = ended_as(run, ranks)
        said = marks_until(marks_of(self.run_dir, 0), self.attempt)
        return ranks, unless_over(state, ranks, run.ranks, said), cause

    def _goes_on(self, run: Run) -> bool:
        """Say whether Slurm may put the job back into the queue, as after a requeue of hpckit's."""
        return self.attempt < int(run.record["request"].get("max_requeues") or 0)

    def _retry(self, run: Run, kind: str, seen: int | None) -> None:
        self._done = True
        if has_rule(rules_of(run), kind):
            # In a process of its own, which works out the request as the command line does.
            # It goes on when Slurm sends SIGTERM, and looks then what that means.
            words = (str(self.run_dir), kind, *([] if seen is None else [str(seen)]))
            argv = (*own_python(), "-m", "hpckit.api.retry", *words)
            shell.spawn(argv, prepare=prepare_shielded_child).wait()
