"""Full-waveform inversion: L-BFGS with a strong Wolfe line search, from low frequencies to high."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fwi.team import Team
from fwi.velocity import Bounds
from hpckit.parallel.errors import SetupError

# How far the first trial of a stage moves parameters, at most. L-BFGS knows no length then.
_FIRST_MOVE = 0.1
_HISTORY = 20


@dataclass(frozen=True)
class Plan:
    """Attributes.

    cutoffs: of the low-pass of each stage, Hz; 0 lets all pass.
    steps: L-BFGS steps per stage.
    iterations: at most so many line searches per step.
    """

    cutoffs: tuple[float, ...]
    steps: int
    iterations: int

    @property
    def total_steps(self) -> int:
        """Steps of all stages."""
        return len(self.cutoffs) * self.steps


class Objective:
    """The misfit of one stage, relative to the energy of what was observed; remembers values."""

    def __init__(self, team: Team, still: Tensor | None = None) -> None:
        """Take a team; no model that is tried changes the `still` cells, a list [cell, 2]."""
        self._team, self._still = team, still
        self._cutoff, self._energy = -1.0, 0.0
        self._known: list[tuple[Tensor, float, Tensor]] = []
        self.evaluations: list[tuple[float, float]] = []  # of (cutoff, misfit), in order

    def begin(self, velocity: Tensor, cutoff_hz: float) -> None:
        """Begin a stage, or another step of it.

        Raises:
            SetupError: nothing was observed at these frequencies.
        """
        if cutoff_hz != self._cutoff:
            self._cutoff, self._known = cutoff_hz, []
            self._energy = self._team.energy(velocity, cutoff_hz)
            if not 0 < self._energy < math.inf:
                below = f" below {cutoff_hz:g} Hz" if cutoff_hz else ""
                raise SetupError(f"the observed traces have the energy {self._energy:g}{below}")
        # The step before ended at one of its trials; the others are of no use any more.
        self._known = [row for row in self._known if torch.equal(row[0], velocity)]

    def __call__(self, velocity: Tensor) -> tuple[float, Tensor]:
        """Return misfit and gradient; a line search that ends where it has been costs nothing.

        Raises:
            SetupError: they are no finite numbers.
        """
        for known, misfit, gradient in self._known:
            if torch.equal(known, velocity):
                return misfit, gradient
        squares, slope = self._team.misfit(velocity, self._cutoff)
        misfit, gradient = squares / self._energy, slope / self._energy
        if not (math.isfinite(misfit) and bool(gradient.isfinite().all())):
            raise SetupError(
                f"the misfit is {misfit} at gradient {len(self.evaluations) + 1}, or its gradient "
                "is not finite: are the observed traces in the units of the simulated ones?"
            )
        if self._still is not None:
            gradient[self._still[:, 0], self._still[:, 1]] = 0
        self.evaluations.append((self._cutoff, misfit))
        self._known.append((velocity.clone(), misfit, gradient))
        return misfit, gradient


class Inversion:
    """A model on its way to explain the traces; on the first rank, on the CPU, in double."""

    def __init__(self, plan: Plan, bounds: Bounds, start: Tensor, objective: Objective) -> None:
        self.plan, self.objective = plan, objective
        self.step = 0
        self._bounds = bounds
        self._unit = 1.0
        self._scaled = bounds.parameters(start.double())
        self._optimizer = self._new_optimizer()

    @property
    def velocity(self) -> Tensor:
        """The model, [nx, nz] in m/s."""
        return self._bounds.velocity(self._scaled.detach() * self._unit)

    @property
    def cutoff_hz(self) -> float:
        """The low-pass of the step that comes next, or was last if none comes."""
        return self.plan.cutoffs[min(self.step, self.plan.total_steps - 1) // self.plan.steps]

    def advance(self) -> tuple[float, float]:
        """Take one step; return the misfit before and after.

        Raises:
            Stopped: a rank was told to; all is as it was before the step.
            SetupError: the misfit is no number.
        """
        self.objective.begin(self.velocity, self.cutoff_hz)
        before, slope = self.objective(self.velocity)
        kept = self.state()
        if self.step % self.plan.steps == 0:
            self._begin_stage(slope)
        try:
            self._optimizer.step(self._closure)
            after, _ = self.objective(self.velocity)
        except BaseException:
            self.load_state(kept)
            raise
        self.step += 1
        return before, after

    def _begin_stage(self, slope: Tensor) -> None:
        """Forget the curvature of another misfit; choose the unit of the parameters.

        The first trial of torch's L-BFGS moves them by gradient / sum of |gradient|: far too
        little for many cells. In units of `_unit`, it moves the most moved by about `_FIRST_MOVE`.
        A power of two changes no bit of them, so that the gradient known here needs no second run.
        """
        parameters = self._scaled.detach() * self._unit
        gradient = slope * self._bounds.slope(parameters)
        largest = float(gradient.abs().max() / gradient.abs().sum()) if gradient.any() else 1.0
        self._unit = 2.0 ** round(math.log2(_FIRST_MOVE / largest))
        self._scaled = parameters / self._unit
        self._optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.LBFGS:
        self._scaled.requires_grad_()
        return torch.optim.LBFGS(
            [self._scaled],
            max_iter=self.plan.iterations,
            history_size=_HISTORY,
            tolerance_grad=0,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )

    def _closure(self) -> float:
        misfit, gradient = self.objective(self.velocity)
        slope = self._bounds.slope(self._scaled.detach() * self._unit)
        self._scaled.grad = gradient * slope * self._unit
        return misfit

    def state(self) -> dict[str, Any]:
        """Return what is needed to go on after this step."""
        return {
            "step": self.step,
            "unit": self._unit,
            "scaled": self._scaled.detach().clone(),
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "evaluations": [list(row) for row in self.objective.evaluations],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self.step, self._unit = state["step"], state["unit"]
        self._scaled = state["scaled"].clone()
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(state["optimizer"])
        self.objective.evaluations = [(row[0], row[1]) for row in state["evaluations"]]
