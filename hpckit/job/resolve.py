"""From what was asked to a `Job`: all arithmetic of a submission."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hpckit.documents import Scalar
from hpckit.environments import Environment
from hpckit.errors import RequestError
from hpckit.job import Job, appended
from hpckit.job.checks import check_job, refuse_contradictions
from hpckit.job.program import KeptFiles, Program, find_module, find_program, read_program
from hpckit.job_spec.sbatch_words import merge_sbatch
from hpckit.job_spec.spec import OPTIONS, JobSpec
from hpckit.launchers import default_launcher, named_launcher
from hpckit.schedulers.base import Machine, Scheduler, usual_scheduler
from hpckit.sites import PartitionLimits, Site
from hpckit.strategies import Strategy, find_strategy
from hpckit.text import counted
from hpckit.workloads import Workload

# Ranks per core: up to so many may be a trial of a script; more are probably a mistake.
_MOST_PER_CORE = 4
# Of others: as programs, or as modules that Python runs.
_LAUNCHERS = frozenset((
    "accelerate", "deepspeed", "horovodrun", "mpiexec", "mpirun", "srun", "torchrun",
    "torch.distributed.launch", "torch.distributed.run",
))  # fmt: skip
# Of Lightning; many programs have such names, and these start ranks by this word alone.
_LIGHTNING, _RUN = frozenset(("fabric", "lightning")), "run"


def resolve(
    spec: JobSpec,
    site: Site,
    workload: Workload | None,
    *,
    python: str,
    machine: Machine | None = None,
    scheduler: Scheduler | None = None,
    notes: tuple[str, ...] = (),
    kept: KeptFiles | None = None,
) -> Job:
    """Work out a job. `machine` is this machine where jobs run on it, None on a cluster.

    `notes` are lines for people, on what was found out before. `kept` is a copy of the code that
    the job runs in place of today's files.

    Raises:
        PlanError: the request does not fit the site. RequestError: a value is wrong.
    """
    rows: tuple[PartitionLimits, ...] = ()
    limits: PartitionLimits | None = None
    if machine is None and site.partitions:
        from hpckit.job import partitions  # noqa: PLC0415  # many sites have none

        rows = partitions.asked(spec, site)
        limits = partitions.widest(rows)
    # Of several, Slurm takes the first that starts: nobody knows what its nodes will have.
    partition = rows[0] if len(rows) == 1 else None
    own = scheduler or usual_scheduler(one_machine=machine is not None)
    job = _worked_out(spec, site, workload, partition, own, machine, python, kept)
    refuse_contradictions(job, spec)
    told = (*job.program.notes, *_of_launchers(job.program, spec.args, job.tasks_per_node))
    job = replace(job, notes=(*notes, *job.notes, *told))
    if not (spec.launcher or (workload and workload.launcher)):
        job = replace(job, launcher=default_launcher(job))
    check_job(job, spec, limits)
    return job


def _worked_out(
    spec: JobSpec,
    site: Site,
    workload: Workload | None,
    partition: PartitionLimits | None,
    scheduler: Scheduler,
    machine: Machine | None,
    python: str,
    kept: KeptFiles | None,
) -> Job:
    """Return the job before it is checked, with the first launcher if none was asked for."""
    strategy = find_strategy(workload.strategy if workload else spec.target)
    nodes = spec.nodes or 1
    gpus = _gpus_per_node(spec, workload, strategy, machine)
    tasks_per_node = (gpus or spec.tasks_per_node or 1) if strategy.rank_per_gpu else 1
    environment = site.find_environment(spec.env or (workload.environment if workload else None))
    program = _read_program(spec, workload, environment, python, kept)
    settings = workload.parse_settings(spec.settings) if workload else {}
    tasks, headers = _array(spec, workload)
    device, notes = _device(machine, nodes, gpus, strategy)
    return Job(
        name=spec.name or (workload.name if workload else program.name),
        scheduler=scheduler,
        site=site,
        strategy=strategy,
        launcher=named_launcher(spec.launcher or (workload.launcher if workload else None)),
        workload=workload,
        environment=environment,
        program=program,
        command=program.command(environment, python) + _arguments(spec, workload, settings, tasks),
        own_args=len(spec.args),
        tasks=tuple(_task_arguments(values, workload, spec.args) for values in tasks),
        task_settings=tasks,
        settings=settings,
        is_array=bool(spec.array),
        parallel=spec.parallel,
        nodes=nodes,
        gpus_per_node=gpus,
        gpu_type=(spec.gpu_type or site.gpu_type) if gpus else None,
        tasks_per_node=tasks_per_node,
        cpus_per_task=_cpus_per_task(spec, site, workload, partition, gpus, tasks_per_node),
        mem_gb=spec.mem_gb or (workload.mem_gb if workload else None),
        time_min=spec.time_min or (workload and workload.time_min) or _usual_min(site, partition),
        options={name: _option(name, spec, site) for name in _PLAIN},
        sbatch=_sbatch(spec, site, workload),
        template=spec.template,
        max_requeues=spec.max_requeues,
        chain=spec.chain,
        retry=spec.retry,
        checkpoint=_checkpoint(spec),
        sample_interval_s=spec.sample_interval_s,
        handles_stop_signal=bool(workload and workload.handles_stop_signal),
        device=device,
        notes=(
            *notes,
            *_crowded(machine, nodes * tasks_per_node),
            *_unused_gpus(site, partition, gpus),
            *headers,
        ),
    )


def _checkpoint(spec: JobSpec) -> str | None:
    """Return the pattern of the script's checkpoints.

    Raises:
        RequestError: the job never restarts, so nothing would look for checkpoints.
    """
    if spec.checkpoint is not None and not (spec.max_requeues or spec.chain):
        raise RequestError(
            f"--checkpoint {spec.checkpoint!r} says what a restart needs. Give --max-requeues N or "
            "--chain N, too."
        )
    return spec.checkpoint


# Options that need no arithmetic: what was asked for, else the site's default.
_PLAIN = tuple(name for name, row in OPTIONS.items() if row.sbatch and not row.worked_out)


def _option(name: str, spec: JobSpec, site: Site) -> Any:  # noqa: ANN401
    asked = getattr(spec, name)
    return site.defaults.get(name) if asked in (None, (), False) else asked


def _sbatch(spec: JobSpec, site: Site, workload: Workload | None) -> tuple[str, ...]:
    asked = workload.sbatch if workload else ()
    return merge_sbatch(site.defaults.get("sbatch", ()), asked, spec.sbatch)


def _gpus_per_node(
    spec: JobSpec, workload: Workload | None, strategy: Strategy, machine: Machine | None
) -> int:
    if spec.gpus is not None:
        return spec.gpus
    if spec.tasks_per_node and strategy.rank_per_gpu:
        return 0  # ranks were counted by hand: a CPU job
    if workload:
        return workload.gpus
    # The default: one, unless this machine has none.
    return 0 if strategy.mpi or (machine is not None and not machine.gpus) else 1


def _read_program(
    spec: JobSpec,
    workload: Workload | None,
    environment: Environment,
    python: str,
    kept: KeptFiles | None,
) -> Program:
    """Return what the ranks run, and whether Python can read it, if that is what starts it."""
    program = _program(spec, workload, environment, kept)
    if _is_ours(workload) or not program.is_python(spec.args):
        return program
    from hpckit.job.syntax import with_syntax  # noqa: PLC0415  # only of users' own scripts

    return with_syntax(program, spec.args, environment, python, kept)


def _program(
    spec: JobSpec, workload: Workload | None, environment: Environment, kept: KeptFiles | None
) -> Program:
    if workload and workload.script:
        return read_program(workload.script, kept)
    if workload:
        return find_program(workload.program or "", environment, kept)
    if spec.module is not None:
        return find_module(spec.module, kept)
    return find_program(spec.program or "", environment, kept)


def _is_ours(workload: Workload | None) -> bool:
    """Say whether a workload is one of hpckit's own, whose script every Python here can read."""
    found = workload.found if workload else None
    return found is not None and found.collection.origin == "built-in"


def _arguments(
    spec: JobSpec,
    workload: Workload | None,
    settings: dict[str, Scalar],
    tasks: tuple[dict[str, Scalar], ...],
) -> tuple[str, ...]:
    """Return the arguments of all tasks: what each task of an array is given follows them."""
    if workload is None:
        if spec.settings:
            raise RequestError(
                f"--set {spec.settings[0]} is for workloads; "
                "give your own program its arguments after `--`."
            )
        return spec.args
    twice = next((name for name in settings if name in tasks[0]), None)
    if twice:
        raise RequestError(
            f"{twice} is in --set and in --array. Give each task its value by --array alone."
        )
    values = {name: row.default for name, row in workload.parameters.items()} | settings
    # Not every program takes the last of two.
    values = {name: value for name, value in values.items() if name not in tasks[0]}
    return (*workload.arguments(values), *spec.args)


def _array(
    spec: JobSpec, workload: Workload | None
) -> tuple[tuple[dict[str, Scalar], ...], tuple[str, ...]]:
    """Return the values of each task, and lines about them for people."""
    if not (spec.array or spec.parallel or spec.zip):
        return ({},), ()
    from hpckit.job import arrays  # noqa: PLC0415  # most jobs are none

    settings = arrays.array_settings(spec, workload)
    return settings, (*arrays.headers(settings), *arrays.ranges(settings))


def _task_arguments(
    values: dict[str, Scalar], workload: Workload | None, own: tuple[str, ...]
) -> tuple[str, ...]:
    # argparse and most others take the last of two, so a task's value follows the common arguments.
    if workload:
        return workload.arguments(values)
    return appended(values, own)


def _usual_min(site: Site, partition: PartitionLimits | None) -> int:
    """Return the time limit where nobody asked for one: the site's, within its partition's."""
    most = partition.max_time_min if partition else None
    return site.time_min if most is None else min(site.time_min, most)


def _cpus_per_task(
    spec: JobSpec,
    site: Site,
    workload: Workload | None,
    partition: PartitionLimits | None,
    gpus: int,
    tasks_per_node: int,
) -> int | None:
    if spec.cpus_per_task:
        return spec.cpus_per_task
    if workload and workload.cpus_per_task:
        return workload.cpus_per_task
    if not gpus:
        return None
    per_gpu = site.cpus_per_gpu
    if per_gpu is None and partition and partition.cpus_per_node and partition.gpus_per_node:
        per_gpu = partition.cpus_per_node // partition.gpus_per_node
    return per_gpu * gpus // tasks_per_node if per_gpu else None


def _crowded(machine: Machine | None, ranks: int) -> tuple[str, ...]:
    """Warn of far more processes than cores: this machine may run out of memory."""
    if machine is None or ranks <= _MOST_PER_CORE * machine.cpus:
        return ()
    return (
        f"this run starts {ranks} processes on this machine, which has "
        f"{counted(machine.cpus, 'core')}. "
        "They will be slow, and each needs its own memory. Try fewer --nodes or --gpus here.",
    )


def _unused_gpus(site: Site, partition: PartitionLimits | None, gpus: int) -> tuple[str, ...]:
    """Say that the job is charged for whole nodes, if it asks for fewer GPUs than they have."""
    if partition is None or not partition.whole_nodes:
        return ()
    all_gpus = site.gpus_per_node if partition.gpus_per_node is None else partition.gpus_per_node
    if all_gpus is None or not gpus < all_gpus:
        return ()
    return (
        f"partition {partition.name!r} of site {site.name!r} gives whole nodes: this job has, and "
        f"is charged for, all {all_gpus} GPUs of each node, and asks for {gpus}.",
    )


def _of_launchers(program: Program, args: Sequence[str], tasks_per_node: int) -> Iterator[str]:
    """Say that a launcher of others would run once for each rank, and start ranks each time."""
    module = args[1] if args[:1] == ("-m",) and len(args) > 1 else ""
    names = {program.word.rpartition("/")[2], module}
    first = args[2:3] if module else args[:1]
    found = names & (_LAUNCHERS | _LIGHTNING if _RUN in first else _LAUNCHERS)
    if found and tasks_per_node > 1:
        yield (
            f"{found.pop()} starts ranks itself, and would run {tasks_per_node} times on each "
            "node: submit the script that it starts, or give it one task on each node "
            "(docs/programs.md)"
        )


def _device(
    machine: Machine | None, nodes: int, gpus: int, strategy: Strategy
) -> tuple[str | None, tuple[str, ...]]:
    if gpus == 0:
        return "cpu", ()
    if machine is None:
        return None, ()
    if len(machine.gpus) >= nodes * gpus:
        return "cuda", ()
    has = counted(len(machine.gpus), "GPU") if machine.gpus else "no GPU"
    runs = "its ranks run on the CPU" if strategy.rank_per_gpu else "it runs on the CPU"
    means = " (gloo)" if strategy.rank_per_gpu and not strategy.mpi else ""
    return "cpu", (f"this machine has {has}, the run asks for {nodes} x {gpus}: {runs}{means}",)
