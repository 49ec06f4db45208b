"""Each rank gets its share of the cores, unless somebody has said how many threads there are."""

from dataclasses import replace

import pytest

from hpckit.payload.environment import rank_environment, threads
from hpckit.payload.supervisor import launcher_environment
from hpckit.payload.task import Task
from tests.unit.test_payload import THIRD_OF_FOUR

TASK = Task(run_dir="/r", run_id="r", executor="local", launcher="srun", nodes=2,
            tasks_per_node=2, command=("x",), python=("p",), device=None)  # fmt: skip
GIVEN = {"SLURM_CPUS_ON_NODE": "16"}


def told(cores: int, environ: dict[str, str] | None = None, **changes: object) -> str | None:
    task = replace(TASK, **changes)  # type: ignore[arg-type]
    return threads(task, environ or {}, cores).get("OMP_NUM_THREADS")


@pytest.mark.parametrize(
    ("cores", "changes", "share"),
    [
        (16, {}, "4"),  # this machine plays both nodes
        (2, {}, "1"),
        (16, {"cpus_per_task": 3}, "3"),
        (2, {"cpus_per_task": 8}, "1"),  # asked for on the cluster; here are two cores
        (2, {"nodes": 1, "tasks_per_node": 1}, None),
        (2, {"nodes": 1, "tasks_per_node": 1, "cpus_per_task": 1}, "1"),
        (8, {"launcher": "torchrun"}, "2"),
    ],
)
def test_local_ranks_share_the_machine(
    cores: int, changes: dict[str, object], share: str | None
) -> None:
    assert told(cores, **changes) == share


@pytest.mark.parametrize(
    ("cores", "changes", "share"),
    [
        (16, {}, "8"),  # not bound: both see all cores of the job on the node
        (64, {}, "8"),  # nor kept to the job's own
        (8, {}, None),  # bound to half of them each
        (1, {"tasks_per_node": 32}, "1"),
        (4, {"cpus_per_task": 4}, "4"),
        (16, {"tasks_per_node": 1}, None),
        # Its agent has all of the node's, whatever its number of ranks.
        (8, {"launcher": "torchrun"}, "4"),
    ],
)
def test_on_slurm_only_ranks_that_are_not_bound_share(
    cores: int, changes: dict[str, object], share: str | None
) -> None:
    assert told(cores, GIVEN, executor="slurm", **changes) == share


def test_what_anybody_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(16, {"OMP_NUM_THREADS": "7"}) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert rank_environment(TASK, THIRD_OF_FOUR, "cpu")["OMP_NUM_THREADS"] == "7"


def test_ranks_and_torchruns_agent_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    task = replace(TASK, cpus_per_task=1)
    assert rank_environment(task, THIRD_OF_FOUR, "cpu")["OMP_NUM_THREADS"] == "1"
    assert launcher_environment(replace(task, launcher="torchrun"))["OMP_NUM_THREADS"] == "1"
    # mpirun may start ranks on nodes with other cores: each looks for itself.
    assert "OMP_NUM_THREADS" not in launcher_environment(replace(task, launcher="mpirun"))
