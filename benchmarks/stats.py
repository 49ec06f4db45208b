"""How long `hpckit stats` takes on a long job's samples, and how much memory.

    python benchmarks/stats.py [--repeat N]

Made-up jobs of 8 GPUs on one node: a week at 1 s (4.8 million GPU readings), the same with nothing
read of any GPU at every third sample, a day at 10 s, and a day of 2,500 steps with a file each.
Each is timed as a user runs it: a fresh process, from the samples to the page, advice, summary.json
and timeseries.json. Beside it, in the same run, what people do by hand: the same readings as
`nvidia-smi --query-gpu=... --format=csv,noheader,nounits -l` logs them, read with Python's csv
module and averaged per GPU; no summary, no advice. It asserts nothing.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hpckit.stats.samples.encoding import encoder  # noqa: E402
from hpckit.stats.samples.lines import Damage  # noqa: E402
from hpckit.stats.samples.reading import read_records  # noqa: E402
from hpckit.stats.samples.records import (  # noqa: E402
    End,
    GpuInfo,
    GpuSample,
    GpuSlow,
    Header,
    Record,
    Sample,
    Slow,
    file_name,
)

GPUS = 8
START = 1_790_000_000
# Of the time of Python's csv module for the same rows.
_MOST_RATIO = 1.5
_CSV_MEANS = """
import csv, sys
total, count, most = [0.0] * 8, [0] * 8, [0.0] * 8
with open(sys.argv[1], newline="") as file:
    for _, index, used, memory, power in csv.reader(file):
        at = int(index)
        total[at] += float(used)
        count[at] += 1
        most[at] = max(most[at], float(memory))
print([round(t / n, 2) for t, n in zip(total, count)], most)
"""


def records(seconds: int, period: float, *, late_s: float = 0.0, gaps: int = 0) -> Iterator[Record]:
    """Yield a training run: steady GPUs, one with loader stalls, one that idles in the end.

    `gaps`: of each so many samples one has no readings of GPUs.
    """
    noise = random.Random(1)
    table = tuple(
        GpuInfo(
            index=at,
            uuid=f"GPU-{at:08d}-0000-4000-8000-000000000000",
            name="NVIDIA H200",
            memory_total_bytes=150_754_820_096,
            gpm=True,
        )
        for at in range(GPUS)
    )
    began = 10_000_000 + round(late_s * 1e6)
    yield Header(
        host="node1", boot_id="b", pid=1, epoch_us=START * 1_000_000 + round(late_s * 1e6),
        mono_us=began,
        interval_us=round(period * 1e6), gpus=table, gpu_method="constrained", cores=64,
        memory_limit_bytes=512 << 30, cgroup="v2",
    )  # fmt: skip
    # The counters of a node and a job go on from step to step.
    energy = [10**10 + round(late_s * 700_000)] * GPUS
    cpu_us = round(late_s * 24e6)
    for number in range(round(seconds / period)):
        # As a busy node keeps time: some tenths of a millisecond late or early.
        mono_us = began + round(number * period * 1e6 + noise.gauss(0, 300))
        cpu_us += round(24e6 * period)
        gpus = []
        for at in range(GPUS):
            if gaps and number % gaps == gaps - 1:
                gpus.append(GpuSample())
                continue
            used = 900 + noise.randrange(100)
            if at == 5 and number % 60 < 12:
                used = noise.randrange(9)
            if at == 6 and number * period > 0.8 * seconds:
                used = 0
            power = 120_000 + 530 * used
            energy[at] += round(power * period)
            gpus.append(
                GpuSample(
                    energy_mj=energy[at], memory_bytes=(60 + at) << 30, power_mw=power,
                    utilization_permille=used, sm_permille=used // 2, occupancy_permille=300,
                    tensor_permille=used // 4, dram_permille=used // 3,
                )
            )  # fmt: skip
        yield Sample(
            mono_us=mono_us, cpu_us=cpu_us, memory_bytes=(100 << 30) + number,
            memory_peak_bytes=110 << 30, cache_bytes=1 << 30, swap_bytes=0,
            io_read_bytes=number * 4096, io_write_bytes=number * 100, oom_kills=0,
            own_cpu_us=number * 900, own_rss_bytes=19 << 20, took_us=800, gpus=tuple(gpus),
        )  # fmt: skip
        if number % round(60 / period) == 0:
            slow = GpuSlow(
                sm_mhz=1980, throttle_reasons=0, temperature_c=55, utilization_source="mean"
            )
            epoch_us = START * 1_000_000 + mono_us - 10_000_000
            yield Slow(mono_us=mono_us, epoch_us=epoch_us, gpus=(slow,) * GPUS)
    yield End(mono_us=mono_us, reason="parent")


def make_run(
    root: Path, name: str, seconds: int, period: float, *, steps: int = 1, gaps: int = 0
) -> Path:
    """Write a local run's folder with samples, those of each step in a file."""
    folder = root / f"{name}-20261001-000000-aaaaaa"
    (folder / "samples").mkdir(parents=True)
    plan = {
        "nodes": 1, "gpus_per_node": GPUS, "total_gpus": GPUS, "tasks_per_node": GPUS,
        "ranks": GPUS, "cpus_per_task": 8, "mem_gb": 512, "time_min": seconds // 60 + 60,
        "strategy": "ddp", "launcher": "srun",
    }  # fmt: skip
    record = {
        "run_id": folder.name, "job_id": f"local-{name}", "executor": "local", "name": name,
        "submitted_at": START - 5, "cwd": str(root), "request": {}, "parameters": {},
        "command": [], "hpckit_version": "0", "plan": plan, "user": "me",
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    state = {
        "job_id": record["job_id"], "state": "COMPLETED", "host": "node1", "pid": 1,
        "pid_started": 1, "started": START, "ended": START + seconds, "exit_code": 0,
    }  # fmt: skip
    (folder / "local.json").write_text(json.dumps(state))
    (folder / "ranks").mkdir()
    attempt = {
        "rank": 0, "restart": 0, "host": "node1", "device": "cuda", "pid": 1,
        "started": START, "ended": START + seconds, "exit_code": 0,
    }  # fmt: skip
    (folder / "ranks/0.json").write_text(json.dumps({"rank": 0, "attempts": [attempt]}))
    encode = encoder(GPUS)
    each_s = seconds / steps
    for step in range(steps):
        path = folder / "samples" / file_name("node1", 0, step + 1)
        with path.open("wb") as stream:
            part = records(round(each_s), period, late_s=step * each_s, gaps=gaps)
            stream.writelines(map(encode, part))
    return folder


def as_csv(folder: Path) -> Path:
    """Write a run's samples as nvidia-smi logs timestamp, index, utilization, memory and power."""
    [path] = (folder / "samples").iterdir()
    plain = folder / "nvidia-smi.csv"
    with plain.open("w") as stream:
        for record in read_records(path, Damage()):
            if isinstance(record, Sample):
                at = time.gmtime(START + record.mono_us // 1_000_000)
                moment = time.strftime("%Y/%m/%d %H:%M:%S.000", at)
                for index, gpu in enumerate(record.gpus):
                    used, memory = gpu.utilization_permille, gpu.memory_bytes
                    assert used is not None
                    assert memory is not None
                    power = (gpu.power_mw or 0) / 1000
                    row = f"{used // 10}, {memory >> 20}, {power:.2f}"
                    stream.write(f"{moment}, {index}, {row}\n")
    return plain


def timed(argv: list[str], root: Path) -> tuple[float, float]:
    """Return seconds and peak MiB of a process."""
    with (root / "out.txt").open("wb") as out:
        began = time.perf_counter()
        env = {**os.environ, "HPCKIT_SITE": "generic", "HOME": str(root)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it nothing is kept from run to run
        process = subprocess.Popen(argv, stdout=out, env=env, cwd=root)
        _, status, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, argv
    return took, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        print("Making 1.3 million samples, which takes some minutes…", file=sys.stderr)
        week = make_run(root, "week", 7 * 86400, 1.0)
        gaps = make_run(root, "gaps", 7 * 86400, 1.0, gaps=3)
        steps = make_run(root, "steps", 86400, 10.0, steps=2500)
        day = make_run(root, "day", 86400, 10.0)
        logs = {folder: as_csv(folder) for folder in (week, day)}
        hpckit = [sys.executable, "-m", "hpckit", "stats"]
        rows = {
            "hpckit stats, week at 1 s": [*hpckit, str(week)],
            "hpckit stats, day at 10 s": [*hpckit, str(day)],
            "hpckit stats, week with gaps": [*hpckit, str(gaps)],
            "hpckit stats, 2,500 steps": [*hpckit, str(steps)],
            "csv module, week at 1 s": [sys.executable, "-c", _CSV_MEANS, str(logs[week])],
            "csv module, day at 10 s": [sys.executable, "-c", _CSV_MEANS, str(logs[day])],
        }
        goals = {
            "hpckit stats, week at 1 s": (1.2, 300),
            "hpckit stats, day at 10 s": (0.4, 300),
            "hpckit stats, week with gaps": (2.5, 300),
            "hpckit stats, 2,500 steps": (3.0, 300),
        }
        found: dict[str, list[tuple[float, float]]] = {label: [] for label in rows}
        for turn in range(options.repeat + 1):
            for label, argv in rows.items():
                took = timed(argv, root)
                if turn:  # the first round only warms the caches
                    found[label].append(took)
        sizes = {
            "samples": [next((folder / "samples").iterdir()).stat().st_size for folder in logs],
            "csv": [log.stat().st_size for log in logs.values()],
        }
    print(f"{'':28}{'median s':>10}{'min':>8}{'max':>8}{'peak MiB':>9}")
    for label, runs in found.items():
        seconds = [took for took, _ in runs]
        line = f"{label:<28}{median(seconds):>10.2f}{min(seconds):>8.2f}{max(seconds):>8.2f}"
        line += f"{max(peak for _, peak in runs):>9.0f}"
        if label in goals:
            limit, most = goals[label]
            met = median(seconds) <= limit and max(peak for _, peak in runs) <= most
            line += f"  goal {limit:g} s, {most} MiB: {'met' if met else 'missed'}"
        print(line)
    each = {label: median(took for took, _ in runs) for label, runs in found.items()}
    for span in ("week at 1 s", "day at 10 s"):
        ratio = each[f"hpckit stats, {span}"] / each[f"csv module, {span}"]
        said = "met" if ratio <= _MOST_RATIO else "missed"
        print(f"hpckit stats / csv module, {span}: {ratio:.2f}  goal {_MOST_RATIO}: {said}")
    for kind, (of_week, of_day) in sizes.items():
        print(f"files, {kind}: week {of_week / 1e6:.0f} MB, day {of_day / 1e6:.2f} MB")
    print(
        f"python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
