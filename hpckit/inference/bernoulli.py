"""Yes or no by chance, with a gradient: the hard Gumbel softmax over two outcomes.

With two outcomes the difference of the Gumbel numbers is logistic, so one uniform number v per
draw is enough: yes where v < p. The gradient is that of the soft outcome, y = sigmoid(logit / tau)
with logit = log(p / (1 - p)) + log((1 - v) / v) (Jang, Gu, Poole 2017: arXiv 1611.01144).
"""

from typing import Any, cast

import torch

TAU = 0.1
# What autograd hands to a function; torch has no type with the attributes a function may set.
Context = Any


def yes(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return 1 where v < p, else 0, and NaN where p is: v is in [0, 1) and p in [0, 1].

    torch's numbers are multiples of a grain (2**-24 in float32) and 0 is one of them. Half a grain
    more makes what has a probability of 1e-10 not happen, instead of 600 times too often.
    """
    return (p - v).sub_(torch.finfo(v.dtype).eps / 4).ceil_()


def softness(p: torch.Tensor, v: torch.Tensor, tau: float = TAU) -> torch.Tensor:
    """Return y (1 - y), at most 1/4: the slope of y by p is this over tau p (1 - p).

    With odds r of the soft outcome at tau = 1, y is r**k / (1 + r**k), k = 1 / tau; and 1/r gives
    the same. For integer k this takes sums, products and quotients alone, whose bits are the same
    wherever in a batch a number stands; those of exp and log are not.
    """
    yes, no = p * (1 - v), (1 - p) * v
    tiny = torch.finfo(v.dtype).tiny
    odds = torch.minimum(yes, no).div_(torch.maximum(yes, no).clamp_(min=tiny))
    odds = _power(odds, 1 / tau)
    return odds / (1 + odds).square_()


def _power(number: torch.Tensor, exponent: float) -> torch.Tensor:
    whole = round(exponent)
    if abs(exponent - whole) > 1e-9:
        return number**exponent
    result = None
    while whole:
        if whole & 1:
            result = number if result is None else result * number
        whole >>= 1
        if whole:
            number = number * number
    return torch.ones_like(number) if result is None else result


def sum_of_row(numbers: torch.Tensor) -> torch.Tensor:
    """Return sums over the last dimension, (..., 1): in float64, where order hardly counts."""
    return numbers.sum(-1, keepdim=True, dtype=torch.float64).to(numbers.dtype)


def draw_bernoulli(p: torch.Tensor, v: torch.Tensor, tau: float = TAU) -> torch.Tensor:
    """Return 1 with probability p, else 0, differentiable by p; NaN where p is.

    Args:
        p: (..., 1), the probability of all draws of a row.
        v: (..., N), uniform in [0, 1).
        tau: temperature of the gradient.
    """
    drawn, _ = _Draw.apply(p, v, tau)  # type: ignore[no-untyped-call]
    return cast("torch.Tensor", drawn)


class _Draw(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(p: torch.Tensor, v: torch.Tensor, tau: float) -> tuple[torch.Tensor, torch.Tensor]:
        spread = tau * p * (1 - p)
        slope = torch.where(spread > 0, softness(p, v, tau) / spread, 0.0)
        return yes(p, v), slope

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]
    ) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return sum_of_row(gradients[0] * slope), None, None

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slope,) = ctx.saved_tensors
        return tangents[0] * slope, None
