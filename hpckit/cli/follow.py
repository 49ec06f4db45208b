"""`--follow`: a live view of runs on stderr: state, why it waits, expected start, then progress."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpckit import RunStatus
from hpckit.api.run import expected_starts
from hpckit.cli.output import note, redraw
from hpckit.cli.view import clock, status_line


class LiveView:
    """Prints a line per run: rewritten in place on a terminal, printed once per change in a log."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._drawn = 0
        self._terminal = sys.stderr.isatty()

    def __call__(self, statuses: list[RunStatus]) -> None:
        """Show a round of statuses."""
        # The seconds alone are no news: a log gets a line when something else has changed.
        expected = expected_starts(statuses)
        lines = {
            status.run.job_id: _line(status, expected, seconds=self._terminal or status.finished)
            for status in statuses
        }
        if self._terminal:
            redraw([*lines.values()], _width(), drawn=self._drawn)
            self._drawn = len(lines)
        else:
            for job_id, line in lines.items():
                if self._shown.get(job_id) != line:
                    note(line)
        self._shown = lines


class NeverStarting:
    """Says once of each run that it will never start, while others are waited for."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, statuses: list[RunStatus]) -> None:
        """Look at a round of statuses; the last one is shown by who waited."""
        if all(status.finished or status.never_starts for status in statuses):
            return
        for status in statuses:
            if status.never_starts and status.run.job_id not in self._said:
                self._said.add(status.run.job_id)
                note(status_line(status))


def say_notes(ended: Sequence[RunStatus]) -> None:
    """Say what people should know of runs that are over: of an array's tasks once."""
    first = {text: status.run.job_id for status in reversed(ended) for text in status.notes}
    for text, job_id in first.items():
        note(f"note: {job_id}: {text}")


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _line(status: RunStatus, expected: Mapping[str, float], *, seconds: bool) -> str:
    line = status_line(status if seconds else replace(status, elapsed_s=None))
    moment = expected.get(status.run.job_id)
    return f"{line}, expected start {clock(moment)}" if moment else line
