"""What a sampler is told, by its command line and by Slurm, and when it looks."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# (seconds since the start, longest period then): a job of a minute has data, too.
_FINER = ((60.0, 1.0), (300.0, 5.0))
_SLOW_S = 60.0
# What Slurm says of a job, by the name it has in our header.
_IDS = {
    "job_id": "SLURM_JOB_ID",
    "array_job_id": "SLURM_ARRAY_JOB_ID",
    "array_task_id": "SLURM_ARRAY_TASK_ID",
    "het_job_id": "SLURM_HET_JOB_ID",
    "het_offset": "SLURM_HET_JOB_OFFSET",
    "step_id": "SLURM_STEP_ID",
    "node_id": "SLURM_NODEID",
    "cluster": "SLURM_CLUSTER_NAME",
    "run_id": "HPCKIT_RUN_ID",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a sampler is told. `ids` win over what the environment says.

    Attributes:
        root_pid: whose descendants are the job, where there is no cgroup.
        parent_pid: with whose end the sampler ends.
        slow_s: seconds between slow readings.
    """

    folder: Path
    interval_s: float
    root_pid: int
    parent_pid: int
    ids: Mapping[str, str] = field(default_factory=dict)
    slow_s: float = _SLOW_S


def period_s(elapsed_s: float, interval_s: float) -> float:
    """Return the time to the next sample: what was asked for, or less in the first minutes."""
    finer = next((period for until, period in _FINER if elapsed_s < until), interval_s)
    return min(finer, interval_s)


def job_ids(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the ids for the header, the restart among them."""
    said = {name: environ[variable] for name, variable in _IDS.items() if environ.get(variable)}
    restart = environ.get("SLURM_RESTART_COUNT") or environ.get("HPCKIT_RESTART") or "0"
    return {"restart": restart} | said | dict(given)


def parse(argv: Sequence[str]) -> Options:
    """Read the sampler's own command line, which `hpckit.stats.sampler.start` writes."""
    parser = argparse.ArgumentParser(prog="hpckit.stats.sampler", allow_abbrev=False)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--root-pid", type=int, default=os.getppid())
    parser.add_argument("--parent-pid", type=int, default=os.getppid())
    parser.add_argument("--id", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--slow-interval", type=float, default=_SLOW_S)
    found = parser.parse_args(argv)
    return Options(
        folder=found.dir,
        interval_s=found.interval,
        root_pid=found.root_pid,
        parent_pid=found.parent_pid,
        ids=dict(word.partition("=")[::2] for word in found.id),
        slow_s=found.slow_interval,
    )
