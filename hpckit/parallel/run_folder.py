"""What a run leaves behind: metrics.jsonl and checkpoints/."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

from hpckit.parallel.errors import SetupError


class Metrics:
    """The file metrics.jsonl: one JSON object per line, readable as soon as it is written."""

    def __init__(
        self,
        folder: Path | None,
        step: int,
        constants: Mapping[str, float],
        *,
        tensorboard: bool = False,
    ) -> None:
        """Begin the file, or keep its lines up to the step after which training goes on.

        Later steps come again, and a line that was cut off when the job was killed is no line.
        Without a folder nothing is written: all ranks but the first are like this.

        Raises:
            SetupError: events for TensorBoard are wanted, which is not installed.
        """
        self._events = (
            event_writer(folder / "tensorboard", step + 1) if folder and tensorboard else None
        )
        self._path = folder / "metrics.jsonl" if folder else None
        self._constants = constants
        if self._path:
            lines = self._path.read_text().splitlines(keepends=True) if self._path.exists() else []
            whole = [line for line in lines if line.endswith("\n")]
            beside = self._path.with_suffix(".part")
            beside.write_text("".join(x for x in whole if json.loads(x)["step"] <= step))
            beside.replace(self._path)

    def write(self, step: int, epoch: int, **figures: float | str) -> None:
        """Append one line, and an event for each number."""
        if self._events:
            _write_events(self._events, step, figures)
        if self._path:
            record = {"step": step, "epoch": epoch, **figures, **self._constants}
            with self._path.open("a") as file:
                file.write(json.dumps({**record, "time": time.time()}) + "\n")


def event_writer(folder: Path | str | None, purge_step: int) -> "SummaryWriter":
    """Return a writer of events; an earlier run's, from `purge_step` on, no longer show.

    Raises:
        SetupError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # a package of its own
    except ImportError as error:
        raise SetupError(
            "TensorBoard is not installed: install it with 'pip install tensorboard'"
        ) from error
    return SummaryWriter(folder, purge_step=purge_step)


def _write_events(events: "SummaryWriter", step: int, figures: Mapping[str, float | str]) -> None:
    """Write each number under its name, or where devices are named, under theirs."""
    where = f"{figures['devices']}/" if "devices" in figures else ""
    for name, value in figures.items():
        if not isinstance(value, str):
            events.add_scalar(where + name, value, step)
    events.flush()


def make_folder(folder: Path) -> Path:
    """Make the run's folder, and return it.

    Raises:
        SetupError: It cannot be made.
    """
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"the run folder {folder} cannot be created: {error.strerror}") from error
    return folder


def save_checkpoint(folder: Path, checkpoint: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write a checkpoint under each name, whole or not at all, also if the job dies meanwhile."""
    for name in names:
        save_whole(folder / "checkpoints" / name, checkpoint)


def save_whole(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors and numbers, whole or not at all."""
    beside = path.with_suffix(".part")
    torch.save(state, beside)
    beside.replace(path)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Return checkpoints/last.pt, or None if there is none."""
    path = folder / "checkpoints" / "last.pt"
    if not path.exists():
        return None
    # weights_only: tensors, numbers and strings; a pickle could also carry code.
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return checkpoint
