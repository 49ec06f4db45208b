"""What device_bench knows of chips, for checks: its module stands beside the workload's script."""

import sys
from pathlib import Path

WORKLOADS = Path(__file__).parents[2] / "workloads"


def flops_per_cycle(kind: str, capability: tuple[int, int], name: str) -> int | None:
    """Return the operations of one multiprocessor in a cycle; None where they are not known.

    Args:
        kind: fp32, tf32, bf16, fp16 or fp8; dense, added up in fp32.
        capability: CUDA's compute capability.
        name: of the GPU: some chips are slower than others of their capability.
    """
    folder = str(WORKLOADS / "device_bench")
    if folder not in sys.path:
        sys.path.append(folder)
    from chips import per_clock  # type: ignore[import-not-found]

    found: int | None = per_clock(kind, capability, name)
    return found
