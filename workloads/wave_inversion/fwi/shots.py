"""Simulates shots with deepwave, and differentiates their misfit, on one device or several."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fwi.filters import LowPass, end_taper
from fwi.packages import need
from fwi.survey import Survey, share
from hpckit.parallel.devices import Replica
from hpckit.parallel.errors import SetupError

Result = TypeVar("Result")
Sums = tuple[Tensor, Tensor]  # squared residuals of each shot [shots], their gradient [nx, nz]


@dataclass(frozen=True)
class Solver:
    """How shots are simulated.

    Attributes:
        fastest: the velocity that deepwave's own time step must be safe for: always the same,
            or the step, and with it the numbers, would change while the model does.
        at_once: the most shots in memory together; 0 is all.
        dtype: of the simulation; sums of shots are float64.
    """

    survey: Survey
    fastest: float
    at_once: int = 0
    dtype: torch.dtype = torch.float32


class Shots:
    """Some shots of the survey, on one device."""

    def __init__(self, solver: Solver, numbers: range, device: torch.device) -> None:
        self.numbers, self.device = numbers, device
        self._solver, self._survey = solver, solver.survey
        self._wavelet = solver.survey.wavelet().to(device, solver.dtype)
        self._taper = end_taper(self._survey.nt, self._survey.taper, device)
        self._low_pass = LowPass(0, self._survey.dt, self._survey.nt, device)
        shape = (len(numbers), self._survey.receivers, self._survey.nt)
        self.observed = torch.zeros(shape, dtype=solver.dtype, device=device)

    def observe(self, observed: NDArray[np.float32]) -> None:
        """Take the recorded traces of these shots from those of all.

        Raises:
            SetupError: some are not finite.
        """
        mine = np.array(observed[self.numbers.start : self.numbers.stop], dtype=np.float32)
        if not np.isfinite(mine).all():
            bad = np.flatnonzero(~np.isfinite(mine).all(axis=(1, 2)))[0] + self.numbers.start
            raise SetupError(f"--observed: shot {bad} (counted from 0) has samples that are not "
                             "finite float32 numbers")  # fmt: skip
        self.observed = torch.from_numpy(mine).to(self.observed)

    def simulate(self, velocity: Tensor, noise: float, seed: int) -> None:
        """Take the traces of a velocity model as observed.

        Noise is white, relative to the rms of its shot; a shot's does not depend on where it runs.
        """
        with torch.no_grad():
            for part in self._parts():
                model = velocity.to(self.observed)
                self.observed[self._rows(part)] = self._traces(model, part)
        for row, number in enumerate(self.numbers):
            random = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**64)
            white = torch.randn(self.observed[row].shape, generator=random).to(self.device)
            self.observed[row] += noise * self.observed[row].square().mean().sqrt() * white

    def energy(self, velocity: Tensor, cutoff_hz: float) -> Sums:
        """Return the squares of the observed traces of each shot, filtered; no gradient."""
        traces = self._compared(self.observed.double(), cutoff_hz)
        return traces.square().sum((1, 2)), torch.zeros_like(velocity)

    def misfit(self, velocity: Tensor, cutoff_hz: float) -> Sums:
        """Return squared residuals of each shot, and the gradient of their sum by velocity.

        Each shot is given a model of its own, so that deepwave's sums in its own precision end at
        the shot, and shots are added in double. So it makes next to no difference which shots
        come together; only in the cell of a source, deepwave's rounding depends on that.

        Raises:
            SetupError: waves grew without bounds, or memory did not suffice.
        """
        sums = torch.zeros(len(self.numbers), dtype=torch.float64, device=self.device)
        gradient = torch.zeros(velocity.shape, dtype=torch.float64, device=self.device)
        for part in self._parts():
            rows = self._rows(part)
            models = velocity.to(self.observed).repeat(len(part), 1, 1)
            difference = self._traces(models.requires_grad_(), part) - self.observed[rows]
            squares = self._compared(difference.double(), cutoff_hz).square().sum((1, 2))
            (found,) = torch.autograd.grad(squares.sum(), models)
            sums[rows] = squares.detach()
            gradient += found.double().sum(0)
        return sums.cpu(), gradient.cpu()

    def _compared(self, traces: Tensor, cutoff_hz: float) -> Tensor:
        if cutoff_hz != self._low_pass.cutoff_hz:
            self._low_pass = LowPass(cutoff_hz, self._survey.dt, self._survey.nt, self.device)
        return self._low_pass(traces * self._taper)

    def _traces(self, model: Tensor, numbers: range) -> Tensor:
        deepwave = need("deepwave")
        try:
            found: Tensor = deepwave.scalar(
                model,
                self._survey.dx,
                self._survey.dt,
                source_amplitudes=self._wavelet.repeat(len(numbers), 1, 1),
                source_locations=self._survey.sources_at(numbers).to(self.device),
                receiver_locations=self._survey.receivers_at(numbers).to(self.device),
                max_vel=self._solver.fastest,
                pml_freq=self._survey.frequency,
                time_pad_frac=0.2,
            ).receiver_amplitudes
        except FloatingPointError as error:
            raise SetupError(f"the simulation diverged: {str(error).splitlines()[0]}") from error
        except torch.cuda.OutOfMemoryError as error:
            raise SetupError(
                f"{len(numbers)} shots at once do not fit into memory of {self.device}: "
                "give --shots-at-once a smaller number"
            ) from error
        return found

    def _parts(self) -> Iterator[range]:
        size = self._solver.at_once or max(len(self.numbers), 1)
        for begin in range(0, len(self.numbers), size):
            yield self.numbers[begin : begin + size]

    def _rows(self, part: range) -> slice:
        return slice(part.start - self.numbers.start, part.stop - self.numbers.start)


class Replicas:
    """The shots of one process, spread over its devices, which work at once.

    Each has a thread: deepwave's kernels run without Python's lock. What they find is added up on
    the CPU, in double.
    """

    def __init__(self, solver: Solver, numbers: range, replicas: Sequence[Replica]) -> None:
        parts = [share(numbers, len(replicas), row.number) for row in replicas]
        self.shots = [
            Shots(solver, part, row.device) for part, row in zip(parts, replicas, strict=True)
        ]
        self._total = solver.survey.shots
        self._pool = ThreadPoolExecutor(len(replicas)) if len(replicas) > 1 else None

    def simulate(self, velocity: Tensor, noise: float, seed: int) -> None:
        """See `Shots.simulate`."""
        self._each(lambda shots: shots.simulate(velocity, noise, seed))

    def observe(self, observed: NDArray[np.float32]) -> None:
        """See `Shots.observe`."""
        self._each(lambda shots: shots.observe(observed))

    def energy(self, velocity: Tensor, cutoff_hz: float) -> Sums:
        """Return squares of each shot of the survey, 0 for those that are elsewhere."""
        return self._added(lambda shots: shots.energy(velocity, cutoff_hz), velocity)

    def misfit(self, velocity: Tensor, cutoff_hz: float) -> Sums:
        """Return squared residuals of each shot of the survey, and the gradient of their sum."""
        return self._added(lambda shots: shots.misfit(velocity, cutoff_hz), velocity)

    def _added(self, work: Callable[[Shots], Sums], velocity: Tensor) -> Sums:
        sums = torch.zeros(self._total, dtype=torch.float64)
        gradient = torch.zeros(velocity.shape, dtype=torch.float64)
        for shots, (some, part) in zip(self.shots, self._each(work), strict=True):
            sums[shots.numbers.start : shots.numbers.stop] = some
            gradient += part
        return sums, gradient

    def _each(self, work: Callable[[Shots], Result]) -> list[Result]:
        def at_home(shots: Shots) -> Result:
            # A thread's current GPU is the first one, whatever its tensors are on.
            with torch.cuda.device(shots.device) if shots.device.type == "cuda" else nullcontext():
                return work(shots)

        if self._pool is None:
            return [at_home(shots) for shots in self.shots]
        return list(self._pool.map(at_home, self.shots))
