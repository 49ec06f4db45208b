"""The sampler against the real NVML: what it reads, whose processes it sees, what it costs."""

import os
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from hpckit.stats.sampler.gpu_library import GpuLibraryError
from hpckit.stats.samples.records import GPU_MINUTELY, GPU_SAMPLED, GpuInfo
from tests.gpu import loads
from tests.gpu.checks import Recorder, check, number
from tests.gpu.machine import Machine
from tests.gpu.sampling import Run, Span, clocks_us, pass_time, sampled, wait_until, why_not

_MIB = 2**20
# The driver gives memory out in pieces of 2 MiB; tables of a large block's pages may need more.
_PIECES = 4 * 2
# linux/proc_ns.h, PROC_PID_INIT_INO: the host's own PID namespace.
_FIRST_PIDS = 0xEFFFFFFC
# What a loop has to keep of its speed beside the sampler.
_LOOP = 0.97


@check("Every field of the sampler", budget_s=7, needs=("torch",))
def test_fields(report: Recorder, machine: Machine) -> None:
    """Each metric has a reading, or a note says why not."""
    machine.expect()
    with sampled(machine) as run:
        busy = loads.keep_busy(machine, loads.product(machine, 512, "float32"), 6.0)
        wait_until("the second slow readings", lambda: len(run.slow) > 1)
    assert busy.calls
    header = run.header
    report.fact("GPUs found by", str(header.gpu_method), good=len(header.gpus) == 1)
    same = [row.uuid for row in header.gpus] == [machine.unit.info.uuid]
    report.fact("the GPU that CUDA uses", "yes" if same else "no", good=same)
    tell_fields(report, run, 0)
    strange = [row for row in run.notes if row.code not in ("not_supported", "cgroup")]
    report.fact("troubles", "; ".join(row.text for row in strange) or "none", good=not strange)
    report.figure("samples", len(run.samples), at_least=5, note="in 6 s, at 1 s")


def tell_fields(report: Recorder, run: Run, gpu: int) -> None:
    """Record every reading of one GPU."""
    said = {note.text for note in run.notes if note.gpu in (None, run.header.gpus[gpu].uuid)}
    slow, state = run.slow[-1].gpus[gpu], run.states[-1].gpus[gpu]
    values: dict[str, tuple[str, object]] = {
        **{row.name: (row.title, run.last(row.name, gpu)) for row in GPU_SAMPLED},
        **{row.name: (row.title, getattr(slow, row.name)) for row in GPU_MINUTELY},
        "utilization_source": ("utilization", slow.utilization_source),
        "ecc_uncorrected": ("ECC errors", state.ecc_uncorrected),
        "remapped_rows": ("remapped rows", state.remapped_rows),
        "processes": ("processes", None if state.processes is None else len(state.processes)),
    }
    untold = untold_of(run.header.gpus[gpu])
    for name, (title, value) in values.items():
        if value is None and name in untold:
            report.absent(name, untold[name])
        else:
            tell_field(report, name, title, value, said)


def untold_of(gpu: GpuInfo) -> dict[str, str]:
    """Return which readings a GPU cannot have without any being refused, and why."""
    if not gpu.mig_parent:
        return {}
    whole = "NVML has it of the whole GPU only, not of a MIG slice"
    found = dict.fromkeys(("energy_mj", "power_mw"), whole)
    if not gpu.gpm:
        why = "a slice's utilization is GPM's, and the GPU has no GPM (Hopper and newer have)"
        found |= dict.fromkeys(("utilization_permille", "utilization_source"), why)
    return found


def tell_field(report: Recorder, name: str, title: str, value: object, said: set[str]) -> None:
    """Record one reading; where there is none, the note that says why."""
    if value is not None:
        report.fact(name, str(value), good=True)
        return
    gpm = name in {row.name for row in GPU_SAMPLED if row.gpm}
    names = [title] + ["GPM"] * gpm
    words = tuple(f"No {each}{end}" for each in names for end in (":", " for a while:"))
    why = next((text for text in said if text.startswith(words)), "")
    if not why and gpm:
        why = "the GPU has no GPM (Hopper and newer have)"
    if why:
        report.absent(name, why)
    else:
        report.fact(name, "unknown, and no note says why", good=False)


@check("This process, and its memory, on the GPU", budget_s=2, needs=("torch",))
def test_processes(report: Recorder, machine: Machine) -> None:
    """NVML names this process; where pids are another namespace's it cannot."""
    torch = machine.torch
    kept = torch.ones(machine.pick(256, 1) * _MIB, dtype=torch.uint8, device=machine.device)
    machine.synchronize()
    machine.expect(memory=2**30)
    with sampled(machine) as run:
        wait_until("a state of the GPU", lambda: bool(run.states))
    state, reserved = run.states[-1].gpus[0], machine.memory().reserved
    del kept
    if state.processes is None:
        report.not_here(f"NVML does not list processes here: {why_not(run, 'processes')}")
    tell_processes(report, dict(state.processes), reserved, own_pids=has_own_pids())
    report.fact("whose GPU it is", state.confidence, good=None)


def tell_processes(
    report: Recorder, here: dict[int, int | None], reserved: int, *, own_pids: bool
) -> None:
    """Record whether this process is among those of the GPU, and what memory it has there."""
    if os.getpid() not in here and own_pids:
        report.not_here(
            f"NVML tells pids of another namespace ({len(here)} of them), and this is a container "
            "with its own"
        )
    report.fact("this process is listed", "yes" if os.getpid() in here else "no",
                good=os.getpid() in here)  # fmt: skip
    mine = here.get(os.getpid())
    if mine is None:
        report.absent("memory of a process", "NVML does not tell it (usedGpuMemory is unknown)")
    else:
        # CUDA's own context, kernels and cuBLAS's workspace come on top of what torch keeps.
        report.figure("memory of this process, beyond torch's", (mine - reserved) / _MIB,
                      unit="MiB", at_least=0, at_most=2048, source="sampler",
                      peer="torch.cuda.memory_reserved")  # fmt: skip


def has_own_pids(proc: Path = Path("/proc")) -> bool:
    """Tell whether this may be a container with pids of its own, which NVML does not know.

    Where there are no namespaces, as under gVisor, the kernel is no plain one: it may be.
    """
    try:
        return (proc / "self" / "ns" / "pid").stat().st_ino != _FIRST_PIDS
    except OSError:
        return True


@check("Memory in use, against torch.cuda", budget_s=8, needs=("torch",))
def test_memory(report: Recorder, machine: Machine) -> None:
    """What an allocation adds is what torch says it took, to some of the driver's pieces."""
    torch = machine.torch
    machine.release()
    before = machine.memory()
    size = machine.pick(min(8 * 2**30, before.free // 2), _MIB)
    wait = machine.pick(2.4, 2.3)
    with sampled(machine) as run:
        free = pass_time(machine, wait)
        block = torch.empty(size, dtype=torch.uint8, device=machine.device)
        machine.synchronize()
        after = machine.memory()
        taken = pass_time(machine, wait)
        del block
        machine.release()
        given = pass_time(machine, wait)
    first, most, last = (run.mean("memory_bytes", span) for span in (free, taken, given))
    if first is None or most is None or last is None:
        report.not_here(f"NVML does not tell the memory in use: {why_not(run, 'memory')}")
    added, words = (most - first) / _MIB, f"{number(size / 2**30)} GiB were taken"
    # Another process's memory, or a display's, may come and go meanwhile.
    restless = restlessness(run, (free, taken, given)) / _MIB
    if restless > size / _MIB / 20:
        report.not_here(f"others' memory on this GPU changed by {number(restless)} MiB meanwhile")
    within = _PIECES + restless
    if restless:
        words += f"; that of others changed by {number(restless)} MiB meanwhile, which is allowed"
    report.figure("added by an allocation", added, unit="MiB", within=within,
                  near=(after.reserved - before.reserved) / _MIB, source="sampler",
                  peer="torch.cuda.memory_reserved", note=words)  # fmt: skip
    report.figure("added by an allocation", added, unit="MiB", within=within,
                  near=(before.free - after.free) / _MIB, source="sampler",
                  peer="torch.cuda.mem_get_info")  # fmt: skip
    report.figure("given back", (most - last) / _MIB, unit="MiB", near=added,
                  within=within, source="sampler")  # fmt: skip
    report.figure("in use, beyond what CUDA counts", (most - (after.total - after.free)) / _MIB,
                  unit="MiB", note="the driver's own reserve is in NVML's `used`")  # fmt: skip


def restlessness(run: Run, spans: Iterable[Span]) -> int:
    """Return the most by which memory in use changed within stretches in which ours did not."""
    found, name = [0], "memory_bytes"
    for span in spans:
        rows = [getattr(row.gpus[0], name) for pair in run.within(span) for row in pair]
        known = [value for value in rows if value is not None]
        found += [max(known) - min(known)] if known else []
    return max(found)


@check("What NVML's calls cost", budget_s=3)
def test_calls(report: Recorder, machine: Machine) -> None:
    """Each reading of the sampler, timed; and how much the driver's buffer of utilization keeps."""
    nvml, board, handle = machine.nvml, machine.unit.board, machine.unit.handle
    recent = max((stamp for stamp, _ in machine.buffer()), default=0) - 1_000_000
    calls: dict[str, Callable[[], object]] = {
        "energy": lambda: nvml.energy_mj(board),
        "power": lambda: nvml.power_mw(board),
        "memory": lambda: nvml.memory_bytes(handle),
        "utilization, last window": lambda: nvml.spot_percent(handle),
        "utilization, buffer of 1 s": lambda: nvml.buffered_percents(handle, recent),
        "SM clock": lambda: nvml.clock_mhz(board, "sm"),
        "throttle reasons": lambda: nvml.throttle_reasons(board),
        "temperature": lambda: nvml.temperature_c(board),
        "memory temperature": lambda: nvml.memory_temperature_c(board),
        "ECC errors": lambda: nvml.ecc_errors(board),
        "remapped rows": lambda: nvml.remapped_rows(board),
        "processes": lambda: nvml.processes(handle),
    }
    if machine.unit.info.gpm:
        try:
            calls["GPM, a sample and its metrics"] = nvml.activities(machine.unit).permilles
        except GpuLibraryError as error:
            report.absent("GPM", str(error))
    for name, call in calls.items():
        time_call(report, name, call, machine.pick(60, 5), apart_s=0.11 if "GPM" in name else 0.0)
    tell_buffer(report, machine)


def time_call(
    report: Recorder, name: str, call: Callable[[], object], count: int, *, apart_s: float
) -> None:
    """Record what a call takes: the median, and the slowest of them."""
    took, why = [], ""
    for _ in range(min(count, 10) if apart_s else count):
        time.sleep(apart_s)
        began = time.perf_counter_ns()
        try:
            call()
        except GpuLibraryError as error:
            why = str(error)
        took.append((time.perf_counter_ns() - began) / 1e3)
    if why and "NVML error 6)" not in why:  # NOT_FOUND: nothing new in the buffer
        report.absent(f"the call for {name}", why)
        return
    worst = number(round(max(took)))
    # Costs published of boards of 2023: at most 0.4 ms; what holds a lock for long took 4.5 ms.
    report.figure(f"one reading: {name}", statistics.median(took), unit="µs", at_most=20_000,
                  note=f"slowest of {len(took)}: {worst} µs")  # fmt: skip


def tell_buffer(report: Recorder, machine: Machine) -> None:
    """Record how long the driver remembers utilization, and at what distances."""
    try:
        pairs = machine.nvml.buffered_percents(machine.unit.handle, 0)
    except GpuLibraryError as error:
        report.absent("the driver's buffer of utilization", str(error))
        return
    machine.keep("driver's buffer", {"now": (now := clocks_us()), "pairs": pairs})
    if len(pairs) < 3:
        report.absent("the driver's buffer of utilization", f"it has {len(pairs)} readings")
        return
    near = min(now, key=lambda name: abs(now[name] - pairs[-1][0]))
    report.fact("its times are of the clock", near,
                note=f"the newest is {(now[near] - pairs[-1][0]) / 1e6:.2f} s old")  # fmt: skip
    gaps = [(b[0] - a[0]) / 1e3 for a, b in pairwise(pairs)]
    report.figure("one reading in the driver's buffer stands for", statistics.median(gaps),
                  unit="ms", note=f"between {min(gaps):.0f} and {max(gaps):.0f} ms")  # fmt: skip
    report.figure("the driver's buffer keeps", (pairs[-1][0] - pairs[0][0]) / 1e6, unit="s",
                  at_least=1.0, note=f"{len(pairs)} readings; the sampler reads it every 7 s, or "
                  "more often where it is shorter")  # fmt: skip


@check("What the sampler costs a job", budget_s=24, needs=("torch",))
def test_cost(report: Recorder, machine: Machine) -> None:
    """Its processor time and wakeups at 1 s, and what it takes from a loop of small kernels."""
    machine.expect()
    with sampled(machine) as run:
        assert run.process is not None
        time.sleep(machine.pick(3.0, 1.0))  # NVML's start, and the first slow readings
        woken = wakeups(run.process.pid)
        span = pass_time(machine, machine.pick(7.0, 2.5))
        woken = wakeups(run.process.pid) - woken
    rows = run.within(span)
    covered = run.covered(span)
    used_us = (rows[-1][1].own_cpu_us or 0) - (rows[0][0].own_cpu_us or 0)
    share = used_us / 1e6 / covered.seconds
    report.figure("processor time at 1 s, of one core", share * 100, unit="%")
    taken = len(rows) / covered.seconds
    report.figure("processor time at 10 s, of one core", share * 100 / taken / 10, unit="%",
                  at_most=0.5, source="samples at 1 s",
                  note="as `submit` asks for; each GPU of a node costs as much")  # fmt: skip
    report.figure("wakeups at 1 s", woken / span.seconds, unit="per second", at_most=50)
    took = [row.took_us / 1e3 for _, row in rows if row.took_us is not None]
    report.figure("one sample", statistics.median(took), unit="ms", at_most=50,
                  note=f"slowest of {len(took)}: {number(max(took))} ms")  # fmt: skip
    rss = run.samples[-1].own_rss_bytes
    report.figure("the sampler's memory", None if rss is None else rss / _MIB, unit="MiB",
                  at_most=100)  # fmt: skip
    compare_loop(report, machine)


def wakeups(pid: int) -> int:
    """Return how often a process's threads went to sleep by themselves."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError, IndexError):  # a thread that is over; a kernel that does not tell
            words = status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()
            found += int(words[0])
    return found


def compare_loop(report: Recorder, machine: Machine) -> None:
    """Alternate a loop that waits for the host with and without the sampler."""
    torch = machine.torch
    x = torch.zeros(1024, device=machine.device)

    def rate(seconds: float) -> float:
        count, until, began = 0, time.perf_counter() + seconds, time.perf_counter()
        while time.perf_counter() < until:
            for _ in range(50):
                x.add_(1)
            machine.synchronize()
            count += 1
        return count / (time.perf_counter() - began)

    seconds = machine.pick(1.2, 0.1)
    rate(seconds)
    ratios, alone = [], []
    for _ in range(machine.pick(3, 2)):
        alone.append(rate(seconds))
        with sampled(machine):
            beside = rate(seconds)
        alone.append(rate(seconds))
        ratios.append(beside / statistics.fmean(alone[-2:]))
    machine.keep("steps per second", {"alone": alone, "ratios": ratios})
    tell_loop(report, statistics.median(ratios), alone)


def tell_loop(report: Recorder, ratio: float, alone: list[float]) -> None:
    """Record what a loop keeps of its speed; where it is restless by itself, that has no limit."""
    noise = (max(alone) - min(alone)) / statistics.median(alone)
    words = f"without it, rates differed by {number(noise * 100)} %"
    quiet = noise <= 1 - _LOOP
    if not quiet:
        words += ": too much for a limit"
    report.figure("steps per second beside the sampler, to without", ratio,
                  at_least=_LOOP if quiet else None,
                  note=f"a step: 50 kernels of 1024 numbers, then a wait; {words}")  # fmt: skip
