"""Which device a rank computes on."""

from pathlib import Path

# NVIDIA's and AMD's drivers make these; torch calls both `cuda`.
_DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def choose_device(planned: str | None, drivers: tuple[str, ...] = _DRIVERS) -> tuple[str, str]:
    """Return `cuda` or `cpu`, and a warning when GPUs were asked for but the node has no driver."""
    if planned is not None:
        return planned, ""
    if any(Path(path).exists() for path in drivers):
        return "cuda", ""
    return "cpu", (
        "hpckit: GPUs were allocated, but this node has no GPU driver (no /proc/driver/nvidia, no "
        "/dev/kfd): HPCKIT_DEVICE=cpu, ranks run on the CPU"
    )
