"""Timing of work on devices that run by themselves."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import torch

from hpckit.parallel.devices import Word, replicas_of
from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import say

Result = TypeVar("Result")


def synchronize(devices: Iterable[torch.device]) -> None:
    """Wait until each device has done all it was given; the CPU never runs ahead."""
    for device in dict.fromkeys(devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


class Benchmark:
    """Times a `with` block until all of `devices` have done its work.

    Without devices it tells only how long it took to hand out the work.

    Attributes:
        seconds: how long, once the block is over.
    """

    def __init__(self, *devices: Word, name: str = "") -> None:
        """Choose what is waited for.

        Args:
            devices: words of `find_replicas`, such as "cuda:0" or "GPU:*", or devices.
            name: print `NAME: 0.1234 sec` at the end of a block that ends well.

        Raises:
            SetupError: a word means nothing here.
        """
        self._name = name
        try:
            self._devices = [row.device for row in replicas_of(devices)] if devices else []
        except SetupError as error:
            raise SetupError(f"{error} A text to print is Benchmark(..., name=TEXT).") from None
        self.seconds = 0.0

    def __enter__(self) -> "Benchmark":
        synchronize(self._devices)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            synchronize(self._devices)
        self.seconds = time.perf_counter() - self._began
        if self._name and error is None:
            say(f"{self._name}: {self.seconds:.4f} sec")


def at_once(work: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run functions in a thread each, so that logical replicas of the CPU work at once, too."""
    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(lambda function: function(), work))


def seconds_per_call(work: Callable[[], object], *devices: Word, seconds: float = 0.5) -> float:
    """Return the seconds of a call, by as many as take about so long; a few do not count.

    The devices may be busy with several calls at once: it is their work that is timed.
    """
    count = 1
    while True:
        with Benchmark(*devices) as taken:
            for _ in range(count):
                work()
        if taken.seconds >= seconds / 2:
            return taken.seconds / count
        count = min(10 * count, math.ceil(count * seconds / max(taken.seconds, 1e-6)))
