"""What hpckit asks of torch fits older ones, too: their signatures and names stand in here.

Seen with real ones, by hand: docs/workloads.md, "Versions of Python and torch".
"""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpckit.parallel import torch_versions
from hpckit.parallel.optimizers import make_optimizer
from hpckit.parallel.passes import make_scaler

pytestmark = pytest.mark.torch
CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


def older_meeting(backend: str | None = None, init_method: str | None = None, **_: str) -> None:
    """Stand in for torch 2.1's: a word that it does not know has a value that shows."""
    seen.append(("meet", backend, init_method, _))


seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def test_the_older_meeting_gets_no_device_and_nccl_connects_in_a_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def zeros(count: int, *, device: torch.device) -> torch.Tensor:
        seen.append(("zeros", count, device))
        return torch.ones(1)

    monkeypatch.setattr(dist, "init_process_group", older_meeting)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: seen.append("sum"))
    monkeypatch.setattr(torch, "zeros", zeros)
    torch_versions.init_process_group("nccl", GPU)
    assert seen == [("meet", "nccl", None, {}), ("zeros", 1, GPU), "sum"]


def test_gloo_is_given_no_device_by_any_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "init_process_group", older_meeting)
    torch_versions.init_process_group("gloo", None)
    assert seen == [("meet", "gloo", None, {})]


def test_this_torch_takes_the_device() -> None:
    assert "device_id" in torch_versions.inspect.signature(dist.init_process_group).parameters


class OlderSGD(torch.optim.SGD):
    """As in torch 2.1 and 2.2: without the word."""

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0) -> None:
        super().__init__(params, lr=lr, momentum=momentum)


class OlderAdam(torch.optim.Adam):
    """As in torch 2.1 to 2.3: for GPUs only."""

    def __init__(self, params: Any, lr: float = 1e-3, *, fused: bool | None = None) -> None:
        super().__init__(params, lr=lr)
        if fused:
            raise RuntimeError("`fused=True` requires all the params to be ... ['cuda', 'xpu']")


@pytest.mark.parametrize(("name", "older"), [("sgd", OlderSGD), ("adam", OlderAdam)])
def test_one_kernel_is_asked_for_only_where_torch_has_it(
    monkeypatch: pytest.MonkeyPatch, name: str, older: type[torch.optim.Optimizer]
) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    assert make_optimizer(name, [weight], 0.1).defaults["fused"] is True
    monkeypatch.setattr(torch.optim, older.__name__.removeprefix("Older"), older)
    made = make_optimizer(name, [weight], 0.1)
    assert isinstance(made, older)
    assert not made.defaults["fused"]
    assert made.param_groups[0]["params"] == [weight]


def test_the_older_names_of_autocast_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "get_autocast_dtype")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda: True)  # of CUDA, and no word
    monkeypatch.setattr(torch, "get_autocast_gpu_dtype", lambda: torch.float16)
    monkeypatch.setattr(torch, "is_autocast_cpu_enabled", lambda: False)
    monkeypatch.setattr(torch, "get_autocast_cpu_dtype", lambda: torch.bfloat16)
    assert torch_versions.autocast_of("cuda") is torch.float16
    assert torch_versions.autocast_of("cpu") is None
    monkeypatch.setattr(torch, "is_autocast_cpu_enabled", lambda: True)
    assert torch_versions.autocast_of("cpu") is torch.bfloat16


def test_autocast_of_this_torch() -> None:
    assert torch_versions.autocast_of("cpu") is None
    with torch.autocast("cpu", torch.bfloat16):
        assert torch_versions.autocast_of("cpu") is torch.bfloat16
        assert torch_versions.autocast_of("cuda") is None


def test_the_older_name_of_the_scaler_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.amp, "GradScaler")
    monkeypatch.setattr(torch.cuda.amp, "GradScaler", lambda: "scaler")
    assert make_scaler("fp16", []) == "scaler"
