"""What is asked of torch.cuda, with a stand-in for it: this shows the calls, not that they work."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from hpckit.parallel.devices import Replica
from hpckit.parallel.mirrored import collectives
from hpckit.parallel.mirrored.context import ReplicaContext, _refuse_shared_gpu
from hpckit.parallel.mirrored.replica_threads import Meeting, run_together
from hpckit.parallel.mirrored.strategy import MirroredStrategy

pytestmark = pytest.mark.torch


@dataclass
class Flat:
    """A tensor as far as its device goes."""

    device: torch.device


@pytest.mark.parametrize(
    ("devices", "nccl", "wanted"),
    [
        (["cuda:0", "cuda:1"], True, "nccl"),
        (["cuda:0", "cuda:1"], False, "plain"),
        (["cuda:0", "cuda:1", "cuda:2"], False, "ring"),
        (["cuda:0", "cuda:0"], True, "plain"),
        (["cuda:0", "cpu"], True, "plain"),
        (["cpu", "cpu", "cpu"], True, "plain"),
    ],
)
def test_how_gradients_are_summed(
    devices: list[str], nccl: bool, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(torch.cuda.nccl, "is_available", lambda _: nccl)
    monkeypatch.setattr(torch.cuda.nccl, "all_reduce", lambda _: calls.append("nccl"))
    monkeypatch.setattr(collectives, "ring_allreduce", lambda _: calls.append("ring"))
    monkeypatch.setattr(collectives, "allreduce", lambda _: calls.append("plain"))
    collectives.sum_in_place([Flat(torch.device(name)) for name in devices])  # type: ignore[misc]
    assert calls == [wanted]


def test_each_thread_has_its_gpu_and_the_callers_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: dict[int, list[object]] = {0: [], 1: []}

    @contextmanager
    def noted(what: object) -> Iterator[None]:
        entered[int(threading.current_thread().name[-1])].append(what)
        yield

    gpus = [torch.device("cuda", number) for number in range(2)]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda gpu: f"stream of {gpu}")
    monkeypatch.setattr(torch.cuda, "stream", noted)
    monkeypatch.setattr(torch.cuda, "device", noted)
    run_together([Replica(number, gpu) for number, gpu in enumerate(gpus)], lambda *_: None)
    streams = ["stream of cuda:0", "stream of cuda:1"]
    assert entered == {0: [*streams, gpus[0]], 1: [*streams, gpus[1]]}


def test_gradients_through_a_sum_on_a_shared_gpu_would_wait_for_ever() -> None:
    strategy = MirroredStrategy("cpu:2")
    gpu = torch.device("cuda", 0)
    strategy.replicas = tuple(Replica(number, gpu) for number in range(2))
    context = ReplicaContext(strategy, strategy.replicas[0], Meeting(2))
    with pytest.raises(RuntimeError, match="replicas share cuda:0"):
        _refuse_shared_gpu(context)
    strategy.replicas = (Replica(0, gpu), Replica(1, torch.device("cuda", 1)))
    _refuse_shared_gpu(context)
