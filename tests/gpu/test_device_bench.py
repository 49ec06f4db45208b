"""The device_bench workload: kinds of numbers against the chip's limit, copies, asynchrony."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.gpu import loads
from tests.gpu.checks import Recorder, check, number
from tests.gpu.machine import Machine
from tests.gpu.runs import Run, failed, make_runs
from tests.gpu.sampling import Poll

# What cuBLAS has to reach of what the clock allows, in the better of two large products in bf16.
# On an H200 the best of 18 (random numbers, 4096 to 32768 rows, both layouts) had 0.895, though the
# tensor cores were in use for 94 % of the time (8192 rows): 0.9 is beyond this library there.
# On other chips nobody has looked: there the figure is told, and has no lower limit.
_OF_LIMIT: Mapping[tuple[int, int], float] = {(9, 0): 0.85}
_SIZE, _LARGER = 8192, 16384
# Two matrices of random numbers in fp32 at once, and three of the products' kind.
_BYTES_PER_NUMBER = 2 * 4 + 3 * 2
# device_bench keeps 50 products of 4000 x 4000, and some matrices of 8192.
_ROOM = 8 * 2**30
# The same product took as long by both clocks on an H200, to 0.1 %; a clock that is lowered while
# one of them begins changes more.
_AGREE = 0.1
# Where one of copies and work is much shorter, 5 % of it are less than the other one's noise.
_SHORT = 0.2
_KINDS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@check("device_bench: products, copies, asynchrony", budget_s=19, needs=("torch", "shared GPU"))
def test_device_bench(report: Recorder, machine: Machine) -> None:
    found = measured(report, machine)
    if found is None:
        return
    (products,) = found["products"].values()
    if "bf16" in products:
        parts = [products["bf16"]["of_limit"], larger(report, machine)]
        tell_best(report, parts, least_of(machine, found["product_size"]))
    agreement(report, machine, found["product_size"], products)
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
    tell_overlap(report, seconds, found["overlap"])


def tell_overlap(report: Recorder, seconds: Mapping[str, float], overlap: float) -> None:
    """Record how much of the shorter of copies and work the longer one hides."""
    together, apart = seconds["copies while it works"], seconds["work, then copies to the host"]
    copying = seconds["copies to the host"]
    shorter, longer = sorted((copying, apart - copying))
    clear = shorter >= _SHORT * longer
    report.figure(
        "overlap of copies and work", overlap, at_least=0.95 if clear else None,
        source="device_bench",
        note="(work + copies - both at once) / the shorter of the two"
        + ("" if clear else f", which is {shorter / longer:.0%} of the longer: too little to tell"),
    )  # fmt: skip
    if not clear:
        report.figure("copies while it works, of the longer of the two", together / longer,
                      at_most=1.05)  # fmt: skip
    report.figure("copies while it works, of one after the other", together / apart,
                  at_most=1.0 if clear else 1.05)  # fmt: skip


def least_of(machine: Machine, size: int) -> float | None:
    """Return the part of its limit that a large product has to reach; None where none is known."""
    whole = not machine.unit.info.mig_parent and size >= machine.pick(_SIZE, 1)
    return _OF_LIMIT.get(machine.capability) if whole else None


def agreement(
    report: Recorder, machine: Machine, size: int, products: Mapping[str, Mapping[str, Any]]
) -> None:
    """Record whether device_bench's speed is that of the same product by the GPU's own clock."""
    kind = next(kind for kind in ("bf16", "fp16", "fp32") if kind in products)
    machine.release()
    call = loads.product(machine, size, _KINDS[kind])
    busy = loads.keep_busy(machine, call, machine.pick(0.8, 0.1))
    own = 2 * size**3 / busy.each_s / 1e12
    report.figure(
        f"product of {size}, {kind}, by both", products[kind]["tflops"], unit="TFLOP/s", near=own,
        within=_AGREE * own, source="device_bench", peer="CUDA events",
    )  # fmt: skip


def measured(report: Recorder, machine: Machine) -> dict[str, Any] | None:
    """Run device_bench; return what it wrote, None if it failed."""
    small = ("--size", "64", "--product-size", "32", "--repeat", "2", "--megabytes", "1",
             "--seconds", "0", "--devices", "cpu")  # fmt: skip
    large: tuple[str, ...] = ("--devices", "cuda:0", "--seconds", "1")
    if not machine.dry and machine.free_bytes < _ROOM:
        large += ("--product-size", "4096", "--repeat", "20")
    words = machine.pick(large, small)
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
    size, seconds = machine.pick(_LARGER, 64), machine.pick(1.6, 0.2)
    if (wants := size**2 * _BYTES_PER_NUMBER) > (free := machine.free_bytes):
        why = f"it takes {wants / 2**30:.1f} GiB of the GPU, and {free / 2**30:.1f} are free"
        report.absent(f"product of {_LARGER}, bf16", why)
        return None
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
    per_cycle = machine.flops_per_cycle("bf16")
    limit = per_cycle * machine.multiprocessors * mhz / 1e6 if per_cycle and mhz else None
    report.figure(
        f"product of {_LARGER}, {name}", rate, unit="TFLOP/s", source="CUDA events",
        note=f"at {number(mhz)} MHz" if mhz else "NVML tells no clock",
    )  # fmt: skip
    return rate / limit if limit else None


def tell_best(report: Recorder, parts: list[float | None], least: float | None) -> None:
    """Record what the better of some products reached of what the chip can do at their clocks."""
    known = [part for part in parts if part is not None]
    if not known:
        report.absent("large products in bf16, of the limit", "no limit is known of this chip")
        return
    report.figure(
        "large products in bf16, the better one, of the limit at its clock", max(known),
        at_least=least, at_most=1.05, note=" and ".join(map(number, known)),
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
