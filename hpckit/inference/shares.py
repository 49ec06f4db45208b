"""What the ranks do of an epoch, and the one message in which they add it up."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from hpckit.inference.adapters import Estimator
from hpckit.inference.noise import sample_seed, seeded_globals
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import as_number
from hpckit.parallel.mpi import Ranks


class Prior(Protocol):
    """What of torch.distributions is needed of a prior."""

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return (n,) logarithms of the density at (n, d) values."""


@dataclass(frozen=True)
class Draws:
    """How the KL divergence is sampled: in blocks, each with a seed of its own.

    Blocks, not ranks, decide what is drawn, so that the divergence is the same for any number of
    ranks. A block fits the processor's cache, and bounds the memory of the backward pass.
    """

    count: int
    block: int

    def blocks(self, ranks: Ranks) -> Iterable[tuple[int, int]]:
        """Yield number and size of this rank's blocks.

        The last rank has the first one: rank 0 has the first sample of the loss already.
        """
        for number in range(ranks.size - 1 - ranks.rank, -(-self.count // self.block), ranks.size):
            yield number, min(self.block, self.count - number * self.block)


def divergence(
    estimator: Estimator,
    prior: Prior,
    parameters: Sequence[torch.nn.Parameter],
    draws: Draws,
    ranks: Ranks,
    seed: int,
    epoch: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's part of KL(estimator || prior) and of its gradient.

    KL is the mean of log q(z) - log p(z) over draws z of q. Block sums are added up in double
    precision, so that the order, and with it the number of ranks, does not matter.

    Returns:
        The divergence's part (0-D), and its gradient's, flat; both in double precision, on the
        estimator's device.

    Raises:
        SetupError: the estimator draws what is no number, or a density is not one for each draw.
    """
    device = parameters[0].device
    total = torch.zeros((), dtype=torch.float64, device=device)
    gradient = torch.zeros(
        sum(parameter.numel() for parameter in parameters), dtype=torch.float64, device=device
    )
    for number, size in draws.blocks(ranks):
        with seeded_globals(sample_seed(seed, epoch, number), device):
            z, log_q = estimator.sample(size)
        check_draws(z, epoch)
        log_p = prior.log_prob(z)
        _check_both(log_q, log_p, z)
        part = (log_q - log_p).sum() / draws.count
        total += part.detach().double()
        slopes = torch.autograd.grad(part, parameters, allow_unused=True)
        gradient += flat(slopes, parameters)
    return total, gradient


def check_draws(z: torch.Tensor, epoch: int) -> None:
    """Check that an estimator draws numbers.

    Raises:
        SetupError: some are none: a step was too large.
    """
    if not torch.isfinite(z).all():
        raise SetupError(
            f"the estimator draws infinite or nan values in epoch {epoch + 1}: try a "
            "smaller learning "
            "rate, or gradient_clipping_norm"
        )


def _check_both(log_q: torch.Tensor, log_p: torch.Tensor | float, z: torch.Tensor) -> None:
    """Check that log densities belong to the draws; a prior that is flat may give one number.

    Of one for each parameter, as plain Normals give them, the sum is right if both are so.

    Raises:
        SetupError: they do not.
    """
    shape = getattr(log_p, "shape", ())
    if log_q.shape == shape and log_q.shape[:1] == z.shape[:1]:
        return
    check_densities("the estimator's sample()", log_q, z)
    # What does not depend on draws that have a gradient is not a sum over them.
    if isinstance(log_p, torch.Tensor):
        flat_prior = log_p.numel() == 1 and z.requires_grad and not log_p.requires_grad
    else:
        flat_prior = math.isfinite(as_number(log_p))
    if not flat_prior:
        check_densities("the prior's log_prob()", log_p, z)


def check_densities(who: str, logs: object, z: torch.Tensor) -> None:
    """Check that there is one log density for each draw: of (n,) and (n, 1) torch makes a table.

    Raises:
        SetupError: there is not.
    """
    shape = getattr(logs, "shape", None)
    if shape != z.shape[:1]:
        given = type(logs).__name__ if shape is None else f"shape {tuple(shape)}"
        raise SetupError(
            f"{who} returns {given} for {len(z)} vectors of {z.shape[-1]} "
            f"parameters: it must return one logarithm for each, ({len(z)},). A prior of several "
            "Normals is torch.distributions.Independent(Normal(mean, deviation), 1)"
        )


def flat(slopes: Sequence[torch.Tensor | None], parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return gradients as one vector in double precision; None counts as zeros."""
    return torch.cat(
        [
            (torch.zeros_like(parameter) if slope is None else slope).reshape(-1).double()
            for slope, parameter in zip(slopes, parameters, strict=True)
        ]
    )


@dataclass(frozen=True)
class Sums:
    """What all ranks know after an epoch's message.

    Attributes:
        divergence: KL(q || p), 0-D.
        gradient: of the divergence, flat.
        losses: (S,), NaN where a sample failed.
        slopes: (S, P), derivatives of the losses with respect to the simulator's parameters.
        stops: how many ranks were asked to stop.
    """

    divergence: torch.Tensor
    gradient: torch.Tensor
    losses: torch.Tensor
    slopes: torch.Tensor
    stops: int


def add_up(
    ranks: Ranks,
    *,
    own: Sequence[int],
    losses: torch.Tensor,
    slopes: torch.Tensor,
    samples: int,
    divergence: torch.Tensor,
    gradient: torch.Tensor,
    stop: bool,
) -> Sums:
    """Add up an epoch over all ranks, in one message.

    Each rank writes its samples into slots of their own, between zeros: their sum is exact, and
    what follows from it is the same on each rank.

    Args:
        ranks: all of them.
        own: which of the samples are this rank's.
        losses: (len(own),), theirs.
        slopes: (len(own), P), theirs.
        samples: how many there are over all ranks.
        divergence: this rank's part.
        gradient: this rank's part.
        stop: whether this rank was asked to stop.
    """
    dim = slopes.shape[1]
    slots = torch.zeros(samples, 1 + dim, dtype=torch.float64)
    for row, index in enumerate(own):
        slots[index, 0], slots[index, 1:] = losses[row], slopes[row]
    device = gradient.device
    head = torch.stack([divergence, torch.tensor(float(stop), dtype=torch.float64, device=device)])
    message = torch.cat([head, slots.reshape(-1).to(device), gradient])
    total = ranks.add(message)
    slots = total[2 : 2 + slots.numel()].reshape(samples, 1 + dim)
    return Sums(
        divergence=total[0],
        gradient=total[2 + slots.numel() :],
        losses=slots[:, 0],
        slopes=slots[:, 1:],
        stops=int(total[1]),
    )
