"""The only module that knows pynvml (nvidia-ml-py): NVML's devices, calls and errors.

Calls are named as in NVML's manual without `nvmlDevice`, and may hang when a driver does: only
`hpckit.stats.sampler.gpuset` makes them, in a thread that can be given up.
"""

import ctypes
import importlib
import time
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from types import ModuleType
from typing import Any

from hpckit.stand_ins import stand_ins
from hpckit.stats.sampler.gpu_library import GpuLibraryError, Trouble
from hpckit.stats.sampler.job_gpus import Handle, Unit
from hpckit.stats.samples.records import GPU_SAMPLED, GpuInfo

# GPM metrics are the difference of two samples; NVML wants more than 100 ms between them.
GPM_SHORTEST_NS = 100_000_000
# nvml.h, NVML_GPM_METRIC_GRAPHICS_UTIL: a slice's utilization. All that we read are in percent.
GPM_GRAPHICS = 1
_GPM_METRICS = (GPM_GRAPHICS, *(metric.gpm for metric in GPU_SAMPLED if metric.gpm))


class NvmlError(GpuLibraryError):
    """An NVML call failed, or there is no NVML. `code` is NVML's number of the error."""


_SHARED = "libnvidia-ml.so.1"
_CLOCKS = {"sm": 1, "memory": 2}  # nvml.h, nvmlClockType_t
_WHOLE = 100  # what is above is no percentage


class Nvml:
    """NVML, initialized."""

    name = "NVML"
    amd = False

    def __init__(self) -> None:
        """Load and initialize NVML; seconds, where no GPU is in persistence mode.

        Raises:
            NvmlError: no driver, no nvidia-ml-py, or a driver that does not answer well.
        """
        try:
            # As pynvml does. To import that takes a quarter of the sampler's start, and a node
            # without NVIDIA's driver has no use for it.
            ctypes.CDLL(_SHARED)
        except OSError as error:
            raise NvmlError(f"NVML Shared Library Not Found ({error}).", Trouble.NEVER) from error
        try:
            # ctypes.util has these to search for libraries, which nobody does here.
            with stand_ins("shutil", "subprocess", "tempfile"):
                self._library: ModuleType = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlError(f"nvidia-ml-py is not installed ({error}).", Trouble.NEVER) from error
        self.call("nvmlInit")

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a function of pynvml.

        Raises:
            NvmlError: it failed.
        """
        wanted = getattr(self._library, function, None)
        if wanted is None:  # the package `pynvml` of others has the same name, and may be older
            where = getattr(self._library, "__file__", None)
            raise NvmlError(f"{function}: {where} does not have it.", Trouble.NEVER)
        try:
            return wanted(*arguments)
        except self._library.NVMLError as error:
            text = f"{function}: {error} (NVML error {error.value})"
            raise NvmlError(text, self._trouble(error.value), error.value) from error

    def _trouble(self, code: int) -> Trouble:
        library = self._library
        lost = (
            library.NVML_ERROR_GPU_IS_LOST,
            library.NVML_ERROR_RESET_REQUIRED,
            library.NVML_ERROR_UNINITIALIZED,
            library.NVML_ERROR_DRIVER_NOT_LOADED,
        )
        if code in lost:
            return Trouble.LOST
        never = (
            library.NVML_ERROR_NOT_SUPPORTED,
            library.NVML_ERROR_FUNCTION_NOT_FOUND,
            library.NVML_ERROR_NO_PERMISSION,
            library.NVML_ERROR_INVALID_ARGUMENT,
        )
        return Trouble.NEVER if code in never else Trouble.NOW

    def driver(self) -> str | None:
        """Return the driver's version."""
        return _text(self._or_none("nvmlSystemGetDriverVersion")) or None

    def units(self) -> tuple[list[Unit], list[GpuLibraryError]]:
        """Return the GPUs and MIG slices this process may read, in PCI order; and what failed.

        A device cgroup hides other jobs' GPUs, or lets NVML count them and refuse their handles.
        """
        found: list[Unit] = []
        failures: list[GpuLibraryError] = []
        for index in range(self.call("nvmlDeviceGetCount")):
            try:
                found += self._units_of(index)
            except NvmlError as error:
                if error.trouble is not Trouble.NEVER:
                    text = f"GPU {index}: {error}"
                    failures.append(NvmlError(text, error.trouble, error.code))
        return found, failures

    def _units_of(self, index: int) -> list[Unit]:
        board = self.call("nvmlDeviceGetHandleByIndex", index)
        info = self._info(board, index)
        mode = self._or_none("nvmlDeviceGetMigMode", board)
        if not mode or not mode[0]:
            return [Unit(info=info, handle=board, board=board)]
        slices = []
        for at in range(self.call("nvmlDeviceGetMaxMigDeviceCount", board)):
            handle = self._or_none("nvmlDeviceGetMigDeviceHandleByIndex", board, at)
            if handle is not None:
                instance = self._or_none("nvmlDeviceGetGpuInstanceId", handle)
                part = self._info(handle, index, parent=info)
                slices.append(Unit(info=part, handle=handle, board=board, instance=instance))
        return slices

    def again(self, unit: Unit) -> Unit:
        """Return a GPU or slice with a new handle: after a reset the old one may be of no use.

        Raises:
            NvmlError: there is none.
        """
        self.call("nvmlInit")  # counts; needed where the driver itself was gone
        handle = self.call("nvmlDeviceGetHandleByUUID", unit.info.uuid)
        if unit.info.mig_parent is None:
            return replace(unit, handle=handle, board=handle)
        board = self.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        instance = self._or_none("nvmlDeviceGetGpuInstanceId", handle)
        return replace(unit, handle=handle, board=board, instance=instance)

    def _info(self, handle: Handle, index: int, parent: GpuInfo | None = None) -> GpuInfo:
        memory = self._or_none("nvmlDeviceGetMemoryInfo", handle)
        if parent is not None:
            minor, pci, limit, gpm = parent.minor, parent.pci, parent.power_limit_mw, parent.gpm
        else:
            minor = self._or_none("nvmlDeviceGetMinorNumber", handle)
            place = self._or_none("nvmlDeviceGetPciInfo", handle)
            pci = _text(place.busId) if place else None
            limit = self._or_none("nvmlDeviceGetEnforcedPowerLimit", handle)
            support = self._or_none("nvmlGpmQueryDeviceSupport", handle)
            gpm = bool(support and support.isSupportedDevice)
        return GpuInfo(
            index=index,
            uuid=_text(self.call("nvmlDeviceGetUUID", handle)),
            name=_text(self._or_none("nvmlDeviceGetName", handle)) or None,
            minor=minor,
            pci=pci,
            memory_total_bytes=memory.total if memory else None,
            power_limit_mw=limit,
            mig_parent=parent.uuid if parent else None,
            gpm=gpm,
        )

    def _or_none(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        try:
            return self.call(function, *arguments)
        except NvmlError as error:
            if error.trouble is Trouble.LOST:
                raise
            return None  # a blank in the table of GPUs says so

    def activities(self, unit: Unit) -> "Gpm":
        """Return what GPM measures."""
        return Gpm(self, unit)

    def memory_bytes(self, handle: Handle) -> int:
        """Return the memory in use, by anyone."""
        return int(self.call("nvmlDeviceGetMemoryInfo", handle).used)

    def clock_mhz(self, board: Handle, part: str) -> int:
        """Return the clock of the SMs (`sm`) or of the memory (`memory`)."""
        return int(self.call("nvmlDeviceGetClockInfo", board, _CLOCKS[part]))

    def throttle_reasons(self, board: Handle) -> int:
        """Return the bits of why clocks are low, by the name that old drivers know, too."""
        return int(self.call("nvmlDeviceGetCurrentClocksThrottleReasons", board))

    def temperature_c(self, board: Handle) -> int:
        """Return the temperature of the GPU."""
        return int(self.call("nvmlDeviceGetTemperature", board, 0))

    def memory_temperature_c(self, board: Handle) -> int:
        """Return the temperature of its memory."""
        return self.field(board, "NVML_FI_DEV_MEMORY_TEMP")

    def energy_mj(self, board: Handle) -> int:
        """Return the energy counter since the driver was loaded (Volta and newer)."""
        return int(self.call("nvmlDeviceGetTotalEnergyConsumption", board))

    def power_mw(self, board: Handle) -> int:
        """Return the power over about the last second."""
        return int(self.call("nvmlDeviceGetPowerUsage", board))

    def spot_percent(self, handle: Handle) -> int:
        """Return the utilization in the driver's last window."""
        return int(self.call("nvmlDeviceGetUtilizationRates", handle).gpu)

    def buffered_percents(self, handle: Handle, since_us: int) -> list[tuple[int, int]]:
        """Return (time in microseconds, utilization) of the driver's buffer after a time, in order.

        NVML promises no order, and the buffer is a ring. Its times are of a clock of its own: of
        the wall, or since the machine was started.
        """
        kind = self._library.NVML_GPU_UTILIZATION_SAMPLES
        _, found = self.call("nvmlDeviceGetSamples", handle, kind, since_us)
        pairs = {(item.timeStamp, item.sampleValue.uiVal) for item in found}
        return sorted(pair for pair in pairs if pair[0] > since_us and pair[1] <= _WHOLE)

    def field(self, board: Handle, name: str) -> int:
        """Return a value of NVML's list of fields (`NVML_FI_...`)."""
        answer = self.call("nvmlDeviceGetFieldValues", board, [getattr(self._library, name)])[0]
        if answer.nvmlReturn:
            code = int(answer.nvmlReturn)
            raise NvmlError(f"NVML error {code}", self._trouble(code), code)
        return int(answer.value.uiVal)

    def ecc_errors(self, board: Handle) -> tuple[int, int]:
        """Return the corrected and uncorrected memory errors since the driver was loaded."""
        corrected, uncorrected = (
            self.call("nvmlDeviceGetTotalEccErrors", board, kind, self._library.NVML_VOLATILE_ECC)
            for kind in (0, 1)
        )
        return int(corrected), int(uncorrected)

    def remapped_rows(self, board: Handle) -> int:
        """Return how many rows of memory were replaced."""
        corrected, uncorrected, _, _ = self.call("nvmlDeviceGetRemappedRows", board)
        return int(corrected + uncorrected)

    def processes(self, handle: Handle) -> tuple[tuple[int, int | None], ...]:
        """Return (pid, bytes) of the processes that compute on it."""
        found = self.call("nvmlDeviceGetComputeRunningProcesses", handle)
        pairs = [(int(item.pid), item.usedGpuMemory) for item in found]
        return tuple(sorted(pairs, key=lambda pair: pair[0]))


class Gpm:
    """Activities of one unit, as exact means between two reads (Hopper and newer)."""

    def __init__(self, nvml: Nvml, unit: Unit) -> None:
        self._nvml = nvml
        self._unit = unit
        self._last, self._next = (nvml.call("nvmlGpmSampleAlloc") for _ in range(2))
        self._question = nvml._library.c_nvmlGpmMetricsGet_t()
        self._question.version = nvml._library.NVML_GPM_METRICS_GET_VERSION
        self._question.numMetrics = len(_GPM_METRICS)
        for at, metric in enumerate(_GPM_METRICS):
            self._question.metrics[at].metricId = metric
        self._seen_ns: int | None = None

    def permilles(self) -> Mapping[int, int | None]:
        """Return the metrics of _GPM_METRICS since the last call; nothing the first time."""
        # By its own clock: a sample's time may be long ago on a loaded node.
        since, now = self._seen_ns, time.monotonic_ns()
        if since is not None and now - since <= GPM_SHORTEST_NS:
            return {}
        unit = self._unit
        if unit.instance is None:
            self._nvml.call("nvmlGpmSampleGet", unit.handle, self._next)
        else:
            self._nvml.call("nvmlGpmMigSampleGet", unit.board, unit.instance, self._next)
        self._seen_ns = now
        self._last, self._next = self._next, self._last
        return {} if since is None else self._metrics()

    def _metrics(self) -> dict[int, int | None]:
        question = self._question
        question.sample1, question.sample2 = self._next, self._last
        self._nvml.call("nvmlGpmMetricsGet", question)
        return {item.metricId: _permille(item) for item in question.metrics[: len(_GPM_METRICS)]}


def _permille(metric: Any) -> int | None:  # noqa: ANN401
    value = metric.value
    return None if metric.nvmlReturn or not isfinite(value) else round(value * 10)


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
