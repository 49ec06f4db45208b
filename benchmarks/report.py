"""How long `hpckit report` takes, and how much memory, by the number of jobs: first and second.

python benchmarks/report.py [--jobs 1000,10000,100000]

A program in sacct's place prints made-up jobs of 30 days, every tenth with a record of Princeton's
jobstats; its own time for all of them is measured apart. The second report asks it for the last
day. It asserts nothing.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hpckit.group_report.allocations import _COLUMNS

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.js1 import encode

_SACCT = """#!{python}
import sys, time
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
jobs = set(options.get("--jobs", "").split(",")) - {{""}}
since = time.mktime(time.strptime(options["--starttime"], "%Y-%m-%dT%H:%M:%S"))
mark = options["--delimiter"]
for line in open({rows!r}):
    cells = line.split("\\x1f")
    if cells[0] in jobs if jobs else float(cells[{end}]) >= since:
        sys.stdout.write(line.replace("\\x1f", mark))
"""
_SCONTROL = "#!/bin/sh\necho 'ClusterName             = made-up'\n"


def write_rows(path: Path, jobs: int) -> None:
    """Write what sacct would print, with a mark to be replaced."""
    chance, now = random.Random(1), int(time.time())
    records = [
        encode(
            {"nodes": {"n1": {"gpu_utilization": {"0": used, "1": used}}}, "total_time": 9 * 3600}
        )
        for used in range(0, 100, 5)
    ]
    with path.open("w") as stream:
        for number in range(jobs):
            start = now - chance.randrange(36_000, 29 * 86400)
            end = min(start + chance.randrange(1, 86400), now)
            if number % 10 == 0:  # as long as its record says
                end = start + 9 * 3600
            gpus = 2 if number % 10 == 0 else chance.choice((0, 1, 4))
            row = {
                "JobID": str(number + 1), "User": f"user{chance.randrange(200)}",
                "Account": f"lab{chance.randrange(20)}", "Partition": "gpu",
                "State": chance.choice(("COMPLETED", "COMPLETED", "FAILED", "CANCELLED by 7")),
                "Submit": str(start - 500), "Eligible": str(start - 400), "Start": str(start),
                "End": str(end), "ElapsedRaw": str(end - start), "Suspended": "00:00:00",
                "TimelimitRaw": "1440", "NNodes": "1",
                "AllocTRES": f"billing=9,cpu=16,gres/gpu={gpus},mem=64G,node=1",
                "Cluster": "made-up",
                "AdminComment": chance.choice(records) if number % 10 == 0 else "",
                "JobName": f"train-{number % 99}",
            }  # fmt: skip
            stream.write("\x1f".join(row[name] for name in _COLUMNS) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", default="1000,10000,100000", metavar="N,...")
    counts = [int(word) for word in parser.parse_args().jobs.split(",")]
    print(f"{'jobs':>8}{'first s':>10}{'second s':>10}{'sacct s':>9}{'of CPU: first':>15}"
          f"{'second':>8}{'peak MiB':>10}")  # fmt: skip
    for jobs in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = folder / "rows"
            write_rows(rows, jobs)
            programs = {
                "sacct": _SACCT.format(
                    python=sys.executable, rows=str(rows), end=_COLUMNS.index("End")
                ),
                "scontrol": _SCONTROL,
                "sacctmgr": "#!/bin/sh\n",  # hides no job from anybody
            }
            for program, text in programs.items():
                (folder / program).write_text(text)
                (folder / program).chmod(0o755)
            own = {"PATH": f"{folder}:{os.environ['PATH']}", "HPCKIT_RUNS": name}
            environ = os.environ | own | {"XDG_CACHE_HOME": name}
            ask = [str(folder / "sacct"), "--delimiter=|", "--starttime=2020-01-01T00:00:00"]
            command = [sys.executable, "-m", "hpckit", "report", "--all", "--by", "user", "--json"]
            sacct, first, second = (timed(argv, environ) for argv in (ask, command, command))
            if said := json.loads(second[2])["notes"]:
                print(*said, sep="\n")  # why, if it took as long as the first
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(
                f"{jobs:>8}{first[0]:>10.2f}{second[0]:>10.2f}{sacct[0]:>9.2f}"
                f"{first[1]:>15.2f}{second[1]:>8.2f}{peak:>10.0f}"
            )
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


def timed(argv: list[str], environ: dict[str, str]) -> tuple[float, float, bytes]:
    """Return how long a command takes, how long its processes use a CPU, in s, and its output."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env=environ, check=True, stdout=subprocess.PIPE)
    taken = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return taken, used, done.stdout


if __name__ == "__main__":
    main()
