"""What the sampler costs: CPU per wall second, memory, bytes; beside it nvitop, and a query loop.

    python benchmarks/sampler.py [--seconds 60] [--nvitop VENV]

8 stub GPUs with H200 figures, in the same run. VENV is a virtual environment of its own with nvitop
(`python -m venv VENV && VENV/bin/pip install nvitop`). A stub answers in nanoseconds: this measures
our code, and not a driver's. Nothing is asserted.

The query loop is what batch scripts do with `nvidia-smi --query-gpu`: a new process for each sample
that opens NVML, asks each GPU, prints and ends. nvidia-smi itself does not run on a stub.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from hpckit.stats.samples.lines import Damage  # noqa: E402
from hpckit.stats.samples.reading import read_records  # noqa: E402
from hpckit.stats.samples.records import Header, Sample, samples_files  # noqa: E402
from tests.stats.stub.script import Stub, busy  # noqa: E402

_NVITOP = """
import sys, time
from nvitop import Device, ResourceMetricCollector
collector = ResourceMetricCollector(Device.all(), interval={interval})
with collector(tag="job"):
    for _ in range(int({seconds} / {interval})):
        time.sleep({interval})
        collector.collect()
"""

_QUERY = """
import pynvml as n
n.nvmlInit()
for index in range(n.nvmlDeviceGetCount()):
    gpu = n.nvmlDeviceGetHandleByIndex(index)
    print(n.nvmlDeviceGetUtilizationRates(gpu).gpu, n.nvmlDeviceGetMemoryInfo(gpu).used,
          n.nvmlDeviceGetTotalEnergyConsumption(gpu))
n.nvmlShutdown()
"""


def query_loop(env: dict[str, str], interval: float, seconds: float) -> list[float]:
    """Return what `measure` does, for a process per sample."""
    cpu_s, peak = [], 0.0
    for _ in range(max(int(seconds / interval), 3)):
        argv = [sys.executable, "-E", "-c", _QUERY]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, "the query failed"
        cpu_s.append(used.ru_utime + used.ru_stime)
        peak = max(peak, used.ru_maxrss / 1024)
        time.sleep(max(interval / 4, 0.2))  # its cost is each process's, however long the pause
    each = sum(cpu_s) / len(cpu_s)
    return [each / interval * 100, each, peak]


def usage(pid: int) -> tuple[float, float]:
    """Return the CPU seconds and the peak memory in MiB of a living process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    # The scheduler's own count is exact where the one in ticks is 10 ms coarse.
    exact = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    threads = sum(
        int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )
    return max(exact, threads / 1e9, sum(map(int, words[11:13])) / 100 - 0.02), peak


def measure(argv: list[str], env: dict[str, str], settle: float, seconds: float) -> list[float]:
    """Return CPU share in percent of a core after start-up, CPU seconds of start-up, peak MiB."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, env=env, stdout=quiet, stderr=quiet)
    time.sleep(settle)
    first, began = usage(process.pid), time.monotonic()
    time.sleep(seconds)
    last = usage(process.pid)
    share = (last[0] - first[0]) / (time.monotonic() - began) * 100
    process.terminate()
    process.wait()
    return [share, first[0], last[1]]


def build(folder: Path) -> Path:
    library = folder / "libnvidia-ml.so.1"
    source = ROOT / "tests/stats/stub/nvml_stub.c"
    name = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", name, "-o", library, source, "-lm"], check=True
    )
    return library


def sampler_argv(folder: Path, interval: float) -> list[str]:
    return [
        *(sys.executable, "-E", "-P", "-m", "hpckit.stats.sampler", "--dir", str(folder)),
        *("--interval", str(interval), "--root-pid", str(os.getpid())),
    ]


def bytes_per_sample(folder: Path) -> tuple[float, int]:
    [file] = samples_files(folder)
    records = list(read_records(file.path, Damage()))
    header = next(record for record in records if isinstance(record, Header))
    assert len(header.gpus) == 8, "the stub did not play"
    count = sum(isinstance(record, Sample) for record in records)
    return file.path.stat().st_size / count, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nvitop", type=Path)
    options = parser.parse_args()
    rows: list[tuple[str, float, list[float], str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stub = Stub(library=build(folder), folder=folder)
        wave = [(at * 3.0, 100.0 * (at % 2)) for at in range(400)]
        env = stub.environment([busy(index, wave) for index in range(8)])
        env["NVML_STUB_TOLERANT"] = "1"  # nvitop asks for fans and graphics processes, too
        for interval, goal in ((1.0, "0.2 %"), (10.0, "0.03 %")):
            place = folder / f"samples-{interval:g}"
            # At 10 s the first five minutes are finer, so the 10 s figure is taken after them.
            settle = 5.0 if interval == 1 else 305.0
            seconds = options.seconds if interval == 1 else max(options.seconds, 60)
            found = measure(sampler_argv(place, interval), env, settle, seconds)
            size, count = bytes_per_sample(place)
            rows.append(("hpckit", interval, found, f"goal {goal}; {size:.0f} B x {count}"))
            rows.append(("query", interval, query_loop(env, interval, min(seconds, 40)), ""))
            if options.nvitop:
                code = _NVITOP.format(interval=interval, seconds=settle + seconds + 60)
                argv = [str(options.nvitop / "bin/python"), "-c", code]
                rows.append(("nvitop", interval, measure(argv, env, 15.0, seconds), ""))
    print(f"{'':8}{'interval':>9}{'CPU % of a core':>17}{'start CPU s':>13}{'peak MiB':>9}")
    for label, interval, (share, begun, peak), rest in rows:
        print(f"{label:8}{interval:>7g} s{share:>17.4f}{begun:>13.3f}{peak:>9.1f}  {rest}")
    for interval in (1.0, 10.0):
        shares = {label: found[0] for label, at, found, _ in rows if at == interval}
        for peer in shares.keys() - {"hpckit"}:
            print(f"{peer} / hpckit at {interval:g} s: {shares[peer] / shares['hpckit']:.1f}")


if __name__ == "__main__":
    main()
