"""Ctrl-C, SIGTERM and SIGHUP alike, and not in the middle of a hand-over to Slurm."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What the user asked for by a signal: at once a KeyboardInterrupt, while held only noted."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.seen = False
        self._tell = tell
        self._held = False

    def take(self, _signum: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        again, self.seen = self.seen, True
        if again or not self._held:
            raise KeyboardInterrupt
        self._tell(
            "Interrupted. hpckit waits for Slurm's answer, so that it can cancel the job; "
            "press Ctrl-C again to stop waiting."
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Note a first signal, and raise it at the end.

        Raises:
            KeyboardInterrupt: there was one; or a second one, at once.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.seen:
            raise KeyboardInterrupt


@contextmanager
def interrupts(tell: Callable[[str], None]) -> Iterator[Interrupts]:
    """Take the signals that end a command, as long as the block lasts; ignored ones stay so."""
    taken = Interrupts(tell)
    here = threading.current_thread() is threading.main_thread()  # others may not set handlers
    # nohup; and a program around this Python, as R or Julia, whose own handler none of ours could
    # put back.
    left = (signal.SIG_IGN, None)
    before = {
        signum: signal.signal(signum, taken.take)
        for signum in _SIGNALS
        if here and signal.getsignal(signum) not in left
    }
    try:
        yield taken
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
