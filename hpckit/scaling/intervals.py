"""Means of repeats, their ratios, and 95 % intervals of both by Student's t. Pure.

Mean of n values with standard deviation s: m ± t(0.975, n-1) · s / √n.

Ratio r = a / b of the means of two sizes that were measured independently: the relative variance
is v = s_a² / (n_a a²) + s_b² / (n_b b²) to first order (the delta method), its degrees of freedom
are Welch and Satterthwaite's, and the interval is r · (1 ± t · √v).

One value has no interval. Times are positive: a lower end below 0 is 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

LEVEL = 0.95
# The continued fraction of the beta function converges in far fewer steps.
_STEPS, _TINY = 500, 1e-300


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval; None where there is none: one value has no spread."""

    value: float
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> "Estimate":
        """Return it times a positive number."""
        low, high = (None if edge is None else edge * factor for edge in (self.low, self.high))
        return Estimate(self.value * factor, low, high)


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of repeats, with its interval if there are two or more."""
    middle = fmean(values)
    if len(values) < 2:
        return Estimate(middle)
    half = t_quantile((1 + LEVEL) / 2, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return Estimate(middle, max(middle - half, 0.0), middle + half)


def ratio_of(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Return the ratio of two means of positive values, with its interval if both have repeats."""
    ratio = fmean(above) / fmean(below)
    if min(len(above), len(below)) < 2:
        return Estimate(ratio)
    shares = [variance(row) / (len(row) * fmean(row) ** 2) for row in (above, below)]
    spread = sum(shares)
    if spread == 0:
        return Estimate(ratio, ratio, ratio)
    sizes = (len(above), len(below))
    # Welch and Satterthwaite.
    freedom = spread**2 / sum(
        share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True)
    )
    half = t_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(spread)
    return Estimate(ratio, ratio * max(1 - half, 0.0), ratio * (1 + half))


def t_quantile(chance: float, freedom: float) -> float:
    """Return Student's t that is not exceeded with a chance of at least one half.

    `freedom` may be a fraction. Found by bisection of the distribution's function.
    """
    high = 1.0
    while _t_below(high, freedom) < chance:
        high *= 2
    return _bisected(lambda t: _t_below(t, freedom) - chance, 0.0, high)


def _bisected(rising: Callable[[float], float], low: float, high: float) -> float:
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)


def _t_below(t: float, freedom: float) -> float:
    """Return the chance of a value below t ≥ 0: 1 - I(ν/(ν+t²); ν/2, 1/2) / 2."""
    return 1 - _beta_part(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _beta_part(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function (DLMF 8.17.22, by Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly (DLMF 8.17.4)
        return 1 - _beta_part(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a
    upper, lower, value = 1.0, 0.0, 1.0
    for step in range(_STEPS):
        part = 1.0 if step == 0 else _beta_term(x, a, b, step)
        lower = 1 / _not_zero(1 + part * lower)
        upper = _not_zero(1 + part / upper)
        value *= upper * lower
        if step and abs(upper * lower - 1) < 1e-15:
            break
    return front * (value - 1)


def _not_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY


def _beta_term(x: float, a: float, b: float, step: int) -> float:
    half, odd = divmod(step, 2)
    if odd:
        return -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
    return half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
