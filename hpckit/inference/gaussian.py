"""A Gaussian whose mean and whole covariance are trained: the plainest posterior estimator."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import softplus

from hpckit.parallel.errors import SetupError

# The least entry on the diagonal of the root of the covariance; that stays positive definite.
MIN_ROOT = 1e-6


class TrainableGaussian(nn.Module):
    """N(mu, L L'), with L lower triangular and a positive diagonal, whatever the optimizer does.

    Arguments are in the order of blackbirds' class of this name, where `sigma` is the standard
    deviation by name but the variance in effect. Here it is the standard deviation.
    """

    def __init__(
        self,
        mu: Sequence[float] | torch.Tensor = (0.0,),
        sigma: float | Sequence[float] | torch.Tensor = 1.0,
        device: torch.device | str = "cpu",
        *,
        covariance: Sequence[Sequence[float]] | torch.Tensor | None = None,
    ) -> None:
        """Make a Gaussian to start from.

        Args:
            mu: The mean (d,).
            sigma: The standard deviation, one or one for each variable.
            device: Where the parameters are.
            covariance: Of shape (d, d), in place of sigma.

        Raises:
            SetupError: shapes do not fit, or the covariance is not positive definite.
        """
        super().__init__()
        mean = torch.as_tensor(mu, device=device)
        mean = mean if mean.is_floating_point() else mean.to(torch.get_default_dtype())
        if mean.ndim != 1 or not len(mean):
            raise SetupError(f"the mean has shape {tuple(mean.shape)}: give a list of d numbers")
        if not bool(torch.isfinite(mean).all()):
            raise SetupError(f"the mean is {mean.tolist()}: give finite numbers")
        root = _root(mean, sigma) if covariance is None else _root_of(mean, covariance)
        self.mu = nn.Parameter(mean.detach().clone())
        self.below = nn.Parameter(root.tril(-1))
        excess = (root.diagonal() - MIN_ROOT).clamp_min(MIN_ROOT)
        self.raw_diagonal = nn.Parameter(excess + torch.log(-torch.expm1(-excess)))

    @property
    def scale_tril(self) -> torch.Tensor:
        """The root L (d, d) of the covariance."""
        return self.below.tril(-1) + torch.diag(softplus(self.raw_diagonal) + MIN_ROOT)

    @property
    def covariance(self) -> torch.Tensor:
        """The covariance (d, d)."""
        root = self.scale_tril
        return root @ root.t()

    def sample(self, n: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw n vectors (n, d) and their log densities (n,), with torch's global generator.

        Both carry their gradients to mean and covariance.
        """
        root = self.scale_tril
        noise = torch.randn(n, len(self.mu), dtype=root.dtype, device=root.device)
        return torch.addmm(self.mu, noise, root.t()), _log_density(noise, root)

    def log_prob(self, z: torch.Tensor) -> torch.Tensor:
        """Return log densities (n,) at points (n, d)."""
        root = self.scale_tril
        noise = torch.linalg.solve_triangular(root, (z - self.mu).t(), upper=False).t()
        return _log_density(noise, root)


def _log_density(noise: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
    constant = 0.5 * noise.shape[1] * math.log(2 * math.pi) + root.diagonal().log().sum()
    return noise.square().sum(1).mul(-0.5) - constant


def _root(mean: torch.Tensor, sigma: float | Sequence[float] | torch.Tensor) -> torch.Tensor:
    """Return the diagonal root of the covariance for standard deviations."""
    deviation = torch.as_tensor(sigma, dtype=mean.dtype, device=mean.device)
    if deviation.shape not in {(), (1,), mean.shape} or not bool(_positive(deviation).all()):
        raise SetupError(
            f"sigma={deviation.tolist()}: give one number above 0, or one for each of the "
            f"{len(mean)} variables; for a matrix take covariance="
        )
    return torch.diag(deviation.expand(len(mean)))


def _positive(numbers: torch.Tensor) -> torch.Tensor:
    return (numbers > 0) & torch.isfinite(numbers)


def _root_of(
    mean: torch.Tensor, covariance: Sequence[Sequence[float]] | torch.Tensor
) -> torch.Tensor:
    """Return the Cholesky root of a covariance."""
    matrix = torch.as_tensor(covariance, dtype=mean.dtype, device=mean.device)
    size = len(mean)
    if matrix.shape != (size, size):
        raise SetupError(f"covariance of shape {tuple(matrix.shape)} for a mean of {size} numbers")
    root: torch.Tensor
    root, info = torch.linalg.cholesky_ex(matrix)
    if bool(info) or not torch.allclose(matrix, matrix.t()):
        raise SetupError(f"covariance={matrix.tolist()} is not symmetric and positive definite")
    return root
