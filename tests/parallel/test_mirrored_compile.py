"""`mirror(module, compile=...)`: torch.compile in the threads of replicas.

With `aot_eager`, which traces forward and backward passes as ever and compiles nothing: the real
compiler is in tests/workloads/test_compile.py.
"""

import copy

import pytest
import torch
from torch import nn

from hpckit.parallel.mirrored import Mirrored, MirroredStrategy

pytestmark = pytest.mark.torch
TRACED = {"backend": "aot_eager"}
SIZES = (12, 5, 12, 1, 7, 12, 2, 3, 9, 4)
WITHIN = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def traced_anew() -> object:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def batches(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(5)
    return [
        (
            torch.rand(size, 5, generator=numbers, dtype=dtype),
            torch.rand(size, 3, generator=numbers, dtype=dtype),
        )
        for size in SIZES
    ]


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("dtype", WITHIN)
def test_parameters_are_those_of_one_device(dtype: torch.dtype) -> None:
    alone = network(dtype)
    optimizer = sgd(alone)
    for inputs, wanted in batches(dtype):
        optimizer.zero_grad()
        nn.functional.mse_loss(alone(inputs), wanted).backward()
        optimizer.step()
    strategy = MirroredStrategy("cpu:3")
    model = strategy.mirror(network(dtype), compile=TRACED)
    strategy.fit(model, batches(dtype), nn.MSELoss(), strategy.optimizer(model, sgd))
    for one in model.copies:
        for mine, single in zip(one.parameters(), alone.parameters(), strict=True):
            assert (mine - single).abs().max().item() < WITHIN[dtype]


def test_later_runs_trace_nothing() -> None:
    traced: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        traced.append(graph)
        return graph

    strategy = MirroredStrategy("cpu:12")  # more than torch's limit of traces of one function
    model = strategy.mirror(network(torch.float32), compile={"backend": backend})
    counts = []
    for _ in range(3):
        strategy.run(lambda: model(torch.ones(4, 5)).sum().item())
        counts.append(len(traced))
    assert 1 <= counts[0] <= 12  # those that begin at once may each trace
    assert counts == counts[:1] * 3


def test_the_state_has_the_names_of_the_module() -> None:
    plain, strategy = network(torch.float32), MirroredStrategy("cpu:2")
    model = strategy.mirror(plain, compile=TRACED)
    strategy.predict(model, [torch.ones(4, 5)])
    assert list(model.state_dict()) == list(plain.state_dict())
    again = copy.deepcopy(model.local)
    assert again.state_dict().keys() == plain.state_dict().keys()
    assert isinstance(model, Mirrored)
