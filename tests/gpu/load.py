"""What a job of a check does: `python load.py KIND SECONDS`. It needs torch alone.

resting   no kernel at all                     waiting   1.5 s of kernels, 1.5 s without, and so on
one-sm    one kernel of one thread after another         copying   kernels that only move memory
In a dry run all of them only wait.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

_STRETCH_S = 1.5
_LONGEST_S = 30.0


def main() -> None:
    """Do it for so long."""
    kind = sys.argv[1]
    # Of a job that was sampled for less than 80 % of its time, rules say nothing.
    seconds = max(float(sys.argv[2]), 6 * until_sampled())
    if kind == "resting" or os.environ.get("HPCKIT_GPU_DRY"):
        time.sleep(min(seconds, _LONGEST_S))
        return
    began = time.monotonic()
    call = kernel(kind)
    call()
    # Rules look at a whole job: where torch took long to be loaded, the work has to be longer, too.
    loaded = time.monotonic() - began
    until = time.monotonic() + min(max(seconds, loaded + 2), _LONGEST_S)
    while time.monotonic() < until:
        repeat(call, _STRETCH_S)
        if kind == "waiting":
            time.sleep(_STRETCH_S)


def until_sampled() -> float:
    """Wait until the sampler, which has a low priority, has begun; return how long it took."""
    began, folder = time.monotonic(), Path(os.environ["HPCKIT_RUN_DIR"], "samples")
    while (took := time.monotonic() - began) < _LONGEST_S / 2:
        if any('{"s":' in path.read_text() for path in folder.glob("*.jsonl")):
            break
        time.sleep(0.1)
    return took


def kernel(kind: str) -> Callable[[], object]:
    """Return what starts one kernel of a millisecond or so."""
    import torch

    if kind == "one-sm":
        return lambda: torch.cuda._sleep(2_000_000)
    free, _ = torch.cuda.mem_get_info()
    source = torch.zeros(min(2**28, free // 16), device="cuda")  # 4 bytes each, twice
    target = torch.empty_like(source)
    return lambda: torch.add(source, 1.0, out=target)


def repeat(call: Callable[[], object], seconds: float) -> None:
    """Keep the GPU busy for some seconds, a few kernels ahead."""
    import torch

    until, events = time.monotonic() + seconds, []
    while time.monotonic() < until:
        for _ in range(10):
            call()
        events.append(torch.cuda.Event())
        events[-1].record()
        if len(events) > 2:
            events.pop(0).synchronize()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
