"""From a `Job` to the text of its job script: the variables of the template, and its rendering."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hpckit.collections import Collection, Found, content_hash
from hpckit.environ import own_python
from hpckit.errors import TemplateError
from hpckit.job import Job
from hpckit.job.header import OF_SBATCH, warned_part, written
from hpckit.job.place import RunPlace, submitit_folder
from hpckit.launchers import LAUNCHERS, UNSIGNALLED
from hpckit.render import Rendered, render
from hpckit.render.quoting import ShellCode
from hpckit.text import counted, in_line, simulated
from hpckit.version import __version__

# Every variable a template may use, for `hpckit templates vars`. A test keeps it complete.
VARIABLES = {
    "header": "list of Slurm options, each with .name and .value (none: a bare flag)",
    "env": "mapping of variables the site exports",
    "setup": "the site's own shell lines, printed as they are",
    "modules": ".template .system, lists .use and .load",
    "environment": ".template .name .kind .path .conda_init .argv (the step with a container)",
    "python": "argv that starts the environment's python",
    "rendezvous": "argv that prints MASTER_ADDR and MASTER_PORT",
    "command": "the command line of one rank, for a comment; of an array, without its values",
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


def make_script(
    job: Job, place: RunPlace, collections: tuple[Collection, ...], *, trace: bool = False
) -> Rendered:
    """Render the script of a job; `trace` asks for the origin of each line.

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
        "warned": warned_part(job),
        "notify": _notify(job, place),
        "run": {"id": place.run_id, "dir": str(place.dir), "name": job.name},
        "code_dir": str(place.dir / place.copy) if place.copy else None,
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
        "options": {row.word: written(job, place, name) for name, row in OF_SBATCH.items()},
    }


# With so many ranks, supervisors read hpckit's modules from one file (`hpckit.payload.bundle`),
# which takes the job script some tenths of a second to write.
_MANY_RANKS = 32


def _rendezvous(job: Job, place: RunPlace) -> list[str]:
    """Return the argv that chooses host and port, and for many ranks writes that file."""
    argv = [*own_python(), "-m", "hpckit.payload.rendezvous"]
    many = job.ranks >= _MANY_RANKS and not job.scheduler.one_machine
    return [*argv, str(submitit_folder(place.dir, place.first))] if many else argv


def _container_argv(job: Job, place: RunPlace) -> list[str]:
    """Return the argv of the step with the job's container; empty if there is no such step."""
    if not job.environment.entered:
        return []
    from hpckit.job.container import container_argv  # noqa: PLC0415  # few jobs have one

    return list(container_argv(job, place))


def _module_system(job: Job) -> str:
    """Return the site's module system, or `none` where the environment needs no modules."""
    wanted = job.environment.load or job.environment.use
    return job.site.modules if wanted else "none"


def _takes_over(job: Job) -> bool:
    """Say whether what is launched takes the place of the job script's own process."""
    return (job.launcher.in_batch_script and not job.scheduler.one_machine) or bool(
        job.chain or job.retry
    )


def _notify(job: Job, place: RunPlace) -> dict[str, Any] | None:
    """Return the argv of the process that notifies people of the job; it holds no secret."""
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
    """Return the argv that starts the supervisors; it begins with what decides on the next job."""
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
        ahead = UNSIGNALLED if warned_part(job) == "steps" else ()
        return (*job.launcher.slurm_argv(job), *ahead, *in_job)
    nodes, tasks = job.launcher.supervisors(job)
    return (*own_python(), "-m", "hpckit.payload.spawn", str(nodes), str(tasks), "--", *in_job)


def one_line(command: Sequence[str]) -> ShellCode:
    """Return a command as one line, whatever its arguments contain."""
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
        # The hash is of a workload's whole folder: its script may import modules beside it.
        path = found.path.parent if kind == "workload" else found.path
        name = {"workload": path.name, "site": path.stem}.get(kind, found.name)
        lines.append(f"{kind} {name} of {found.collection.at()}, {content_hash(path)}, {path}")
    return [in_line(line) for line in lines]
