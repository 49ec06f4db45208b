"""A job of `--retry`, inside the job: it is submitted again once it has failed."""

from hpckit import shell
from hpckit.environ import own_python
from hpckit.failures import ended_as
from hpckit.payload.children import prepare_script
from hpckit.retry_rules import TIMEOUT
from hpckit.runs import Run
from hpckit.slurm.states import JobState
from hpckit.submission.retry import kind_of
from hpckit.submission.watched import Watched, ranks_of


class Retried(Watched):
    """A job that is submitted again once it has failed."""

    _done = False

    def ending(self) -> None:
        """Submit it again before Slurm kills all of it, if its time limit has come."""
        run = None if self._done else self.recorded()
        if run and ended_as(run, ranks_of(run, self.attempt))[0] is JobState.TIMEOUT:
            self._retry(run, TIMEOUT)

    def ended(self, status: int) -> None:
        """Submit it again, if there is a rule for its kind of failure."""
        run = self.recorded() if status and not self._done else None
        if run and (kind := kind_of(*ended_as(run, ranks_of(run, self.attempt)))):
            self._retry(run, kind)

    def _retry(self, run: Run, kind: str) -> None:
        self._done = True
        rules = run.record["request"].get("retry") or ()
        if kind in {text.partition(":")[0] for text in rules}:
            # In a process of its own, which works out the request as the command line does.
            argv = (*own_python(), "-m", "hpckit.api.retry", str(self.run_dir), kind)
            shell.spawn(argv, prepare=prepare_script).wait()
