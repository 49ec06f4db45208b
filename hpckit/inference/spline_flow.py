"""A neural spline flow: the posterior estimator for posteriors that are no Gaussian."""

import math

import torch
from torch import nn

from hpckit.inference.flow_layers import AutoregressiveSplines, PermutedLinear
from hpckit.inference.rational_quadratic import MIN_WIDTH
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import whole


class SplineFlow(nn.Module):
    """A standard normal vector through layers of autoregressive splines and linear maps.

    Functions, parameters and first weights are those of normflows' flow of `layers` times
    `AutoregressiveRationalQuadraticSpline(dim, hidden_layers, hidden_units)` and
    `LULinearPermute(dim)` over `DiagGaussian(dim, trainable=False)`. At first it is the standard
    normal. `hpckit.inference.convert` takes weights from there.
    """

    def __init__(
        self,
        dim: int = 3,
        layers: int = 4,
        hidden_units: int = 64,
        hidden_layers: int = 2,
        bins: int = 8,
        tail_bound: float = 3.0,
        *,
        seed: int | None = None,
    ) -> None:
        """Make a flow.

        Args:
            dim: Variables.
            layers: Pairs of a layer of splines and a linear map.
            hidden_units: Width of the networks that choose splines.
            hidden_layers: Residual blocks of these networks, of two linear layers each.
            bins: Bins of a spline.
            tail_bound: Beyond it, on both sides, a spline is the identity.
            seed: Of first weights and permutations, apart from torch's generator, which else
                gives them.

        Raises:
            SetupError: a number is too small, or there are too many bins.
        """
        super().__init__()
        _check(dim=(dim, 1), layers=(layers, 1), hidden_units=(hidden_units, 1), bins=(bins, 2))
        _check(hidden_layers=(hidden_layers, 0))
        if bins * MIN_WIDTH > 1 or not tail_bound > 0:
            raise SetupError(
                f"a spline of {bins} bins within {tail_bound}: have at most {1 / MIN_WIDTH:.0f}, "
                "and a bound above 0"
            )
        self.dim = dim
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(
            SplineLayer(dim, hidden_units, hidden_layers, bins, tail_bound, generator)
            for _ in range(layers)
        )

    def sample(self, n: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw n vectors (n, dim) and their log densities (n,), with torch's global generator.

        A call costs what 700 draws cost, beside its draws: few large calls are best. The default
        flow keeps 12 kB a draw for the way back.
        """
        kind = next(self.parameters())
        values = torch.randn(n, self.dim, dtype=kind.dtype, device=kind.device).t()
        log_q, logs = self._log_base(values), []
        for layer in self.layers:
            values, found = layer(values, inverse=True)
            logs += found
        return values.t().contiguous(), log_q - _sum(logs)

    def log_prob(self, z: torch.Tensor) -> torch.Tensor:
        """Return log densities (n,) at points (n, dim)."""
        values, logs = z.t(), []
        for layer in reversed(self.layers):
            values, found = layer(values)
            logs += found
        return self._log_base(values) + _sum(logs)

    def _log_base(self, values: torch.Tensor) -> torch.Tensor:
        return values.square().sum(0).mul(-0.5) - 0.5 * self.dim * math.log(2 * math.pi)


class SplineLayer(nn.Module):
    """Splines and the linear map that mixes variables between them and the next."""

    def __init__(
        self,
        dim: int,
        hidden_units: int,
        hidden_layers: int,
        bins: int,
        tail_bound: float,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.splines = AutoregressiveSplines(
            dim, hidden_units, hidden_layers, bins, tail_bound, generator
        )
        self.linear = PermutedLinear(dim, generator)

    def forward(
        self, values: torch.Tensor, *, inverse: bool = False
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return images (dim, n) of values, and parts (n,) of the log determinant.

        Forward is from vectors to noise; `inverse` makes vectors of noise.
        """
        if inverse:
            values, logs = self.splines(values, inverse=True)
            values, log_det = self.linear.inverse(values)
        else:
            values, log_det = self.linear(values)
            values, logs = self.splines(values)
        return values, [*logs, log_det.expand(values.shape[1])]


def _sum(logs: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(logs).sum(0)


def _check(**numbers: tuple[int, int]) -> None:
    for name, (number, least) in numbers.items():
        if whole(number) is None:
            raise SetupError(f"a spline flow of {name}={number!r}: it must be a whole number")
        if number < least:
            raise SetupError(f"a spline flow of {name}={number}: it needs at least {least}")
