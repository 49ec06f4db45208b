"""Tells all sinks that want an event, each in a thread: none waits for another, nor the job."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from hpckit.errors import HpckitError
from hpckit.notify.claims import Claims
from hpckit.notify.event import Event, wanted
from hpckit.notify.sending import reach, send
from hpckit.sinks import Sink

# While the job runs, nobody waits for an answer.
PATIENCE_S = 30.0
# At its end the GPUs wait: a server that answers does so in a second.
LAST_PATIENCE_S = 5.0
_REACH_S = 5.0


def say(line: str) -> None:
    """Write a line into the job's log."""
    sys.stderr.write(f"hpckit: {line}\n")
    sys.stderr.flush()


class Outbox:
    """The sinks of one job.

    A sink that this node cannot reach is told of in the log when the job begins, is tried again
    with each message, and is waited for at no end.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        claims: Claims,
        *,
        deliver: Callable[[Sink, Event, float], None] = send,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._sinks = sinks
        self._claims = claims
        self._deliver = deliver
        self._tell = tell
        self._lock = threading.Lock()
        self._out: set[str] = set()
        self._open: dict[int, tuple[str, float]] = {}
        self._count = 0

    def knock(self) -> None:
        """Find out, aside, which sinks can be reached from here."""
        for sink in self._sinks:
            threading.Thread(target=self._knock, args=[sink], daemon=True).start()

    def _knock(self, sink: Sink) -> None:
        try:
            reach(sink, _REACH_S)
        except HpckitError as error:
            self._failed(sink, f"{sink.name!r} cannot be told of this job from here now: {error}")

    def _failed(self, sink: Sink, line: str) -> None:
        with self._lock:
            self._out.add(sink.name)
        self._tell(f"notify: {line.rstrip('.')}.")

    def post(self, event: Event, claim: str) -> None:
        """Tell those that want an event, if nobody has told of it; return at once."""
        sinks = [sink for sink in self._sinks if wanted(event, sink.events)]
        if not sinks or not self._claims.take(claim):
            return
        outcome: dict[str, str] = dict.fromkeys((sink.name for sink in sinks), "not known")
        for sink in sinks:
            with self._lock:
                number = self._count = self._count + 1
                self._open[number] = (sink.name, time.monotonic())
            words = (number, sink, event, claim, outcome)
            threading.Thread(target=self._send, args=words, daemon=True).start()

    def _send(
        self,
        number: int,
        sink: Sink,
        event: Event,
        claim: str,
        outcome: dict[str, str],
    ) -> None:
        try:
            self._deliver(sink, event, PATIENCE_S)
            result = "told"
            with self._lock:
                self._out.discard(sink.name)
        except HpckitError as error:
            result = str(error)
            self._failed(sink, f"{sink.name!r} was not told of '{event.event}': {error}")
        with self._lock:
            outcome[sink.name] = result
            self._claims.write(claim, {**asdict(event), "sinks": dict(outcome)})
            del self._open[number]

    def finish(self, seconds: float = LAST_PATIENCE_S) -> None:
        """Wait for what is on its way, but not for a sink that was down or silent before."""
        began = time.monotonic()
        while time.monotonic() < began + seconds and self._awaited(began):
            time.sleep(0.02)
        with self._lock:
            left = sorted({name for name, _ in self._open.values()})
        for name in left:
            self._tell(f"notify: {name!r} has not answered, and the job does not wait for it.")

    def _awaited(self, now_s: float) -> bool:
        """Say whether an answer may still come from a sink that has answered until now."""
        with self._lock:
            rows = list(self._open.values())
            silent = {name for name, began in rows if now_s - began > LAST_PATIENCE_S}
            return any(name not in self._out | silent for name, _ in rows)
