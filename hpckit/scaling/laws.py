"""Amdahl's law of strong scaling and Gustafson's of weak scaling, fitted by least squares. Pure.

Amdahl (1967): the same work on N devices takes T(N) = a + b / N, and s = a / (a + b) of it is
serial; more than 1 / s times one device's speed is not to be had. Fitted to the mean times m of
the sizes, by the relative deviations (T(N) - m) / m: short times count as much as long ones.

Gustafson (1988): work that grows with p = N / N0 is done S(p) = p - α (p - 1) times as fast, where
the serial part α takes its share of the time on the smallest size, N0. Fitted to the means.

Errors are standard errors of the fit, from the residuals with as many degrees of freedom as there
are sizes above two: with two sizes a line meets both points, and nothing tells its error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

AMDAHL, GUSTAFSON = "Amdahl", "Gustafson"


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """A law fitted to the sizes of a study.

    Attributes:
        name: Amdahl or Gustafson.
        serial_fraction: as fitted; below 0 where the study scales better than the law allows.
        standard_error: of it; None for fewer than three sizes.
        residual: root mean square of the deviations, as a part of the measured values.
        sizes: how many sizes it is fitted to.
        time_s: a + b, the law's time on one device; None for Gustafson's.
    """

    name: str
    serial_fraction: float
    standard_error: float | None
    residual: float
    sizes: int
    time_s: float | None = None

    def speed_up(self, count: float, smallest: float) -> float:
        """Return the speed-up of so many devices over the smallest size, by the law."""
        part = self.serial_fraction
        if self.name == GUSTAFSON:
            return count / smallest - part * (count / smallest - 1)
        return (part + (1 - part) / smallest) / (part + (1 - part) / count)

    @property
    def most(self) -> float | None:
        """The largest speed-up over one device that Amdahl's law allows; None: there is no end."""
        part = self.serial_fraction
        return 1 / part if self.name == AMDAHL and part > 0 else None

    def largest(self, efficiency: float, smallest: float) -> float | None:
        """Return up to how many devices the efficiency stays, by the law; None: without end."""
        part = self.serial_fraction
        if self.name == GUSTAFSON:  # 1 - α + α / p
            rest = efficiency - (1 - part)
            return smallest * part / rest if rest > 0 and part > 0 else None
        if part <= 0:
            return None
        return (part * smallest + (1 - part) - efficiency * (1 - part)) / (efficiency * part)


def fit_amdahl(points: Sequence[tuple[float, float]]) -> Law | None:
    """Fit Amdahl's law to devices and seconds.

    None for fewer than two sizes, and where times grow so fast that one device would take none.
    """
    if len(points) < 2:
        return None
    # Rows of relative deviations: a / m + (b / N) / m = 1.
    ones = [1 / time for _, time in points]
    parts = [1 / (count * time) for count, time in points]
    s11, s12, s22 = _dot(ones, ones), _dot(ones, parts), _dot(parts, parts)
    r1, r2 = sum(ones), sum(parts)
    scale = s11 * s22 - s12 * s12
    a, b = (r1 * s22 - r2 * s12) / scale, (r2 * s11 - r1 * s12) / scale
    if a + b <= 0:
        return None
    misses = [a * one + b * part - 1 for one, part in zip(ones, parts, strict=True)]
    error = None
    if len(points) > 2:
        noise = _dot(misses, misses) / (len(points) - 2)
        # The variance of s = a / (a + b) to first order.
        slope_a, slope_b = b / (a + b) ** 2, -a / (a + b) ** 2
        spread = slope_a**2 * s22 - 2 * slope_a * slope_b * s12 + slope_b**2 * s11
        error = math.sqrt(max(noise * spread / scale, 0.0))
    return Law(
        name=AMDAHL,
        serial_fraction=a / (a + b),
        standard_error=error,
        residual=math.sqrt(_dot(misses, misses) / len(points)),
        sizes=len(points),
        time_s=a + b,
    )


def fit_gustafson(points: Sequence[tuple[float, float]]) -> Law | None:
    """Fit Gustafson's law to N / N0 and scaled speed-ups; None for fewer than two sizes."""
    if len(points) < 2:
        return None
    steps = [ratio - 1 for ratio, _ in points]
    lost = [ratio - speed for ratio, speed in points]
    weight = _dot(steps, steps)
    part = _dot(steps, lost) / weight
    misses = [part * step - loss for step, loss in zip(steps, lost, strict=True)]
    error = None
    if len(points) > 2:
        error = math.sqrt(_dot(misses, misses) / (len(points) - 2) / weight)
    shares = [miss / speed for miss, (_, speed) in zip(misses, points, strict=True)]
    return Law(
        name=GUSTAFSON,
        serial_fraction=part,
        standard_error=error,
        residual=math.sqrt(_dot(shares, shares) / len(points)),
        sizes=len(points),
    )


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))
