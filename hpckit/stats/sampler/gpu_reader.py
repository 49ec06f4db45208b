"""What one GPU says at each sample, each minute, and when asked for its state.

A field that the board, the driver or the user's rights do not allow stays None, with one note. A
field that was read before is tried again each time, whatever the error. A GPU of which nothing at
all can be read counts as lost, whatever the library's error; otherwise it would look idle.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from hpckit.stats.metric import Metric
from hpckit.stats.sampler.gpu_library import Activities, GpuLibrary, GpuLibraryError, Trouble
from hpckit.stats.sampler.job_gpus import Unit
from hpckit.stats.sampler.nvml import GPM_GRAPHICS
from hpckit.stats.sampler.schedule import BUFFER_S, NEVER_S, SPOT_S, Utilization, add_buffer
from hpckit.stats.samples.records import (
    GPM,
    GPU_MINUTELY,
    GPU_SAMPLED,
    MEAN,
    SPOT,
    GpuSample,
    GpuSlow,
    GpuState,
)

Answer = TypeVar("Answer")

# The energy counter moves every 20 to 100 ms, so over a shorter time it gives no power.
_SHORTEST_POWER_US = 500_000
_BUFFERED, _SPOT = "buffered utilization", "utilization"


class Tell(Protocol):
    """Makes a `Note`: its code, text, the GPU's UUID and the library's error."""

    def __call__(self, code: str, text: str, gpu: str | None, error: int | None = None, /) -> None:
        """Make the note; any thread may call this."""


class GpuReader:
    """Reads one GPU or MIG slice. Any method raises GpuLibraryError when the GPU cannot be read."""

    def __init__(self, library: GpuLibrary, unit: Unit, tell: Tell) -> None:
        self.unit = unit
        self._library = library
        self._tell = tell
        self._never: set[str] = set()
        self._worked: set[str] = set()
        self._answered = False
        self._failures: list[GpuLibraryError] = []
        self._told: set[str] = set()
        self._gpm: Activities | None = None
        self._energy: tuple[int, int] | None = None  # (our time, counter)
        self._seen_us: int | None = None  # time of the newest utilization in the driver's buffer
        self._drained_us = 0
        self._buffer_s = BUFFER_S
        self._gathered = Utilization()
        self._source: str | None = None

    def sample(self, now_us: int) -> GpuSample:
        """Take the cheap readings: microseconds each, milliseconds for energy, GPM, utilization.

        Raises:
            GpuLibraryError: nothing could be read.
        """
        self._answered, self._failures = False, []
        activity = self._activity()
        energy, power = self._energy_and_power(now_us)
        found = GpuSample(
            energy_mj=energy,
            power_mw=power,
            **{row.name: activity.get(row.gpm) for row in GPU_SAMPLED if row.gpm},
            **self._read(GPU_SAMPLED),
            utilization_permille=self._utilization(activity.get(GPM_GRAPHICS), now_us),
        )
        if self._failures and not self._answered:
            raise self._failures[0]
        return found

    def try_again(self, now_us: int) -> bool:
        """Return True if a lost GPU can be read again, by a new handle.

        Raises:
            GpuLibraryError: it cannot.
        """
        self.unit = self._library.again(self.unit)
        # Earlier readings say nothing of the time since, and GPM's samples are of the old handle.
        self._gpm = self._energy = self._seen_us = None
        self._gathered.take()
        self.sample(now_us)
        return True

    def slow(self) -> GpuSlow:
        """Take the readings for once a minute."""
        source, self._source = self._source, None
        return GpuSlow(**self._read(GPU_MINUTELY), utilization_source=source)

    def _read(self, metrics: Iterable[Metric]) -> dict[str, Any]:
        """Return what the metrics' own readers give."""
        return {
            row.name: self._ask(row.title, partial(row.read, self._library, self.unit))
            for row in metrics
            if row.read
        }

    def state(self) -> GpuState:
        """Read what seldom changes; who owns the processes is found out elsewhere."""
        library, board = self._library, self.unit.board
        errors = self._ask("ECC errors", lambda: library.ecc_errors(board))
        return GpuState(
            ecc_corrected=errors[0] if errors else None,
            ecc_uncorrected=errors[1] if errors else None,
            remapped_rows=self._ask("remapped rows", lambda: library.remapped_rows(board)),
            processes=self._ask("processes", lambda: library.processes(self.unit.handle)),
        )

    def _activity(self) -> Mapping[int, int | None]:
        """Return what GPM measured since the last sample, by metric number; empty without GPM."""
        if not self.unit.info.gpm:
            return {}
        if self._gpm is None and "GPM" not in self._never:
            self._gpm = self._ask("GPM", lambda: self._library.activities(self.unit))
        gpm = self._gpm
        return {} if gpm is None else self._ask("GPM", gpm.permilles) or {}

    def _energy_and_power(self, now_us: int) -> tuple[int | None, int | None]:
        board = self.unit.board
        if self.unit.info.mig_parent:
            return None, None  # the whole GPU's: not this slice's
        energy = self._ask("energy", lambda: self._library.energy_mj(board))
        if energy is None:
            return None, self._ask("power", lambda: self._library.power_mw(board))
        last, self._energy = self._energy, (now_us, energy)
        if last is not None and energy < last[1]:
            self._tell("counter_reset", "The energy counter went back to 0.", self.unit.info.uuid)
            return energy, None
        if last is None or now_us - last[0] < _SHORTEST_POWER_US:
            return energy, None
        return energy, (energy - last[1]) * 1_000_000 // (now_us - last[0])

    @property
    def step_s(self) -> float:
        """How often utilization must be read between samples."""
        if self.unit.info.mig_parent or {_BUFFERED, _SPOT} <= self._never:
            return NEVER_S
        return SPOT_S if self._seen_us is None else self._buffer_s

    def peek(self, now_us: int) -> bool:
        """Read utilization between two samples, if it is time for it."""
        if self._seen_us is None:
            self._spot()
        elif now_us - self._drained_us >= self._buffer_s * 0.5e6:
            self._drain(now_us)
        return True

    def _utilization(self, graphics: int | None, now_us: int) -> int | None:
        if self.unit.info.mig_parent:  # NVML has no utilization of a slice; GPM has
            self._source = GPM if graphics is not None else self._source
            return graphics
        first = self._seen_us is None
        self._drain(now_us)
        if not first and (mean := self._gathered.take()) is not None:
            self._source = self._source or MEAN
            return mean
        if not self._gathered.weight:
            self._spot()
        mean = self._gathered.take()
        # The first reading of all stands for no time: the buffer gives means from the second on.
        if mean is not None and not (first and self._seen_us is not None):
            self._source = SPOT
        return mean

    def _spot(self) -> None:
        percent = self._ask(_SPOT, lambda: self._library.spot_percent(self.unit.handle))
        if percent is not None:
            self._gathered.add(percent, 1)

    def _drain(self, now_us: int) -> None:
        """Gather what the driver's buffer has since the last call.

        What it had before the first call is of no sample.
        """
        since = self._seen_us
        pairs = self._ask(
            _BUFFERED,
            lambda: self._library.buffered_percents(self.unit.handle, since or 0),
        )
        if not pairs:
            return
        self._seen_us, self._drained_us = pairs[-1][0], now_us
        if since is None:
            self._gathered.take()  # spot readings until now
        else:
            self._buffer_s = add_buffer(self._gathered, since, pairs) or self._buffer_s

    def _ask(self, field: str, call: Callable[[], Answer]) -> Answer | None:
        if field in self._never:
            return None
        try:
            answer = call()
        except GpuLibraryError as error:
            if error.trouble is Trouble.LOST:
                raise
            self._missed(field, error)
            return None
        self._answered = True
        self._worked.add(field)
        return answer

    def _missed(self, field: str, error: GpuLibraryError) -> None:
        if field == _BUFFERED and error.trouble is Trouble.NOW:
            return  # NOT_FOUND: nothing new in it; whatever else it is, others tell
        if error.trouble is Trouble.NONE:
            self._never.add(field)
            return
        if error.trouble is Trouble.NEVER and field not in self._worked:
            self._never.add(field)
            self._say("not_supported", f"No {field}: {error}", error.code)
            return
        self._failures.append(error)
        self._say("gpu_error", f"No {field} for a while: {error}", error.code)

    def _say(self, code: str, text: str, error: int | None) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(code, text, self.unit.info.uuid, error)
