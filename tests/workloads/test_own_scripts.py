"""Scripts that pages print for readers to copy: run as ranks of `hpckit submit ddp` are."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.conftest import needs
from tests.pages import blocks
from tests.workloads.nursery import Forked
from tests.workloads.processes import environment, free_port

pytestmark = pytest.mark.torch
WAVES, WORKLOADS = "docs/wave_inversion.md", "docs/workloads.md"


def run(folder: Path, page: str, name: str, world: int = 1) -> str:
    """Run a page's script once per rank; return what all ranks printed."""
    (text,) = [row.text for row in blocks(page) if row.text.startswith(f"# {name}\n")]
    (folder / name).write_text(text)
    meeting = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [
        Forked(folder / name, [], environment(OMP_NUM_THREADS=1, RANK=r, LOCAL_RANK=r, **meeting))
        for r in range(world)
    ]
    ends = [rank.communicate(timeout=280) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, ends
    return "".join(out for out, _ in ends)


def test_deepwave_in_one_process_splits_shots_over_replicas(tmp_path: Path) -> None:
    needs("deepwave")
    shape, norm = run(tmp_path, WAVES, "shots_dp.py").rsplit(maxsplit=1)
    assert shape == "(4, 20, 200)"
    assert float(norm) == pytest.approx(17.55525, rel=1e-4)  # of one device


def test_deepwave_over_ranks_has_the_same_misfits(tmp_path: Path) -> None:
    needs("deepwave")

    def misfits(world: int) -> list[float]:
        said = run(tmp_path, WAVES, "shots_ddp.py", world)
        return [float(row) for row in re.findall(r"^step \d: misfit (\S+)$", said, re.MULTILINE)]

    alone = misfits(1)
    assert len(alone) == 5
    assert alone[-1] < alone[0]
    assert misfits(2) == pytest.approx(alone, rel=1e-3)


def test_fsdp_keeps_a_part_of_the_weights_on_each_rank(tmp_path: Path) -> None:
    said = run(tmp_path, WORKLOADS, "fsdp_train.py", 2)
    kept, every = zip(
        *re.findall(r"^rank \d: (\d+) of (\d+) weights", said, re.MULTILINE), strict=True
    )
    assert set(every) == {"16705"}
    assert sum(map(int, kept)) == 16705
    assert max(map(int, kept)) < 16705 * 0.51
