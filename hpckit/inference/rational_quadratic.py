"""Monotonic rational-quadratic splines, with their gradients written out.

Formulas: Durkan, Bekasov, Murray, Papamakarios 2019, "Neural Spline Flows", arXiv:1906.04032,
equations 4 to 8 and appendix A.1. Autograd would record some sixty operations on vectors for each
variable; here a spline is one node of its graph, and gradients take one pass over what was kept.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

MIN_WIDTH = MIN_HEIGHT = MIN_DERIVATIVE = 1e-3
# softplus of it, plus the least derivative, is 1: the slope of the tails.
UNIT_SLOPE = math.log(math.exp(1 - MIN_DERIVATIVE) - 1)


def spline(
    values: torch.Tensor, raw: torch.Tensor, bound: float, *, inverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images of values (n,) and the logs of the slopes there (n,).

    A spline is the identity beyond [-bound, bound].

    Args:
        values: The points, of shape (n,).
        raw: Of each spline 3 bins - 1 numbers: widths of the bins, their heights, slopes at inner
            knots. Of shape (3 bins - 1, n), or (3 bins - 1, 1) for one spline for all points.
        bound: Where splines end.
        inverse: Go from heights to widths.
    """
    bins = (len(raw) + 1) // 3
    matrix, offset = _knots_of_shares(bins, bound, raw.dtype, raw.device)
    images, logs = _Spline.apply(  # type: ignore[no-untyped-call]
        values, raw, matrix, offset, bound, inverse
    )
    return images, logs


@lru_cache(maxsize=32)
@torch.inference_mode(False)
def _knots_of_shares(
    bins: int, bound: float, kind: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (M, c) so that M s + c holds all knots: places, heights, raw slopes, bins + 1 each.

    s: shares of the bins in width and in height, raw slopes of the inner knots. One product sums
    and scales the shares, and adds the fixed knots at both ends. Made anew for each dtype: a
    buffer would keep the rounding of the first.
    """
    inner = torch.arange(1, bins, dtype=torch.float64)
    matrix = torch.zeros(3, bins + 1, 3 * bins - 1, dtype=torch.float64)
    offset = torch.zeros(3, bins + 1, 1, dtype=torch.float64)
    for part, least in enumerate((MIN_WIDTH, MIN_HEIGHT)):
        below = torch.ones(bins - 1, bins).tril()
        matrix[part, 1:-1, part * bins : (part + 1) * bins] = below
        matrix[part] *= 2 * bound * (1 - least * bins)
        offset[part, 1:-1, 0] = 2 * bound * least * inner - bound
        offset[part, 0], offset[part, -1] = -bound, bound
    matrix[2, 1:-1, 2 * bins :] = torch.eye(bins - 1)
    offset[2, 0] = offset[2, -1] = UNIT_SLOPE
    return matrix.flatten(0, 1).to(device, kind), offset.flatten(0, 1).to(device, kind)


class _Spline(torch.autograd.Function):
    """Values and raw parameters in, images and logs of slopes out."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        values: torch.Tensor,
        raw: torch.Tensor,
        matrix: torch.Tensor,
        offset: torch.Tensor,
        bound: float,
        inverse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        bins = len(offset) // 3 - 1
        shares = torch.softmax(raw[: 2 * bins].view(2, bins, -1), dim=1)
        known = torch.cat((shares.flatten(0, 1), raw[2 * bins :]))
        knots = torch.addmm(offset, matrix, known).view(3, bins + 1, -1)
        inside = values.abs() <= bound
        clamped = values.clamp(-bound, bound)
        left = (clamped >= knots[int(inverse), 1:-1]).sum(0)
        index = torch.stack((left, left + 1))
        count = len(values)
        at = knots.expand(3, bins + 1, count).gather(1, index.expand(3, 2, count))
        (x0, width), (y0, height) = at[0], at[1]
        width = width - x0
        height = height - y0
        slope = height / width
        slopes = softplus(at[2]).add_(MIN_DERIVATIVE)
        d0, d1 = slopes
        bend = slopes.sum(0).sub_(slope, alpha=2)
        if inverse:
            share = _share_of_height(clamped - y0, height, slope, d0, bend)
            images = torch.addcmul(x0, share, width)
        else:
            share = (clamped - x0) / width
        rest = 1 - share
        mixed = share * rest
        below = torch.addcmul(slope, bend, mixed)
        square = share * share
        if not inverse:
            part = torch.addcmul(slope * square, d0, mixed)
            images = torch.addcmul(y0, height, part / below)
        above = (d1 * square).addcmul_(slope, mixed, value=2).addcmul_(d0, rest * rest)
        logs = (slope / below).square_().mul_(above).log_()
        ctx.save_for_backward(
            shares, matrix, at[2], index, inside, width, height, slope, slopes, share, below, above
        )
        ctx.inverse = inverse
        images = torch.where(inside, images, values)
        logs = logs.mul_(inside)
        return images, logs.neg_() if inverse else logs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        grad_images: torch.Tensor,
        grad_logs: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        shares, matrix, raw_slopes, index, inside, *kept = ctx.saved_tensors
        along = grad_images * inside
        logs = grad_logs * inside
        if ctx.inverse:
            logs = logs.neg_()
        grad_values, grad_at = _gradients(along, logs, kept, inverse=ctx.inverse)
        grad_at[2].mul_(torch.sigmoid(raw_slopes))
        bins, count = shares.shape[1], len(along)
        grad_knots = along.new_zeros(3, bins + 1, count)
        grad_knots.scatter_(1, index.expand(3, 2, count), grad_at)
        if shares.shape[2] != count:
            grad_knots = grad_knots.sum(2, keepdim=True)
        grad_raw = matrix.t() @ grad_knots.flatten(0, 1)
        grad_shares = grad_raw[: 2 * bins].view_as(shares)
        mean = (grad_shares * shares).sum(1, keepdim=True)
        grad_shares.sub_(mean).mul_(shares)
        return torch.where(inside, grad_values, grad_images), grad_raw, *(None,) * 4


def _share_of_height(
    rise: torch.Tensor,
    height: torch.Tensor,
    slope: torch.Tensor,
    d0: torch.Tensor,
    bend: torch.Tensor,
) -> torch.Tensor:
    """Return where in its bin, from 0 to 1, the spline has risen by `rise`: a root of a square."""
    turned = rise * bend
    first = height * d0
    a = torch.addcmul(turned, height, slope).sub_(first)
    b = first.sub_(turned)
    c = slope * rise
    # Not below 0 but by rounding.
    root = torch.addcmul(b * b, a, c, value=4).clamp_min_(0).sqrt_()
    return c.mul_(2).div_(root.add_(b))


def _gradients(
    along: torch.Tensor, logs: torch.Tensor, kept: list[torch.Tensor], *, inverse: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gradients to the values (n,) and to both knots of each bin (3, 2, n).

    Those of the map y(x; p) and of L = log y'; the inverse has dx = (dy - y_p dp) / y', and so the
    same partial derivatives. The last pair is to slopes, not yet to raw ones.
    """
    width, height, slope, slopes, share, below, above = kept
    d0, d1 = slopes
    rest = 1 - share
    mixed = share * rest
    unmixed = 1 - 2 * mixed
    square, rest_square = share * share, rest * rest
    ratio = torch.addcmul(slope * square, d0, mixed).div_(below)
    bend = slopes.sum(0).sub_(slope, alpha=2)
    skew = rest - share
    per_above = logs / above
    per_below = logs.mul(2) / below
    steep = (slope / below).square_().mul_(above)
    # L by the share of the bin
    tilt = (d1 * share).addcmul_(slope, skew).sub_(d0 * rest).mul_(per_above).mul_(2)
    tilt.sub_(per_below * bend * skew).div_(width)
    if inverse:
        grad_values = (along + tilt).div_(steep)
        grad_y, grad_x = -grad_values, -along
    else:
        grad_y, grad_x = along, torch.addcmul(tilt, along, steep)
        grad_values = grad_x
    pull = grad_y * height / below
    grad_slope = (square - ratio * unmixed).mul_(pull).addcdiv_(logs, slope, value=2)
    grad_slope.addcmul_(per_above, mixed, value=2).sub_(per_below * unmixed)
    grad_slope.div_(width)
    pull.mul_(mixed)
    common = torch.addcmul(per_below * mixed, pull, ratio)
    grads = along.new_empty(3, 2, len(along))
    x0, x1, y0, y1, s0, s1 = grads.flatten(0, 1)
    torch.addcmul(grad_x * share, grad_slope, slope, out=x1).neg_()
    torch.add(grad_x, x1, out=x0).neg_()
    torch.addcmul(grad_slope, grad_y, ratio, out=y1)
    torch.sub(grad_y, y1, out=y0)
    torch.addcmul(pull, per_above, rest_square, out=s0).sub_(common)
    torch.addcmul(-common, per_above, square, out=s1)
    return grad_values, grads
