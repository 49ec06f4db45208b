"""Rows of accounting, and jobs, for the tests of `hpckit report`."""

import calendar
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.group_report.allocations import Allocation
from hpckit.group_report.measured import Measured
from hpckit.group_report.totals import Use
from hpckit.slurm.states import JobState
from tests.conftest import add_program
from tests.js1 import encode

_SACCT = """#!{python}
import json, os, sys
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
json.dump(options | {{"TZ": os.environ.get("TZ")}}, open({log!r}, "w"))
columns = options["--format"].split(",")
for row in json.load(open({rows!r})):
    print(options["--delimiter"].join(row.get(name, "") for name in columns))
"""
NOW = 1_790_010_000
HOUR = 3600


def row(job_id: str, start: float, hours: float, **cells: str) -> dict[str, str]:
    """Return a finished job of two GPUs on one node."""
    usual = {
        "JobID": job_id, "User": "alice", "Account": "lab", "Partition": "gpu",
        "State": "COMPLETED", "Submit": f"{start - 60:.0f}", "Eligible": f"{start - 30:.0f}",
        "Start": f"{start:.0f}", "End": f"{start + hours * HOUR:.0f}",
        "ElapsedRaw": f"{hours * HOUR:.0f}", "Suspended": "00:00:00", "TimelimitRaw": "240",
        "NNodes": "1", "AllocTRES": "cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
        "Cluster": "", "AdminComment": "", "JobName": "train",
    }  # fmt: skip
    return usual | cells


@pytest.fixture
def accounts(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], Any]]:
    """Let sacct print rows; return what tells with which options it was asked."""
    monkeypatch.setattr(time, "time", lambda: float(NOW))

    def keep(*rows: Mapping[str, str]) -> Callable[[], Any]:
        log, written = here.parent / "options.json", here.parent / "rows.json"
        written.write_text(json.dumps(rows))
        text = _SACCT.format(python=sys.executable, log=str(log), rows=str(written))
        add_program(here.parent / "bin" / "sacct", text)
        return lambda: json.loads(log.read_text())

    return keep


def js1(*values: float, hours: float = 1, nodes: int = 1) -> str:
    used = {"gpu_utilization": {str(at): value for at, value in enumerate(values)}}
    rows = {f"n{at}": used if at == 1 else {} for at in range(1, nodes + 1)}
    return encode({"nodes": rows, "total_time": hours * HOUR, "gpus": 2})


def moment(text: str) -> float:
    """Read a moment that sacct was given, in UTC."""
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))


def summary(start: float, used: float, covered: float = 95.0) -> dict[str, Any]:
    attempt = {
        "start": start, "gpu_utilization_percent": used, "gpu_coverage_percent": covered,
        "energy_joules": 7.2e6, "elapsed_s": 7200,
    }  # fmt: skip
    return {"attempts": [attempt], "advice": [{"message": "Ask for one GPU."}]}


def use(begin: float, end: float, percent: float | None = None, **changes: Any) -> Use:
    held = Allocation(
        job_id="1", user="u", account="a", partition="p", name="n", state=JobState.COMPLETED,
        submit=begin, start=begin, end=end, wait_s=5.0, nodes=1, gpus=1, gpu_type=None,
        limit_s=None,
    )  # fmt: skip
    measured = Measured(utilization_percent=percent, energy_joules=3.6e6)
    return Use(row=replace(held, **changes), measured=measured, begin=begin, end=end)


def uncounted(here: Path) -> None:
    """Let the cluster have GPUs that its accounting does not list, as Slurm's default is."""
    config = "GresTypes = gpu\nAccountingStorageTRES = cpu,mem,energy,node,billing"
    add_program(here.parent / "bin" / "scontrol", f"#!/bin/sh\necho '{config}'\n")
