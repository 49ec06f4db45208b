"""From what the samples gave to the gradient in the estimator's weights."""

from collections.abc import Sequence

import torch

from hpckit.inference.adapters import Estimator
from hpckit.inference.shares import Sums
from hpckit.parallel.errors import SetupError


def usable(thetas: torch.Tensor, sums: Sums, epoch: int) -> torch.Tensor:
    """Return which samples gave numbers, (S,).

    Raises:
        SetupError: none did.
    """
    good = torch.isfinite(sums.losses) & torch.isfinite(sums.slopes).all(dim=1)
    if not good.any():
        raise SetupError(
            f"none of the {len(thetas)} samples of epoch {epoch} gave a number: the simulator "
            "fails for parameters that the estimator draws, such as "
            f"{[round(x, 4) for x in thetas[0].tolist()]}"
        )
    return good


def pathwise_surrogate(thetas: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """Return what has the gradient of the mean loss, through the samples (reparametrisation).

    Args:
        thetas: (S, P), with a graph back to the estimator's weights.
        slopes: (S, P), d loss / d theta.

    Raises:
        SetupError: there is no such graph.
    """
    if not thetas.requires_grad:
        raise SetupError(
            "the estimator's samples carry no gradient: give gradient_estimation_method='score'"
        )
    return (thetas * slopes.to(thetas)).sum() / len(thetas)


def score_surrogate(
    estimator: Estimator, thetas: torch.Tensor, losses: torch.Tensor, baseline: bool
) -> torch.Tensor:
    """Return what has the gradient of the mean loss, as mean of loss times grad log q (REINFORCE).

    With a baseline, each loss counts relative to the mean of the others: that is independent of
    the sample's own log q, so the expectation stays, while the variance falls.
    """
    count = len(thetas)
    if baseline and count > 1:
        losses = losses - (losses.sum() - losses) / (count - 1)
    log_q = estimator.log_prob(thetas.detach())
    return (log_q * losses.to(log_q)).sum() / count


def add_gradients(parameters: Sequence[torch.nn.Parameter], vector: torch.Tensor) -> None:
    """Add a flat vector to the parameters' gradients."""
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        more = part.reshape(parameter.shape).to(parameter.dtype)
        parameter.grad = more if parameter.grad is None else parameter.grad + more
