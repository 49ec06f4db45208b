"""What this machine has for jobs that run on it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from hpckit import shell


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What the local executor has to work with: GPUs the user's mask leaves visible, and cores."""

    gpus: tuple[str, ...] = ()
    cpus: int = 1


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return the GPUs the user's mask leaves visible here, and the cores this process may use."""
    return Machine(gpus=_visible_gpus(environ), cpus=len(os.sched_getaffinity(0)))


def _visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    present = _present_gpus()
    if mask is None or not present:
        return present
    # CUDA reads the mask up to the first entry that is no device; entries may be UUIDs.
    words = [word.strip() for word in mask.split(",")]
    valid = []
    for word in words:
        if word not in present and not word.startswith(("GPU-", "MIG-")):
            break
        valid.append(word)
    return tuple(valid)


def _present_gpus() -> tuple[str, ...]:
    if shell.which("nvidia-smi") is None:
        return ()
    answer = shell.run(["nvidia-smi", "-L"], timeout_s=20, check=False)
    if answer.returncode != 0:
        return ()  # a driver without a device, or none loaded: there is no GPU to use
    count = sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
    return tuple(str(index) for index in range(count))
