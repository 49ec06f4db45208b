"""Losses of samples, and their derivatives with respect to the simulator's parameters.

What a sample gives depends on its parameters and its seed only: not on the rank that evaluates it,
nor on the samples that it is evaluated with.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from hpckit.inference.noise import noise_of, seeded_globals
from hpckit.parallel.errors import SetupError

Loss = Callable[[torch.Tensor, Any], Any]


@dataclass(frozen=True)
class Evaluation:
    """How samples are evaluated.

    Attributes:
        loss: takes (parameters, data). One sample at a time: parameters (P,) give a 0-D tensor,
            or a plain number from a black box. Several at once: (B, P) give (B,).
        method: "pathwise" differentiates the simulator, "score" does not need to.
        diff_mode: "reverse" or "forward".
        samples_per_call: 1, or up to how many the loss takes at once; None means all there are.
        jacobian_chunk_size: in forward mode with several samples per call, how many directions
            one call takes; None means all of them.
    """

    loss: Loss
    method: str = "pathwise"
    diff_mode: str = "reverse"
    samples_per_call: int | None = 1
    jacobian_chunk_size: int | None = None

    def run(
        self, params: torch.Tensor, data: object, seeds: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate samples.

        Args:
            params: (B, P); no gradient flows back to them.
            data: handed to the loss.
            seeds: one for each sample.

        Returns:
            Losses (B,) and derivatives (B, P), in double precision on the CPU; the latter are
            zeros for the score method. What is not a number stays so.

        Raises:
            SetupError: the loss returned something of another shape, or carries no derivative.
        """
        losses = torch.zeros(len(params), dtype=torch.float64)
        slopes = torch.zeros(params.shape, dtype=torch.float64)
        size = self.samples_per_call or max(1, len(params))
        for start in range(0, len(params), size):
            rows = slice(start, start + size)
            values, derivatives = self._call(params[rows].detach(), data, seeds[rows])
            losses[rows] = values.detach().cpu().double()
            slopes[rows] = derivatives.detach().cpu().double()
        return losses, slopes

    def _call(
        self, params: torch.Tensor, data: object, seeds: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.method == "score":
            with torch.no_grad():
                return self._losses(params, data, seeds), torch.zeros_like(params)
        if self.diff_mode == "forward":
            return self._forward(params, data, seeds)
        params.requires_grad_()
        losses = self._losses(params, data, seeds)
        if not losses.requires_grad:
            raise _without_derivative()
        # A sample's loss depends on its own parameters only, so the sum's gradient has all of them.
        (slopes,) = torch.autograd.grad(losses.sum(), params, allow_unused=True)
        if slopes is None:
            raise _without_derivative()
        return losses, slopes

    def _forward(
        self, params: torch.Tensor, data: object, seeds: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Push each direction through the simulator, with the same noise."""
        count, dim = params.shape
        at_once = 1 if self.samples_per_call == 1 else (self.jacobian_chunk_size or dim)
        slopes = torch.zeros_like(params)
        losses = params.new_zeros(count)
        for start in range(0, dim, at_once):
            directions = range(start, min(start + at_once, dim))
            tangents = torch.zeros(len(directions), count, dim).to(params)
            for row, direction in enumerate(directions):
                tangents[row, :, direction] = 1.0
            with torch.no_grad(), forward_ad.dual_level():
                repeated = params.repeat(len(directions), 1)
                dual = forward_ad.make_dual(repeated, tangents.reshape(-1, dim))  # type: ignore[no-untyped-call]  # torch's
                values = self._losses(dual, data, list(seeds) * len(directions))
                primal, tangent = forward_ad.unpack_dual(values)  # type: ignore[no-untyped-call]
                if tangent is None:
                    raise _without_derivative()
                losses = primal[:count]
                # Torch 2.1 makes some tangents double, whose values are not.
                of_each = tangent.to(slopes.dtype).reshape(len(directions), count)
                slopes[:, list(directions)] = of_each.T
        return losses, slopes

    def _losses(self, params: torch.Tensor, data: object, seeds: Sequence[int]) -> torch.Tensor:
        single = self.samples_per_call == 1
        given = params[0] if single else params
        with _noise(seeds, params.device):
            losses = _number(self.loss(given, data), params.device)
        if single and losses.numel() == 1:
            return losses.reshape(1)
        if losses.shape != (len(params),):
            wanted = "one number" if single else f"shape ({len(params)},), one loss per sample"
            raise SetupError(
                f"the loss returned shape {tuple(losses.shape)} for parameters of shape "
                f"{tuple(given.shape)}: it must return {wanted}"
            )
        return losses


def _number(value: object, device: torch.device) -> torch.Tensor:
    """Return what a loss gave as a tensor.

    Raises:
        SetupError: it is not a real number, or several.
    """
    try:
        found = torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise SetupError(
            f"the loss returned a {type(value).__name__}: it must return numbers ({why})"
        ) from error
    if found.is_complex():
        raise SetupError("the loss returned a complex number: it must return a real one")
    return found


@contextmanager
def _noise(seeds: Sequence[int], device: torch.device) -> Iterator[None]:
    with seeded_globals(seeds[0], device), noise_of(seeds, device=device):
        yield


def _without_derivative() -> SetupError:
    return SetupError(
        "the loss does not depend on the parameters in a way that torch can differentiate: "
        "for such a simulator give gradient_estimation_method='score'"
    )
