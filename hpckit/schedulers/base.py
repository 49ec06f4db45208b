"""What a scheduler is: the object that queues and starts jobs, found by its name.

To add one, write a subclass of `Scheduler` in a module or folder of its own, and add a line to
`SCHEDULERS`. A package outside hpckit registers its own (`SCHEDULERS.register`, or an entry point
of the group `hpckit.schedulers`). It must have `submit`, `query` and `cancel`; the rest has
defaults.
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
    from hpckit.job.place import ArrayPart, RunPlace
    from hpckit.run_folders.runs import Run


@frozen(kw_only=True)
class Order:
    """One job, or one array of jobs, as a scheduler gets it.

    Attributes:
        run_id, part: what the job is found by if the scheduler did not answer with its number.
        folder: for submitit's pickles (`hpckit.schedulers.pickles`); mode 700.
        run_dirs, calls: the folder of each task's run, and what the task runs.
        array: whether this is an array, whose tasks have numbers in their ids.
        after: `kind:id` of the jobs it waits for, as the header has them.
        after_dirs: `kind:folder` of the runs it waits for.
        follows: the jobs that must be over before a task may start.
        token: what a job of a chain is found by, in place of the run's id.
        environ, cwd: the environment and the folder to submit from; the folder may differ from
            this process's own.
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
    follows: tuple[str, ...] = ()
    token: str | None = None


def link_name(run_id: str, link: int) -> str:
    """Return what a job of a chain is found by, in place of the id of their common run."""
    return f"{run_id}.{link}"


@changeable(kw_only=True, slots=False)
class Sent:
    """How far a submission to the scheduler has come.

    Attributes:
        begun: sbatch, or hpckit's own controller, was started.
        answered: it is known whether there is a job.
        jobs: their ids; for an array, the array's own.
        given_up: says whether the user has asked to stop, so that nothing is tried again.
    """

    begun: bool = False
    answered: bool = False
    jobs: list[str] = field(default_factory=list)
    given_up: Callable[[], bool] = lambda: False


@frozen(kw_only=True)
class Answers:
    """What a scheduler said of jobs, by their ids, and what kept it from saying more.

    `queue` says whether its queue answered: if so, jobs that it does not list have left it for
    good. `lost`: runs, by their ids, that nothing here can know of, and why. `damaged`: files of
    runs that cannot be read. One job id may belong to two runs, since Slurm reuses numbers.
    """

    records: Mapping[str, JobRecord] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()
    queue: bool = True
    lost: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@frozen(kw_only=True)
class Machine:
    """What local runs have: the GPUs in CUDA_VISIBLE_DEVICES (without it, all), and cores.

    `uuids` are those of the GPUs, in their order: one GPU may go by several names. A GPU whose UUID
    nvidia-smi does not tell has its name there.
    """

    gpus: tuple[str, ...] = ()
    cpus: int = 1
    uuids: tuple[str, ...] = ()


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return the GPUs that are visible here, and the number of cores this process may use."""
    present = _present_gpus()
    gpus = _visible_gpus(present, environ.get("CUDA_VISIBLE_DEVICES"))
    uuids = tuple(_uuid(name, present) for name in gpus)
    return Machine(gpus=gpus, cpus=len(os.sched_getaffinity(0)), uuids=uuids)


def _visible_gpus(present: Mapping[str, str], mask: str | None) -> tuple[str, ...]:
    if mask is None or not present:
        return tuple(present)
    # CUDA reads the mask up to the first entry that is not a device; entries may be UUIDs.
    words = [word.strip() for word in mask.split(",")]
    valid = []
    for word in words:
        if word not in present and not word.startswith(("GPU-", "MIG-")):
            break
        valid.append(word)
    return tuple(valid)


def _uuid(name: str, present: Mapping[str, str]) -> str:
    """Return the UUID of a GPU that CUDA_VISIBLE_DEVICES names, perhaps by the UUID's beginning."""
    named = (uuid for uuid in present.values() if uuid.startswith(name))
    return present.get(name) or min(named, key=len, default=name)


def _present_gpus() -> dict[str, str]:
    """Return the UUIDs of this machine's GPUs by their numbers."""
    if shell.which("nvidia-smi") is None:
        return {}
    answer = shell.run(["nvidia-smi", "-L"], timeout_s=20, check=False)
    if answer.returncode != 0:
        return {}  # a driver without a device, or none loaded: there is no GPU to use
    lines = (line for line in answer.stdout.splitlines() if line.startswith("GPU "))
    return {
        str(number): line.partition("(UUID: ")[2].rstrip(" )") for number, line in enumerate(lines)
    }


class Scheduler:
    """Who queues and starts jobs.

    Attributes:
        name: its name in --executor and run.json.
        says: the subject of "... says COMPLETED" in messages.
        takes_jobs: the subject of "... took the run" in messages.
        job_id: what its ids look like.
        one_machine: its jobs run on one machine, where `hpckit.payload.spawn` stands for srun.
        environment: submitit's word for the environment that a job finds: slurm, or local.
        starts_at_once: jobs start when they are submitted, so people read of them before that.
        names_jobs: a job can be found by its run's id (`job_of`), even if no answer came.
        accounting: sacct knows what its jobs used, and sacctmgr who pays.
        chains: a submission can be several jobs, one after the end of the other (`Order.follows`).
        by_mark: a run is ended by a mark in its folder, which is seen wherever the job runs.
        most_pause_s: the longest pause between two questions, in seconds.
        seldom_s: the same for somebody who has waited for hours.
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
        """Return this machine, if it runs the jobs; None: the site describes the nodes."""
        return this_machine() if self.one_machine else None

    def header(self, job: "Job", place: "RunPlace") -> list[dict[str, str | None]]:
        """Return the options in the first lines of the job script (`#SBATCH`)."""
        del job, place
        return []

    def most_tasks(self) -> int | None:
        """Return how many tasks one array may have; None: any number."""
        return None

    def refuse_folder(self, folder: Path) -> str | None:
        """Say what it does not accept in the name of a run's folder, and why; None: nothing."""
        del folder
        return None

    def submit(self, order: Order, sent: Sent) -> list[str]:
        """Queue a job or an array; return its tasks' ids. `sent` says how far it came.

        Raises:
            SubmissionError: there is no job. UnknownOutcomeError: it is unknown if there is one.
        """
        raise NotImplementedError

    def query(self, runs: Sequence["Run"]) -> Answers:
        """Return what is known of jobs. It never raises: `trouble` has what went wrong."""
        raise NotImplementedError

    def in_full(self, said: Answers) -> Answers:
        """Add to what `query` returned what it left out of jobs that failed; it never raises."""
        return said

    def cancel(self, runs: Sequence["Run"]) -> None:
        """End jobs, or take them out of the queue.

        Raises:
            CommandError: the scheduler does not answer or refuses.
        """
        raise NotImplementedError

    def take_back(self, run_dirs: Sequence[Path], sent: Sent) -> str | None:
        """End what was submitted a moment ago; return why it could not, None if it could."""
        del run_dirs, sent
        return f"{self.name} cannot take a submission back; look for its job and end it."

    def job_of(self, run_id: str, since: float, part: "ArrayPart | None" = None) -> str | None:
        """Return the id of the job that carries a run's id, None if there is none.

        `since` is when it was submitted, in epoch seconds; `part` says which array of several.

        Raises:
            CommandError: the scheduler does not answer.
        """
        raise NotImplementedError

    def job_at(
        self, folder: Path, run_id: str, since: float, part: "ArrayPart | None" = None
    ) -> str | None:
        """Return the same as `job_of`, for a run whose folder (or array's own folder) is known.

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
        """From inside a job: keep the scheduler from starting it again by itself.

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
        """Say that a cancelled job goes on in `state`; None: the cancellation may still come."""
        del job_id, state
        return None

    def by_hand(self, job_id: str) -> str:
        """Say how to end a job without hpckit, in a sentence of its own; "" if there is no way."""
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
        RequestError: this hpckit knows no scheduler of that name.
    """
    return SCHEDULERS.find(name)


def automatic() -> Scheduler:
    """Return what `auto` means here: the first that can be used."""
    return next(row for row in map(find_scheduler, AUTO) if row.why_not() is None)


def usual_scheduler(*, one_machine: bool) -> Scheduler:
    """Return hpckit's own scheduler for jobs on this machine, or on a cluster."""
    return find_scheduler(AUTO[one_machine])
