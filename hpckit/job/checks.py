"""What refuses a job that cannot run as asked, with the numbers.

Each check has a name and `--skip-check NAME`; options that contradict one another have none.
"""

from collections.abc import Iterator

from hpckit.documents import nearest
from hpckit.errors import PlanError, RequestError
from hpckit.job import Job
from hpckit.job_spec.spec import JobSpec
from hpckit.sites import PartitionLimits
from hpckit.strategies import STRATEGIES
from hpckit.text import counted, plural
from hpckit.units import format_minutes

CHECKS = (
    "program", "partition", "gpus", "gpu-type", "time", "nodes", "cpus", "mem", "multi-node",
    "launcher", "account", "collections", "shared-runs", "after",
    "notify", "bad-nodes",
)  # fmt: skip
_RENAMED = {"script": "program"}  # since hpckit starts any program


def off_switch(*checks: str) -> str:
    """Return the end of a refusal: how to switch it off."""
    words = " ".join(f"--skip-check {check}" for check in checks)
    return f"({words} submits it anyway.)"


def check_job(job: Job, spec: JobSpec, partition: PartitionLimits | None) -> None:
    """Refuse what cannot run, unless its check is switched off.

    Raises:
        PlanError: the plan breaks a limit. RequestError: --skip-check names no check.
    """
    skipped = {_RENAMED.get(check, check) for check in spec.skip_checks}
    for check in sorted(skipped):
        if check not in CHECKS:
            raise RequestError(f"Unknown --skip-check {check!r}. {nearest(check, CHECKS)}")
    refusals = {"program": why} if (why := job.program.fault) else {}
    refusals |= dict(_shape_refusals(job, spec))
    if not job.scheduler.one_machine:
        limits = partition or PartitionLimits(name="")
        # GPUs first: too many of them also ask for too many CPUs, which nobody typed.
        refusals |= dict(_gpu_refusals(job, spec, limits)) | dict(_limit_refusals(job, limits))
    for check, message in refusals.items():
        if check not in skipped:
            raise PlanError(f"{message} {off_switch(check)}")


def _is_on_each(job: Job, spec: JobSpec) -> bool:
    """Say whether a job is one process on each node, which starts the others itself."""
    return job.strategy.name == "serial" and spec.tasks_per_node == 1


def _shape_refusals(job: Job, spec: JobSpec) -> Iterator[tuple[str, str]]:
    if job.nodes > 1 and not job.strategy.multi_node and not _is_on_each(job, spec):
        several = [name for name, row in STRATEGIES.items() if row.multi_node]
        text = (
            f"Strategy {job.strategy.name!r} is one process on one node; --nodes {job.nodes} "
            f"would leave {job.nodes - 1} idle. Use --nodes 1, or a strategy over nodes: "
            f"{', '.join(several)}. For one process on each node, as launchers of others need "
            "it: strategy serial with --tasks-per-node 1."
        )
        yield "multi-node", text
    if (
        spec.tasks_per_node
        and job.strategy.rank_per_gpu
        and job.gpus_per_node
        and spec.tasks_per_node != job.tasks_per_node
    ):
        text = (
            f"--tasks-per-node {spec.tasks_per_node} cannot be combined with --gpus "
            f"{job.gpus_per_node}: strategy {job.strategy.name!r} gives each node "
            f"{counted(job.tasks_per_node, 'task')}. Leave one of the two out."
        )
        yield "launcher", text
    if (spec.tasks_per_node or 1) > 1 and not job.strategy.rank_per_gpu:
        several = [name for name, row in STRATEGIES.items() if row.rank_per_gpu]
        text = (
            f"--tasks-per-node {spec.tasks_per_node} asks for several ranks, and strategy "
            f"{job.strategy.name!r} is one process. Leave it out, or use "
            f"{' or '.join(several)}."
        )
        yield "launcher", text
    if refusal := job.launcher.refusal(job):
        yield "launcher", refusal


def _named(limits: PartitionLimits) -> str:
    names = limits.name.split(",")
    return f"{plural('partition', len(names))} {', '.join(map(repr, names))}"


def _limit_refusals(job: Job, limits: PartitionLimits) -> Iterator[tuple[str, str]]:
    where = f"{_named(limits)} of site {job.site.name!r}"
    if limits.max_time_min and job.time_min > limits.max_time_min:
        text = (
            f"--time {format_minutes(job.time_min)} is over the limit "
            f"{format_minutes(limits.max_time_min)} of {where}. Ask for less, or another "
            f"partition: hpckit sites show {job.site.name}."
        )
        yield "time", text
    if limits.max_nodes and job.nodes > limits.max_nodes:
        text = f"--nodes {job.nodes} is over the {counted(limits.max_nodes, 'node')} of {where}."
        yield "nodes", text
    cpus = (job.cpus_per_task or 1) * job.tasks_per_node
    if limits.cpus_per_node and cpus > limits.cpus_per_node:
        text = (
            f"{counted(job.tasks_per_node, 'task')} x {job.cpus_per_task or 1} CPUs = {cpus} per "
            "node; "
            f"a node of {where} has {limits.cpus_per_node}. Lower --cpus-per-task."
        )
        yield "cpus", text
    if limits.mem_gb_per_node and job.mem_gb and job.mem_gb > limits.mem_gb_per_node:
        text = f"--mem-gb {job.mem_gb} is over a node's {limits.mem_gb_per_node} GiB in {where}."
        yield "mem", text


def _gpu_refusals(job: Job, spec: JobSpec, limits: PartitionLimits) -> Iterator[tuple[str, str]]:
    """Yield the first of what is wrong with the GPUs: the others follow from it."""
    types, per_node = job.site.gpu_types, _gpus_of_a_node(job, limits)
    if job.site.gpu_type_required and job.gpus_per_node and not job.gpu_type:
        first = next(iter(types), "TYPE")
        text = (
            f"Site {job.site.name!r} needs the GPU type: --gpus "
            f"{first}:{job.gpus_per_node}. Types: {', '.join(types)}."
        )
        yield "gpu-type", text
    elif job.gpu_type and types and job.gpu_type not in types:
        text = (
            f"Site {job.site.name!r} has no GPU type {job.gpu_type!r}. "
            f"{nearest(job.gpu_type, types)}"
        )
        yield "gpu-type", text
    elif per_node is None or job.gpus_per_node <= per_node:
        return
    elif per_node == 0 and spec.gpus is None:
        text = (
            f"Nodes of {_named(limits)} have no GPU, and a job asks for one unless "
            "you say otherwise. Give --gpus 0, or another --partition."
        )
        yield "gpus", text
    else:
        kind = f" with {job.gpu_type}" if job.gpu_type and per_node else ""
        text = (
            f"--gpus {job.gpus_per_node} per node is more than the {per_node} of a node{kind} "
            f"at site {job.site.name!r}.{_fewer_per_node(job, spec, per_node)}"
        )
        yield "gpus", text


def _gpus_of_a_node(job: Job, limits: PartitionLimits) -> int | None:
    if limits.gpus_per_node == 0:  # of no type either, also where the site has a default one
        return 0
    per_node = job.site.gpu_types.get(job.gpu_type or "", limits.gpus_per_node)
    return job.site.gpus_per_node if per_node is None else per_node


def _fewer_per_node(job: Job, spec: JobSpec, per_node: int) -> str:
    """Say what the strategy can do with nodes that have `per_node` GPUs each."""
    if not per_node:
        return ""
    kind = f"{job.gpu_type}:" if spec.gpu_type else ""
    nodes = -(-job.total_gpus // per_node)
    each = -(-job.total_gpus // nodes)
    shape = f"For {nodes * each} GPUs: --nodes {nodes} --gpus {kind}{each}"
    if job.strategy.multi_node or _is_on_each(job, spec):
        return f" {shape}."
    several = " or ".join(name for name, row in STRATEGIES.items() if row.multi_node)
    return (
        f" Strategy {job.strategy.name!r} is one process on one node: give --gpus {kind}{per_node} "
        f"or less. {shape}, with strategy {several}."
    )


def refuse_contradictions(job: Job, spec: JobSpec) -> None:
    """Refuse what cannot go together with `--chain` or `--retry`, which nothing switches off.

    Raises:
        RequestError: it was asked for.
    """
    _refuse_chain(job, spec)
    _refuse_retry(job, spec.retries)


def _refuse_chain(job: Job, spec: JobSpec) -> None:
    """Refuse what cannot go together with `--chain`."""
    if not spec.chain:
        return
    if spec.array:
        raise RequestError(
            f"--chain {spec.chain} is for one job, not for an --array, whose tasks end at "
            "different times. Submit each value by itself, or use --max-requeues."
        )
    if spec.max_requeues:
        raise RequestError(
            f"--chain {spec.chain} and --max-requeues {spec.max_requeues} both let the job go on "
            "after a time limit or a preemption. Give --max-requeues where the cluster allows "
            "requeues, else --chain."
        )
    if not job.scheduler.chains:
        raise RequestError(
            f"--chain {spec.chain} is for Slurm, and this run is for executor "
            f"{job.scheduler.name!r}: leave --chain out (hpckit resubmit: --unset chain)."
        )


def _refuse_retry(job: Job, retries: int) -> None:
    """Refuse what cannot go together with `--retry`."""
    rules = ",".join(job.retry)
    if not rules:
        if retries > 1:
            raise RequestError(
                f"--retries {retries} says how often --retry may act. Give --retry, as in --retry "
                "oom:mem*2, or leave --retries out (hpckit resubmit: --unset retries)."
            )
        return
    if job.chain:
        raise RequestError(
            f"--retry {rules} and --chain {job.chain} cannot be combined: each job of a chain has "
            "the same size. Give one of the two."
        )
    if not job.scheduler.chains:
        raise RequestError(
            f"--retry {rules} is for Slurm, and this run is for executor {job.scheduler.name!r}: "
            "leave --retry out (hpckit resubmit: --unset retry)."
        )
    given = [*job.site.sbatch_args, *job.sbatch]
    keys = [word.removeprefix("--").partition("=")[0] for word in given]
    tied = next((key for key in keys if key in ("mem-per-cpu", "mem-per-gpu", "mem")), None)
    if tied and ":mem" in rules:
        raise RequestError(
            f"--retry {rules} changes the memory per node, which --{tied} decides here. Give "
            f"--mem-gb in place of --{tied}."
        )
