"""What a job has to do, as it travels into the job: one JSON text."""

import json
from dataclasses import fields
from pathlib import Path

from hpckit.files import parse_json
from hpckit.frozen import frozen
from hpckit.values import rebuild

# A single argument or variable of a Linux process may have 128 KiB (MAX_ARG_STRLEN).
MAX_JSON_BYTES = 120_000
# What torchrun and mpirun hand it on in to the ranks that they start.
TASK_VARIABLE = "HPCKIT_TASK"
# The exit status of a job that was told of its end, and whose work another job goes on with:
# ERESTART, "interrupted system call should be restarted".
GOES_ON = 85
# Of a job on one machine: the process whose descendants are the job.
JOB_ROOT = "HPCKIT_JOB_ROOT"


@frozen(kw_only=True)
class Task:
    """One job's payload.

    Attributes:
        command: argv of one rank.
        python: argv that starts the environment's python, for `-m torch.distributed.run`.
        by_python: `command` begins with `python`, and goes on with a script or `-m` and a module.
        device: cuda or cpu; None lets the node decide.
        mpi: whether the ranks are MPI's.
        replicas: GPUs that one process was to use; on the CPU, it makes as many logical replicas.
        cpus_per_task: as asked for; None: nobody said.
        simulated: whether one machine plays all nodes; None: the scheduler's name says it.
        chain: how many jobs of a chain come after the first.
        ledgers: folders that get a line of each attempt, at its end.
        sources_only: folder of a collection's workloads, whose bytecode is not believed.
        mpirun: argv that starts mpirun, with the site's own arguments.
        code_dir: the kept copy of the program's project. code_map: where which projects lie, and
            the folders over them, and what stands for each in the kept tree. program: which word
            of `command` is the program, and its copy.
        container: the image that Pyxis has started on each node, in which programs run.
        number: of an array's task that is tried again, its number in the array that was asked for
            first; None: that of its run.
        checkpoint: what has to be newer than an attempt's start before the job is requeued.
    """

    run_dir: str
    run_id: str
    executor: str
    launcher: str
    nodes: int
    tasks_per_node: int
    command: tuple[str, ...]
    python: tuple[str, ...]
    device: str | None
    mpi: bool = False
    mpirun: tuple[str, ...] = ("mpirun",)
    max_requeues: int = 0
    chain: int = 0
    handles_stop_signal: bool = False
    sample_interval_s: float = 10.0
    signal_delay_s: int = 90
    replicas: int = 1
    sources_only: str | None = None
    cpus_per_task: int | None = None
    by_python: bool = True
    simulated: bool | None = None
    ledgers: tuple[str, ...] = ()
    checkpoint: str | None = None
    code_dir: str | None = None
    code_map: tuple[tuple[str, str], ...] = ()
    program: tuple[int, str] | None = None
    container: str | None = None
    number: int | None = None

    @property
    def one_machine(self) -> bool:
        """Whether one machine plays all nodes; tasks of older versions leave it to the name."""
        if self.simulated is None:
            from hpckit.schedulers.base import find_scheduler  # noqa: PLC0415  # no rank of today's

            return find_scheduler(self.executor).one_machine
        return self.simulated

    @property
    def warned(self) -> bool:
        """Whether Slurm warns the job before its end, by SIGUSR2."""
        return bool(self.max_requeues or self.chain)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.run_dir)

    def to_json(self) -> str:
        """Return the JSON text that travels."""
        return json.dumps({row.name: getattr(self, row.name) for row in fields(self)})


def task_from_json(text: str) -> Task:
    """Rebuild a task from its JSON text, which hpckit itself wrote."""
    return rebuild(Task, parse_json(text))


def first_name(number: int) -> str:
    """Return what the pickle of an array's task, or of a job (0), is called before it has an id."""
    return f"{number}.pkl"


def pickle_name(job_id: str) -> str:
    """Return what submitit calls the pickle of a job."""
    return f"{job_id}_submitted.pkl"
