"""How long `hpckit report` takes, and how much memory, by the number of jobs: first and second.

python benchmarks/report.py [--jobs 1000,10000,100000]

A program in sacct's place prints made-up jobs of 30 days, every tenth with a record of Princeton's
jobstats; its own time for all of them is measured apart. The second report asks it for the last
day. It asserts nothing.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hpckit.group_report.allocations import _COLUMNS
from hpckit.stats.js1 import encode

_SACCT = """#!{python}
import sys, time
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
jobs = set(options.get("--jobs", "").split(",")) - {{""}}
since = time.mktime(time.strptime(options["--starttime"], "%Y-%m-%dT%H:%M:%S"))
mark = options["--delimiter"]
for line in open({rows!r}):
    cells = line.split("\\x1f")
    if cells[0] in jobs if jobs else float(cells[8]) >= since:
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
                "End": str(end), "TimelimitRaw": "1440", "NNodes": "1",
                "AllocTRES": f"billing=9,cpu=16,gres/gpu={gpus},mem=64G,node=1",
                "AdminComment": chance.choice(records) if number % 10 == 0 else "",
                "JobName": f"train-{number % 99}",
            }  # fmt: skip
            stream.write("\x1f".join(row[name] for name in _COLUMNS) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", default="1000,10000,100000", metavar="N,...")
    counts = [int(word) for word in parser.parse_args().jobs.split(",")]
    print(f"{'jobs':>8}  {'first':>8}  {'second':>8}  {'sacct':>8}  {'peak memory':>12}")
    for jobs in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = folder / "rows"
            write_rows(rows, jobs)
            programs = {
                "sacct": _SACCT.format(python=sys.executable, rows=str(rows)),
                "scontrol": _SCONTROL,
            }
            for program, text in programs.items():
                (folder / program).write_text(text)
                (folder / program).chmod(0o755)
            own = {"PATH": f"{folder}:{os.environ['PATH']}", "HPCKIT_RUNS": name}
            environ = os.environ | own | {"XDG_CACHE_HOME": name}
            ask = [str(folder / "sacct"), "--delimiter=|", "--starttime=2020-01-01T00:00:00"]
            sacct_s = timed(ask, environ)[0]
            command = [sys.executable, "-m", "hpckit", "report", "--all", "--by", "user", "--json"]
            first_s, peak = timed(command, environ)
            second_s, peak = timed(command, environ)
            print(
                f"{jobs:>8}  {first_s:>6.2f} s  {second_s:>6.2f} s  {sacct_s:>6.2f} s  "
                f"{peak / 1024:>8.0f} MiB"
            )


def timed(argv: list[str], environ: dict[str, str]) -> tuple[float, int]:
    """Return how long a command takes, in seconds, and the most memory of any so far, in KiB."""
    begin = time.monotonic()
    subprocess.run(argv, env=environ, check=True, stdout=subprocess.DEVNULL)
    taken = time.monotonic() - begin
    return taken, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


if __name__ == "__main__":
    main()
