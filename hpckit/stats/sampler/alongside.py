"""Runs a user's command as if nothing stood between it and its caller: streams, signals, status."""

import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.05
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_alongside(argv: Sequence[str]) -> int:
    """Run a command to its end, pass it our signals; return its exit status as a shell would.

    Raises:
        CommandError: it is missing or cannot be started.
    """
    child: Popen[bytes] | None = None
    early: list[int] = []

    def forward(signum: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(signum)
        else:
            child.send_signal(signum)

    before = {signum: signal.signal(signum, forward) for signum in _FORWARDED}
    try:
        # stdin is inherited: the command may be a shell, or read a pipe.
        child = shell.spawn(argv, stdin=None, close_fds=False)
        for signum in early:
            child.send_signal(signum)
        # A signal just before a call that blocks is heard after it only: at the command's end.
        while (status := child.poll()) is None:
            time.sleep(_POLL_S)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return 128 - status if status < 0 else status
