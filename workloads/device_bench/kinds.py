"""Products of matrices in the kinds of numbers that a device has, and how fast it makes them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from chips import Chip, watching

from hpckit.parallel.benchmark import seconds_per_call

KINDS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
           "fp16": torch.float16}  # fmt: skip
Product = Callable[[], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a device multiplied.

    Attributes:
        tflops: 2 n³ operations for each product of n x n, per second / 10^12.
        sm_clock_mhz: seen meanwhile; None where that could not be read.
        limit_tflops: what the chip can do at that clock; None where it is not known.
        sheet_tflops: what its data sheet says.
        note: why a limit is not known, for a GPU.
    """

    tflops: float
    sm_clock_mhz: float | None = None
    limit_tflops: float | None = None
    sheet_tflops: float | None = None
    note: str = ""

    @property
    def of_limit(self) -> float | None:
        """The part of the limit that was reached, from 0 to 1."""
        return self.tflops / self.limit_tflops if self.limit_tflops else None


def lacking(kind: str, device: torch.device) -> str:
    """Return why a device has no products of a kind; empty where it has."""
    if device.type != "cuda":
        return "" if kind in ("fp32", "bf16", "fp16") else "only GPUs have it"
    capability = Chip.of(device).capability
    if capability is None:  # ROCm: what works is tried
        return "only NVIDIA GPUs have it" if kind == "tf32" else ""
    if kind in ("tf32", "bf16") and capability < (8, 0):
        return f"needs compute capability 8.0, not {capability[0]}.{capability[1]}"
    if kind == "fp8" and capability < (8, 9):
        return f"needs compute capability 8.9, not {capability[0]}.{capability[1]}"
    if kind == "fp8" and not hasattr(torch, "_scaled_mm"):
        return f"torch {torch.__version__} has no torch._scaled_mm"
    return ""


def measure(kind: str, size: int, device: torch.device, seconds: float) -> Speed:
    """Multiply matrices of normal random numbers for some seconds.

    Raises:
        RuntimeError: torch, or the library that it calls, cannot.
    """
    product = make(kind, size, device)
    with tf32() if kind == "tf32" else nullcontext():
        product()
        with watching(device) as clock:
            each = seconds_per_call(product, device, seconds=seconds)
    chip = Chip.of(device)
    return Speed(
        tflops=2 * size**3 / each / 1e12,
        sm_clock_mhz=clock.mhz,
        limit_tflops=chip.at_clock(kind, clock.mhz),
        sheet_tflops=chip.by_sheet(kind),
        note=chip.unknown(kind) or clock.problem,
    )


def make(kind: str, size: int, device: torch.device) -> Product:
    """Return what multiplies two matrices of normal random numbers.

    In fp8, the second is transposed, as torch wants it, and products are bf16.
    """
    one, other = (torch.randn(size, size, device=device) for _ in range(2))
    if kind == "fp8":
        rows, columns = (each.to(torch.float8_e4m3fn) for each in (one, other))
        scale = torch.ones((), device=device)

        def scaled() -> torch.Tensor:
            found: Any = torch._scaled_mm(
                rows, columns.t(), scale_a=scale, scale_b=scale,
                out_dtype=torch.bfloat16, use_fast_accum=True,
            )  # fmt: skip
            return found[0] if isinstance(found, tuple) else found  # a pair in older torch

        return scaled
    left, right = one.to(_DTYPES[kind]), other.to(_DTYPES[kind])
    return lambda: left.mm(right)


@contextmanager
def tf32() -> Iterator[None]:
    """Allow TF32 in products of float32, by the name that this torch has for it."""
    settings: Any = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "tf32") if hasattr(settings, "fp32_precision") else (
        "allow_tf32", True)  # fmt: skip
    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)
