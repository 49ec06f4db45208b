"""`--compile`: the same loss curve, from kernels that a real compiler made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.workloads.processes import close, complaint, finish, losses, start, start_ranks

pytestmark = pytest.mark.torch
# Every batch is as large as the others: another size would be compiled anew.
SHORT = ("--model", "mlp", "--data", "digits", "--limit", 96, "--batch-size", 32, "--epochs", 2)
EACH_STEP = ("--log-every", 1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one process that compiles nothing."""
    out = tmp_path_factory.mktemp("plain")
    finish(start("ddp", *SHORT, *EACH_STEP, "--out", out))
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where torch keeps what it compiles: what one process has compiled, others find."""
    folder = tmp_path_factory.mktemp("inductor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        yield folder


def test_mirrored(plain: Path, cache: Path, tmp_path: Path) -> None:
    words = (*SHORT, *EACH_STEP, "--compile", "--devices", "cpu:2", "--out", tmp_path)
    finish(start("mirrored", *words))
    assert list(cache.rglob("*.so"))
    assert len(losses(tmp_path)) == 6
    assert close(losses(tmp_path), losses(plain))


def test_ddp(plain: Path, cache: Path, tmp_path: Path) -> None:
    words = (*SHORT, *EACH_STEP, "--compile", "--out", tmp_path)
    for process in start_ranks(2, *words):
        _, said = process.communicate(timeout=280)
        assert process.returncode == 0
        # What torch 2.13 says of its own DistributedDataParallel.
        assert [line for line in said.splitlines() if "Profiler record function" not in line] == []
    assert list(cache.rglob("*.so"))
    assert close(losses(tmp_path), losses(plain))


@pytest.mark.parametrize("workload", ["ddp", "mirrored"])
def test_without_a_compiler(workload: str, tmp_path: Path) -> None:
    words = (*SHORT, "--compile", "--out", tmp_path)
    assert complaint(start(workload, *words, CXX="/none/c++")) == (
        "train.py: error: --compile needs a C++ compiler, and $CXX is '/none/c++': load a module "
        "that has one, set $CXX, or leave --compile out"
    )
