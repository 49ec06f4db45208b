"""When a GPU's utilization is read between two samples, so that a sample is a mean of all its time.

A driver that keeps a buffer forgets after some seconds: it is read before. Where there is none, a
reading tells of the last 1/6 to 1 s only. So there are several a second, each at a random moment of
its own slice of time: at equal distances they could fall in step with the job's own rhythm and see
the same of it each time, while the error of random ones shrinks with their number. Pure.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

SPOT_S = 0.25
# Real drivers keep some 17 s.
BUFFER_S = 5.0
NEVER_S = float("inf")
_SHORTEST_BUFFER_S = 0.5


def moments(begin_s: float, due_s: float, step_s: float, chance: random.Random) -> Iterator[float]:
    """Yield when to read between two samples: once in each of the equal slices of a step's length.

    The sample itself reads what is newest: nothing is yielded where it follows within a step.
    """
    slices = round((due_s - begin_s) / step_s)
    if slices < 2:
        return
    for number in range(slices):
        yield begin_s + (number + chance.random()) * (due_s - begin_s) / slices


@dataclass(slots=True)
class Gathered:
    """Utilization since the last sample: percents times their weights, and the weights."""

    amount: float = 0.0
    weight: float = 0.0

    def add(self, percent: float, weight: float) -> None:
        """Add a reading."""
        self.amount += percent * weight
        self.weight += weight

    def take(self) -> int | None:
        """Return the mean in permille, and begin anew; None if nothing was read."""
        mean = round(10 * self.amount / self.weight) if self.weight else None
        self.amount = self.weight = 0.0
        return mean


def add_buffer(gathered: Gathered, since_us: int, pairs: list[tuple[int, int]]) -> float | None:
    """Add (time, percent) of a driver's buffer, each over the time since the one before.

    Returns:
        None; or, where the buffer had forgotten its start (a first gap much longer than the next),
        how often to read it from now on, in seconds: two readings may be two slices apart.
    """
    last, forgot = since_us, None
    if len(pairs) > 1:
        gap = pairs[1][0] - pairs[0][0]
        if pairs[0][0] - since_us > 3 * gap:
            last = pairs[0][0] - gap
            forgot = max((pairs[-1][0] - last) / 3e6, _SHORTEST_BUFFER_S)
    for time, percent in pairs:
        gathered.add(percent, time - last)
        last = time
    return forgot
