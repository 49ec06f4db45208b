"""How far a simulation is from data."""

from collections.abc import Sequence

import torch

from hpckit.inference.model import Model, simulate_and_observe_model
from hpckit.parallel.errors import SetupError


class L2Loss:
    """The mean squared difference of a model's first observable from data.

    Attributes:
        batched: whether it takes batches of parameters at once, as its model does.
    """

    def __init__(self, model: Model, gradient_horizon: int | None = 0) -> None:
        """Compare runs of a model; for the horizon see `simulate_and_observe_model`."""
        self.model = model
        self.gradient_horizon = gradient_horizon
        self.batched = model.batched

    def __call__(self, params: torch.Tensor, data: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss of parameters (P,), 0-D; or the losses of a batch (B, P), (B,).

        Raises:
            SetupError: the data are not of the shape of the observable.
        """
        seen = simulate_and_observe_model(self.model, params, self.gradient_horizon)[0]
        shape = seen.shape[params.ndim - 1 :]
        if data[0].shape != shape:
            raise SetupError(
                f"The data have shape {tuple(data[0].shape)} and the model shows {tuple(shape)}."
            )
        # In float64: squares of counts are beyond float32's whole numbers, and a sample's sum must
        # not depend on the batch.
        squares = (seen.double() - data[0].to(seen.device)).square()
        return squares.flatten(params.ndim - 1).mean(-1).to(seen.dtype)
