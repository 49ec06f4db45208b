"""What the sampler asks of a vendor's library of GPUs, how it fails, and which one a node has.

A library has a method for each reading that needs one; the others have theirs in the rows of
`hpckit.stats.metric_table`. What a vendor has no reading for fails as NONE, and stays unknown.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from hpckit.errors import OutsideError
from hpckit.stats.sampler.job_gpus import Handle, Unit


class Trouble(StrEnum):
    """What a failed call means for the calls to come."""

    NONE = "none"  # this vendor has no such reading: nobody needs to be told
    NEVER = "never"  # this board, driver or user cannot read that
    LOST = "lost"  # the GPU, or the library, cannot be read at all
    NOW = "now"  # perhaps next time


class GpuLibraryError(OutsideError):
    """A call failed, or there is no such library. `code` is the library's number of the error."""

    def __init__(self, message: str, trouble: Trouble, code: int | None = None) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.code = code


class Activities(Protocol):
    """Counters of what a GPU's parts did, as exact means between two reads."""

    def permilles(self) -> Mapping[int, int | None]:
        """Return the means since the last call, by NVML's numbers of GPM's metrics."""


class GpuLibrary(Protocol):
    """A vendor's library, initialized. Each method raises GpuLibraryError."""

    name: str
    amd: bool

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a function of the vendor's Python package."""

    def units(self) -> tuple[list[Unit], list[GpuLibraryError]]:
        """Return what this process may read, in PCI order; and what failed."""

    def again(self, unit: Unit) -> Unit:
        """Return a unit with a new handle."""

    def driver(self) -> str | None:
        """Return the driver's version."""

    def activities(self, unit: Unit) -> Activities:
        """Return the counters of a unit whose table says that it has them."""

    def energy_mj(self, board: Handle) -> int:
        """Return the energy counter since the driver was loaded."""

    def power_mw(self, board: Handle) -> int:
        """Return the power over about the last second."""

    def memory_bytes(self, handle: Handle) -> int:
        """Return the memory in use, by anyone."""

    def spot_percent(self, handle: Handle) -> int:
        """Return the utilization in the driver's last window."""

    def buffered_percents(self, handle: Handle, since_us: int) -> list[tuple[int, int]]:
        """Return (time in microseconds, utilization) of the driver's buffer after a time."""

    def clock_mhz(self, board: Handle, part: str) -> int:
        """Return the clock of the processors (`sm`) or of the memory (`memory`)."""

    def throttle_reasons(self, board: Handle) -> int:
        """Return NVML's bits of why clocks are low."""

    def temperature_c(self, board: Handle) -> int:
        """Return the temperature of the GPU."""

    def memory_temperature_c(self, board: Handle) -> int:
        """Return the temperature of its memory."""

    def ecc_errors(self, board: Handle) -> tuple[int, int]:
        """Return the corrected and uncorrected memory errors since the driver was loaded."""

    def remapped_rows(self, board: Handle) -> int:
        """Return how many rows of memory were replaced."""

    def processes(self, handle: Handle) -> tuple[tuple[int, int | None], ...]:
        """Return (pid, bytes) of the processes that compute on it."""


def open_library() -> tuple[GpuLibrary, list[Unit], list[GpuLibraryError]]:
    """Return the library of the node's GPUs, its units, and what failed: NVML, else AMD SMI.

    Raises:
        GpuLibraryError: neither is there, with what NVML says; and AMD SMI, where ROCm is.
    """
    from hpckit.stats.sampler.nvml import Nvml  # noqa: PLC0415  # a circle

    first: GpuLibraryError | None = None
    found: tuple[GpuLibrary, list[Unit], list[GpuLibraryError]] | None = None
    try:
        nvml = Nvml()
        found = (nvml, *nvml.units())
    except GpuLibraryError as error:
        first = error
    if found and any(found[1:]):
        return found
    from hpckit.stats.sampler.amd_smi import AmdSmi, rocm_is_here  # noqa: PLC0415  # seldom

    if rocm_is_here():
        try:
            amd = AmdSmi()
            return (amd, *amd.units())
        except GpuLibraryError as error:
            first = GpuLibraryError(f"{first} {error}", error.trouble) if first else error
    if found:
        return found
    raise first or GpuLibraryError("There is no library of GPUs.", Trouble.NEVER)
