"""One device, dp, mirrored, from scratch and DDP: the same parameters after ten steps.

From the same first weights, with batches that replicas and ranks can share evenly, unevenly, or
not at all: 12, 5, 10, 1, 7 and so on.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import cross_entropy  # noqa: E402

from hpckit.parallel.data import Samples  # noqa: E402
from hpckit.parallel.devices import find_replicas  # noqa: E402
from hpckit.parallel.mirrored import MirroredStrategy  # noqa: E402
from hpckit.parallel.models import make_model  # noqa: E402
from hpckit.parallel.tasks import Task  # noqa: E402
from tests.workloads.nursery import Forked  # noqa: E402
from tests.workloads.processes import environment, finish, free_port  # noqa: E402
from tests.workloads.test_agreement import script  # noqa: E402

pytestmark = pytest.mark.torch
SIZES = (12, 5, 10, 1, 7, 12, 2, 3, 9, 4)
WITHIN = {"float32": 1e-6, "float64": 1e-12}
SCRIPT = Path(__file__).parents[1] / "scripts" / "equal_ddp.py"
Parameters = list[torch.Tensor]


def batches(dtype: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(5)
    return [
        (
            torch.rand(size, 1, 8, 8, generator=numbers, dtype=getattr(torch, dtype)),
            torch.randint(10, (size,), generator=numbers),
        )
        for size in SIZES
    ]


def task(dtype: str) -> Task:
    nothing = Samples(torch.zeros(1), torch.zeros(1))
    return Task(
        name="made",
        description="",
        train=nothing,
        held_out=nothing,
        make_model=lambda seed: make_model("mlp", seed=seed, shape=(1, 8, 8)).to(
            getattr(torch, dtype)
        ),
        losses=lambda scores, labels: cross_entropy(scores, labels, reduction="none"),
        hits=lambda scores, labels: (scores.argmax(1) == labels).float(),
    )


def arguments(**more: Any) -> Namespace:
    # SGD without momentum is what from_scratch has.
    plain: dict[str, Any] = {
        "lr": 0.1,
        "lr_scaling": "none",
        "batch_size": 64,
        "seed": 3,
        "optimizer": "sgd",
    }
    plain |= {"microbatch": None, "sync_batch_norm": False, "compile": False, "reduce": "naive"}
    return Namespace(**plain | more)


@pytest.fixture(params=WITHIN)
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def alone(dtype: str) -> Parameters:
    """The parameters after ten steps of plain torch on one device."""
    model = task(dtype).make_model(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in batches(dtype):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def assert_equal(found: Parameters, expected: Parameters, dtype: str) -> None:
    for mine, single in zip(found, expected, strict=True):
        assert (mine.detach() - single).abs().max().item() < WITHIN[dtype]


def stepped(learner: Any, dtype: str) -> Any:
    for inputs, labels in batches(dtype):
        learner.step(inputs, labels)
    return learner


@pytest.fixture(autouse=True)
def plain_sgd(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workloads' own SGD has momentum."""

    def make(name: str, parameters: Any, lr: float, **_: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr)

    monkeypatch.setattr("hpckit.parallel.optimizers.make_optimizer", make)


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_dp(replicas: int, dtype: str, alone: Parameters) -> None:
    found = find_replicas(f"cpu:{replicas}")
    learner = stepped(script("dp").ParallelLearner(arguments(), task(dtype), found), dtype)
    assert_equal(list(learner.model.parameters()), alone, dtype)


@pytest.mark.parametrize("microbatch", [None, 3, 4])
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_mirrored(replicas: int, microbatch: int | None, dtype: str, alone: Parameters) -> None:
    args, strategy = arguments(microbatch=microbatch), MirroredStrategy(f"cpu:{replicas}")
    learner = stepped(script("mirrored").MirroredLearner(args, task(dtype), strategy), dtype)
    for copy in learner.model.copies:
        assert_equal(list(copy.parameters()), alone, dtype)


@pytest.mark.parametrize("reduce", ["naive", "ring"])
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_from_scratch(replicas: int, reduce: str, dtype: str, alone: Parameters) -> None:
    found = find_replicas(f"cpu:{replicas}")
    args = arguments(reduce=reduce)
    learner = stepped(script("from_scratch").ScratchLearner(args, task(dtype), found), dtype)
    for parameters in learner.replicas:
        assert_equal(parameters, alone, dtype)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_ddp(accumulate: int, dtype: str, alone: Parameters, tmp_path: Path) -> None:
    """Four ranks, as two nodes of two."""
    torch.save(batches(dtype), tmp_path / "batches.pt")
    meeting = {"WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    words = (str(tmp_path), dtype, str(accumulate))
    ranks = [
        Forked(SCRIPT, words, environment(RANK=rank, OMP_NUM_THREADS=1, **meeting))
        for rank in range(4)
    ]
    finish(*ranks)
    assert_equal(torch.load(tmp_path / "ddp.pt"), alone, dtype)
