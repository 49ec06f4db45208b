"""What the ddp workload can be told: each option leaves the loss curve where it should."""

import contextlib
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch
import torch.distributed as dist

from hpckit.parallel import ranks
from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import Rank, add_over_ranks, meet
from tests.workloads.processes import (
    close,
    complaint,
    finish,
    free_port,
    losses,
    records,
    start,
    start_ranks,
)

pytestmark = pytest.mark.torch
SHORT = ("--limit", 301, "--batch-size", 50, "--epochs", 2, "--log-every", 1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one process without options."""
    out = tmp_path_factory.mktemp("plain")
    finish(start("ddp", *SHORT, "--out", out))
    return out


@pytest.mark.parametrize(
    "options", [("--accumulate", 3), ("--zero",), ("--data-on", "host"), ("--accumulate", 60)]
)
def test_the_curve_stays_the_same(options: tuple[object, ...], plain: Path, tmp_path: Path) -> None:
    finish(*start_ranks(2, *SHORT, *options, "--out", tmp_path))
    assert len(losses(plain)) == 14
    assert close(losses(tmp_path), losses(plain))


def test_one_rank_meets_where_a_backend_is_asked_for(plain: Path, tmp_path: Path) -> None:
    """So that NCCL can be tried on one GPU: a group of one, DDP and all."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "RANK": 0, "LOCAL_RANK": 0}
    alone = start("ddp", *SHORT, "--out", tmp_path, WORLD_SIZE=1, HPCKIT_BACKEND="gloo", **meeting)
    assert "1 rank on 1 host (cpu, gloo)" in finish(alone)
    assert close(losses(tmp_path), losses(plain))


@pytest.mark.parametrize(
    ("backend", "what"),
    [
        ("nccl", "HPCKIT_BACKEND is nccl, but ranks are on the CPU: only GPUs have it"),
        ("mpi", "HPCKIT_BACKEND is 'mpi': it must be gloo or nccl"),
    ],
)
def test_a_backend_that_cannot_be_is_refused(backend: str, what: str, tmp_path: Path) -> None:
    said = complaint(start("ddp", "--out", tmp_path, HPCKIT_BACKEND=backend))
    assert said == f"train.py: error: {what}"


def test_ranks_that_share_a_gpu_are_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are NCCL's, of init_process_group with a device."""
    said = "ncclInvalidUsage. Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on 1b000"

    def refuse(backend: str, device_id: torch.device) -> None:
        assert (backend, device_id) == ("nccl", torch.device("cuda", 0))
        raise dist.DistBackendError(said)

    monkeypatch.setattr(dist, "init_process_group", refuse)
    place = Rank(0, 2, torch.device("cuda", 0), "n1")
    with pytest.raises(SetupError, match=r"several ranks use cuda:0 of n1.*HPCKIT_BACKEND=gloo"):
        meet(place)
    said = "NCCL error: unhandled system error"
    with pytest.raises(dist.DistBackendError, match="unhandled"):
        meet(place)


def test_gloo_is_bound_to_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, device_id: asked.append((backend, device_id))
    )
    gpu = torch.device("cuda", 0)
    for backend in ("gloo", "nccl"):
        meet(Rank(0, 2, gpu, "n1", backend))
    assert asked == [("gloo", None), ("nccl", gpu)]


def test_what_is_added_up_needs_no_copy_of_the_hosts() -> None:
    """A copy of a number to a GPU would wait there for all work before it."""
    place = Rank(0, 1, torch.device("meta"), "n1")
    total = ranks._double(True, place.device)
    assert (total.device.type, total.dtype, total.shape) == ("meta", torch.float64, ())
    assert add_over_ranks(Rank(0, 1, torch.device("cpu"), "n1"), 0.1, torch.tensor(2), True) == [
        0.1,
        2.0,
        1.0,
    ]


def test_zero_goes_on_with_another_number_of_ranks(plain: Path, tmp_path: Path) -> None:
    whole = (*SHORT[:4], "--epochs", 2, "--log-every", 1, "--zero", "--out", tmp_path)
    finish(
        *start_ranks(2, *SHORT[:4], "--epochs", 1, "--log-every", 1, "--zero", "--out", tmp_path)
    )
    assert "resuming after step 7 of 14" in finish(start("ddp", *whole))
    assert close(losses(tmp_path), losses(plain))


def test_half_precision_is_near(plain: Path, tmp_path: Path) -> None:
    finish(start("ddp", *SHORT, "--precision", "bf16", "--out", tmp_path))
    mine, single = losses(tmp_path), losses(plain)
    assert mine != single
    assert [loss for _, loss in mine] == pytest.approx([loss for _, loss in single], rel=0.15)


def test_the_learning_rate_follows_the_batch(tmp_path: Path) -> None:
    for batch, scaling, lr in ((128, "linear", 0.005), (64, "none", 0.01)):
        out = tmp_path / scaling
        options = ("--lr", lr, "--lr-scaling", scaling, "--batch-size", batch, "--limit", 128)
        finish(start("ddp", *options, "--epochs", 1, "--log-every", 1, "--out", out))
    first, second = (
        (tmp_path / name / "metrics.jsonl").read_text().split('"lr": ')[1].split(",")[0]
        for name in ("linear", "none")
    )
    assert float(first) == float(second) == 0.01


@pytest.mark.parametrize(
    ("model", "data"),
    [("lenet", "mnist-5k"), ("mlp", "digits"), ("gpt-small", "auto"), ("linear", "auto")],
)
def test_each_model_trains_on_two_ranks(model: str, data: str, tmp_path: Path) -> None:
    # Some of the steps leave a rank without samples.
    work = ("--limit", 9, "--batch-size", 4, "--epochs", 2, "--log-every", 1)
    printed = finish(*start_ranks(2, "--model", model, "--data", data, *work, "--out", tmp_path))
    assert "after 2 epochs, 2 ranks on 1 host (cpu, gloo)" in printed
    name = {"gpt-small": "python-help", "linear": "random"}.get(model, data)
    assert re.search(rf"^data: {name}, 9 training and \d+ held-out ", printed, re.MULTILINE)
    assert len(losses(tmp_path)) == 6


def test_a_network_with_batch_norm_trains(tmp_path: Path) -> None:
    work = ("--limit", 24, "--batch-size", 10, "--epochs", 1, "--log-every", 1)
    finish(*start_ranks(2, "--model", "resnet18", "--data", "digits", *work, "--out", tmp_path))
    assert len(losses(tmp_path)) == 3


def test_the_speed_after_warm_up_is_reported_with_the_devices(tmp_path: Path) -> None:
    printed = finish(*start_ranks(2, *SHORT, "--tensorboard", "--out", tmp_path))
    line = re.search(
        r"^2xCPU: \d+ samples/s, \d\.\d{4} s/step over 4 steps after warm-up$", printed, re.M
    )
    assert line, printed
    (speed,) = records(tmp_path, "s_per_step")
    assert (speed["devices"], speed["step"], speed["epoch"]) == ("2xCPU", 14, 2)
    assert 0 < speed["s_per_step"] < 10

    # What TensorBoard shows is what metrics.jsonl says.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert {"loss", "test_accuracy", "2xCPU/samples_per_s"} <= set(events.Tags()["scalars"])
    shown = [(event.step, event.value) for event in events.Scalars("loss")]
    assert close(shown, losses(tmp_path))


@pytest.mark.parametrize(
    ("of_rank_1", "fault"),
    [
        (("--seed", 1), "seed is 1, but for rank 0 it is 0"),
        (("--epochs", 3), "epochs is 3, but for rank 0 it is 2"),
        # As where a node has other data than the others.
        (("--data", "mnist-5k"), "data is mnist-5k, but for rank 0 it is digits"),
    ],
)
def test_a_rank_that_would_train_something_else_is_named(
    of_rank_1: tuple[object, ...], fault: str, tmp_path: Path
) -> None:
    """The losses of a mixed training look like any others."""
    first, other = start_ranks(
        2, *SHORT, "--out", tmp_path, of_each=lambda rank: of_rank_1 if rank else ()
    )
    said = complaint(other)
    assert re.match(rf"train\.py: error: rank 1: on \S+, {fault}.*give all ranks the same", said)
    with contextlib.suppress(ProcessLookupError):  # it may have ended for want of the other
        first.kill()
    first.communicate()
    assert not records(tmp_path, "loss")
