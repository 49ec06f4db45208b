"""Measure the devices of this machine, after the first lesson of "Dive into Deep Learning" on GPUs.

    python bench.py                                all GPUs, or the CPU
    python bench.py --devices cpu:2 --size 500     two logical replicas that share the CPU
    hpckit submit device_bench --gpus 4            the same as a Slurm job

Every figure is the time until the devices have done the work, but the one that is called
"handed out": GPUs work by themselves, and a clock that is read too early flatters them.

How well copies and work overlap is (work + copies - both at once) / the shorter of the two: 100 %
where the shorter costs no time beside the longer one, 0 % where they take turns.
"""

import json
import os
from argparse import Namespace
from pathlib import Path
from statistics import median

import torch
from kinds import KINDS, Speed, lacking
from kinds import measure as measure_kind

from hpckit.parallel.arguments import Parser, add_devices, at_least
from hpckit.parallel.benchmark import Benchmark, at_once, seconds_per_call
from hpckit.parallel.devices import Replica, available, find_replicas
from hpckit.parallel.ranks import say
from hpckit.parallel.run_folder import make_folder
from hpckit.parallel.scratch import allreduce, ring_allreduce
from hpckit.parallel.training import devices_of, run_script

_ROUNDS = 5


def measure(args: Namespace) -> None:
    """Measure, print a table, and write device_bench.json."""
    replicas = find_replicas(devices_of(args.devices), default="all")
    out = make_folder(args.out or Path(os.environ.get("HPCKIT_RUN_DIR", ".")), inside="")
    on_gpus = replicas[0].device.type == "cuda"
    size = args.size or (4000 if on_gpus else 1000)
    # So that one replica alone has no more of the CPU than when all of them work.
    torch.set_num_threads(max(1, torch.get_num_threads() // len(replicas)))

    say(available())
    say(f"{len(replicas)} in use: {', '.join(str(replica) for replica in replicas)}")
    matrices = [torch.rand(size, size, device=replica.device) for replica in replicas]
    # The first products load libraries, and take memory from the driver, which the CPU waits for.
    first = args.repeat if on_gpus else 2
    at_once([lambda x=x: multiply(x, first) for x in matrices])

    say(f"\n{args.repeat} products of {size} x {size}")
    document: dict[str, object] = {
        "devices": [str(replica.device) for replica in replicas],
        "size": size,
        "repeat": args.repeat,
        "megabytes": args.megabytes,
        "seconds": (seconds := products(replicas, matrices, args.repeat)),
    }
    devices = list(dict.fromkeys(replica.device for replica in replicas))
    large = args.product_size or (8192 if on_gpus else 1000)
    document["product_size"] = large
    document["products"] = {
        str(device): kinds_of_numbers(device, large, args.seconds) for device in devices
    }
    if on_gpus:
        taken, document["overlap"] = overlap(matrices[0], args.repeat)
        seconds |= taken
        document["copies"] = {
            str(device): copies(device, args.megabytes, args.seconds) for device in devices
        }
    seconds |= reductions(replicas, args.megabytes)
    if not on_gpus:
        say("(no GPU: there are no copies between device and host to measure)")

    (out / "device_bench.json").write_text(json.dumps(document, indent=2) + "\n")
    say(f"\nwritten to {out / 'device_bench.json'}")


def multiply(x: torch.Tensor, repeat: int) -> list[torch.Tensor]:
    """Return some products of a matrix with itself."""
    return [x.mm(x) for _ in range(repeat)]


def products(
    replicas: tuple[Replica, ...], matrices: list[torch.Tensor], repeat: int
) -> dict[str, float]:
    """Time matrix products on one device, on each in turn, and on all at once."""
    first = replicas[0].device
    with Benchmark(first) as done, Benchmark() as handed_out:
        results = multiply(matrices[0], repeat)
    found = {"handed out": handed_out.seconds, "done": done.seconds}
    del results
    total = 0.0
    for replica, x in zip(replicas, matrices, strict=True):
        with Benchmark(replica.device) as alone:
            multiply(x, repeat)
        found[str(replica)] = alone.seconds
        total += alone.seconds
    with Benchmark(*(replica.device for replica in replicas)) as together:
        at_once([lambda x=x: multiply(x, repeat) for x in matrices])
    found |= {"one after the other": total, "all at once": together.seconds}
    report(found)
    early = handed_out.seconds / done.seconds
    say(f"the program may go on after {early:.0%} of the time that the work takes")
    if len(replicas) > 1:
        say(f"all at once is {total / together.seconds:.2f} times as fast as one after the other")
    return found


def kinds_of_numbers(
    device: torch.device, size: int, seconds: float
) -> dict[str, dict[str, float | str | None]]:
    """Measure products in each kind of numbers that a device has, beside what its chip can do."""
    say(f"\nproducts of {size} x {size} on {device}")
    say(f"  {'':<6}{'TFLOP/s':>9}{'SM clock':>11}{'limit at it':>13}{'data sheet':>12}")
    found: dict[str, dict[str, float | str | None]] = {}
    for kind in KINDS:
        why = lacking(kind, device)
        try:
            speed = None if why else measure_kind(kind, size, device, seconds)
        except RuntimeError as error:
            speed, why = None, str(error).splitlines()[0]
        if speed is None:
            say(f"  {kind:<6}not here: {why}")
            continue
        say(f"  {kind:<6}{line(speed)}")
        found[kind] = {**vars(speed), "of_limit": speed.of_limit}
    for note in dict.fromkeys(row["note"] for row in found.values() if row["note"]):
        say(f"  ({note})")
    return found


def line(speed: Speed) -> str:
    """Return a row of the table; what is not known stays empty."""
    clock = f"{speed.sm_clock_mhz:.0f} MHz" if speed.sm_clock_mhz else ""
    words = f"{speed.tflops:>9.3g}{clock:>11}"
    for limit, width in ((speed.limit_tflops, 13), (speed.sheet_tflops, 12)):
        words += f"{f'{limit:.0f} {speed.tflops / limit:>4.0%}' if limit else '':>{width}}"
    return words.rstrip()


def overlap(x: torch.Tensor, repeat: int) -> tuple[dict[str, float], float]:
    """Bring products to the host, after all work is done, and while it goes on.

    Returns:
        Seconds, and how much of the shorter of work and copies the longer one hides: 1 is all. Both
        are medians of some rounds: a clock that changes between two measurements looks like more
        or less of it.
    """
    places = [torch.empty(x.shape, pin_memory=True) for _ in range(min(repeat, 4))]
    host = [places[at % len(places)] for at in range(repeat)]
    stream = torch.cuda.Stream(x.device)  # type: ignore[no-untyped-call]
    rounds = [overlap_once(x, host, stream) for _ in range(1 + _ROUNDS)][1:]  # the first sets up
    work, copying, both = map(median, zip(*rounds, strict=True))
    found = {
        "copies to the host": copying,
        "work, then copies to the host": work + copying,
        "copies while it works": both,
    }
    say("\ncopies and work")
    report(found)
    part = median(hidden(*seconds) for seconds in rounds)
    say(f"overlap {part:.0%}: (work + copies - both at once) / the shorter of the two")
    return found, part


def overlap_once(
    x: torch.Tensor, host: list[torch.Tensor], stream: torch.cuda.Stream
) -> tuple[float, float, float]:
    """Return the seconds of products, of bringing them to the host, and of both at once."""
    with Benchmark(x.device) as work:
        results = multiply(x, len(host))
    with Benchmark(x.device) as copying:
        for place, result in zip(host, results, strict=True):
            place.copy_(result, non_blocking=True)
    del results
    with Benchmark(x.device) as both:
        for place in host:
            result = x.mm(x)
            stream.wait_stream(torch.cuda.current_stream(x.device))
            with torch.cuda.stream(stream):
                place.copy_(result, non_blocking=True)
            result.record_stream(stream)
    return work.seconds, copying.seconds, both.seconds


def hidden(work: float, copying: float, both: float) -> float:
    """Return the overlap: the part of the shorter that costs no time beside the longer one."""
    return (work + copying - both) / min(work, copying)


def copies(device: torch.device, megabytes: int, seconds: float) -> dict[str, float]:
    """Measure copies between the host and a GPU both ways, in GB/s (10^9 bytes).

    From memory that is not pinned (page-locked), the driver copies twice.
    """
    there = torch.empty(megabytes << 20, dtype=torch.uint8, device=device)
    found = {}
    for pinned in (True, False):
        here = torch.ones(megabytes << 20, dtype=torch.uint8, pin_memory=pinned)
        word = "pinned" if pinned else "not pinned"
        for way, source, target in (
            ("to the device", here, there),
            ("to the host", there, here),
        ):
            each = seconds_per_call(
                lambda source=source, target=target: target.copy_(source, non_blocking=True),
                device,
                seconds=seconds / 4,
            )
            found[f"{way}, {word}"] = here.nbytes / each / 1e9
    say(f"\ncopies of {megabytes} MiB, {device}")
    for name, speed in found.items():
        say(f"  {name:<36}{speed:>10.1f} GB/s")
    return found


def reductions(replicas: tuple[Replica, ...], megabytes: int) -> dict[str, float]:
    """Time both ways to add up a tensor of each device."""
    devices = [replica.device for replica in replicas]
    tensors = [torch.ones(megabytes << 18, device=device) for device in devices]
    found = {}
    for name, reduce in (("naive", allreduce), ("ring", ring_allreduce)):
        reduce([tensor[:1024] for tensor in tensors])
        with Benchmark(*devices) as taken:
            reduce(tensors)
        found[f"all-reduce of {megabytes} MiB, {name}"] = taken.seconds
    say("\nall-reduce")
    report(found)
    return found


def report(figures: dict[str, float]) -> None:
    """Print a line per figure."""
    for name, seconds in figures.items():
        say(f"  {name:<36}{seconds:>10.4f} s")


def make_parser() -> Parser:
    """Return the parser of the arguments; workload.yaml lists them too."""
    parser = Parser(prog="bench.py", description="Measure the devices of this machine.")
    add = parser.add_argument
    add_devices(parser)
    add("--size", type=at_least(1), help="rows of the matrices (4000 on GPUs, 1000 on CPUs)")
    add("--repeat", type=at_least(1), default=50, help="products per device (50)")
    add(
        "--product-size",
        type=at_least(1),
        help="rows of the matrices of the products in each kind of numbers (8192 on GPUs, 1000 on "
        "CPUs)",
    )
    add(
        "--seconds",
        type=at_least(0, float),
        default=1.0,
        help="how long the products in one kind of numbers go on, and all copies of a device (1)",
    )
    add(
        "--megabytes",
        type=at_least(1),
        default=64,
        help="size of each device's tensor in copies and the all-reduce (64)",
    )
    add("--out", type=Path, metavar="DIR", help="folder of device_bench.json ($HPCKIT_RUN_DIR, .)")
    return parser


if __name__ == "__main__":
    run_script(make_parser(), measure)
