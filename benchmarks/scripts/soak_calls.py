"""Functions as jobs, for benchmarks/soak.py: submit, say which jobs these are, wait for results.

    soak_calls.py call|map LINES SECONDS good|raise

The first line of stdout is the jobs, as JSON; the last one is their results, or the error's name.
"""

import json
import os
import sys
import time

import hpckit


def work(number: int, lines: int, seconds: str, then: str) -> int:
    """Print lines as soak_rank.py does, and return a number."""
    for line in range(lines):
        print(f"{os.environ['HPCKIT_RESTART']} {os.environ['RANK']} {line}", flush=True)
    time.sleep(86400 if seconds == "hold" else float(seconds))
    if then == "raise":
        raise ValueError(number)
    print(f"{os.environ['HPCKIT_RESTART']} {os.environ['RANK']} end", flush=True)
    return number * 2


def main() -> None:
    how, lines, seconds, then = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    words = {"lines": lines, "seconds": seconds, "then": then}
    if how == "call":
        jobs = [hpckit.call(work, 21, **words, gpus=0, name="call", time=10)]
    else:
        jobs = hpckit.map(work, range(4), **words, gpus=0, name="map", time=10).calls
    say([{"job_id": job.job_id, "run_id": job.run_id, "run_dir": str(job.dir)} for job in jobs])
    found: list[object] = []
    for job in jobs:
        try:
            found.append(job.result())
        except (ValueError, hpckit.HpckitError) as error:
            found.append(type(error).__name__)
    say(found)


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
