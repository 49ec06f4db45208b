from pathlib import Path

import pytest

from hpckit.payload import other_nodes
from hpckit.payload.other_nodes import OtherNodes
from hpckit.payload.task import Task
from hpckit.rank_variables import RankPlacement
from hpckit.run_folders.ranks import (
    first_failure,
    read_attempts,
    read_ranks,
    without_gpus,
    write_rank,
)
from tests.unit.made import rank


def folder(tmp_path: Path) -> Path:
    (tmp_path / "ranks").mkdir()
    return tmp_path


def test_a_ranks_file_holds_one_entry_per_restart(tmp_path: Path) -> None:
    run = folder(tmp_path)
    write_rank(run, rank(0))
    write_rank(run, rank(0, exit_code=1, ended=11.0))
    write_rank(run, rank(0, restart=1))
    attempts = read_attempts(run / "ranks" / "0.json")
    assert [(row.restart, row.exit_code) for row in attempts] == [(0, 1), (1, None)]
    assert not [path for path in (run / "ranks").iterdir() if path.name.startswith(".")]


def test_the_newest_attempt_counts_and_ranks_come_in_order(tmp_path: Path) -> None:
    run = folder(tmp_path)
    for number in (10, 9, 2):
        write_rank(run, rank(number))
    assert [row.rank for row in read_ranks(run)] == [2, 9, 10]
    write_rank(run, rank(9, restart=1))
    assert [(row.rank, row.restart) for row in read_ranks(run)] == [(9, 1)]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"attempts": 5}', '{"attempts": [5, null]}', '{"attempts": [{}]}',
     '{"attempts": [{"rank": 0, "colour": "red"}]}'],
)  # fmt: skip
def test_a_damaged_file_is_a_rank_that_says_nothing(tmp_path: Path, text: str) -> None:
    run = folder(tmp_path)
    (run / "ranks" / "0.json").write_text(text)
    write_rank(run, rank(1))
    assert [row.rank for row in read_ranks(run)] == [1]
    write_rank(run, rank(0))
    assert [row.rank for row in read_ranks(run)] == [0, 1]


def test_a_run_that_has_not_begun_has_no_ranks(tmp_path: Path) -> None:
    assert read_ranks(tmp_path) == []


def test_the_first_failure_is_the_earliest_own_one() -> None:
    late = rank(0, exit_code=1, ended=30.0)
    early = rank(3, exit_code=2, ended=20.0)
    stopped = rank(1, exit_code=143, ended=15.0, consequence=True)
    good = rank(2, exit_code=0, ended=5.0)
    running = rank(4)
    assert first_failure([late, stopped, early, good, running]) is early
    assert first_failure([stopped, good]) is stopped
    assert first_failure([good, running]) is None


def test_a_rank_without_a_gpu_finds_a_node_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_nodes, "_EVERY_S", 0.0)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    monkeypatch.setenv("HPCKIT_RESTART", "1")
    run = folder(tmp_path)
    task = Task(
        run_dir=str(run), run_id="r", executor="slurm", launcher="srun", nodes=3, tasks_per_node=2,
        command=("true",), python=("python",), device=None,
    )  # fmt: skip
    place = RankPlacement(rank=2, world_size=6, local_rank=0, local_world_size=2, node_rank=1)
    others = OtherNodes(task, place)
    assert others.with_gpu() is None  # none has begun
    write_rank(run, rank(0, restart=1, device="cpu"))
    write_rank(run, rank(2, restart=1, device="cuda"))  # its own node, as if by mistake
    write_rank(run, rank(4, restart=0, device="cuda"))  # in another attempt
    write_rank(run, rank(5, restart=1, device="cuda"))  # the first of each node speaks for it
    assert others.with_gpu() is None
    (run / "ranks" / "4.json").write_text("{")
    assert others.with_gpu() is None
    write_rank(run, rank(4, restart=1, device="cuda", host="n2"))
    found = others.with_gpu()
    assert found is not None
    assert (found.rank, found.host) == (4, "n2")
    assert others.with_gpu() is None  # all are known: no file is read again


def test_nodes_whose_ranks_had_no_gpu_are_named() -> None:
    gpu = [rank(number, device="cuda", host="n1") for number in range(2)]
    cpu = [rank(2, device="cpu", host="n2.lab", node="n2"), rank(3, device="cpu", host="n3")]
    assert without_gpus([]) is None
    assert without_gpus(gpu) is None
    few = "some ranks run on the CPU, and the job's GPUs idle: nodes n2, n3 have no GPU driver"
    assert without_gpus([*gpu, *cpu]) == few
    one = "its ranks run on the CPU, and the job's GPUs idle: node n2 has no GPU driver"
    assert without_gpus(cpu[:1]) == one
    many = without_gpus([rank(number, device="cpu", host=f"n{number}") for number in range(17)])
    assert many is not None
    assert "n15, ... have" in many
