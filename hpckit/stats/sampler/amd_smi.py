"""The only module that knows amdsmi (AMD's, of ROCm): its GPUs, calls and errors.

Its package reads structures of the node's libamd_smi.so, so the two must be of the same ROCm. Where
AMD has no reading (a buffer of utilization, activity of the compute units, NVML's reasons of low
clocks, replaced rows), it is unknown. amdsmi says "N/A", or all bits set, for what a board lacks.

Calls may hang when a driver does: only `hpckit.stats.sampler.gpuset` makes them.
"""

import contextlib
import ctypes
import importlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hpckit.frozen import frozen
from hpckit.stats.sampler.gpu_library import Activities, GpuLibraryError, Trouble
from hpckit.stats.sampler.job_gpus import Unit
from hpckit.stats.samples.records import GpuInfo
from hpckit.version import to_install

_LIBRARY = "libamd_smi.so"
# amdsmi.h, amdsmi_status_t. FAIL_LOAD_MODULE and the like come of the library, not of a GPU.
_NEVER = {1, 2, 3, 4, 5, 10}  # INVAL, NOT_SUPPORTED, NOT_YET_IMPLEMENTED, FAIL_LOAD_*, NO_PERM
_LOST = {18, 31, 32, 33, 34}  # INIT_ERROR, NOT_FOUND, NOT_INIT, NO_SLOT, DRIVER_NOT_LOADED
_UNKNOWN = {"N/A", 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
# The library's major version by the package's, where that is ROCm's (ROCm's changelogs): the layout
# of structures changes with it. Before 6.4 the number of the year came first, then 6 or 7.
_GOES_WITH = {6: (6, 7, 24, 25), 7: (26,), 10: (27,)}
# A power limit is in W, or in uW in some versions; no GPU has one of 100 kW.
_MOST_W = 100_000
_RENDER = "/dev/dri/renderD{}"


class AmdSmiError(GpuLibraryError):
    """A call of amdsmi failed, or there is no amdsmi. `code` is an `amdsmi_status_t`."""


@frozen()
class Device:
    """A handle of amdsmi's; `partition` is the number of a part of a GPU (CPX, DPX, QPX), or None.

    What is read by a part's handle is the whole GPU's, or unknown.
    """

    raw: Any
    partition: int | None = None


def rocm_is_here() -> bool:
    """Say whether AMD's library can be loaded: without it, amdsmi prints so and fails."""
    return any(map(_loads, _places()))


def _places() -> Iterator[str]:
    """Yield where amdsmi looks for its library, in its order."""
    yield from (str(Path(home, "lib", _LIBRARY)) for home in _homes())
    yield _LIBRARY


def _homes() -> list[str]:
    named = (os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH"), "/opt/rocm")
    return [home for home in named if home]


def _loads(place: str) -> bool:
    try:
        ctypes.CDLL(place)
    except OSError:
        return False
    return True


class AmdSmi:
    """AMD SMI, initialized."""

    name = "AMD SMI"
    amd = True

    def __init__(self) -> None:
        """Load and initialize it.

        Raises:
            AmdSmiError: no amdsmi, one of another ROCm than the library, or no driver.
        """
        self._library = _package()
        self.call("amdsmi_init")
        self._check_version()
        self._driver: str | None = None

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a function of amdsmi.

        Raises:
            AmdSmiError: it failed, or there is none of this name.
        """
        known = getattr(self._library, function, None)
        if known is None:
            raise _nothing()
        try:
            return known(*arguments)
        except self._library.AmdSmiLibraryException as error:
            code = int(error.get_error_code())
            text = f"{function}: {error.get_error_info(detailed=False)} (AMD SMI error {code})"
            raise AmdSmiError(text, _trouble(code), code) from error
        except self._library.AmdSmiException as error:
            raise AmdSmiError(f"{function}: {error}", Trouble.NEVER) from error

    def _check_version(self) -> None:
        """Refuse a library of another ROCm than the package: it would be read wrongly."""
        of_package = str(getattr(self._library, "__version__", "")).partition(".")[0]
        version = self._or_none("amdsmi_get_lib_version")
        major = version and int(version["major"])
        if not major or not of_package.isdecimal():
            return
        fitting = _GOES_WITH.get(int(of_package), ())
        if fitting and major not in fitting:
            raise AmdSmiError(
                f"The Python package amdsmi is of ROCm {of_package}, and {_LIBRARY} here is "
                f"version {major}, of another. Install the amdsmi of this node's ROCm.",
                Trouble.NEVER,
            )

    def driver(self) -> str | None:
        """Return the driver's name and version."""
        return self._driver

    def units(self) -> tuple[list[Unit], list[GpuLibraryError]]:
        """Return the GPUs, and parts of GPUs, that this process may use, in PCI order."""
        found: list[Unit] = []
        failures: list[GpuLibraryError] = []
        for pci, handle in self._handles():
            try:
                found += self._unit(handle, pci)
            except AmdSmiError as error:
                if error.trouble is not Trouble.NEVER:
                    text = f"GPU {pci}: {error}"
                    failures.append(AmdSmiError(text, error.trouble, error.code))
        order = {pci: at for at, pci in enumerate(dict.fromkeys(u.info.pci for u in found))}
        return [
            replace(unit, info=replace(unit.info, index=order[unit.info.pci])) for unit in found
        ], failures

    def _handles(self) -> list[tuple[str, Any]]:
        """Return each handle with where it is, in PCI order; a GPU's parts are in their own."""
        handles = self.call("amdsmi_get_processor_handles")
        return sorted(
            ((str(self.call("amdsmi_get_gpu_device_bdf", row)), row) for row in handles),
            key=lambda pair: pair[0],
        )

    def _unit(self, handle: Any, pci: str) -> list[Unit]:  # noqa: ANN401
        ids: Mapping[str, Any] = self._or_none("amdsmi_get_gpu_enumeration_info", handle) or {}
        render = known(ids.get("drm_render"))
        if render is not None and _is_hidden(_RENDER.format(render)):
            return []
        about: Mapping[str, Any] = self._or_none("amdsmi_get_gpu_asic_info", handle) or {}
        partition = self._partition(handle)
        uuid = self._uuid(handle, ids, about)
        driver = self._or_none("amdsmi_get_gpu_driver_info", handle)
        if driver and known(driver.get("driver_version")):
            self._driver = f"amdgpu {driver['driver_version']}"
        power: Mapping[str, Any] = self._or_none("amdsmi_get_power_info", handle) or {}
        limit = known(power.get("power_limit"))
        if limit:
            limit = limit * 1000 if limit < _MOST_W else limit // 1000
        device = Device(handle, partition)
        kinds = self._library.AmdSmiMemoryType
        info = GpuInfo(
            index=0,
            uuid=uuid if partition is None else f"{uuid}.{partition}",
            name=str(about.get("market_name") or "") or None,
            minor=render,
            # A part's place differs from its GPU's in its last digit.
            pci=pci if partition is None else f"{pci.rpartition('.')[0]}.0",
            memory_total_bytes=None
            if partition is not None
            else self._or_none("amdsmi_get_gpu_memory_total", handle, kinds.VRAM),
            power_limit_mw=limit or None,
            mig_parent=None if partition is None else uuid,
        )
        return [Unit(info=info, handle=device, board=device, instance=partition)]

    def _uuid(self, handle: Any, ids: Mapping[str, Any], about: Mapping[str, Any]) -> str:  # noqa: ANN401
        """Return what ROCR_VISIBLE_DEVICES calls a GPU, else amdsmi's own id of it."""
        named = str(ids.get("hip_uuid") or "")
        if named.startswith("GPU-"):
            return named
        serial = str(about.get("asic_serial") or "")
        if serial.startswith("0x") and int(serial, 16):
            return f"GPU-{int(serial, 16):016x}"
        return str(self.call("amdsmi_get_gpu_device_uuid", handle))

    def _partition(self, handle: Any) -> int | None:  # noqa: ANN401
        mode = self._or_none("amdsmi_get_gpu_compute_partition", handle)
        if not known(mode) or mode == "SPX":
            return None
        part: Mapping[str, Any] = self._or_none("amdsmi_get_gpu_kfd_info", handle) or {}
        return _number(part.get("current_partition_id"))

    def again(self, unit: Unit) -> Unit:
        """Return a GPU with a new handle.

        Raises:
            AmdSmiError: it is not there.
        """
        self.call("amdsmi_init")  # counts; needed where the driver itself was gone
        for found in self.units()[0]:
            if found.info.uuid == unit.info.uuid:
                return replace(unit, handle=found.handle, board=found.board)
        raise AmdSmiError(f"No GPU {unit.info.uuid} is there.", Trouble.LOST, 31)

    def activities(self, unit: Unit) -> Activities:
        """Raise: AMD SMI has no such counters."""
        raise _nothing()

    def energy_mj(self, board: Device) -> int:
        """Return the energy counter: a count of units of some 15 uJ each."""
        found = self.call("amdsmi_get_energy_count", board.raw)
        count = _value(found.get("energy_accumulator", found.get("power")), "energy")
        # A virtual machine's stays 0.
        return int(_value(count or "N/A", "energy") * float(found["counter_resolution"]) / 1000)

    def power_mw(self, board: Device) -> int:
        """Return the power, of MI300 and newer; or its mean over some time, of older ones."""
        found = self.call("amdsmi_get_power_info", board.raw)
        names = ("current_socket_power", "average_socket_power", "socket_power")
        watts = next((value for name in names if (value := known(found.get(name)))), "N/A")
        return _value(watts, "power") * 1000

    def memory_bytes(self, handle: Device) -> int:
        """Return the memory in use, by anyone; a part of a GPU has none of its own."""
        _whole(handle, "memory")
        kinds = self._library.AmdSmiMemoryType
        return int(self.call("amdsmi_get_gpu_memory_usage", handle.raw, kinds.VRAM))

    def spot_percent(self, handle: Device) -> int:
        """Return the activity of the graphics engine, where compute kernels run, too."""
        _whole(handle, "utilization")
        return _value(self.call("amdsmi_get_gpu_activity", handle.raw)["gfx_activity"], "activity")

    def buffered_percents(self, handle: Device, since_us: int) -> list[tuple[int, int]]:
        """Raise: AMD's driver keeps no utilization of the past."""
        raise _nothing()

    def clock_mhz(self, board: Device, part: str) -> int:
        """Return the clock of the processors or of the memory."""
        kinds = self._library.AmdSmiClkType
        kind = {"sm": kinds.GFX, "memory": kinds.MEM}[part]
        return _value(self.call("amdsmi_get_clock_info", board.raw, kind)["clk"], "clock")

    def throttle_reasons(self, board: Device) -> int:
        """Raise: AMD's reasons are others than NVML's bits."""
        raise _nothing()

    def temperature_c(self, board: Device) -> int:
        """Return the temperature of the hottest spot: MI300 has no other."""
        return self._temperature(board, "HOTSPOT")

    def memory_temperature_c(self, board: Device) -> int:
        """Return the temperature of the memory."""
        return self._temperature(board, "VRAM")

    def _temperature(self, board: Device, sensor: str) -> int:
        kind = getattr(self._library.AmdSmiTemperatureType, sensor)
        now = self._library.AmdSmiTemperatureMetric.CURRENT
        return _value(self.call("amdsmi_get_temp_metric", board.raw, kind, now), "temperature")

    def ecc_errors(self, board: Device) -> tuple[int, int]:
        """Return the corrected and uncorrected memory errors since the driver was loaded."""
        found = self.call("amdsmi_get_gpu_total_ecc_count", board.raw)
        return (
            _value(found["correctable_count"], "errors"),
            _value(found["uncorrectable_count"], "errors"),
        )

    def remapped_rows(self, board: Device) -> int:
        """Raise: AMD's driver retires pages, whose list root alone may read."""
        raise _nothing()

    def processes(self, handle: Device) -> tuple[tuple[int, int | None], ...]:
        """Return (pid, bytes) of the processes that compute on it."""
        found = self.call("amdsmi_get_gpu_process_list", handle.raw)
        rows = ((int(row["pid"]), known(row["memory_usage"]["vram_mem"])) for row in found)
        return tuple(sorted(rows, key=lambda pair: pair[0]))

    def _or_none(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        try:
            return self.call(function, *arguments)
        except AmdSmiError as error:
            if error.trouble is Trouble.LOST:
                raise
            return None  # a blank in the table of GPUs says so


def _package() -> ModuleType:
    """Import amdsmi: what is installed beside hpckit, else what ROCm brings along.

    Raises:
        AmdSmiError: there is none, or it is of another version than the library.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
        try:
            return importlib.import_module("amdsmi")
        except ImportError:
            sys.path += [str(Path(home, "share", "amd_smi")) for home in _homes()]
        except (AttributeError, KeyError, OSError) as error:
            text = f"The Python package amdsmi does not go with this node's {_LIBRARY}: {error!r}."
            raise AmdSmiError(text, Trouble.NEVER) from error
        try:
            return importlib.import_module("amdsmi")
        except (ImportError, AttributeError, KeyError, OSError) as error:
            text = f"{_LIBRARY} is here, but the Python package amdsmi is not ({error}). "
            todo = to_install("amdsmi>=6.3")
            raise AmdSmiError(f"{text}{todo}.", Trouble.NEVER) from error


def _trouble(code: int) -> Trouble:
    if code in _LOST:
        return Trouble.LOST
    return Trouble.NEVER if code in _NEVER else Trouble.NOW


def _nothing() -> AmdSmiError:
    return AmdSmiError("AMD SMI has no such reading.", Trouble.NONE)


def known(value: Any) -> Any:  # noqa: ANN401
    """Return a value of amdsmi's; None for its ways to say that there is none."""
    return None if value is None or value in _UNKNOWN else value


def _number(value: object) -> int | None:
    found = known(value)
    return found if isinstance(found, int) else None


def _value(value: object, what: str) -> int:
    found = known(value)
    if not isinstance(found, int | float):
        raise AmdSmiError(f"AMD SMI has no {what} of this GPU (N/A).", Trouble.NEVER)
    return int(found)


def _whole(device: Device, what: str) -> None:
    if device.partition is not None:
        text = f"AMD SMI does not tell the {what} of a part of a GPU from the whole's."
        raise AmdSmiError(text, Trouble.NEVER)


def _is_hidden(node: str) -> bool:
    """Say whether a device cgroup keeps this process from a GPU: sysfs shows it all the same."""
    try:
        os.close(os.open(node, os.O_RDWR))
    except PermissionError:
        return True
    except OSError:
        return False
    return False
