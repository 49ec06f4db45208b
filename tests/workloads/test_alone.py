"""The workloads of one process: their curves are ddp's, on any number of replicas."""

import re
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.workloads.processes import (
    WORKLOADS,
    close,
    complaint,
    cut,
    finish,
    losses,
    records,
    start,
)

pytestmark = pytest.mark.torch
NAMES = [name for name in ("dp", "mirrored", "from_scratch") if (WORKLOADS / name).is_dir()]
# 7 steps per epoch; the last batch has one image, so that some replicas get none.
SHORT = ("--limit", 301, "--batch-size", 50, "--epochs", 2, "--log-every", 1, "--lr", 0.01)
LONG = ("--epochs", 40, "--log-every", 1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one ddp process."""
    out = tmp_path_factory.mktemp("plain")
    finish(start("ddp", *SHORT, "--out", out))
    return out


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of from_scratch on one device: it has no Adam to compare with."""
    out = tmp_path_factory.mktemp("scratch")
    finish(start("from_scratch", *SHORT, "--devices", "cpu", "--out", out))
    return out


@pytest.mark.parametrize("name", NAMES)
def test_replicas_change_nothing(name: str, plain: Path, scratch: Path, tmp_path: Path) -> None:
    printed = finish(start(name, *SHORT, "--devices", "cpu:3", "--out", tmp_path, fresh=True))
    expected = scratch if name == "from_scratch" else plain
    assert close(losses(tmp_path), losses(expected))
    for mine, single in zip(
        records(tmp_path, "test_loss"), records(expected, "test_loss"), strict=True
    ):
        for figure in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
            assert mine[figure] == pytest.approx(single[figure], rel=1e-4), figure
    assert printed.splitlines()[-1].endswith("after 2 epochs, 3 replicas in one process (cpu)")
    assert "data: digits, 301 training and 360 held-out images of 8x8" in printed


@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_replicas_goes_on(
    name: str, plain: Path, scratch: Path, tmp_path: Path
) -> None:
    half = (*SHORT[:4], "--epochs", 1, *SHORT[6:])
    finish(start(name, *half, "--devices", "cpu:2", "--out", tmp_path))
    printed = finish(start(name, *SHORT, "--devices", "cpu:4", "--out", tmp_path))
    assert "resuming after step 7 of 14" in printed
    assert close(losses(tmp_path), losses(scratch if name == "from_scratch" else plain))


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_stops_it_with_a_checkpoint(name: str, tmp_path: Path) -> None:
    told = (*LONG, "--devices", "cpu:2", "--checkpoint-every", 0, "--out", tmp_path)
    printed = cut(lambda: [start(name, *told)], tmp_path, signal.SIGUSR2, after=3, of=40 * 23)
    said = re.search(r"^stopped at step (\d+), checkpoint saved$", printed, re.MULTILINE)
    assert said
    assert losses(tmp_path)[-1][0] == int(said[1]) < 40 * 23


@pytest.mark.parametrize("reduce", ["naive", "ring"])
def test_both_ways_to_add_up_are_the_same(reduce: str, scratch: Path, tmp_path: Path) -> None:
    options = ("--reduce", reduce, "--devices", "cpu:4", "--out", tmp_path)
    finish(start("from_scratch", *SHORT, *options))
    assert close(losses(tmp_path), losses(scratch))


@pytest.mark.parametrize("microbatch", [1, 16, 49, 1000])
def test_microbatches_change_nothing(microbatch: int, plain: Path, tmp_path: Path) -> None:
    options = ("--microbatch", microbatch, "--devices", "cpu:2", "--out", tmp_path)
    finish(start("mirrored", *SHORT, *options))
    assert close(losses(tmp_path), losses(plain))


def test_batch_norm_over_all_replicas(tmp_path: Path) -> None:
    """The last batch leaves a replica without samples, which must be where the other waits."""
    work = ("--model", "resnet18", "--data", "digits", "--limit", 20, "--batch-size", 16)
    few = (*work, "--epochs", 1, "--log-every", 1, "--sync-batch-norm", "--optimizer", "sgd")
    for replicas in (1, 3):
        out = tmp_path / str(replicas)
        finish(start("mirrored", *few, "--devices", f"cpu:{replicas}", "--out", out))
    assert close(losses(tmp_path / "1"), losses(tmp_path / "3"))


@pytest.mark.parametrize("name", NAMES)
def test_replicas_tell_where_they_run(name: str, tmp_path: Path) -> None:
    options = ("--devices", "cpu:2", "--verbose-shapes", "--out", tmp_path)
    printed = finish(start(name, "--limit", 5, "--batch-size", 5, "--epochs", 2, *options))
    sizes = re.findall(r"^replica (\d) on cpu: input \((\d), 1, 8, 8\)$", printed, re.MULTILINE)
    assert sorted(sizes) == [("0", "3"), ("1", "2")], "each once, in two epochs"


def test_a_regression_says_what_counts_as_right_and_others_refuse_its_checkpoint(
    tmp_path: Path,
) -> None:
    work = ("--model", "linear", "--limit", 100, "--out", tmp_path)
    printed = finish(start("dp", *work, "--epochs", 1)).splitlines()
    found = records(tmp_path, "test_accuracy")[-1]["test_accuracy"]
    assert f"held-out within 0.1: {found:.3f} " in "\n".join(printed)
    assert printed[-1].startswith(f"held-out within 0.1 of the target: {found:.3f} after 1 epoch")
    said = complaint(start("mirrored", *work, "--epochs", 2))
    assert "checkpoints/last.pt was made by the workload dp, not by mirrored: give another" in said
    assert "resuming after step 2" in finish(start("dp", *work, "--epochs", 2))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--devices", "tpu"), "'tpu' is not a device. Write cpu"),
        (("--devices", "GPU:*"), "No device matches 'GPU:*'. Available: cpu"),
        (("--devices", "cpu:2", "cpu x 0"), "'cpu x 0' asks for 0 replicas"),
        (("--data", "/nowhere"), "--data /nowhere: there is no folder"),
        (("--model", "vgg"), "invalid choice: 'vgg'"),
        (("--lr", "1e30"), "try a smaller --lr"),
        (("--seed", str(2**63)), f"--seed: must be at most {2**63 - 1}, not {2**63} "),
    ],
)
def test_a_mistake_gets_one_line(
    name: str, arguments: tuple[str, ...], what: str, tmp_path: Path
) -> None:
    said = complaint(start(name, *arguments, "--out", tmp_path / "out"))
    assert said.startswith("train.py: error: ")
    assert what in said
