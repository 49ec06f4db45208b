"""Measure the devices of this machine, after the first lesson of "Dive into Deep Learning" on GPUs.

    python bench.py                                all GPUs, or the CPU
    python bench.py --devices cpu:2 --size 500     two logical replicas that share the CPU
    hpckit submit device_bench --gpus 4            the same as a Slurm job

Every figure is the time until the devices have done the work, but the one that is called
"handed out": GPUs work by themselves, and a clock that is read too early flatters them.
"""

import json
import os
from argparse import Namespace
from pathlib import Path

import torch

from hpckit.parallel.arguments import Parser, add_devices, at_least
from hpckit.parallel.benchmark import Benchmark, at_once
from hpckit.parallel.devices import Replica, available, find_replicas
from hpckit.parallel.ranks import say
from hpckit.parallel.scratch import allreduce, ring_allreduce
from hpckit.parallel.training import devices_of, run_script


def measure(args: Namespace) -> None:
    """Measure, print a table, and write device_bench.json."""
    replicas = find_replicas(devices_of(args.devices), default="all")
    on_gpus = replicas[0].device.type == "cuda"
    size = args.size or (4000 if on_gpus else 1000)
    # So that one replica alone has no more of the CPU than when all of them work.
    torch.set_num_threads(max(1, torch.get_num_threads() // len(replicas)))

    say(available())
    say(f"{len(replicas)} in use: {', '.join(str(replica) for replica in replicas)}")
    matrices = [torch.rand(size, size, device=replica.device) for replica in replicas]
    at_once([lambda x=x: multiply(x, 2) for x in matrices])  # the first products load libraries

    say(f"\n{args.repeat} products of {size} x {size}")
    figures = products(replicas, matrices, args.repeat)
    figures |= copies(matrices[0], args.repeat) if on_gpus else {}
    figures |= reductions(replicas, args.megabytes)
    if not on_gpus:
        say("(no GPU: there are no copies between device and host to measure)")

    out = args.out or Path(os.environ.get("HPCKIT_RUN_DIR", "."))
    document = {"devices": [str(replica.device) for replica in replicas], "size": size,
                "repeat": args.repeat, "megabytes": args.megabytes, "seconds": figures}  # fmt: skip
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
    with Benchmark() as handed_out:
        results = multiply(matrices[0], repeat)
    with Benchmark(first) as rest:
        pass
    found = {"handed out": handed_out.seconds, "done": handed_out.seconds + rest.seconds}
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
    if len(replicas) > 1:
        say(f"all at once is {total / together.seconds:.2f} times as fast as one after the other")
    return found


def copies(x: torch.Tensor, repeat: int) -> dict[str, float]:
    """Time the way from a GPU to the host: after all work is done, and while it goes on."""
    host = [torch.empty(x.shape, pin_memory=True) for _ in range(repeat)]
    with Benchmark(x.device) as work:
        results = multiply(x, repeat)
    with Benchmark(x.device) as copying:
        for place, result in zip(host, results, strict=True):
            place.copy_(result)
    stream = torch.cuda.Stream(x.device)
    with Benchmark(x.device) as both:
        for place in host:
            result = x.mm(x)
            stream.wait_stream(torch.cuda.current_stream(x.device))
            with torch.cuda.stream(stream):
                place.copy_(result, non_blocking=True)
            result.record_stream(stream)
    found = {
        "work, then copies to the host": work.seconds + copying.seconds,
        "copies while it works": both.seconds,
    }
    report(found)
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
        "--megabytes",
        type=at_least(1),
        default=64,
        help="size of each device's tensor in the all-reduce (64)",
    )
    add("--out", type=Path, metavar="DIR", help="folder of device_bench.json ($HPCKIT_RUN_DIR, .)")
    return parser


if __name__ == "__main__":
    run_script(make_parser(), measure)
