"""What a simulator must offer, how one is run, and how far a simulation is from data.

The names and their meaning are those of blackbirds (github.com/arnauqb/blackbirds, version 1.3), so
its users change an import. A time series has time as its first dimension; in a model that takes
batches, the samples are the second.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from hpckit.inference.noise import noise_of_one
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import whole

# None for a model that keeps its state to itself; such a model says itself what to trim and detach.
Series = Any


class Model(ABC):
    """A simulator that gradients may pass through.

    Attributes:
        n_timesteps: number of steps after the initial state.
        batched: `initialize` and `step` also take parameters of shape (B, P). Such a model draws
            from `hpckit.inference.noise`, and no sample's numbers depend on its neighbours.
    """

    n_timesteps: int
    batched: ClassVar[bool] = False

    @abstractmethod
    def initialize(self, params: torch.Tensor) -> Series:
        """Return the time series that the simulation begins with."""

    @abstractmethod
    def step(self, params: torch.Tensor, x: Series) -> torch.Tensor:
        """Return the next step, as a series of length 1, from what `trim_time_series` kept."""

    @abstractmethod
    def observe(self, x: Series) -> list[torch.Tensor]:
        """Return what is seen of a series: tensors with time, and then samples if any, first."""

    def trim_time_series(self, time_series: Series) -> Series:
        """Return the past that the next step needs; here the last step."""
        return time_series[-1:]

    def extend_time_series(self, time_series: Series, x: torch.Tensor) -> Series:
        """Return the past that the next step needs, from that of this step and its result."""
        if time_series is None:
            return None
        return self.trim_time_series(torch.cat((time_series, x)))

    def detach_gradient_horizon(self, time_series: Series, gradient_horizon: int) -> Series:
        """Return the series without the gradients of all but its last `gradient_horizon` steps."""
        past = max(len(time_series) - gradient_horizon, 0)
        return torch.cat((time_series[:past].detach(), time_series[past:]))

    def __call__(self, params: torch.Tensor, x: Series) -> torch.Tensor:
        """Return the next step."""
        return self.step(params, x)

    def run(self, params: torch.Tensor) -> torch.Tensor:
        """Return the whole time series."""
        steps = [self.initialize(params)]
        past = self.trim_time_series(steps[0])
        for _ in range(self.n_timesteps):
            steps.append(self(params, past))
            past = self.extend_time_series(past, steps[-1])
        return torch.cat(steps)

    def run_and_observe(self, params: torch.Tensor) -> list[torch.Tensor]:
        """Return what is seen of a run, as `simulate_and_observe_model` does."""
        return simulate_and_observe_model(self, params)


class OneStepModel(Model):
    """A model whose next step depends on the last one only; this saves a copy of it."""

    def trim_time_series(self, time_series: Series) -> Series:
        """Return the last step."""
        return time_series[-1:]

    def extend_time_series(self, time_series: Series, x: torch.Tensor) -> Series:
        """Return the result of this step."""
        return x

    def detach_gradient_horizon(self, time_series: Series, gradient_horizon: int) -> Series:
        """Return the last step, without its gradient unless the horizon is longer than 0."""
        return time_series if gradient_horizon else time_series.detach()


def simulate_and_observe_model(
    model: Model, params: torch.Tensor, gradient_horizon: float | None = None
) -> list[torch.Tensor]:
    """Run a model and return what it shows at each time.

    The gradient of what is seen at one time passes through the parameters' effect within that step,
    and through at most `gradient_horizon` earlier ones: 0 is the direct effect alone, None the full
    gradient, as is `n_timesteps` or more. This is truncated back-propagation through time: steps
    come in blocks of `gradient_horizon + 1`, the initial state the first, and no gradient passes
    from a block to the one before.

    Args:
        model: what to run.
        params: of shape (P,), or (B, P): then models that take no batches are run one by one.
        gradient_horizon: number of earlier steps; infinite is all.

    Returns:
        A tensor per observable: (T+1, ...), or (B, T+1, ...) for a batch.

    Raises:
        SetupError: the horizon or the shape of the parameters is wrong.
    """
    horizon = 0 if gradient_horizon in (None, math.inf) else whole(gradient_horizon)
    if horizon is None or horizon < 0:
        raise SetupError(f"gradient_horizon is {gradient_horizon!r}: give 0 or more, or None.")
    if not hasattr(params, "ndim"):  # a model of one's own may take arrays, or whole numbers
        raise SetupError(no_numbers(params))
    if params.ndim not in (1, 2):
        raise SetupError(f"Parameters have shape {tuple(params.shape)}: give (P,) or (B, P).")
    if params.ndim == 1:
        return _simulate(model, params, gradient_horizon)
    if model.batched:
        return [seen.movedim(1, 0) for seen in _simulate(model, params, gradient_horizon)]
    samples = []
    for position, sample in enumerate(params):
        with noise_of_one(position):
            samples.append(_simulate(model, sample, gradient_horizon))
    return [torch.stack(seen) for seen in zip(*samples, strict=True)]


def check_numbers(params: object) -> None:
    """Refuse parameters that a simulator cannot draw with.

    Raises:
        SetupError: they are not a tensor of floating-point numbers.
    """
    if not isinstance(params, torch.Tensor) or not params.is_floating_point():
        raise SetupError(no_numbers(params))


def no_numbers(params: object) -> str:
    """Return what to say of parameters that are none."""
    given = params.dtype if isinstance(params, torch.Tensor) else type(params).__name__
    return f"Parameters are a {given}: give a tensor of floating-point numbers."


def _simulate(
    model: Model, params: torch.Tensor, gradient_horizon: float | None
) -> list[torch.Tensor]:
    series = model.initialize(params)
    seen = [model.observe(series)]
    series = model.trim_time_series(series)
    for time in range(1, model.n_timesteps + 1):
        if gradient_horizon is not None and time % (gradient_horizon + 1) == 0:
            series = model.detach_gradient_horizon(series, 0)
        x = model(params, series)
        seen.append(model.observe(x))
        series = model.extend_time_series(series, x)
    return [torch.cat(observable) for observable in zip(*seen, strict=True)]


class L2Loss:
    """The mean squared difference of a model's first observable from data.

    Attributes:
        batched: whether it takes batches of parameters at once, as its model does.
    """

    def __init__(self, model: Model, gradient_horizon: float | None = 0) -> None:
        """Compare runs of a model; for the horizon see `simulate_and_observe_model`."""
        self.model = model
        self.gradient_horizon = gradient_horizon
        self.batched = model.batched

    def __call__(self, params: torch.Tensor, data: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss of parameters (P,), 0-D; or the losses of a batch (B, P), (B,).

        Raises:
            SetupError: the data are not of the shape of the observable.
        """
        if hasattr(data, "__len__") and not len(data):
            raise SetupError("The data are empty: give a list of the series that was observed.")
        seen = simulate_and_observe_model(self.model, params, self.gradient_horizon)[0]
        shape, wanted = seen.shape[params.ndim - 1 :], torch.as_tensor(data[0], device=seen.device)
        if wanted.shape != shape:
            raise SetupError(
                f"The data have shape {tuple(wanted.shape)} and the model shows {tuple(shape)}."
            )
        # In float64: squares of counts are beyond float32's whole numbers, and a sample's sum must
        # not depend on the batch.
        squares = (seen.double() - wanted).square()
        return squares.flatten(params.ndim - 1).mean(-1).to(seen.dtype)
