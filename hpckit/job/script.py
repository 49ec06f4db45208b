"""From a plan to the text of its job script: the template's context, and what may stand in it."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpckit.collections import Collection, Found, content_hash
from hpckit.environ import own_python
from hpckit.errors import TemplateError
from hpckit.frozen import frozen
from hpckit.job import Job
from hpckit.launchers import LAUNCHERS, UNWARNED
from hpckit.option_words import read_sbatch
from hpckit.quoting import ShellCode
from hpckit.render import Rendered, render
from hpckit.spec import OPTIONS
from hpckit.text import counted, in_line, simulated
from hpckit.version import __version__

# How long before its time limit a job that may start again is warned, in seconds: a quarter of the
# limit, which leaves short jobs their time. Slurm looks only every 30 s, and rather warns sooner.
_LONGEST_DELAY_S = 90

_OF_SBATCH = {name: row for name, row in OPTIONS.items() if row.sbatch}
# Every variable a template may use, for `hpckit templates vars`. A test keeps it complete.
VARIABLES = {
    "header": "list of Slurm options, each with .name and .value (none: a bare flag)",
    "env": "mapping of variables the site exports",
    "setup": "the site's own shell lines, printed as they are",
    "modules": ".template .system, lists .use and .load",
    "environment": ".template .name .kind .path .conda_init .argv (the step with a container)",
    "python": "argv that starts the environment's python",
    "rendezvous": "argv that prints MASTER_ADDR and MASTER_PORT",
    "command": "the command line of one rank, for a comment",
    "executor": "slurm or local",
    "launcher": ", ".join(LAUNCHERS),
    "strategy": "serial, dp, ddp, mirrored or mpi",
    "exec": "true when the launched process takes the script's place (mpirun, --chain, --retry)",
    "launch": "argv that starts hpckit's supervisors; end the script with it",
    "warned": "steps or script: what gets Slurm's warning, SIGUSR2; none: there is no warning",
    "run": ".id .dir .name (.dir without the array task)",
    "notify": ".argv .wait_s of what tells the user of this job, or none",
    "code_dir": "the kept copy of the program's project, or none",
    "site": ".name .description .contact .url",
    "nodes": "number of nodes",
    "tasks_per_node": "ranks per node",
    "ranks": "ranks in all",
    "gpus_per_node": "GPUs per node",
    "gpu_type": "GPU type, or none",
    "cpus_per_task": "CPUs per rank, or none",
    "mem_gb": "memory per node in GiB (Slurm's G), or none",
    "time_min": "time limit in minutes",
    "array_size": "number of array tasks, or none",
    "options": "every option that becomes one of sbatch, by its name in Python: .partition .time",
}


@frozen(kw_only=True)
class ArrayPart:
    """One of several arrays for one submission: `count` tasks from `first` on.

    All but the last have `size` tasks, a power of ten: so a task's number, in the name of its
    folder, is the part's number and then the array's own index, and Slurm can write its log there.
    """

    first: int
    count: int
    size: int

    @property
    def log(self) -> str:
        """What follows `_` in the name of a task's folder, as a pattern: sbatch(1)."""
        digits = len(str(self.size)) - 1
        return f"{self.first // self.size}%{digits}a" if self.first else "%a"


@frozen(kw_only=True)
class RunPlace:
    """Where a submission lives: its id and folder (the array's own, when there is one).

    `part` is one array of several, where a scheduler takes the tasks in such; `link` is the number
    of one job of a chain. `keeps_code`: the run gets a copy of the code, in its folder's `code`;
    `project` is what that is a copy of.
    """

    run_id: str
    dir: Path
    cwd: str
    after: tuple[str, ...] = ()
    part: ArrayPart | None = None
    link: int = 0
    keeps_code: bool = False
    project: Path | None = None

    @property
    def first(self) -> int:
        """The number of the first task; of a chain's job, its own."""
        return self.part.first if self.part else self.link


def make_script(
    job: Job, place: RunPlace, collections: tuple[Collection, ...], *, trace: bool = False
) -> Rendered:
    """Render the job script of a plan; `trace` asks for the origin of each line.

    Raises:
        TemplateError: the template is missing or wrong.
    """
    rendered = render(job.template, make_context(job, place), collections, trace=trace)
    shebang, _, body = rendered.text.partition("\n")
    if not shebang.startswith("#!"):
        raise TemplateError(
            f"Template {rendered.templates[0].path} gives a script whose first line is "
            f"{shebang!r}; Slurm wants it to start with #!, as in #!/bin/bash."
        )
    used = [*_site_and_workload(job), *(("template", t) for t in rendered.templates)]
    lines = [f"# {line}\n" for line in _provenance(job, place, used)]
    origins = (*rendered.origins[:1], *(None for _ in lines), *rendered.origins[1:])
    text = f"{shebang}\n{''.join(lines)}{body.rstrip()}\n"
    return replace(rendered, text=text, origins=origins if trace else ())


def make_context(job: Job, place: RunPlace) -> dict[str, Any]:
    """Return what a template may use."""
    environment = job.environment
    return {
        "header": job.scheduler.header(job, place),
        "env": dict(job.site.env),
        "setup": [ShellCode(line) for line in job.site.setup],
        "modules": {
            "template": f"modules/{_module_system(job)}.sh.j2",
            "system": _module_system(job),
            "use": list(environment.use),
            "load": list(environment.load),
        },
        "environment": {
            "template": f"environments/{environment.kind}.sh.j2",
            "name": environment.name,
            "kind": str(environment.kind),
            "path": environment.path,
            "conda_init": environment.conda_init,
            "argv": _container_argv(job, place),
        },
        "python": list(environment.command(own_python()[0])),
        "rendezvous": _rendezvous(job, place),
        "command": one_line(job.command),
        "executor": job.scheduler.environment,
        "launcher": job.launcher.name,
        "strategy": job.strategy.name,
        "exec": _takes_over(job),
        "launch": list(launch_argv(job, place)),
        "warned": _warned(job),
        "notify": _notify(job, place),
        "run": {"id": place.run_id, "dir": str(place.dir), "name": job.name},
        "code_dir": str(place.dir / "code") if place.keeps_code else None,
        "site": {key: getattr(job.site, key) for key in ("name", "description", "contact", "url")},
        "nodes": job.nodes,
        "tasks_per_node": job.tasks_per_node,
        "ranks": job.ranks,
        "gpus_per_node": job.gpus_per_node,
        "gpu_type": job.gpu_type,
        "cpus_per_task": job.cpus_per_task,
        "mem_gb": job.mem_gb,
        "time_min": job.time_min,
        "array_size": len(job.tasks) if job.is_array else None,
        "options": {row.word: _written(job, place, name) for name, row in _OF_SBATCH.items()},
    }


# From so many ranks on, supervisors find hpckit's modules in one file: `hpckit.payload.bundle`. It
# takes the job script some tenths of a second.
_MANY_RANKS = 32


def _rendezvous(job: Job, place: RunPlace) -> list[str]:
    """Return what finds host and port, and for many ranks writes hpckit's modules into one file."""
    argv = [*own_python(), "-m", "hpckit.payload.rendezvous"]
    many = job.ranks >= _MANY_RANKS and not job.scheduler.one_machine
    return [*argv, str(submitit_folder(place.dir, place.first))] if many else argv


def _container_argv(job: Job, place: RunPlace) -> list[str]:
    """Return the argv of the step that has the job's container; nothing: it has none of its own."""
    if not job.environment.entered:
        return []
    from hpckit.job.container import container_argv  # noqa: PLC0415  # few jobs have one

    return list(container_argv(job, place))


def _module_system(job: Job) -> str:
    """Return the site's module system; its template runs only where modules are wanted."""
    wanted = job.environment.load or job.environment.use
    return job.site.modules if wanted else "none"


def _takes_over(job: Job) -> bool:
    """Say whether what is launched takes the place of the job script's own process."""
    return (job.launcher.in_batch_script and not job.scheduler.one_machine) or bool(
        job.chain or job.retry
    )


def _warned(job: Job) -> str | None:
    """Return what Slurm's warning goes to: where the supervisors are."""
    if job.scheduler.one_machine or not (job.max_requeues or job.chain):
        return None
    return "script" if job.launcher.in_batch_script else "steps"


def _notify(job: Job, place: RunPlace) -> dict[str, Any] | None:
    """Return what starts the process that tells of the job; no secret is in its argv."""
    if job.notify is None or not job.notify.told_in_job:
        return None
    from hpckit.sinks import SCRIPT_PATIENCE_S  # noqa: PLC0415  # few jobs tell anybody

    words = [
        f"--name={job.name}",
        f"--nodes={1 if job.scheduler.one_machine else job.nodes}",
        f"--limit-min={job.time_min}",
        f"--max-requeues={job.max_requeues or job.chain}",
    ]
    if job.is_array:
        words += [f"--first={place.first}", f"--tasks={len(job.tasks)}"]
    if job.notify.of_site:
        events = ",".join(job.notify.told_in_job[0].events)
        words += [f"--site-mail={events}", f"--idle-s={job.notify.idle_s:g}"]
        words.append(f"--idle-gpus={job.notify.idle_gpus}")
    argv = [*own_python(), "-m", "hpckit.notify.in_job", str(place.dir), *words]
    return {"argv": argv, "wait_s": SCRIPT_PATIENCE_S}


def launch_argv(job: Job, place: RunPlace) -> tuple[str, ...]:
    """Return the argv that starts the supervisors, under what decides what follows."""
    launch = _launch_argv(job, place)
    if not (job.chain or job.retry):
        return launch
    kind = "chain" if job.chain else "retry"
    ahead = (*own_python(), "-m", "hpckit.submission.follow_up", kind)
    needs = (f"--checkpoint={job.checkpoint}",) if job.chain and job.checkpoint else ()
    return (*ahead, str(place.dir), str(place.first), *needs, "--", *launch)


def _launch_argv(job: Job, place: RunPlace) -> tuple[str, ...]:
    folder = str(submitit_folder(place.dir, place.first))
    in_job = (*own_python(), "-m", "hpckit.submission.in_job", folder)
    if not job.scheduler.one_machine:
        ahead = UNWARNED if _warned(job) == "steps" else ()
        return (*job.launcher.slurm_argv(job), *ahead, *in_job)
    nodes, tasks = job.launcher.supervisors(job)
    return (*own_python(), "-m", "hpckit.payload.spawn", str(nodes), str(tasks), "--", *in_job)


def submitit_folder(run_dir: Path, first: int = 0) -> Path:
    """Return where submitit keeps its pickles; mode 700. Each array or job of several has one."""
    return run_dir / "submitit" / str(first) if first else run_dir / "submitit"


def header(job: Job, place: RunPlace) -> list[dict[str, str | None]]:
    """Return the `#SBATCH` options, in the order people read them."""
    gpus = "gres" if job.site.gpu_request == "gres" else "gpus-per-node"
    options: dict[str, object] = {
        gpus if name == "gpus" else str(row.sbatch): _written(job, place, name)
        for name, row in _OF_SBATCH.items()
    }
    options |= {
        # Where it was submitted from, so that the script does the same again from anywhere.
        "chdir": place.cwd,
        "output": _log_pattern(job, place),
        "open-mode": "append",
        "signal": _signal(job),
        "requeue" if job.max_requeues else "no-requeue": True,
    }
    for key, value in map(read_sbatch, job.sbatch):
        # The site's GPUs are there, and sbatch takes the last of two.
        options[key] = f"{options[key]},{value}" if options.get(key) else value or True
    return [
        {"name": key, "value": None if value is True else str(value)}
        for key, value in options.items()
        if value
    ]


def _written(job: Job, place: RunPlace, name: str) -> str | bool | None:
    """Return an option of sbatch as it is written: a text, true for a bare flag, none without."""
    match name:
        case "gpus":
            return _gpus(job)
        case "array":
            return _array(job, place)
        case "after":
            return ",".join(place.after) or None
    value = job.option(name)
    if value is None or isinstance(value, bool):
        return value or None
    return OPTIONS[name].written(value)


def _gpus(job: Job) -> str | None:
    if not job.gpus_per_node:
        return None
    count = f"{job.gpu_type}:{job.gpus_per_node}" if job.gpu_type else str(job.gpus_per_node)
    # Per node, never per task: --gpus-per-task hides a rank's neighbours from NCCL.
    return f"gpu:{count}" if job.site.gpu_request == "gres" else count


def _array(job: Job, place: RunPlace) -> str | None:
    if not job.is_array:
        return None
    count = place.part.count if place.part else len(job.tasks)
    return f"0-{count - 1}" + (f"%{job.parallel}" if job.parallel else "")


def _signal(job: Job) -> str | None:
    """Return the warning before the time limit."""
    warned = _warned(job)
    if warned is None:
        return None
    shell = "B:" if warned == "script" else ""
    return f"{shell}USR2@{signal_delay_s(job.time_min)}"


def signal_delay_s(time_min: int) -> int:
    """Return how many seconds before its time limit a job is warned."""
    return min(_LONGEST_DELAY_S, time_min * 60 // 4)


def _log_pattern(job: Job, place: RunPlace) -> str:
    """Return the batch script's log; `%` in a folder's name is not a pattern of Slurm's."""
    folder = str(place.dir).replace("%", "%%")
    number = place.part.log if place.part else "%a"
    return f"{folder}_{number}/job.out" if job.is_array else f"{folder}/job.out"


def one_line(command: Sequence[str]) -> ShellCode:
    """Return a command line that stays on one line whatever its arguments hold."""
    return ShellCode(in_line(shlex.join(command)))


def _site_and_workload(job: Job) -> Iterator[tuple[str, Found]]:
    if job.site.found:
        yield "site", job.site.found
    if job.workload and job.workload.found:
        yield "workload", job.workload.found


def _provenance(job: Job, place: RunPlace, used: Sequence[tuple[str, Found]]) -> list[str]:
    """Return the comment at a script's top: what it is, and every file of a collection in it."""
    what = f"workload {job.workload.name}" if job.workload else job.program.what
    lines = [
        f"hpckit {__version__}: {what}, strategy {job.strategy.name}, run {place.run_id}",
        f"{counted(job.nodes, 'node')} x {counted(job.tasks_per_node, 'rank')}, "
        f"{counted(job.total_gpus, 'GPU')} in all{simulated(job.total_gpus, job.device)}, "
        f"site {job.site.name}, launcher {job.launcher.name}",
    ]
    for kind, found in used:
        # All of a workload's folder counts: its script may import what lies beside it.
        path = found.path.parent if kind == "workload" else found.path
        name = {"workload": path.name, "site": path.stem}.get(kind, found.name)
        lines.append(f"{kind} {name} of {found.collection.at()}, {content_hash(path)}, {path}")
    return [in_line(line) for line in lines]
