"""A job, fully worked out: the value that its script, its record and its run are made from.

`resolve` makes it from what was asked, the site and the workload; all arithmetic is there, but for
`arrays` (what tasks are given) and `partitions` (what the site says of them). `checks` refuses what
cannot work (each check can be switched off). `script` makes the job script, `header` its #SBATCH
lines, for a run at a `place`. `program` is what ranks run, by what `first_bytes` say of a file,
`syntax` whether Python can read it, `container` the step with Pyxis's container.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpckit.documents import Scalar
from hpckit.environments import Environment
from hpckit.frozen import frozen
from hpckit.job.program import Program
from hpckit.launchers import Launcher
from hpckit.schedulers.base import Scheduler
from hpckit.sites import Site
from hpckit.strategies import Strategy
from hpckit.workloads import Workload

if TYPE_CHECKING:
    from hpckit.sinks import Notify


@frozen(kw_only=True)
class Job:
    """One job, or one array of jobs, fully worked out.

    Attributes:
        command: argv that runs the program by hand, with its arguments.
        options: values that need no arithmetic, by field of `JobSpec`: as asked, else the site's.
        sbatch: other options of sbatch, `KEY` or `KEY=VALUE`.
        own_args: how many words at the end of `command` are the user's own arguments.
        tasks: what follows `command` in each array task; without an array, one empty tuple.
        chain: how many jobs follow this one, each after the end of the one before.
        retry: the rules by which the job submits itself again after it has failed.
        device: cuda or cpu; None leaves it to the node (a GPU job on Slurm).
        notify: who is told of it, without secrets.
    """

    name: str
    scheduler: Scheduler
    site: Site
    strategy: Strategy
    launcher: Launcher
    workload: Workload | None
    environment: Environment
    program: Program
    command: tuple[str, ...]
    own_args: int
    tasks: tuple[tuple[str, ...], ...]
    task_settings: tuple[dict[str, Scalar], ...]
    settings: dict[str, Scalar]
    is_array: bool
    parallel: int | None
    nodes: int
    gpus_per_node: int
    gpu_type: str | None
    tasks_per_node: int
    cpus_per_task: int | None
    mem_gb: int | None
    time_min: int
    options: Mapping[str, Any]
    sbatch: tuple[str, ...]
    template: str
    max_requeues: int
    chain: int
    retry: tuple[str, ...]
    sample_interval_s: float
    handles_stop_signal: bool
    checkpoint: str | None
    device: str | None
    notes: tuple[str, ...] = ()
    notify: "Notify | None" = None

    def option(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of a field of `JobSpec`, as it was worked out."""
        return self.options[name] if name in self.options else getattr(self, name)

    def task_command(self, index: int) -> tuple[str, ...]:
        """Return a task's argv, with its values at the end, or wherever `{NAME}` stands."""
        split = len(self.command) - self.own_args
        own = filled(self.command[split:], self.task_settings[index])
        return (*self.command[:split], *own, *self.tasks[index])

    @property
    def executor(self) -> str:
        """The scheduler's name, as records have it."""
        return self.scheduler.name

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.nodes * self.tasks_per_node

    @property
    def total_gpus(self) -> int:
        """GPUs in all nodes together."""
        return self.nodes * self.gpus_per_node


def appended(values: Mapping[str, Scalar], args: Sequence[str]) -> tuple[str, ...]:
    """Return `--NAME VALUE` for each value whose `{NAME}` stands nowhere in the arguments."""
    rest = (key for key in values if not any(f"{{{key}}}" in arg for arg in args))
    return tuple(word for key in rest for word in (f"--{key}", str(values[key])))


def filled(args: Iterable[str], values: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return arguments with each `{NAME}` replaced by its value; other braces stay."""
    names = "|".join(re.escape(name) for name in values)
    if not names:
        return tuple(args)
    # All at once, so that a value which looks like `{NAME}` is not replaced in turn.
    return tuple(re.sub(rf"{{({names})}}", lambda hit: str(values[hit[1]]), arg) for arg in args)
