"""What is made small, and its gradient: each rank's share, one message, the same result on all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from hpckit.inference.adapters import Estimator
from hpckit.inference.evaluate import Evaluation
from hpckit.inference.noise import sample_seed, seeded_globals
from hpckit.inference.progress import Figures
from hpckit.inference.shares import (
    Draws,
    Prior,
    Sums,
    add_up,
    check_densities,
    check_draws,
    divergence,
)
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks

# Streams of random numbers that have nothing to do with each other.
_THETA, _NOISE, _DIVERGENCE, _INITIAL = range(4)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """E_q[loss] + w KL(q || prior), estimated anew in each epoch.

    Attributes:
        estimator: q, a torch module that is an `Estimator`.
        prior: what it is drawn to.
        w: weight of the divergence.
        evaluation: how losses and their derivatives are found.
        samples: of the loss, over all ranks together.
        draws: of the divergence, over all ranks together.
        baseline: see `score_surrogate`.
        seed: of everything that is drawn.
        ranks: those that share the work.
    """

    estimator: torch.nn.Module
    prior: Prior
    w: float
    evaluation: Evaluation
    samples: int
    draws: Draws
    baseline: bool
    seed: int
    ranks: Ranks

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The estimator's weights that are fitted."""
        return [row for row in self.estimator.parameters() if row.requires_grad]

    @property
    def settings(self) -> dict[str, Any]:
        """What shapes the curve of losses."""
        return {
            "seed": self.seed,
            "w": self.w,
            "n_samples_per_epoch": self.samples,
            "n_samples_regularisation": self.draws.count,
            "regularisation_block": self.draws.block,
            "gradient_estimation_method": self.evaluation.method,
        }

    def differentiate(self, data: object, epoch: int, *, stop: bool) -> tuple[Figures, int]:
        """Add the gradient of an epoch to the estimator's.

        Args:
            data: handed to the loss.
            epoch: counted from 0.
            stop: whether this rank was asked to stop.

        Returns:
            The estimates, and how many ranks were asked to stop; the same on every rank.

        Raises:
            SetupError: no sample gave a number, or the loss is not as it was said to be.
        """
        # Drawing all samples costs less than sending each rank its own.
        with seeded_globals(sample_seed(self._stream(_THETA), epoch, 0), self._device):
            thetas, _ = self._estimator.sample(self.samples)
        check_draws(thetas, epoch)
        own = range(self.ranks.rank, self.samples, self.ranks.size)
        seeds = [sample_seed(self._stream(_NOISE), epoch, index) for index in own]
        losses, slopes = self.evaluation.run(thetas.detach()[list(own)], data, seeds)
        part, gradient = self._divergence(epoch)
        sums = add_up(
            self.ranks,
            own=own,
            losses=losses,
            slopes=slopes,
            samples=self.samples,
            divergence=part,
            gradient=gradient,
            stop=stop,
        )
        return self._finish(thetas, sums, epoch), sums.stops

    def differentiate_divergence(self, epoch: int) -> float:
        """Add the gradient of KL(q || prior) alone to the estimator's; return the divergence."""
        part, gradient = self._divergence(epoch, _INITIAL)
        total = self.ranks.add(torch.cat([part.reshape(1), gradient]))
        add_gradients(self.parameters, total[1:])
        return float(total[0])

    def _finish(self, thetas: torch.Tensor, sums: Sums, epoch: int) -> Figures:
        good = usable(thetas, sums, epoch + 1)
        losses = sums.losses[good]
        if self.evaluation.method == "score":
            target = score_surrogate(self._estimator, thetas[good], losses, self.baseline)
        else:
            target = pathwise_surrogate(thetas[good], sums.slopes[good])
        target.backward()  # type: ignore[no-untyped-call]  # torch's
        add_gradients(self.parameters, self.w * sums.gradient)
        loss, regularisation = float(losses.mean()), self.w * float(sums.divergence)
        return Figures(loss + regularisation, loss, regularisation, len(thetas) - len(losses))

    def _divergence(
        self, epoch: int, stream: int = _DIVERGENCE
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # A divergence that counts for nothing is not drawn.
        unused = stream == _DIVERGENCE and self.w == 0
        return divergence(
            self._estimator,
            self.prior,
            self.parameters,
            replace(self.draws, count=0) if unused else self.draws,
            self.ranks,
            self._stream(stream),
            epoch,
        )

    @property
    def _estimator(self) -> Estimator:
        return cast("Estimator", self.estimator)

    @property
    def _device(self) -> torch.device:
        return self.parameters[0].device

    def _stream(self, number: int) -> int:
        return sample_seed(self.seed, -1, number)


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
    check_densities("the estimator's log_prob()", log_q, thetas)
    return (log_q * losses.to(log_q)).sum() / count


def add_gradients(parameters: Sequence[torch.nn.Parameter], vector: torch.Tensor) -> None:
    """Add a flat vector to the parameters' gradients."""
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        more = part.reshape(parameter.shape).to(parameter.dtype)
        parameter.grad = more if parameter.grad is None else parameter.grad + more
