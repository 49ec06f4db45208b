"""What a job asks for and what its runs used, and how a change of either is written. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpckit.stats.summary.figures import JobUse

_GIB = 1 << 30
LABELS = {
    "time_min": "time",
    "mem_gb": "memory per node",
    "cpus_per_task": "cores per rank",
    "gpus": "GPUs per node",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What would be submitted without any change; memory and GPUs are of each node.

    Attributes:
        given: fields that were asked for just now: these stay.
        tied: what ties a field to others, as `--sbatch mem-per-cpu`, by field: it stays, too.
        ranks_by_gpu: whether there is a rank for each GPU; `strategy` is its name.
        partition: whose limits the `most_` are; None is no limit, or not known.
    """

    time_min: int
    nodes: int = 1
    gpus: int = 0
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    strategy: str = "serial"
    ranks_by_gpu: bool = False
    given: frozenset[str] = frozenset()
    tied: tuple[tuple[str, str], ...] = ()
    partition: str | None = None
    most_time_min: int | None = None
    most_mem_gb: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One run that is over, with the same program, arguments and shape; newest first in lists.

    Attributes:
        out_of_memory: whether it ended for want of memory, or lost processes by it.
        cores_peak: the most cores that any of its nodes used in a bin of its timeline.
    """

    job: JobUse
    out_of_memory: bool = False
    cores_peak: float | None = None

    @property
    def completed(self) -> bool:
        """Whether it says what is enough."""
        return self.job.state == "COMPLETED" and not self.out_of_memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    """One resource: what was asked, what is enough, and why. `before` and `after` are texts.

    Attributes:
        field: of `JobSpec`. value: its new value; None: it stays as it is.
    """

    field: str
    before: str
    after: str
    reason: str
    value: int | None = None

    @property
    def line(self) -> str:
        """Both values and the reason, on one line."""
        change = f"{self.before} stays" if self.value is None else f"{self.before} -> {self.after}"
        return f"{LABELS[self.field]}: {change}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Row:
    """One option's value now, and how it is written."""

    field: str
    now: int | None
    written: Callable[[int], str]
    new: bool = False

    def told(self, asked: Asked, runs: Sequence[Evidence]) -> Sizing | None:
        """Return a row for what stays whatever the runs say."""
        if self.field in asked.given:
            return self.stays("as given here")
        if why := dict(asked.tied).get(self.field):
            return self.stays(why)
        return None if runs else self.stays("no finished run of this kind is known")

    def stays(self, why: str) -> Sizing:
        """Return a row that changes nothing."""
        before = self._said(self.now)
        return Sizing(field=self.field, before=before, after=before, reason=why)

    def to(
        self,
        wanted: int,
        why: str,
        most: int | None = None,
        partition: str | None = None,
        *,
        up: bool = False,
    ) -> Sizing:
        """Return a row with another value, no higher than a limit; `up`: never lower than now."""
        value = wanted if most is None else min(wanted, most)
        if value < wanted:
            whose = f"partition {partition}" if partition else "the site"
            why = f"{why}; {whose} gives at most {self.written(value)}"
        if value == self.now or (up and self.now is not None and value < self.now):
            return self.stays(why)
        return Sizing(
            field=self.field,
            before=self._said(self.now),
            after=self.written(value),
            reason=why,
            value=value,
        )

    def _said(self, value: int | None) -> str:
        if value is None:
            return "unknown"
        return self.written(value) + (" (Slurm's default)" if self.new else "")


def clock(seconds: float) -> str:
    """Write a duration as `2:38:12`."""
    whole = math.ceil(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def gib(size: int) -> str:
    """Write a size in GiB or MiB, which are Slurm's G and M."""
    if size < _GIB:
        return f"{math.ceil(size / (1 << 20))} MiB"
    return f"{size / _GIB:.1f} GiB" if size % _GIB else f"{size // _GIB} GiB"
