from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.environments import Environment, EnvironmentKind
from hpckit.errors import PlanError, RequestError
from hpckit.job import Job
from hpckit.job.checks import CHECKS
from hpckit.job.resolve import resolve
from hpckit.job_spec.recorded_spec import spec_from_record
from hpckit.job_spec.spec import JobSpec
from hpckit.schedulers.base import Machine
from hpckit.sites import PartitionLimits, Site
from hpckit.workloads import Parameter, Workload

SCRIPT = str(Path(__file__))
BOX = Site(
    name="box",
    defaults={"partition": "gpu", "account": "acc", "time_min": 45},
    gpus_per_node=4,
    gpu_types={"A100": 4, "T4": 8},
    partitions={
        "gpu": PartitionLimits(
            name="gpu",
            max_time_min=120,
            max_nodes=8,
            gpus_per_node=4,
            cpus_per_node=64,
            mem_gb_per_node=256,
        ),
        "long": PartitionLimits(
            name="long", max_time_min=180, max_nodes=4, cpus_per_node=32, mem_gb_per_node=64
        ),
        "cpu": PartitionLimits(name="cpu", gpus_per_node=0),
        "cpu2": PartitionLimits(name="cpu2", gpus_per_node=0),
    },
    environments={"v": Environment(name="v", kind=EnvironmentKind.VENV, path="/v")},
)
PLAIN = Site(name="plain")
WORK = Workload(
    name="work",
    description="d",
    strategy="ddp",
    script=Path("/w/run.py"),
    mem_gb=16,
    time_min=20,
    cpus_per_task=3,
    parameters={
        "lr": Parameter(name="lr", type="float", default=0.1, help="h"),
        "seed": Parameter(name="seed", type="int", default=None, help="h"),
    },
)


def job(
    target: str = "ddp",
    *,
    site: Site = BOX,
    workload: Workload | None = None,
    machine: Machine | None = None,
    **asked: object,
) -> Job:
    script = None if workload else SCRIPT
    spec = JobSpec(target=target, program=script, **asked)  # type: ignore[arg-type]
    return resolve(spec, site, workload, python="/py", machine=machine)


NUMBERS = [
    ("ddp", {}, {"nodes": 1, "gpus_per_node": 1, "tasks_per_node": 1, "ranks": 1}),
    ("ddp", {"gpus": 4}, {"tasks_per_node": 4, "ranks": 4, "total_gpus": 4, "cpus_per_task": 16}),
    ("ddp", {"nodes": 2, "gpus": 4}, {"ranks": 8, "total_gpus": 8, "time_min": 45}),
    ("ddp", {"gpus": 0}, {"tasks_per_node": 1, "device": "cpu", "cpus_per_task": None}),
    ("ddp", {"tasks_per_node": 6}, {"gpus_per_node": 0, "ranks": 6, "device": "cpu"}),
    ("serial", {}, {"gpus_per_node": 1, "tasks_per_node": 1}),
    ("serial", {"gpus": 4}, {"tasks_per_node": 1, "total_gpus": 4, "cpus_per_task": 64}),
    ("dp", {"gpus": 4}, {"tasks_per_node": 1, "cpus_per_task": 64}),
    ("mirrored", {"gpus": 2}, {"tasks_per_node": 1, "cpus_per_task": 32}),
    ("mpi", {}, {"gpus_per_node": 0, "tasks_per_node": 1}),
    ("mpi", {"nodes": 3, "tasks_per_node": 5}, {"ranks": 15, "total_gpus": 0}),
    ("mpi", {"gpus": 2}, {"tasks_per_node": 2, "gpus_per_node": 2}),
    ("ddp", {"gpus": 2, "cpus_per_task": 7}, {"cpus_per_task": 7}),
    ("ddp", {"gpus": 2, "gpu_type": "A100"}, {"gpu_type": "A100"}),
    ("ddp", {"time_min": 120, "partition": "gpu"}, {"time_min": 120, "partition": "gpu"}),
    ("ddp", {"launcher": "torchrun"}, {"partition": "gpu", "account": "acc", "qos": None}),
    ("ddp", {"partition": "gpu,cpu"}, {"partition": "gpu,cpu", "cpus_per_task": None}),
    ("ddp", {"partition": "gpu,long", "time_min": 150}, {"partition": "gpu,long", "time_min": 150}),
    ("ddp", {"partition": "gpu,cpu", "time_min": 999}, {"time_min": 999}),  # cpu's is not known
    ("ddp", {"partition": "gpu,"}, {"partition": "gpu,", "cpus_per_task": 16}),
]


@pytest.mark.parametrize(("target", "asked", "wanted"), NUMBERS)
def test_a_request_becomes_these_numbers(target: str, asked: dict, wanted: dict) -> None:
    made = job(target, **asked)
    assert {key: made.option(key) for key in wanted} == wanted


def test_what_was_asked_wins_over_the_workload_and_that_over_the_site() -> None:
    made = job("work", workload=WORK)
    assert (made.time_min, made.mem_gb, made.cpus_per_task) == (20, 16, 3)
    made = job("work", workload=WORK, time_min=5, mem_gb=1, cpus_per_task=1, env="v")
    assert (made.time_min, made.mem_gb, made.cpus_per_task) == (5, 1, 1)
    assert made.command[0] == "/v/bin/python"


def test_a_default_time_is_no_longer_than_the_partition_allows() -> None:
    """Slurm would refuse it, or let it wait for ever, and nobody asked for it."""
    short = PartitionLimits(name="short", max_time_min=30)
    site = replace(BOX, partitions={**BOX.partitions, "short": short}, defaults={"time_min": 90})
    assert [job(site=site, partition=word).time_min for word in ("short", "gpu", None)] == [
        30,
        90,
        90,
    ]
    assert job(site=site, partition="gpu,short").time_min == 90  # it can start in one of them
    with pytest.raises(PlanError, match="--time 00:31:00 is over the limit 00:30:00"):
        job(site=site, partition="short", time_min=31)


def test_a_workloads_command_has_every_parameter_that_has_a_value() -> None:
    made = job("work", workload=WORK, settings=("seed=3",), args=("--more", "a b"))
    assert made.command == ("/py", "/w/run.py", "--lr", "0.1", "--seed", "3", "--more", "a b")
    assert made.name == "work"
    assert made.settings == {"seed": 3}


def test_a_users_script_gets_its_arguments_and_nothing_else() -> None:
    made = job(args=("--lr", "0.1", "it's"))
    assert made.command == ("/py", SCRIPT, "--lr", "0.1", "it's")
    assert made.name == "test_job"
    assert job(name="other").name == "other"


def test_arrays_are_products_with_the_last_list_fastest() -> None:
    made = job("work", workload=WORK, array=("lr=0.1,0.2", "seed=1,2"), parallel=3)
    assert made.is_array
    assert made.parallel == 3
    assert [tuple(point.values()) for point in made.task_settings] == [
        (0.1, 1),
        (0.1, 2),
        (0.2, 1),
        (0.2, 2),
    ]
    assert made.tasks[3] == ("--lr", "0.2", "--seed", "2")


def test_an_array_over_a_users_script_passes_options() -> None:
    made = job(array=("size=a b,c", "x.y=1"))
    assert made.tasks == (("--size", "a b", "--x.y", "1"), ("--size", "c", "--x.y", "1"))


def test_a_tables_header_in_an_array_is_told() -> None:
    told = "the first value of --array lr is {!r}: if that is a table's header, take it out"
    for head in ("lr", r"seed\,lr", "lr;seed", "seed\tlr"):
        made = job(array=(f"lr={head},0.1",))
        assert made.notes[-1].startswith(told.format(head.replace("\\,", ",")))
    for plain in (("lr=0.1,lr",), ("lr=lr",), ("lr=lrs,1",)):
        assert not job(array=plain).notes
    with pytest.raises(RequestError, match=r"'lr,seed' names several options at once.*--zip"):
        job(array=("lr,seed=1,2",))


def test_a_range_as_sbatch_takes_it_is_told_to_be_one_value() -> None:
    told = "{!r} is one value of --array seed. For its numbers: --array seed={}"
    for value, wanted in {
        "1-4": "1,2,3,4",
        "0-9%2": "0,1,2,3,4,5,6,7,8,9 --parallel 2",
        "1-100:3": "$(seq -s, 1 3 100)",
    }.items():
        made = job(array=(f"seed={value}",))
        assert made.notes == (told.format(value, wanted),)
        assert made.tasks == (("--seed", value),)
    assert job(array=("seed=7,2-4", "lr=1,2")).notes == (told.format("2-4", "2,3,4"),)
    for plain in ("seed=1e-3", "seed=-5", "seed=2026-01-02", "seed=a-b", "seed=5"):
        assert not job(array=(plain,)).notes


def test_an_arrays_values_stand_where_the_users_arguments_name_them() -> None:
    own = ("-var", "T", "{T}", "-log", "log.{T}.{x.y}", "{other}", "{}", '{"T": 1}')
    made = job(array=("T=1.5,{x.y}", "x.y=a b", "seed=3"), args=own)
    assert [made.task_command(index)[2:] for index in (0, 1)] == [
        ("-var", "T", "1.5", "-log", "log.1.5.a b", "{other}", "{}", '{"T": 1}', "--seed", "3"),
        ("-var", "T", "{x.y}", "-log", "log.{x.y}.a b", "{other}", "{}", '{"T": 1}', "--seed", "3"),
    ]
    assert made.command[2:] == own  # as it was asked
    assert job(args=("{lr}",)).task_command(0)[2:] == ("{lr}",)
    # A workload's parameters are its options, wherever else their values stand.
    workload = job("work", workload=WORK, array=("lr=0.2",), args=("--log", "log.{lr}"))
    assert workload.task_command(0)[2:] == ("--log", "log.0.2", "--lr", "0.2")


def test_a_parameter_that_an_array_varies_is_given_once() -> None:
    made = job("work", workload=WORK, settings=("seed=3",), array=("lr=0.2,0.1",))
    assert made.task_command(1)[2:] == ("--seed", "3", "--lr", "0.1")
    with pytest.raises(RequestError, match="lr is in --set and in --array"):
        job("work", workload=WORK, settings=("lr=1",), array=("lr=0.2,0.1",))


def test_a_plan_without_an_array_has_one_empty_task() -> None:
    assert job().tasks == ((),)
    assert not job().is_array


@pytest.mark.parametrize(
    ("gpus", "asked", "device", "notes"),
    [
        (("0", "1"), {"gpus": 2}, "cuda", 0),
        (("0", "1"), {"nodes": 2, "gpus": 1}, "cuda", 0),
        (("0",), {"gpus": 2}, "cpu", 1),
        ((), {"gpus": 4, "nodes": 2}, "cpu", 1),
        (("0",), {"gpus": 0}, "cpu", 0),
    ],
)
def test_this_machine_computes_on_what_it_has_and_says_so(gpus, asked, device, notes) -> None:
    made = job(machine=Machine(gpus=gpus, cpus=2), **asked)
    assert (made.executor, made.device, len(made.notes)) == ("local", device, notes)


@pytest.mark.parametrize(("cpus", "crowd"), [(2, True), (50, False)])
def test_far_more_ranks_than_cores_are_warned_of(cpus, crowd) -> None:
    notes = job(machine=Machine(cpus=cpus), nodes=100, gpus=2).notes
    warned = "this run starts 200 processes on this machine, which has 2 cores"
    assert any(line.startswith(warned) for line in notes) == crowd


def test_this_machine_knows_no_partition_limits() -> None:
    made = job(machine=Machine(), gpus=64, time_min=9999, partition="nowhere")
    assert made.ranks == 64


REFUSED = [
    ("partition", {"partition": "gpux"}, "Partition 'gpux' is not in site 'box'"),
    ("partition", {"partition": "gpu,gpux"}, "Partition 'gpux' is not in site 'box'. Did you mean"),
    ("gpus", {"gpus": 6}, "than the 4 of a node at .* For 6 GPUs: --nodes 2 --gpus 3[.] "),
    ("gpus", {"gpus": 8, "gpu_type": "A100"}, "For 8 GPUs: --nodes 2 --gpus A100:4[.] "),
    (
        "gpus",
        {"target": "dp", "gpus": 8, "gpu_type": "A100"},
        "'dp' is one process on one node: give --gpus A100:4 or less[.] For 8 GPUs: --nodes 2 "
        "--gpus A100:4, with strategy ddp or mpi[.] ",
    ),
    ("gpus", {"target": "mirrored", "gpus": 5}, "give --gpus 4 or less[.] For 6 GPUs: --nodes 2"),
    ("gpus", {"target": "serial", "gpus": 8}, "Strategy 'serial' is one process on one node"),
    (
        "gpus",
        {"target": "serial", "gpus": 8, "tasks_per_node": 1},
        "of a node at site 'box'[.] For 8 GPUs: --nodes 2 --gpus 4[.] ",
    ),
    ("gpus", {"gpus": 9, "gpu_type": "T4"}, "the 8 of a node with T4"),
    ("gpus", {"partition": "cpu"}, "partition 'cpu' have no GPU, .* Give --gpus 0, or another"),
    ("gpus", {"partition": "cpu", "gpus": 2}, "more than the 0 of a node at site 'box'[.] "),
    ("gpus", {"partition": "cpu", "gpu_type": "T4"}, "partition 'cpu' have no GPU, .* Give --gp"),
    ("gpus", {"partition": "cpu", "gpus": 2, "gpu_type": "T4"}, "than the 0 of a node at site"),
    ("gpu-type", {"gpu_type": "H100"}, "no GPU type 'H100'"),
    ("time", {"time_min": 121}, "02:01:00 is over the limit 02:00:00 of partition 'gpu'"),
    (
        "time",
        {"time_min": 181, "partition": "gpu,long"},
        "03:01:00 is over the limit 03:00:00 of partitions 'gpu', 'long' of site 'box'",
    ),
    (
        "mem",
        {"mem_gb": 257, "partition": "long,gpu,"},
        "over a node's 256 GiB in partitions 'long'",
    ),
    ("cpus", {"cpus_per_task": 65, "partition": "gpu,long"}, "a node of partitions 'gpu', 'long'"),
    ("nodes", {"nodes": 9, "partition": "gpu,long"}, "the 8 nodes of partitions 'gpu', 'long'"),
    ("gpus", {"gpus": 5, "partition": "gpu,cpu"}, "--gpus 5 per node is more than the 4 of a node"),
    ("gpus", {"partition": "cpu,cpu2"}, "Nodes of partitions 'cpu', 'cpu2' have no GPU, "),
    ("nodes", {"nodes": 9}, "--nodes 9 is over the 8 nodes"),
    ("cpus", {"gpus": 4, "cpus_per_task": 17}, "4 tasks x 17 CPUs = 68 per node; .* has 64"),
    ("mem", {"mem_gb": 257}, "--mem-gb 257 is over a node's 256 GiB"),
    ("multi-node", {"target": "dp", "nodes": 2}, "'dp' is one process on one node; --nodes 2"),
    ("launcher", {"launcher": "mpirun"}, "strategy 'ddp' is not mpi"),
    ("launcher", {"target": "mpi", "launcher": "torchrun"}, "cannot start MPI ranks"),
    (
        "launcher",
        {"gpus": 2, "tasks_per_node": 3},
        "--tasks-per-node 3 cannot be combined with --gpus 2",
    ),
    ("launcher", {"target": "dp", "tasks_per_node": 3}, "strategy 'dp' is one process[.] Leave"),
]


@pytest.mark.parametrize(("check", "asked", "says"), REFUSED)
def test_what_cannot_run_is_refused_and_each_check_has_its_switch(check, asked, says) -> None:
    with pytest.raises(PlanError, match=says) as error:
        job(**asked)
    assert f"--skip-check {check}" in str(error.value)
    job(**{"cpus_per_task": 1, **asked}, skip_checks=(check,))


def test_every_check_has_a_case_here() -> None:
    # No limits of a plan: tests/unit/test_collections_added.py, tests/security/test_run_root.py,
    # tests/unit/test_after.py, tests/unit/test_typed.py, tests/unit/test_program.py,
    # tests/unit/test_notify.py, tests/unit/test_bad_nodes.py.
    others = {"program", "gpu-type", "collections", "shared-runs", "after", "account", "notify"}
    others |= {"bad-nodes"}
    assert {row[0] for row in REFUSED} | others == set(CHECKS)


def test_a_type_that_the_site_wants_named_is_asked_for() -> None:
    site = replace(BOX, gpu_type_required=True)
    with pytest.raises(PlanError, match=r"needs the GPU type: --gpus A100:2\. Types: A100, "):
        job(site=site, gpus=2)
    assert job(site=site, gpus=2, skip_checks=("gpu-type",)).gpu_type is None
    assert job(site=replace(site, gpu_type="T4"), gpus=2).gpu_type == "T4"
    assert job("mpi", site=site).gpu_type is None


def test_one_switch_does_not_switch_another_check_off() -> None:
    with pytest.raises(PlanError, match="--gpus 6"):
        job(gpus=6, nodes=9, skip_checks=("nodes",))


def test_too_many_gpus_are_not_refused_for_cpus_that_nobody_asked_for() -> None:
    with pytest.raises(PlanError, match="--gpus 6 per node is more than the 4"):
        job(gpus=6)


def test_a_plain_site_limits_nothing() -> None:
    made = job(site=PLAIN, gpus=64, nodes=500, time_min=10**5, partition="any")
    assert (made.ranks, made.option("partition")) == (32000, "any")


@given(
    nodes=st.integers(1, 40),
    gpus=st.integers(0, 16),
    target=st.sampled_from(["ddp", "serial", "mpi", "dp", "mirrored"]),
)
def test_the_sums_always_add_up(nodes: int, gpus: int, target: str) -> None:
    try:
        made = job(target, site=PLAIN, nodes=nodes, gpus=gpus)
    except PlanError:
        assert nodes > 1
        assert target not in ("ddp", "mpi")
        return
    assert made.total_gpus == nodes * gpus
    assert made.ranks == nodes * made.tasks_per_node
    assert made.tasks_per_node == (max(gpus, 1) if target in ("ddp", "mpi") else 1)


@pytest.mark.parametrize(
    "value", ["a b", "a'b", 'a"b', "$(id)", "a;b", "a\nb", "", "a`b", "a\\b", "ä", "a>b"]
)
def test_words_for_slurm_hold_nothing_a_shell_would_read(value: str) -> None:
    with pytest.raises(RequestError, match="--account"):
        JobSpec(target="ddp", account=value)


@pytest.mark.parametrize("value", ["gpu", "a&b", "[a|b]*2", "n[1-3,7]", "x:y@z", "a_b-c.d", "100%"])
def test_words_that_slurm_takes_pass(value: str) -> None:
    assert JobSpec(target="ddp", constraint=value).constraint == value


@pytest.mark.parametrize(
    "option", ["nodes", "tasks_per_node", "cpus_per_task", "mem_gb", "time_min", "parallel"]
)
def test_counts_start_at_one(option: str) -> None:
    word = option.removesuffix("_min").replace("_", "-")
    with pytest.raises(RequestError, match=f"--{word} 0 must be at least 1"):
        JobSpec(target="ddp", **{option: 0})


def test_a_request_survives_its_record() -> None:
    spec = JobSpec(target="ddp", args=("a", "b"), array=("lr=1,2",), gpus=4, after=("1",))
    assert spec_from_record(asdict(spec)) == spec
    with pytest.raises(RequestError, match="another version of hpckit"):
        spec_from_record({"target": "ddp", "gpu": 4})
