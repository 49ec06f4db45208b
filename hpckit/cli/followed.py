"""What `hpckit logs -f` says beside the log, on stderr: that a job waits, and how it ended."""

from collections.abc import Sequence

from hpckit import RunStatus
from hpckit.cli.output import note
from hpckit.cli.view import Silence, silent_line, status_line


class Followed:
    """Sees each answer about a job whose log is followed, and about the jobs that try it again."""

    def __init__(self) -> None:
        self._silence = Silence()
        self._last: RunStatus | None = None
        self._waits = False

    def __call__(self, statuses: Sequence[RunStatus]) -> None:
        """Say, each time the job begins to wait, that it does and why."""
        self._silence(statuses)
        status = statuses[-1]
        if self._last and self._last.run.dir != status.run.dir:
            self._say_end(self._last)
            self._waits = False
        self._last = status
        if status.unanswered:
            return
        if status.waiting and not (self._waits or status.never_starts):
            note(status_line(status))
        self._waits = status.waiting

    def end(self, *, wrote: bool) -> None:
        """Say how the last job ended, unless it ended well and `wrote` something."""
        if self._last and not (self._say_end(self._last) or wrote):
            note(silent_line(self._last))

    def _say_end(self, status: RunStatus) -> bool:
        """Say how a job ended that has not COMPLETED; return whether that was said."""
        if status.good:
            return False
        if status.never_started:
            note(silent_line(status))
        elif status.finished:
            note(f"{status_line(status)}. Why: hpckit logs {status.run.job_id} --errors")
        else:
            note(status_line(status))
        return True
