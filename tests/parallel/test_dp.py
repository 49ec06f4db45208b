"""DataParallel on logical replicas: the numbers of the module alone."""

import threading

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from hpckit.parallel.dp import LogicalDataParallel, data_parallel  # noqa: E402
from hpckit.parallel.models import make_model  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in module.parameters()]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 20), st.integers(2, 9))
def test_outputs_and_gradients_are_the_modules(samples: int, replicas: int) -> None:
    alone, shared = net(), net()
    parallel = data_parallel(shared, [CPU] * replicas)
    inputs = torch.randn(samples, 5, dtype=torch.float64)
    expected, found = alone(inputs), parallel(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    expected.square().sum().backward()
    found.square().sum().backward()
    for mine, single in zip(gradients(shared), gradients(alone), strict=True):
        torch.testing.assert_close(mine, single, rtol=1e-12, atol=1e-12)


def test_one_device_needs_nothing() -> None:
    module = net()
    assert data_parallel(module, [CPU]) is module
    with pytest.raises(ValueError, match="3, 4"):
        data_parallel(module, [CPU, CPU])(torch.zeros(3), torch.zeros(4))


def test_replicas_run_at_once() -> None:
    meeting = threading.Barrier(3, timeout=20)

    class Meets(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            meeting.wait()
            return inputs

    assert data_parallel(Meets(), [CPU] * 3)(torch.arange(7)).tolist() == list(range(7))


def test_buffers_are_those_of_the_first_part() -> None:
    module, first = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    inputs = torch.randn(8, 2)
    data_parallel(module, [CPU, CPU])(inputs)
    first(inputs[:4])
    assert module.running_mean.tolist() == first.running_mean.tolist()
    assert module.num_batches_tracked == 1


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, pair: tuple, *, extra: dict, word: str) -> dict:
        a, b = pair
        return {"both": (self.layer(a), b), "sum": (a + extra["c"]).sum(), "word": word}


def test_nested_values_are_cut_and_put_together() -> None:
    parallel = data_parallel(Nested(), [CPU] * 2)
    a, b = torch.randn(5, 2), torch.arange(5)
    found = parallel((a, b), extra={"c": torch.ones(5, 2)}, word="x")
    assert found["both"][0].shape == (5, 2)
    assert found["both"][1].tolist() == list(range(5))
    assert found["sum"].tolist() == pytest.approx(
        [(a[:3] + 1).sum().item(), (a[3:] + 1).sum().item()]
    )
    assert found["word"] == "x"


def test_threads_do_as_the_caller_does() -> None:
    parallel = data_parallel(net(torch.float32), [CPU] * 2)
    inputs = torch.randn(4, 5)
    with torch.no_grad():
        assert not parallel(inputs).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert parallel(inputs).dtype == torch.bfloat16
    assert parallel(inputs).dtype == torch.float32


def test_an_error_in_a_replica_is_the_callers() -> None:
    class Breaks(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if inputs[0] == 2:
                raise RuntimeError("the second part is bad")
            return inputs

    with pytest.raises(RuntimeError, match="the second part is bad"):
        data_parallel(Breaks(), [CPU] * 2)(torch.arange(4))


def test_models_know_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model("linear", verbose=True)
    parallel = data_parallel(model, [CPU] * 3)
    assert isinstance(parallel, LogicalDataParallel)
    parallel(torch.zeros(7, 5))
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "replica 0 on cpu: input (3, 5)",
        "replica 1 on cpu: input (3, 5)",
        "replica 2 on cpu: input (1, 5)",
    ]
