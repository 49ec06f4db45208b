"""What a sampler is told, and when it reads, so that a sample is a mean of all its time.

Utilization is read between two samples, too. A driver that keeps a buffer forgets after some
seconds: it is read before. Where there is none, a reading tells of the last 1/6 to 1 s only. So
there are several a second, each at a random moment of its own slice of time: at equal distances
they could fall in step with the job's own rhythm and see the same of it each time, while the error
of random ones shrinks with their number.
"""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from hpckit.frozen import changeable, frozen

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
    "step_gpus": "SLURM_STEP_GPUS",
    "node_id": "SLURM_NODEID",
    "cluster": "SLURM_CLUSTER_NAME",
    "run_id": "HPCKIT_RUN_ID",
}


@frozen(kw_only=True)
class SamplerOptions:
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


def parse(argv: Sequence[str]) -> SamplerOptions:
    """Read the sampler's own command line, which `hpckit.stats.sampler.start` writes.

    By hand: argparse and what it imports would be a tenth of the sampler's start.

    Raises:
        SystemExit: it is not a line of this version's `start`.
    """
    parent = str(os.getppid())
    given = {"--root-pid": parent, "--parent-pid": parent, "--slow-interval": str(_SLOW_S)}
    ids: dict[str, str] = {}
    try:
        for name, value in zip(argv[::2], argv[1::2], strict=True):
            if name == "--id":
                key, _, text = value.partition("=")
                ids[key] = text
            else:
                given[name] = value
        options = SamplerOptions(
            folder=Path(given.pop("--dir")),
            interval_s=float(given.pop("--interval")),
            root_pid=int(given.pop("--root-pid")),
            parent_pid=int(given.pop("--parent-pid")),
            ids=ids,
            slow_s=float(given.pop("--slow-interval")),
        )
    except (KeyError, ValueError) as error:
        raise SystemExit(f"hpckit.stats.sampler: {' '.join(argv)!r}: {error!r}") from error
    if given:
        raise SystemExit(f"hpckit.stats.sampler has no option {min(given)!r}")
    return options


SPOT_S = 0.25
# Real drivers keep 14 (H200) to some 17 s, and answer in milliseconds: at 10 s it is read once a
# sample. Readings between samples are at random moments of such slices, so two may be twice as far
# apart.
BUFFER_S = 6.9
NEVER_S = float("inf")
_SHORTEST_BUFFER_S = 0.5


def moments(begin_s: float, due_s: float, step_s: float, chance: random.Random) -> Iterator[float]:
    """Yield when to read between two samples: once in each of the equal slices of a step's length.

    The sample itself reads what is newest: nothing is yielded where it follows within a step.
    """
    slices = round((due_s - begin_s) / step_s)
    if slices < 2:
        return
    for number in range(slices):
        yield begin_s + (number + chance.random()) * (due_s - begin_s) / slices


@changeable()
class Utilization:
    """Utilization since the last sample: percents times their weights, and the weights."""

    amount: float = 0.0
    weight: float = 0.0

    def add(self, percent: float, weight: float) -> None:
        """Add a reading."""
        self.amount += percent * weight
        self.weight += weight

    def take(self) -> int | None:
        """Return the mean in permille, and begin anew; None if nothing was read."""
        mean = round(10 * self.amount / self.weight) if self.weight else None
        self.amount = self.weight = 0.0
        return mean


def add_buffer(gathered: Utilization, since_us: int, pairs: list[tuple[int, int]]) -> float | None:
    """Add (time, percent) of a driver's buffer, each over the time since the one before.

    Returns:
        None; or, where the buffer had forgotten its start (a first gap much longer than the next),
        how often to read it from now on, in seconds: two readings may be two slices apart.
    """
    last, forgot = since_us, None
    if len(pairs) > 1:
        gap = pairs[1][0] - pairs[0][0]
        if pairs[0][0] - since_us > 3 * gap:
            last = pairs[0][0] - gap
            forgot = max((pairs[-1][0] - last) / 3e6, _SHORTEST_BUFFER_S)
    for time, percent in pairs:
        gathered.add(percent, time - last)
        last = time
    return forgot
