"""Posterior estimators of other libraries, and what an estimator must be."""

from typing import Protocol, runtime_checkable

import torch
from torch import nn

from hpckit.parallel.errors import SetupError

# Points drawn for a check: unlike most numbers of variables, so that swapped axes are seen.
_DRAWS = 7


@runtime_checkable
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


def check_estimator(estimator: object) -> int:
    """Return the number of variables of an estimator, after a look at a few draws.

    torch's CPU generator is put back afterwards.

    Raises:
        SetupError: it lacks a method, or what one returns has another shape than it should.
    """
    name = type(estimator).__name__
    if not isinstance(estimator, Estimator):
        lacks = [method for method in ("sample", "log_prob") if not hasattr(estimator, method)]
        hint = ": wrap a zuko flow in ZukoEstimator" if hasattr(estimator, "transform") else ""
        raise SetupError(f"estimator {name} has no method {' and no '.join(lacks)}{hint}")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            drawn: object = estimator.sample(_DRAWS)
        except TypeError as failure:
            raise SetupError(f"{name}.sample({_DRAWS}) fails: {failure}") from failure
        if not isinstance(drawn, (tuple, list)) or len(drawn) != 2:
            raise SetupError(
                f"{name}.sample({_DRAWS}) gives {_shown(drawn)}: it must return the pair "
                "z, log q(z)"
            )
        z, log_q = drawn
        if not isinstance(z, torch.Tensor) or z.ndim != 2 or len(z) != _DRAWS:
            raise SetupError(f"{name}.sample({_DRAWS}) draws {_shown(z)}: needs ({_DRAWS}, d)")
        _check_densities(f"{name}.sample({_DRAWS})", log_q)
        _check_densities(f"{name}.log_prob(z)", estimator.log_prob(z))
    return z.shape[1]


def _check_densities(call: str, found: object) -> None:
    if not isinstance(found, torch.Tensor) or found.shape != (_DRAWS,):
        raise SetupError(f"{call} has log densities of {_shown(found)}: needs ({_DRAWS},)")


def _shown(found: object) -> str:
    if isinstance(found, torch.Tensor):
        return f"shape {tuple(found.shape)}"
    return f"{type(found).__name__} {found!r:.80}"
