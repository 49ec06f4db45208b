"""Posterior estimators of other libraries, and what an estimator must be."""

from typing import Protocol

import torch
from torch import nn


class Estimator(Protocol):
    """A density to draw from, as blackbirds and normflows have it; mostly an `nn.Module`."""

    def sample(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw n vectors (n, d), with gradients to parameters, and their log densities (n,)."""

    def log_prob(self, z: torch.Tensor) -> torch.Tensor:
        """Return log densities (n,) at points (n, d)."""


class ZukoEstimator(nn.Module):
    """A flow of zuko, without context, as a posterior estimator."""

    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def sample(self, n: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw n vectors (n, d) and their log densities (n,), with torch's global generator."""
        z, log_q = self.flow().rsample_and_log_prob((n,))
        return z, log_q

    def log_prob(self, z: torch.Tensor) -> torch.Tensor:
        """Return log densities (n,) at points (n, d)."""
        log_q: torch.Tensor = self.flow().log_prob(z)
        return log_q
