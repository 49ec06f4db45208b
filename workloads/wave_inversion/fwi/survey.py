"""The survey: where shots and receivers are, the wavelet, and which shots are whose."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fwi.packages import need
from fwi.velocity import Model, npy_file
from hpckit.parallel.errors import SetupError

DEPTH = 2  # of sources and receivers, in cells
_CELLS_PER_WAVE = 4


@dataclass(frozen=True)
class Survey:
    """Shots fired one after the other over a line of receivers that all of them share.

    Attributes:
        nx, nz: cells along the surface and down.
        dx: size of a cell, m.
        dt, nt: interval of samples, s, and their number per trace.
        frequency: peak of the Ricker wavelet, Hz.
        taper: samples over which each trace's end goes to zero.
    """

    nx: int
    nz: int
    dx: float
    dt: float
    nt: int
    shots: int
    receivers: int
    frequency: float
    taper: int

    def check(self, cutoffs: tuple[float, ...]) -> None:
        """Refuse what cannot be simulated or filtered.

        Raises:
            SetupError: sizes do not fit together.
        """
        if self.nx < self.receivers:
            raise SetupError(f"--receivers {self.receivers} do not fit into {self.nx} cells")
        if self.nz <= DEPTH:
            raise SetupError(f"a model {self.nz} cells deep is too shallow: sources are at {DEPTH}")
        if self.taper >= self.nt:
            raise SetupError(f"--taper {self.taper} leaves nothing of --nt {self.nt} samples")
        nyquist = 0.5 / self.dt
        if not all(0 <= cutoff < nyquist for cutoff in cutoffs):
            raise SetupError(
                f"--frequencies {','.join(f'{c:g}' for c in cutoffs)}: each must be at least 0 "
                f"(no filter) and below {nyquist:g} Hz, half the rate of --dt {self.dt:g}"
            )

    def check_grid(self, slowest: float) -> None:
        """Refuse cells and samples that are too coarse for the shortest waves.

        Raises:
            SetupError: they are; deepwave itself only keeps its own time step stable.
        """
        if 4 * self.frequency * self.dt > 1:
            raise SetupError(
                f"--dt {self.dt:g} is too long for --frequency {self.frequency:g}: "
                f"at most {0.25 / self.frequency:g} (--skip-grid-check takes it as it is)"
            )
        # A Ricker wavelet has little above twice its peak frequency.
        wave = slowest / (2 * self.frequency)
        if wave < _CELLS_PER_WAVE * self.dx:
            raise SetupError(
                f"--dx {self.dx:g} is too coarse: the shortest waves, {slowest:g} m/s at "
                f"{2 * self.frequency:g} Hz, are {wave:.3g} m long and need {_CELLS_PER_WAVE} "
                "cells; lower --dx or --frequency (--skip-grid-check takes it as it is)"
            )

    def sources_at(self, numbers: range) -> torch.Tensor:
        """Return the cells of some shots' sources, [shot, 1, 2]."""
        return self._line(self.shots, margin=min(5, (self.nx - 1) // 2))[list(numbers)][:, None]

    def receivers_at(self, numbers: range) -> torch.Tensor:
        """Return the cells of some shots' receivers, [shot, receiver, 2]."""
        return self._line(self.receivers, margin=0).repeat(len(numbers), 1, 1)

    def _line(self, count: int, margin: int) -> torch.Tensor:
        along = np.linspace(margin, self.nx - 1 - margin, count).round()
        return torch.tensor([[int(x), DEPTH] for x in along], dtype=torch.long).reshape(count, 2)

    def wavelet(self) -> torch.Tensor:
        """Return the source's amplitudes, [nt]; the peak is 1.5 periods after the start."""
        ricker: torch.Tensor = need("deepwave").wavelets.ricker(
            self.frequency, self.nt, self.dt, 1.5 / self.frequency
        )
        return ricker


def share(numbers: range, parts: int, part: int) -> range:
    """Return one of `parts` runs of shots, as even as can be; some may be empty."""
    size, more = divmod(len(numbers), parts)
    begin = part * size + min(part, more)
    return numbers[begin : begin + size + (part < more)]


def read_observed(path: Path, survey: Survey) -> NDArray[np.float32]:
    """Open recorded traces, [shot, receiver, sample]; only what is used of it is read.

    Raises:
        SetupError: it cannot be read, or has another shape.
    """
    try:
        found = np.load(npy_file(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SetupError(f"--observed {path} cannot be read: {error}") from error
    wanted = (survey.shots, survey.receivers, survey.nt)
    if found.shape != wanted or found.dtype.kind != "f":
        raise SetupError(
            f"--observed {path} holds {found.dtype} of shape {found.shape}, not floats of "
            f"(--shots, --receivers, --nt) = {wanted}"
        )
    return found


def some_traces(observed: NDArray[np.float32], most: int = 16) -> NDArray[np.float32]:
    """Return up to so many traces, from the first shot and receiver to the last: [trace, sample].

    Enough to tell recordings apart without reading all of them.
    """
    shots, receivers = observed.shape[:2]
    count = min(most, max(shots, receivers))
    pairs = zip(evenly(shots, count), evenly(receivers, count), strict=True)
    return np.stack([observed[shot, receiver] for shot, receiver in pairs])


def evenly(size: int, count: int) -> list[int]:
    """Return `count` indices from the first to the last of `size`; of fewer some come again."""
    return [int(index) for index in np.linspace(0, size - 1, count).round()]


def slowest_of(*models: Model | None) -> float:
    """Return the lowest velocity of some models."""
    return min(float(model.min()) for model in models if model is not None)
