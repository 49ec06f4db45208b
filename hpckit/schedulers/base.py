"""What a scheduler is: who queues and starts jobs, as one object with few verbs, found by name.

A new one is a subclass of `Scheduler` in a module or folder of its own, and a line in `SCHEDULERS`;
from outside hpckit it is registered (`SCHEDULERS.register`, or an entry point of the group
`hpckit.schedulers`). `submit`, `query` and `cancel` it must have; the rest has defaults.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit import shell
from hpckit.errors import RequestError
from hpckit.frozen import changeable, frozen
from hpckit.registry import Registry
from hpckit.slurm.states import JobRecord

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.job.script import ArrayPart, RunPlace
    from hpckit.runs import Run


@frozen(kw_only=True)
class Order:
    """One job, or one array of jobs, as a scheduler gets it.

    Attributes:
        run_id, part: what the job can be found by where its scheduler did not say its number.
        folder: for submitit's pickles (`hpckit.schedulers.pickles`); mode 700.
        run_dirs, calls: of each task, its run's folder and what it runs.
        array: whether the tasks' ids have numbers; a job without is one task.
        after: `kind:id` of the jobs it waits for, as the header has them.
        after_dirs: `kind:folder` of the runs it waits for.
        follows: the job before whose end no task may start; None: any.
        token: what stands for the run's id where one of a chain's jobs is looked for.
        environ, cwd: the environment and the folder to submit with; the folder need not be this
            process's own.
    """

    run_id: str
    folder: Path
    script: str
    run_dirs: tuple[str, ...]
    calls: tuple[Callable[[], Any], ...]
    array: bool
    job: "Job"
    after_dirs: tuple[str, ...] = ()
    environ: Mapping[str, str]
    cwd: Path
    part: "ArrayPart | None" = None
    after: tuple[str, ...] = ()
    follows: str | None = None
    token: str | None = None


def link_name(run_id: str, link: int) -> str:
    """Return what one of a chain's jobs can be found by, in place of the id of the run of all."""
    return f"{run_id}.{link}"


@changeable(kw_only=True, slots=False)
class Sent:
    """How far a hand-over has come.

    Attributes:
        begun: sbatch, or a controller of ours, was started.
        answered: it is known whether there is a job.
        jobs: their ids; an array's own.
        given_up: says whether the user has asked to stop: then nothing is tried again.
    """

    begun: bool = False
    answered: bool = False
    jobs: list[str] = field(default_factory=list)
    given_up: Callable[[], bool] = lambda: False


@frozen(kw_only=True)
class Answers:
    """What a scheduler said of jobs, by their ids, and what kept it from saying more.

    `queue` says whether its queue answered: then jobs that are not listed have left it for good.
    `lost`: runs, by their ids, of which nothing here can tell, and why; `damaged`: files of runs
    that cannot be read. A job's id may be that of two runs: Slurm counts anew some day.
    """

    records: Mapping[str, JobRecord] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()
    queue: bool = True
    lost: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@frozen(kw_only=True)
class Machine:
    """What the local executor has to work with: GPUs the user's mask leaves visible, and cores."""

    gpus: tuple[str, ...] = ()
    cpus: int = 1


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return the GPUs the user's mask leaves visible here, and the cores this process may use."""
    return Machine(gpus=_visible_gpus(environ), cpus=len(os.sched_getaffinity(0)))


def _visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    present = _present_gpus()
    if mask is None or not present:
        return present
    # CUDA reads the mask up to the first entry that is no device; entries may be UUIDs.
    words = [word.strip() for word in mask.split(",")]
    valid = []
    for word in words:
        if word not in present and not word.startswith(("GPU-", "MIG-")):
            break
        valid.append(word)
    return tuple(valid)


def _present_gpus() -> tuple[str, ...]:
    if shell.which("nvidia-smi") is None:
        return ()
    answer = shell.run(["nvidia-smi", "-L"], timeout_s=20, check=False)
    if answer.returncode != 0:
        return ()  # a driver without a device, or none loaded: there is no GPU to use
    count = sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
    return tuple(str(index) for index in range(count))


class Scheduler:
    """Who queues and starts jobs.

    Attributes:
        name: as --executor and run.json have it.
        says: how sentences call who says what became of a job.
        takes_jobs: how sentences call who takes a job.
        job_id: what its ids look like.
        one_machine: its jobs have one machine, on which `hpckit.payload.spawn` stands for srun.
        environment: submitit's word for what a job finds in its environment: slurm, or local.
        starts_at_once: people read what a job comes to before it is handed over.
        names_jobs: a job can be found by its run's id (`job_of`), also where no answer came.
        accounting: sacct knows what its jobs used, and sacctmgr who pays.
        chains: a submission can be several jobs, one after the end of the other (`Order.follows`).
        by_mark: a run is ended by a mark in its folder, which is seen wherever the job runs.
        most_pause_s: the longest pause between two questions, in seconds.
        seldom_s: the same for who has waited for hours.
    """

    name = ""
    says = "the job script's end"
    takes_jobs = "This machine"
    job_id: re.Pattern[str] = re.compile(r"[\w.-]{1,60}", re.ASCII)
    one_machine = True
    environment = "local"
    starts_at_once = False
    names_jobs = False
    accounting = False
    chains = False
    by_mark = False
    most_pause_s = 10.0
    seldom_s = 60.0

    def why_not(self) -> str | None:
        """Say why it cannot be used here; None: it can."""
        return None

    def where(self, job: "Job") -> str:
        """Say where a job goes, for people."""
        del job
        return f"this machine, by {self.name}"

    def machine(self) -> Machine | None:
        """Return the machine that runs its jobs, if that is this one; else the site says."""
        return this_machine() if self.one_machine else None

    def header(self, job: "Job", place: "RunPlace") -> list[dict[str, str | None]]:
        """Return the options that the job script's first lines have for it."""
        del job, place
        return []

    def most_tasks(self) -> int | None:
        """Return how many tasks one array may have; None: any number."""
        return None

    def refuse_folder(self, folder: Path) -> str | None:
        """Say what in a run folder's name it cannot take, and why; None: nothing."""
        del folder
        return None

    def submit(self, order: Order, sent: Sent) -> list[str]:
        """Queue a job or an array; return its tasks' ids. `sent` says how far it came.

        Raises:
            SubmissionError: there is no job. UnknownOutcomeError: nobody says whether there is.
        """
        raise NotImplementedError

    def query(self, runs: Sequence["Run"]) -> Answers:
        """Return what is known of jobs; what is not, is in `trouble`: it raises nothing."""
        raise NotImplementedError

    def cancel(self, runs: Sequence["Run"]) -> None:
        """End jobs, or take them out of the queue.

        Raises:
            CommandError: the scheduler does not answer or refuses.
        """
        raise NotImplementedError

    def take_back(self, run_dirs: Sequence[Path], sent: Sent) -> str | None:
        """End what was submitted a moment ago; say what stands in the way, None if nothing does."""
        del run_dirs, sent
        return f"{self.name} cannot take a submission back; look for its job and end it."

    def job_of(self, run_id: str, since: float, part: "ArrayPart | None" = None) -> str | None:
        """Return the id of the job that carries a run's id, None if there is none.

        `since` is when it was handed over, in epoch seconds; `part` which array of several it is.

        Raises:
            CommandError: the scheduler does not answer.
        """
        raise NotImplementedError

    def job_at(
        self, folder: Path, run_id: str, since: float, part: "ArrayPart | None" = None
    ) -> str | None:
        """Return the same for a run whose folder, or array's own folder, is at hand.

        Raises:
            CommandError: the scheduler does not answer.
        """
        del folder
        return self.job_of(run_id, since, part)

    def preflight(self, job: "Job", script: str) -> str:
        """Return one line that says whether and when a job would start.

        Raises:
            SubmissionError: it would be refused. RequestError: this scheduler cannot say.
        """
        del script
        raise RequestError(
            f"--check asks Slurm, but this run is for {self.where(job)}: leave --executor "
            f"{self.name} out."
        )

    def explain(self, run: "Run", record: JobRecord) -> str | None:
        """Say in plain words why a job waits, or ended, where the record has a reason."""
        del run
        return record.reason

    def forbid_requeue(self) -> None:
        """From inside a job: let nothing start it again, where the scheduler does so by itself.

        Raises:
            CommandError: the scheduler does not answer or refuses.
        """

    def requeue(self) -> None:
        """From inside a job: put it back into the queue.

        Raises:
            CommandError: the scheduler does not answer or refuses.
        """

    def fate(self) -> str:
        """From inside a job that got SIGTERM: return what becomes of it, a word of `stop_marks`.

        Raises:
            CommandError: the scheduler does not answer or refuses.
        """
        from hpckit.stop_marks import OVER  # no command needs it

        return OVER

    def unheeded(self, job_id: str, state: str) -> str | None:
        """Say of a job that was cancelled that it goes on in `state`; None: that may still come."""
        del job_id, state
        return None

    def by_hand(self, job_id: str) -> str:
        """Say how one ends a job without hpckit, as a sentence after another; "" if nobody may."""
        del job_id
        return ""


SCHEDULERS: Registry[Scheduler] = Registry(
    "scheduler",
    "hpckit.schedulers",
    {
        "slurm": "hpckit.schedulers.slurm:SLURM",
        "local": "hpckit.schedulers.local:LOCAL",
    },
)
# What `auto` means, in this order: the first that can be used.
AUTO = ("slurm", "local")


def find_scheduler(name: str) -> Scheduler:
    """Return a scheduler.

    Raises:
        RequestError: this hpckit knows none of that name.
    """
    return SCHEDULERS.find(name)


def automatic() -> Scheduler:
    """Return what `auto` means here: the first that can be used."""
    return next(row for row in map(find_scheduler, AUTO) if row.why_not() is None)


def usual_scheduler(*, one_machine: bool) -> Scheduler:
    """Return hpckit's own for jobs on one machine, or on a cluster."""
    return find_scheduler(AUTO[one_machine])
