"""How far a fit has come: best loss, patience, what rank 0 shows of it, and what is written."""

import math
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from hpckit.parallel.ranks import say
from hpckit.parallel.run_folder import event_writer

# Without a terminal a line now and then: the file of a day's job stays readable.
_LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class Figures:
    """One epoch's estimates, before its step: total = loss + regularisation.

    Attributes:
        loss: mean over the samples that gave a number.
        regularisation: w times the divergence from the prior.
        dropped: samples that gave none.
    """

    total: float
    loss: float
    regularisation: float
    dropped: int = 0

    @property
    def losses(self) -> dict[str, float]:
        """The three by name."""
        return {"total": self.total, "loss": self.loss, "regularisation": self.regularisation}


@dataclass
class History:
    """All epochs so far.

    Attributes:
        losses: lists `total`, `loss` and `regularisation`, one number per epoch.
        best: the smallest total.
        since_best: epochs since then.
        dropped: samples without a number, over all epochs.
    """

    losses: dict[str, list[float]] = field(
        default_factory=lambda: {"total": [], "loss": [], "regularisation": []}
    )
    best: float = math.inf
    since_best: int = 0
    dropped: int = 0

    @property
    def epochs(self) -> int:
        """Epochs that were counted."""
        return len(self.losses["total"])

    def count(self, figures: Figures) -> bool:
        """Count an epoch; return whether it is the best so far."""
        for name, value in figures.losses.items():
            self.losses[name].append(value)
        self.dropped += figures.dropped
        better = figures.total < self.best
        self.best = min(self.best, figures.total)
        self.since_best = 0 if better else self.since_best + 1
        return better

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain numbers."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from such numbers."""
        self.losses = {name: list(row) for name, row in state["losses"].items()}
        self.best, self.since_best = state["best"], state["since_best"]
        self.dropped = state["dropped"]


class ProgressLine:
    """The line that rank 0 shows: redrawn on a terminal, now and then in a file."""

    def __init__(self, epochs: int, *, shown: bool, info: bool) -> None:
        self._epochs, self._shown, self._info = epochs, shown, info
        self._terminal = sys.stderr.isatty()
        self._last = self._begin = time.monotonic()
        self._first: int | None = None

    def show(self, history: History, figures: Figures) -> None:
        """Show an epoch."""
        if not self._shown:
            return
        now = time.monotonic()
        first = self._first is None
        self._first = history.epochs - 1 if self._first is None else self._first
        last = history.epochs == self._epochs
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{self._line(history, figures, now)}{chr(10) * last}")
            sys.stderr.flush()
        elif first or last or now - self._last >= _LINE_EVERY_S:
            self._last = now
            say(self._line(history, figures, now))

    def _line(self, history: History, figures: Figures, now: float) -> str:
        epochs = history.epochs - (self._first or 0)
        line = f"epoch {history.epochs}/{self._epochs}  {(now - self._begin) / epochs:.3g} s/epoch"
        if self._info:
            line += (
                f"  loss {figures.loss:.6g}  reg. {figures.regularisation:.4g}  "
                f"total {figures.total:.6g}  best {history.best:.6g}  "
                f"epochs since improv. {history.since_best}"
            )
        return line + (f"  dropped {figures.dropped}" if figures.dropped else "")


class Events:
    """Scalars for TensorBoard; of rank 0, if wanted."""

    def __init__(self, folder: str | None, *, wanted: bool, epoch: int) -> None:
        """Begin to write; what an earlier run wrote after `epoch` is replaced.

        Raises:
            SetupError: TensorBoard is not installed.
        """
        self._writer = event_writer(folder, epoch) if wanted else None

    def write(self, epoch: int, **scalars: float) -> None:
        """Write each as Loss/NAME."""
        if self._writer:
            for name, value in scalars.items():
                self._writer.add_scalar(f"Loss/{name}", value, epoch)

    def close(self) -> None:
        """Write what is left."""
        if self._writer:
            self._writer.close()
