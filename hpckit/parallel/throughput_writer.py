"""How fast a script of one's own goes: lines in metrics.jsonl, and events for TensorBoard.

The workloads of hpckit have this in their journal; this is for scripts that have none.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch.distributed as dist

from hpckit.parallel.benchmark import synchronize
from hpckit.parallel.devices import Replica, Spec, replicas_of
from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import say
from hpckit.parallel.run_folder import Lines, event_writer, restart_number, whole_lines
from hpckit.parallel.throughput import WARMUP_STEPS, Speed, device_label

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 lacks it

    from torch.utils.tensorboard import SummaryWriter

# Between these many steps a GPU is not waited for; each wait keeps it idle for a moment.
EVERY = 10


class ThroughputWriter:
    """Measures seconds per step and samples per second, under such a name as `2xH200`.

    GPUs work by themselves, so time can be told only where they are waited for: after the warm-up,
    at each line, and where time is left out. A line has the mean over the steps since the last.
    """

    def __init__(
        self,
        folder: Path | str,
        devices: Spec | Sequence[Replica] = None,
        *,
        label: str | None = None,
        warmup_steps: int = WARMUP_STEPS,
        every: int = EVERY,
        first_step: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Open the files, or go on with those there; only rank zero writes.

        Args:
            folder: of the run; made if it is not there.
            devices: those of this process, as `find_replicas` has them.
            label: of the devices, where other processes have more of them; None: found out.
            warmup_steps: the first ones, which do not count.
            every: how many steps a line has; with 1, a GPU is waited for in each.
            first_step: taken before, where a run goes on.
            clock: seconds.

        Raises:
            SetupError: a device is not there.
        """
        self._devices = [replica.device for replica in replicas_of(devices)]
        self.label = label or device_label(self._devices)
        self._lines = Lines(None)
        if _leads():
            path = _opened(Path(folder) / "metrics.jsonl")
            self._lines = Lines(path, _event_writer(Path(folder), first_step))
        self._step, self._warming, self._every = first_step, warmup_steps, every
        self._clock = clock
        self._steps, self._samples, self._seconds = 0, 0, 0.0
        self._total = Speed(devices=self.label, steps=0, samples=0, seconds=0.0)
        self._since = clock()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def step(self, samples: int) -> None:
        """Count a step that was just taken, with the samples of all devices and processes."""
        self._step += 1
        if self._warming:
            self._warming -= 1
            if not self._warming:
                self._since = self._now()
            return
        self._steps, self._samples = self._steps + 1, self._samples + samples
        if self._steps >= self._every:
            self._end_window()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of a block, such as tests or a checkpoint between steps."""
        self._count()
        try:
            yield
        finally:
            self._since = self._now()

    def summary(self) -> Speed | None:
        """Return the mean over all steps after the warm-up; None if there is none."""
        self._end_window()
        return self._total if self._total.steps else None

    def close(self) -> None:
        """Write what is left."""
        self._end_window()
        self._lines.close()

    def _now(self) -> float:
        synchronize(self._devices)
        return self._clock()

    def _count(self) -> None:
        """Add the time since it was last counted to the window."""
        if not self._warming:
            now = self._now()
            self._seconds += now - self._since
            self._since = now

    def _end_window(self) -> None:
        if not self._steps:
            return
        self._count()
        if self._seconds <= 0:  # the clock has not moved: no rate yet
            return
        window = self._speed(self._steps, self._samples, self._seconds)
        total = self._total
        self._total = self._speed(
            total.steps + window.steps,
            total.samples + window.samples,
            total.seconds + window.seconds,
        )
        self._steps, self._samples, self._seconds = 0, 0, 0.0
        self._write({"s_per_step": window.s_per_step, "samples_per_s": window.samples_per_s})

    def _speed(self, steps: int, samples: int, seconds: float) -> Speed:
        return Speed(devices=self.label, steps=steps, samples=samples, seconds=seconds)

    def _write(self, figures: dict[str, float]) -> None:
        named: dict[str, float | str] = {**figures, "devices": self.label}
        self._lines.append({"step": self._step, **named, "restart": restart_number()})
        self._lines.show(self._step, named)


def _leads() -> bool:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def _opened(path: Path) -> Path:
    """Return the path of a file that holds whole lines only: a torn one is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_lines(path)
    return path


def _event_writer(folder: Path, step: int) -> "SummaryWriter | None":
    try:
        return event_writer(folder / "tensorboard", step + 1)
    except SetupError:
        _say_once(
            "TensorBoard is not here (pip install tensorboard): speeds are in metrics.jsonl only"
        )
        return None


@cache
def _say_once(line: str) -> None:
    say(line)
