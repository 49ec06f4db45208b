"""Checkpoints and weights of a fit: rank 0 writes and reads them for all."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks
from hpckit.parallel.run_folder import (
    load_checkpoint,
    make_folder,
    save_checkpoint,
    save_whole,
)


@dataclass(frozen=True)
class RunFiles:
    """What a fit writes into its run folder; without a folder, nothing."""

    folder: Path | None
    ranks: Ranks

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, whole or not at all."""
        if self.folder and self.ranks.leads:
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
        # weights_only: tensors, numbers and strings; a pickle could also carry code.
        state: dict[str, Any] = torch.load(
            io.BytesIO(sent[0].tobytes()), map_location="cpu", weights_only=True
        )
        return state

    def _read(self) -> list[np.ndarray[Any, np.dtype[Any]]]:
        state = load_checkpoint(self.folder) if self.folder else None
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
