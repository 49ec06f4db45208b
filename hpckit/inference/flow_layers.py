"""The layers of a flow: autoregressive splines, and a linear map of all variables.

An autoregressive layer puts each variable through a spline that those before it choose. Its
network is a residual MADE (Germain et al. 2015, arXiv:1502.03509; Durkan et al. 2019). Each of
its units has a degree k and sees the first k variables. With all variables at hand one pass gives
all splines; going the other way, each variable must be known before the next one's spline is, and
the usual code runs the whole network once a variable. Here units stand in order of degree and a
pass goes degree by degree: each unit is computed once, in both directions.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import relu, softplus

from hpckit.inference.rational_quadratic import UNIT_SLOPE, spline

# Half the width of the first weights of a residual block's last layer: blocks start near identity.
SMALL = 1e-3


class AutoregressiveSplines(nn.Module):
    """Splines of dim variables, chosen by a residual MADE; at first all are the identity."""

    def __init__(
        self,
        dim: int,
        hidden_units: int,
        blocks: int,
        bins: int,
        tail_bound: float,
        generator: torch.Generator | None = None,
    ) -> None:
        """Make a layer; each of the network's residual blocks is two linear maps."""
        super().__init__()
        self.dim = dim
        self.tail_bound = tail_bound
        hidden = [hidden_degrees(dim, hidden_units).count(degree) for degree in range(dim)]
        self.initial = ByDegree([0] + [1] * (dim - 1), hidden, inputs=dim)
        pairs = [(ByDegree(hidden, hidden), ByDegree(hidden, hidden)) for _ in range(blocks)]
        self.blocks = nn.ModuleList(layer for pair in pairs for layer in pair)
        self.final = ByDegree(hidden, [3 * bins - 1] * dim)
        self.initial.reset(generator)
        for first, second in pairs:
            first.reset(generator)
            second.reset(generator, bound=SMALL)
        nn.init.zeros_(self.final.weight)
        nn.init.constant_(self.final.bias, UNIT_SLOPE)

    def forward(
        self, values: torch.Tensor, *, inverse: bool = False
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return images (dim, n) of values (dim, n), and for each row logs of the slopes (n,).

        Splines depend on what goes in, and with `inverse` on what comes out.
        """
        rows = values.unbind()
        images: list[torch.Tensor] = []
        logs: list[torch.Tensor] = []
        network = _Pass([self.initial, *self.blocks, self.final])
        for degree, row in enumerate(rows):
            known = None if not degree else images[-1] if inverse else rows[degree - 1]
            image, log = spline(row, network.step(degree, known), self.tail_bound, inverse=inverse)
            images.append(image)
            logs.append(log)
        return torch.stack(images), logs


class ByDegree(nn.Module):
    """A linear map of units in order of degree: an output sees inputs up to its place in the list.

    Weights of unseen inputs are there, unused, so that the shape is that of a masked layer.
    """

    def __init__(self, into: Sequence[int], out: Sequence[int], inputs: int | None = None) -> None:
        """Make a map from `into[k]` units of degree k to `out[k]` that see degrees 0 to k."""
        super().__init__()
        self.into, self.out = list(into), list(out)
        columns = inputs or sum(into)
        self.into.append(columns - sum(into))
        self.weight = nn.Parameter(torch.empty(sum(out), columns))
        self.bias = nn.Parameter(torch.empty(sum(out)))

    def reset(self, generator: torch.Generator | None, bound: float | None = None) -> None:
        """Draw weights and biases evenly from -bound to bound: 1/sqrt(inputs) if not given."""
        if bound is None:
            bound = 1 / math.sqrt(self.weight.shape[1])
        with torch.no_grad():  # nn.init.uniform_ takes no generator before torch 2.2
            self.weight.uniform_(-bound, bound, generator=generator)
            self.bias.uniform_(-bound, bound, generator=generator)

    def parts(self) -> list[torch.Tensor]:
        """Return for each degree of the inputs its columns, with the rows that see it."""
        columns = torch.split(self.weight, self.into, dim=1)[:-1]
        starts = [sum(self.out[:degree]) for degree in range(len(self.out))]
        return [
            part[start:] if start else part for part, start in zip(columns, starts, strict=True)
        ]


class _Pass:
    """One pass through the network: sums of layers, complete for units of degrees that are done."""

    def __init__(self, layers: Sequence[ByDegree]) -> None:
        self.sizes = [layer.out for layer in layers]
        self.parts = [layer.parts() for layer in layers]
        self.sums = [layer.bias[:, None] for layer in layers]

    def step(self, degree: int, variable: torch.Tensor | None) -> torch.Tensor:
        """Take the variable of this degree, and return the spline's parameters for the next."""
        first, *hidden, last = range(len(self.sums))
        units = self._add(first, degree, None if variable is None else variable[None])
        if not len(units):
            return self._add(last, degree, None)
        for inner, outer in zip(hidden[::2], hidden[1::2], strict=True):
            within = self._add(inner, degree, relu(units))
            units = units + self._add(outer, degree, relu(within))
        return self._add(last, degree, units)

    def _add(self, layer: int, degree: int, inputs: torch.Tensor | None) -> torch.Tensor:
        """Add inputs of a degree to all sums that see them; return those that are now complete."""
        sums = self.sums[layer]
        if inputs is not None:
            sums = torch.addmm(sums, self.parts[layer][degree], inputs)
        size = self.sizes[layer][degree]
        if size == len(sums):
            return sums
        done, self.sums[layer] = torch.split(sums, [size, len(sums) - size])
        return done


def hidden_degrees(dim: int, units: int) -> list[int]:
    """Return the degrees of hidden units, in order: all from 1 to dim - 1, as evenly as can be."""
    return sorted(unit % max(1, dim - 1) + min(1, dim - 1) for unit in range(units))


MIN_DIAGONAL = 1e-3
_UNIT = math.log(math.exp(1 - MIN_DIAGONAL) - 1)


class PermutedLinear(nn.Module):
    """y = L U P x + b: L with a diagonal of ones, U with a positive one, P a permutation.

    At first L and U are the identity (Oliva et al. 2018, arXiv:1801.09819; Durkan et al. 2019).
    """

    permutation: torch.Tensor
    corners: torch.Tensor

    def __init__(self, dim: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        entries = dim * (dim - 1) // 2
        self.lower_entries = nn.Parameter(torch.zeros(entries))
        self.upper_entries = nn.Parameter(torch.zeros(entries))
        self.raw_diagonal = nn.Parameter(torch.full((dim,), _UNIT))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("permutation", torch.randperm(dim, generator=generator))
        lower = torch.tril_indices(dim, dim, -1)
        upper = torch.triu_indices(dim, dim, 1)
        self.register_buffer("corners", torch.stack((lower, upper)), persistent=False)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return y (dim, n) of x (dim, n), and log |det| as a number."""
        lower, upper, diagonal = self._factors()
        images = torch.addmm(self.bias[:, None], lower @ upper, values[self.permutation])
        return images, diagonal.log().sum()

    def inverse(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x of y, and log |det| of that map."""
        lower, upper, diagonal = self._factors()
        rest = values - self.bias[:, None]
        rest = torch.linalg.solve_triangular(lower, rest, upper=False, unitriangular=True)
        rest = torch.linalg.solve_triangular(upper, rest, upper=True)
        return rest[self.permutation.argsort()], -diagonal.log().sum()

    def _factors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        diagonal = softplus(self.raw_diagonal) + MIN_DIAGONAL
        below, above = self.corners
        lower = torch.diag(torch.ones_like(diagonal))
        lower = lower.index_put(tuple(below), self.lower_entries)
        upper = torch.diag(diagonal).index_put(tuple(above), self.upper_entries)
        return lower, upper, diagonal
