"""An app that works in threads, so that it answers while Slurm does not."""

import errno
import os
import signal
import termios
from collections.abc import Callable
from threading import Thread, Timer
from typing import Any

from hpckit.cli.top_keys import KeysInTurn
from hpckit.errors import HpckitError
from hpckit.text import in_line

# How often is looked whether the terminal is still there; how long Textual may take to end then.
_LOOK_S, _ENDS_S = 1.0, 5.0


def terminal_is_gone() -> bool:
    """Say whether the terminal on standard input was closed."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


class WorkingApp(KeysInTurn):
    """Does work in threads; what changes jobs is waited for before the app ends."""

    def __init__(self) -> None:
        super().__init__()
        self.animation_level = "none"
        self.acting = 0
        self._leaving = False

    def leave_with_terminal(self) -> None:
        """End when the terminal is closed.

        Only the session that a terminal controls is told of it, by SIGHUP. Of any other (`setsid`)
        Textual would read for ever what is not there, and soon wait for ever to write.
        """
        self.set_interval(_LOOK_S, lambda: self.leave() if terminal_is_gone() else None)

    def leave(self) -> None:
        """End properly, so that the terminal is restored; in any case if it is closed."""
        self.exit()
        if terminal_is_gone():
            timer = Timer(_ENDS_S, self.end_without_terminal)
            timer.daemon = True
            timer.start()

    def end_without_terminal(self) -> None:
        """End the process, whose thread for keys may read what is not there, and never end."""
        os._exit(128 + signal.SIGHUP)

    def behind(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Call `work` in a thread, and `then` with its result in this one.

        An error of hpckit's own is shown; a bug ends the app.
        """

        def run() -> None:
            try:
                value = work()
            except HpckitError as error:
                self._hand(self.unanswered, str(error))
            except Exception as error:  # noqa: BLE001  # raised again in the app's thread
                self._hand(self._fail, error)
            else:
                self._hand(then, value)

        Thread(target=run, daemon=True).start()

    def _hand(self, call: Callable[..., None], *values: Any) -> None:  # noqa: ANN401
        if self.is_running:
            self.call_from_thread(call, *values)

    def _fail(self, error: Exception) -> None:
        raise error

    def unanswered(self, why: str) -> None:
        """Show why some work could not be done."""
        self.tell(why, "error")

    def tell(self, text: str, severity: str = "information") -> None:
        """Show a message for some seconds."""
        kind: Any = severity
        self.notify(in_line(text), severity=kind, markup=False, timeout=8)

    def act(self, work: Callable[[], str], then: Callable[[], None]) -> None:
        """Do something to jobs in a thread, and show what `work` returns; quitting waits for it."""
        self.acting += 1

        def acted() -> tuple[str, str]:
            try:
                return work(), "information"
            except HpckitError as error:
                return str(error), "error"

        def done(said: tuple[str, str]) -> None:
            self.acting -= 1
            if self._leaving:
                self.exit()
            self.tell(*said)
            then()

        self.behind(acted, done)

    async def action_quit(self) -> None:
        """Quit; while a job is being cancelled or submitted, only if asked twice."""
        if self.acting and not self._leaving:
            self._leaving = True
            self.tell("Slurm is still being told what to do. q again leaves now.", "warning")
        else:
            self.exit()
