"""Which GPUs of its nodes a job has, as Slurm says while it knows the job."""

from pathlib import Path

from hpckit.slurm.gpu_indices import gpu_indices, parse_gpu_indices
from tests.conftest import add_program

RECORDED = Path(__file__).parents[1] / "recorded" / "slurm"
DETAILS = (RECORDED / "scontrol-details-22.05.8.txt").read_text()
HOSTILE = (RECORDED / "scontrol-details-hostile-name-22.05.8.txt").read_text()


def test_nodes_with_the_same_gpus_stand_together() -> None:
    one = frozenset({0})
    assert parse_gpu_indices(DETAILS) == {"c1": one, "c2": one}


def test_a_name_that_looks_like_a_node_is_none() -> None:
    assert parse_gpu_indices(HOSTILE) == {"c1": frozenset({1, 2})}
    twice = HOSTILE.replace("JobName=x\n", "JobName=x\n   JOB_GRES=gpu:1\n")
    assert parse_gpu_indices(twice) == {}


def test_spellings() -> None:
    def of(gres: str) -> object:
        text = f"   JOB_GRES=x\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES={gres}\n   Min\n"
        return parse_gpu_indices(text).get("n1")

    assert of("gpu(IDX:0-1,3)") == {0, 1, 3}
    assert of("gpu:2(IDX:5-6)") == {5, 6}
    assert of("gpu:a100:1(IDX:0),gpu:t4:1(IDX:4)") == {0, 4}
    assert of("shard:2(IDX:0)") is None
    assert of("gpu:1") is None
    assert of("") is None
    assert parse_gpu_indices("") == {}


def test_a_controller_that_does_not_answer_says_nothing(here: Path) -> None:
    for program in ("#!/nowhere\n", "#!/bin/sh\necho 'Invalid job id'; exit 1\n"):
        add_program(here.parent / "bin" / "scontrol", program)
        assert gpu_indices("77") == {}
