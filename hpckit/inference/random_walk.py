"""A random walk: one step up or down at each time. The smallest model, for tutorials and tests."""

import math
from typing import ClassVar

import torch

from hpckit.inference import noise
from hpckit.inference.checks import check_counts
from hpckit.inference.model import OneStepModel, check_numbers
from hpckit.inference.noise import TAU, draw_bernoulli
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import as_number


class RandomWalk(OneStepModel):
    """Its parameter is the logit of the probability to go up.

    The state has shape (1, 1), or (1, B, 1) for a batch of parameters (B, 1): the position.
    """

    batched: ClassVar[bool] = True

    def __init__(self, n_timesteps: int, tau_softmax: float = TAU) -> None:
        """Make a model; `tau_softmax` is the temperature of the steps' gradient.

        Raises:
            SetupError: the temperature is not above 0, or there are less than no steps.
        """
        check_counts(0, n_timesteps=n_timesteps)
        if not 0 < as_number(tau_softmax) < math.inf:
            raise SetupError(f"tau_softmax is {tau_softmax!r}: it must be a number above 0")
        self.n_timesteps = n_timesteps
        self.tau_softmax = tau_softmax

    def initialize(self, params: torch.Tensor) -> torch.Tensor:
        """Return position 0."""
        check_numbers(params)
        return torch.zeros((1, *params.shape), dtype=params.dtype, device=params.device)

    def step(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the position one step up or down."""
        # In float64, as in SIR: the same bits in any batch.
        up = params.double().sigmoid().to(params.dtype).reshape(-1, 1)
        v = noise.uniform((1,), samples=len(up), dtype=up.dtype, device=up.device)
        walked = 2 * draw_bernoulli(up, v, self.tau_softmax) - 1
        return x[-1:] + walked.reshape(1, *params.shape)

    def observe(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the position, (T,) or (T, B)."""
        return [x[..., 0]]
