"""How far a fit has come: best loss, patience, what rank 0 shows and keeps of it in files."""

import io
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks
from hpckit.parallel.ranks import say
from hpckit.parallel.run_folder import (
    event_writer,
    load_checkpoint,
    make_folder,
    save_checkpoint,
    save_whole,
)
from hpckit.parallel.torch_versions import load_tensors

# What a checkpoint is of; other workloads refuse it.
WORKLOAD = "mpi_vi"
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


@dataclass(frozen=True)
class RunFiles:
    """What a fit writes into its run folder; without a folder, nothing."""

    folder: Path | None
    ranks: Ranks

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, whole or not at all."""
        if self.folder and self.ranks.leads:
            state = {"workload": WORKLOAD, **state}
            save_checkpoint(make_folder(self.folder), state, ["last.pt"])

    def write(self, name: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Write an estimator's weights, whole or not at all."""
        if self.folder and self.ranks.leads:
            save_whole(make_folder(self.folder) / name, dict(weights))

    def load(self) -> dict[str, Any] | None:
        """Return the checkpoint on every rank, or None if there is none.

        The others may not see rank 0's files (yet), so it sends them what it read.
        """
        sent = self.ranks.share(self._read)
        if not sent:
            return None
        return load_tensors(io.BytesIO(sent[0].tobytes()))

    def _read(self) -> list[np.ndarray[Any, np.dtype[Any]]]:
        state = load_checkpoint(self.folder, WORKLOAD) if self.folder else None
        if state is None:
            return []
        memory = io.BytesIO()
        torch.save(state, memory)
        return [np.frombuffer(memory.getvalue(), dtype=np.uint8)]


def refuse_other_fit(now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check that a fit that goes on has the settings it began with.

    Raises:
        SetupError: one of them is another.
    """
    for name, value in now.items():
        if value != before.get(name):
            raise SetupError(
                f"checkpoints/last.pt was made with {name} {before.get(name)}, not {value}: "
                "give the same again, or do not resume, or take another run folder"
            )


def refuse_other_optimizer(now: torch.optim.Optimizer, before: Mapping[str, Any]) -> None:
    """Check that a fit that goes on has the optimizer it began with; older checkpoints do not tell.

    Raises:
        SetupError: it is of another kind, or has other weights.
    """
    kind = type(now).__name__
    was = before.get("optimizer_kind", kind)
    groups = [
        [len(group["params"]) for group in state["param_groups"]]
        for state in (now.state_dict(), before["optimizer"])
    ]
    if was != kind or groups[0] != groups[1]:
        other = (
            f"the optimizer {was}, not {kind}" if was != kind else "an optimizer of other weights"
        )
        raise SetupError(
            f"checkpoints/last.pt was made with {other}: give the same again, or do not resume, or "
            "take another run folder"
        )


def restore(estimator: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Load weights into an estimator.

    Raises:
        SetupError: they are of another one.
    """
    try:
        estimator.load_state_dict(weights)
    except RuntimeError as error:
        last = str(error).splitlines()[-1].strip()
        raise SetupError(f"checkpoints/last.pt is of another estimator: {last}") from error


def synchronise(estimator: torch.nn.Module, ranks: Ranks) -> None:
    """Give all ranks the weights and buffers of rank 0's estimator."""
    with torch.no_grad():
        for tensor in estimator.state_dict().values():
            tensor.copy_(ranks.broadcast(tensor))
