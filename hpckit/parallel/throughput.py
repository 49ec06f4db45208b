"""How fast training goes once it is warm, under the name of the devices it ran on."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

WARMUP_STEPS = 10
# Words of a GPU's name that all names have.
_SAME = re.compile(r"\b(NVIDIA|Tesla|GeForce|AMD|Instinct)\b *|-(PCIE|SXM\d?)\b.*| \d+GB.*")


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured after the warm-up.

    Attributes:
        devices: such as `2xH200` or `4xCPU`.
        steps, samples, seconds: measured; seconds between epochs are left out.
        input_s: of these seconds, those in which the host got the batches.
    """

    devices: str
    steps: int
    samples: int
    seconds: float
    input_s: float = 0.0

    @property
    def samples_per_s(self) -> float:
        """Samples per second, over all devices."""
        return self.samples / self.seconds

    @property
    def s_per_step(self) -> float:
        """Seconds per step."""
        return self.seconds / self.steps

    def __str__(self) -> str:
        """Return what a run says at its end."""
        return (
            f"{self.devices}: {self.samples_per_s:.0f} samples/s, {self.s_per_step:.4f} s/step "
            f"over {self.steps} steps after warm-up"
        )


class Throughput:
    """Adds up the time and the samples of steps; the first ones warm up and do not count.

    A step counts from the end of the one before, or from `start`: what happens between epochs,
    such as tests and checkpoints, is not training. The caller waits for its devices, which a
    program does that reads its losses.
    """

    def __init__(
        self,
        devices: str,
        *,
        warmup_steps: int = WARMUP_STEPS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._devices, self._left, self._clock = devices, warmup_steps, clock
        self._steps, self._samples, self._seconds = 0, 0, 0.0
        self._input_s = self._reading_s = 0.0
        self._since = clock()

    def start(self) -> None:
        """Begin to count time, as an epoch begins."""
        self._since = self._clock()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within this the host gets what the step under way needs."""
        began = self._clock()
        yield
        self._reading_s += self._clock() - began

    def step(self, samples: int) -> None:
        """Count a step that has ended just now."""
        now = self._clock()
        if self._left:
            self._left -= 1
        else:
            self._steps, self._samples = self._steps + 1, self._samples + samples
            self._seconds += now - self._since
            self._input_s += self._reading_s
        self._since, self._reading_s = now, 0.0

    @property
    def speed(self) -> Speed | None:
        """What was measured so far; None while it warms up."""
        if not self._steps or self._seconds <= 0:
            return None
        return Speed(
            devices=self._devices,
            steps=self._steps,
            samples=self._samples,
            seconds=self._seconds,
            input_s=self._input_s,
        )


def device_label(devices: Sequence[torch.device], count: int | None = None) -> str:
    """Return such as `2xH200` for devices, or `4xCPU`.

    Args:
        devices: of this process; all are taken for the same kind as the first.
        count: how many there are, where other processes have more of them.
    """
    first = devices[0]
    name = "CPU"
    if first.type == "cuda":
        name = short_name(torch.cuda.get_device_name(first))
    return f"{count or len(devices)}x{name}"


def short_name(name: str) -> str:
    """Return `A100` for `NVIDIA A100-SXM4-40GB`."""
    return _SAME.sub("", name).strip().replace(" ", "-") or name
