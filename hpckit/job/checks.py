"""What refuses a plan, with the numbers. Each check has a name and `--skip-check NAME`."""

from hpckit.documents import nearest
from hpckit.environments import EnvironmentKind
from hpckit.errors import PlanError, RequestError
from hpckit.job.job import Plan
from hpckit.job.program import not_python
from hpckit.job.spec import Request
from hpckit.sites import Partition
from hpckit.strategies import STRATEGIES
from hpckit.units import format_minutes

CHECKS = (
    "script", "partition", "gpus", "gpu-type", "time", "nodes", "cpus", "mem", "multi-node",
    "launcher", "account", "collections", "shared-runs", "after",
)  # fmt: skip


def off_switch(check: str) -> str:
    """Return the end of a refusal: how to switch it off."""
    return f"(--skip-check {check} submits it anyway.)"


def check_plan(plan: Plan, request: Request, partition: Partition | None) -> None:
    """Refuse what cannot run, unless its check is switched off.

    Raises:
        PlanError: the plan breaks a limit. RequestError: --skip-check names no check.
    """
    for check in request.skip_checks:
        if check not in CHECKS:
            raise RequestError(f"Unknown --skip-check {check!r}. {nearest(check, CHECKS)}")
    refusals = {"script": why} if (why := not_python(plan.script)) else {}
    refusals |= dict(_shape_refusals(plan, request))
    if plan.executor == "slurm":
        limits = partition or Partition(name="")
        # GPUs first: too many of them also ask for too many CPUs, which nobody typed.
        refusals |= dict(_gpu_refusals(plan, request, limits)) | dict(_limit_refusals(plan, limits))
    for check, message in refusals.items():
        if check not in request.skip_checks:
            raise PlanError(f"{message} {off_switch(check)}")


def _shape_refusals(plan: Plan, request: Request) -> list[tuple[str, str]]:
    found = []
    if plan.nodes > 1 and not plan.strategy.multi_node:
        several = [name for name, row in STRATEGIES.items() if row.multi_node]
        found.append(
            (
                "multi-node",
                f"Strategy {plan.strategy.name!r} is one process on one node; --nodes {plan.nodes} "
                f"would leave {plan.nodes - 1} idle. Use --nodes 1, or a strategy over nodes: "
                f"{', '.join(several)}.",
            )
        )
    if (
        request.tasks_per_node
        and plan.strategy.rank_per_gpu
        and plan.gpus_per_node
        and request.tasks_per_node != plan.tasks_per_node
    ):
        found.append(
            (
                "launcher",
                f"--tasks-per-node {request.tasks_per_node} cannot be combined with --gpus "
                f"{plan.gpus_per_node}: strategy {plan.strategy.name!r} gives each node "
                f"{plan.tasks_per_node} task(s). Leave one of the two out.",
            )
        )
    if (request.tasks_per_node or 1) > 1 and not plan.strategy.rank_per_gpu:
        several = [name for name, row in STRATEGIES.items() if row.rank_per_gpu]
        found.append(
            (
                "launcher",
                f"--tasks-per-node {request.tasks_per_node} asks for several ranks, and strategy "
                f"{plan.strategy.name!r} is one process. Leave it out, or use "
                f"{' or '.join(several)}.",
            )
        )
    if plan.launcher.name == "mpirun" and not plan.strategy.mpi:
        found.append(
            (
                "launcher",
                f"--launcher mpirun starts MPI ranks; strategy {plan.strategy.name!r} is not mpi. "
                "Use --launcher srun or torchrun.",
            )
        )
    stand_in = plan.executor == "local" and plan.launcher.name == "srun"
    if plan.strategy.mpi and stand_in and plan.ranks > 1:
        found.append(
            (
                "launcher",
                f"On this machine only mpirun can start {plan.ranks} MPI ranks. "
                "Leave --launcher srun out.",
            )
        )
    if plan.launcher.name == "torchrun" and plan.strategy.mpi:
        found.append(
            ("launcher", "--launcher torchrun cannot start MPI ranks. Use srun or mpirun.")
        )
    if plan.launcher.name == "torchrun" and plan.environment.kind is EnvironmentKind.APPTAINER:
        found.append(
            (
                "launcher",
                "--launcher torchrun would start its agent in the container, where hpckit is not. "
                "Use --launcher srun: each rank then gets a container of its own.",
            )
        )
    return found


def _limit_refusals(plan: Plan, limits: Partition) -> list[tuple[str, str]]:
    found = []
    where = f"partition {limits.name!r} of site {plan.site.name!r}"
    if limits.max_time_min and plan.time_min > limits.max_time_min:
        found.append(
            (
                "time",
                f"--time {format_minutes(plan.time_min)} is over the limit "
                f"{format_minutes(limits.max_time_min)} of {where}. Ask for less, or another "
                f"partition: hpckit sites show {plan.site.name}.",
            )
        )
    if limits.max_nodes and plan.nodes > limits.max_nodes:
        found.append(
            ("nodes", f"--nodes {plan.nodes} is over the {limits.max_nodes} nodes of {where}.")
        )
    cpus = (plan.cpus_per_task or 1) * plan.tasks_per_node
    if limits.cpus_per_node and cpus > limits.cpus_per_node:
        found.append(
            (
                "cpus",
                f"{plan.tasks_per_node} tasks x {plan.cpus_per_task or 1} CPUs = {cpus} per node; "
                f"a node of {where} has {limits.cpus_per_node}. Lower --cpus-per-task.",
            )
        )
    if limits.mem_gb_per_node and plan.mem_gb and plan.mem_gb > limits.mem_gb_per_node:
        found.append(
            (
                "mem",
                f"--mem-gb {plan.mem_gb} is over a node's {limits.mem_gb_per_node} GB in {where}.",
            )
        )
    return found


def _gpu_refusals(plan: Plan, request: Request, limits: Partition) -> list[tuple[str, str]]:
    types = plan.site.gpu_types
    if plan.site.gpu_type_required and plan.gpus_per_node and not plan.gpu_type:
        first = next(iter(types), "TYPE")
        return [
            (
                "gpu-type",
                f"Site {plan.site.name!r} needs the GPU type: --gpus "
                f"{first}:{plan.gpus_per_node}. Types: {', '.join(types)}.",
            )
        ]
    if plan.gpu_type and types and plan.gpu_type not in types:
        return [
            (
                "gpu-type",
                f"Site {plan.site.name!r} has no GPU type {plan.gpu_type!r}. "
                f"{nearest(plan.gpu_type, types)}",
            )
        ]
    per_node = types.get(plan.gpu_type or "", limits.gpus_per_node)
    if per_node is None:
        per_node = plan.site.gpus_per_node
    if per_node is None or plan.gpus_per_node <= per_node:
        return []
    if per_node == 0 and request.gpus is None:
        return [
            (
                "gpus",
                f"Nodes of partition {limits.name!r} have no GPU, and a job asks for one unless "
                "you say otherwise. Give --gpus 0, or another --partition.",
            )
        ]
    kind = f" with {plan.gpu_type}" if plan.gpu_type else ""
    nodes = -(-plan.total_gpus // per_node) if per_node else None
    advice = f" For {plan.total_gpus} GPUs: --nodes {nodes} --gpus {per_node}." if nodes else ""
    return [
        (
            "gpus",
            f"--gpus {plan.gpus_per_node} per node is more than the {per_node} of a node{kind} "
            f"at site {plan.site.name!r}.{advice}",
        )
    ]
