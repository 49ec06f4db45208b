"""The device_bench workload: kinds of numbers against the chip's limit, copies, asynchrony."""

import json
from collections.abc import Callable
from typing import Any

from tests.gpu import chips, loads
from tests.gpu.checks import Recorder, check, number
from tests.gpu.machine import Machine
from tests.gpu.runs import Run, failed, make_runs
from tests.gpu.sampling import Poll

# What cuBLAS has to reach of what the clock allows, in the better of two large products in bf16.
# On an H200 the best of 18 (random numbers, 4096 to 32768 rows, both layouts) had 0.895, though the
# tensor cores were in use for 94 % of the time (8192 rows): 0.9 is beyond this library there.
_OF_LIMIT = 0.85
_LARGER = 16384


@check("device_bench: products, copies, asynchrony", budget_s=19, needs=("torch", "shared GPU"))
def test_device_bench(report: Recorder, machine: Machine) -> None:
    found = measured(report, machine)
    if found is None:
        return
    (products,) = found["products"].values()
    if "bf16" in products:
        tell_best(report, [products["bf16"]["of_limit"], larger(report, machine)])
    for kind in ("fp32", "tf32", "bf16", "fp16", "fp8"):
        if kind not in products:
            report.absent(f"products in {kind}", "device_bench: this chip or torch has none")
            continue
        told(report, kind, found["product_size"], products[kind])
    seconds = found["seconds"]
    report.figure(
        "work handed out, of the time until it is done",
        seconds["handed out"] / seconds["done"],
        at_most=machine.pick(0.5, None),
        source="device_bench",
        note="the CPU returns before the GPU is done; the CPU itself never does",
    )
    if "copies" not in found:
        report.absent("copies between host and device", "the CPU stands in for a GPU")
        return
    (copies,) = found["copies"].values()
    for name, speed in copies.items():
        # Of memory that is not pinned a core copies everything once more, and a virtual machine's
        # may be slow at that: no part of the other speed is right everywhere.
        report.figure(
            f"copy {name}", speed, unit="GB/s", source="device_bench",
            at_least=1.0 if name.endswith(", pinned") else 0.2,
        )  # fmt: skip
    report.figure(
        "overlap of copies and work", found["overlap"], at_least=0.95, source="device_bench",
        note="(work + copies - both at once) / the shorter of the two",
    )  # fmt: skip
    together, apart = seconds["copies while it works"], seconds["work, then copies to the host"]
    report.figure("copies while it works, of one after the other", together / apart, at_most=1.0)


def measured(report: Recorder, machine: Machine) -> dict[str, Any] | None:
    """Run device_bench; return what it wrote, None if it failed."""
    small = ("--size", "64", "--product-size", "32", "--repeat", "2", "--megabytes", "1",
             "--seconds", "0", "--devices", "cpu")  # fmt: skip
    words = machine.pick(("--devices", "cuda:0", "--seconds", "1"), small)
    run = Run(name="device_bench", workload="device_bench", words=words, ieee=False)
    ended = make_runs(report, machine, [run], limit_s=90)[run.name]
    if ended.problem:
        failed(report, run.name, ended.problem)
        return None
    found: dict[str, Any] = json.loads((ended.out / "device_bench.json").read_text())
    machine.keep("device_bench.json", found)
    return found


def larger(report: Recorder, machine: Machine) -> float | None:
    """Record a product in bf16 that is larger than device_bench's; return its part of the limit.

    And one of zeros, which take so little power that the clock stays high: where the other one
    misses its limit, this tells cuBLAS's own part from that of a clock that was lowered.
    """
    size, seconds = machine.pick(_LARGER, 64), machine.pick(2.0, 0.2)
    found = one_larger(report, machine, "bf16", loads.product(machine, size, "bfloat16"), seconds)
    zeros = loads.product(machine, size, "bfloat16", scale=0.0)
    part = one_larger(report, machine, "bf16, of zeros", zeros, seconds / 2)
    report.figure(f"product of {_LARGER}, bf16, of zeros, of the limit at its clock", part)
    return found


def one_larger(
    report: Recorder, machine: Machine, name: str, call: Callable[[], object], seconds: float
) -> float | None:
    """Record how fast such a product is; return the part of the limit, None if it is not known."""
    board = machine.unit.board
    asked = {
        "mhz": lambda: machine.ask("nvmlDeviceGetClockInfo", board, 1),
        "mW": lambda: machine.ask("nvmlDeviceGetPowerUsage", board),
        "throttle": lambda: machine.ask("nvmlDeviceGetCurrentClocksThrottleReasons", board),
    }
    with Poll(machine, asked, every_s=0.02) as witness:
        busy = loads.keep_busy(machine, call, seconds)
    mhz = witness.mean("mhz", busy.span.inner(seconds / 4))
    rate = 2 * _LARGER**3 / busy.each_s / 1e12
    per_cycle = chips.flops_per_cycle("bf16", machine.capability)
    limit = per_cycle * machine.multiprocessors * mhz / 1e6 if per_cycle and mhz else None
    report.figure(
        f"product of {_LARGER}, {name}", rate, unit="TFLOP/s", source="CUDA events",
        note=f"at {number(mhz)} MHz" if mhz else "NVML tells no clock",
    )  # fmt: skip
    return rate / limit if limit else None


def tell_best(report: Recorder, parts: list[float | None]) -> None:
    """Record what the better of some products reached of what the chip can do at their clocks."""
    known = [part for part in parts if part is not None]
    if not known:
        report.absent("large products in bf16, of the limit", "no limit is known of this chip")
        return
    report.figure(
        "large products in bf16, the better one, of the limit at its clock", max(known),
        at_least=_OF_LIMIT, at_most=1.05, note=" and ".join(map(number, known)),
    )  # fmt: skip


def told(report: Recorder, kind: str, size: int, row: dict[str, Any]) -> None:
    """Record one kind's figures."""
    name = f"product of {size}, {kind}"
    report.figure(name, row["tflops"], unit="TFLOP/s", source="device_bench")
    limit, clock = row["limit_tflops"], row["sm_clock_mhz"]
    if limit is None:
        report.absent(f"the limit of products in {kind}", row["note"] or "it is a CPU")
    else:
        report.figure(
            f"{name}, of the limit at the clock it ran at",
            row["of_limit"],
            at_most=1.05,  # more than the chip can do is a wrong limit, or a wrong clock
            peer=f"{limit:.0f} TFLOP/s at {clock:.0f} MHz",
            source="device_bench",
        )
    if row["sheet_tflops"]:
        report.figure(
            f"{name}, of the data sheet",
            row["tflops"] / row["sheet_tflops"],
            peer=f"{row['sheet_tflops']:g} TFLOP/s",
            source="device_bench",
            note="for a clock that long work may not keep",
        )
