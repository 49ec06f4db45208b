"""A linear map of all variables, kept as its LU factors behind a fixed permutation."""

import math

import torch
from torch import nn
from torch.nn.functional import softplus

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
