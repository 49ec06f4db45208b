"""The ddp workload, run as users run it: real processes, real images, gloo on this machine."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.processes import (
    WORKLOADS,
    close,
    complaint,
    cut,
    environment,
    finish,
    free_port,
    losses,
    records,
    start,
    start_ranks,
    write_idx,
)

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.torch

WORKLOAD = WORKLOADS / "ddp"
EXAMPLE = WORKLOADS.parent / "examples" / "user_script" / "train.py"
TRAINING, HELD_OUT, BATCH = 601, 361, 100  # 601 = 6 * 100 + 1: some ranks get nothing of the last


@pytest.fixture(scope="module")
def idx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as IDX files, in sizes that no number of ranks divides."""
    return write_idx(tmp_path_factory.mktemp("idx"), TRAINING, HELD_OUT)


@pytest.fixture(scope="module")
def short(idx_folder: Path) -> list[object]:
    """The arguments of 28 steps, the last of each epoch with a single image."""
    return ["--data", idx_folder, "--batch-size", BATCH, "--epochs", 4, "--log-every", 1]


@pytest.fixture(scope="module")
def alone(short: list[object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of one process."""
    out = tmp_path_factory.mktemp("alone")
    finish(start("ddp", *short, "--out", out))
    return out


LONG = ["--epochs", 12, "--log-every", 1]  # 276 steps of the digits


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a long run of one process that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    finish(start("ddp", *LONG, "--out", out))
    return out


def test_by_hand_it_learns_the_digits_and_leaves_a_whole_record(tmp_path: Path) -> None:
    printed = finish(start("ddp", fresh=True, HPCKIT_RUN_DIR=tmp_path))
    last = printed.splitlines()[-1]
    accuracy = re.fullmatch(
        r"held-out accuracy (\S+) after 10 epochs, 1 rank on 1 host \(cpu, one process\)", last
    )
    assert accuracy, last
    assert float(accuracy[1]) >= 0.95
    assert "1437 training and 360 held-out images of 8x8" in printed
    assert re.search(
        r"^epoch 3/10  loss \d\.\d{3}  train acc 0\.\d{3}  held-out acc 0\.\d{3}  \d+ samples/s$",
        printed,
        re.MULTILINE,
    )
    step = records(tmp_path, "loss")[-1]
    assert step.keys() == {
        "step",
        "epoch",
        "loss",
        "samples_per_s",
        "total_steps",
        "epochs",
        "lr",
        "restart",
        "time",
    }
    assert (step["step"], step["epoch"], step["total_steps"]) == (230, 10, 230)
    assert len(records(tmp_path, "test_accuracy")) == 10
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {
        "best.pt", "last.pt", "previous.pt",
    }  # fmt: skip


@pytest.mark.parametrize("world", [2, 3, 4])
def test_any_number_of_ranks_gives_the_curve_of_one(
    world: int, short: list[object], alone: Path, tmp_path: Path
) -> None:
    printed = finish(*start_ranks(world, *short, "--out", tmp_path))
    assert len(losses(alone)) == 28
    assert close(losses(tmp_path), losses(alone))
    assert f"{world} ranks on 1 host (cpu, gloo)" in printed.splitlines()[-1]
    # Training and held-out figures count every image once, whoever saw it.
    for mine, single in zip(
        records(tmp_path, "test_loss"), records(alone, "test_loss"), strict=True
    ):
        assert mine["test_loss"] == pytest.approx(single["test_loss"], rel=1e-4)
        assert mine["train_loss"] == pytest.approx(single["train_loss"], rel=1e-4)
        assert mine["test_accuracy"] * HELD_OUT == pytest.approx(single["test_accuracy"] * HELD_OUT)
        assert mine["train_accuracy"] == pytest.approx(single["train_accuracy"])


def test_torchrun_starts_it(short: list[object], alone: Path, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [WORKLOAD / "train.py", *short, "--out", tmp_path]
    subprocess.run(
        [*torchrun, *map(str, script)],
        env=environment(OMP_NUM_THREADS=1, TMPDIR=tmp_path),  # torchrun leaves a folder there
        capture_output=True,
        timeout=280,
        check=True,
    )
    assert close(losses(tmp_path), losses(alone))


def test_bare_srun_starts_it_on_two_hosts(tmp_path: Path) -> None:
    meeting = {"SLURM_NTASKS": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    tasks = [
        start(
            "ddp",
            *("--limit", 64, "--epochs", 1, "--out", tmp_path),
            fresh=True,
            SLURM_PROCID=task,
            SLURM_LOCALID=0,
            SLURMD_NODENAME=f"c{task + 1}",
            **meeting,
        )
        for task in range(2)
    ]
    assert "after 1 epoch, 2 ranks on 2 hosts (cpu, gloo)" in finish(*tasks)


def test_a_killed_run_goes_on_to_the_same_curve(whole: Path, tmp_path: Path) -> None:
    every_5 = (*LONG, "--checkpoint-every", 5, "--out", tmp_path)
    cut(lambda: [start("ddp", *every_5)], tmp_path, signal.SIGKILL, after=5 * 23 + 5, of=276)
    with (tmp_path / "metrics.jsonl").open("a") as torn:
        torn.write('{"step": 9')
    assert losses(tmp_path)[-1][0] < 276

    printed = finish(start("ddp", *LONG, "--out", tmp_path, HPCKIT_RESTART=1))
    assert re.search(r"^resuming after step (115|230) of 276$", printed, re.MULTILINE)
    assert losses(tmp_path) == losses(whole)
    figures = ["step", "epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy"]
    assert [[r[f] for f in figures] for r in records(tmp_path, "test_loss")] == [
        [r[f] for f in figures] for r in records(whole, "test_loss")
    ]


def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    told = (*LONG, "--checkpoint-every", 0, "--out", tmp_path)
    printed = cut(lambda: start_ranks(2, *told), tmp_path, signal.SIGUSR2, after=30, of=276)
    said = re.search(r"^stopped at step (\d+), checkpoint saved$", printed, re.MULTILINE)
    assert said
    assert losses(tmp_path)[-1][0] == int(said[1]) < 276

    # A different number of ranks may go on, in the middle of an epoch.
    assert f"resuming after step {said[1]} of 276" in finish(start("ddp", *LONG, "--out", tmp_path))
    assert close(losses(tmp_path), losses(whole))
    assert [r["train_accuracy"] for r in records(tmp_path, "train_accuracy")] == pytest.approx(
        [r["train_accuracy"] for r in records(whole, "train_accuracy")], abs=0.002
    )


def weights(out: Path) -> dict[str, Any]:
    import torch

    return torch.load(out / "checkpoints" / "last.pt", weights_only=True)["model"]


def test_three_ranks_that_were_stopped_end_with_the_same_bits(tmp_path: Path) -> None:
    # With two, sums are the same in any order.
    words = ("--epochs", 2, "--log-every", 1, "--checkpoint-every", 0)
    finish(*start_ranks(3, *words, "--out", tmp_path / "whole"))
    out = tmp_path / "cut"
    for steps in (5, 25):
        cut(lambda: start_ranks(3, *words, "--out", out), out, signal.SIGUSR2, after=steps, of=46)
    finish(*start_ranks(3, *words, "--out", out))
    assert losses(out) == losses(tmp_path / "whole")
    one, other = (weights(folder) for folder in (out, tmp_path / "whole"))
    assert {*one} == {*other}
    assert all(bool((one[name] == other[name]).all()) for name in one)


def test_no_thread_of_the_process_group_outlives_it(tmp_path: Path) -> None:
    # Such a thread aborted one run in ten, after its work was done.
    program = f"""if True:
        import pathlib, sys, torch.distributed as dist
        sys.path.insert(0, {str(WORKLOAD)!r})
        import train
        destroy = dist.destroy_process_group
        def threads():
            return [p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")]
        def watched():
            before = [name for name in threads() if "gloo" in name]
            destroy()
            after = [name for name in threads() if "gloo" in name]
            print(f"threads {{bool(before)}} then {{after}}")
        dist.destroy_process_group = watched
        train.main()
    """
    arguments = ["--limit", "64", "--epochs", "1", "--out", str(tmp_path)]
    meeting = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=environment(RANK=rank, LOCAL_RANK=rank, **meeting),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert finish(*ranks).count("threads True then []\n") == 2


def test_the_examples_process_group_ends_when_it_is_told_to() -> None:
    # What was left of it hung 3 of 6 runs after their work was done; a Python that has imported
    # torch.distributed.nn before would not show it.
    program = f"""if True:
        import pathlib, runpy, torch.distributed as dist
        destroy = dist.destroy_process_group
        def watched():
            destroy()
            paths = pathlib.Path("/proc/self/task").glob("*/comm")
            print("left:", [name for path in paths if "gloo" in (name := path.read_text())])
        dist.destroy_process_group = watched
        runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
    """
    meeting = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    done = subprocess.run(
        [sys.executable, "-c", program, "--steps", "3"], env=environment(**meeting),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "left: []", done.stdout + done.stderr
    assert "Warning" not in done.stderr


def test_a_finished_run_has_nothing_left_to_do(short: list[object], alone: Path) -> None:
    before = (alone / "metrics.jsonl").read_text()
    printed = finish(start("ddp", *short, "--out", alone))
    assert "resuming after step 28 of 28: all are taken" in printed
    assert "after 4 epochs" in printed.splitlines()[-1]
    assert (alone / "metrics.jsonl").read_text() == before


def test_every_rank_prints_the_shapes_of_its_inputs(tmp_path: Path) -> None:
    shapes = ["--limit", 65, "--epochs", 1, "--verbose-shapes", "--out", tmp_path]
    printed = finish(*start_ranks(3, *shapes))
    seen = sorted(re.findall(r"^rank (\d) of 3 on \S+ cpu: input (\(.*\))$", printed, re.MULTILINE))
    # 64 images are dealt out as 22, 21, 21, and the 65th goes to one rank alone.
    assert seen == sorted(
        [
            ("0", "(22, 1, 8, 8)"),
            ("1", "(21, 1, 8, 8)"),
            ("2", "(21, 1, 8, 8)"),
            ("0", "(0, 1, 8, 8)"),
            ("1", "(1, 1, 8, 8)"),
            ("2", "(0, 1, 8, 8)"),
        ]
    )
    assert "each rank sees 21 or 22 samples per epoch" in printed


def test_without_the_sampler_every_rank_works_on_all_images(
    short: list[object], alone: Path, tmp_path: Path
) -> None:
    exercise = ["--no-sampler", "--verbose-shapes", "--out", tmp_path]
    printed = finish(*start_ranks(2, *short, *exercise))
    assert "each rank sees 601 samples per epoch" in printed
    assert printed.count("rank 1 of 2 ") == 2, "each shape once, in four epochs"
    assert printed.count("input (100, 1, 8, 8)\n") == 2
    assert close(losses(tmp_path), losses(alone))


@pytest.mark.parametrize(
    ("arguments", "variables", "what"),
    [
        (["--data", "/nowhere"], {}, "--data /nowhere: there is no folder /nowhere"),
        (
            ["--data", "{empty}"],
            {},
            "neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz",
        ),
        (["--data", "{torn}"], {}, "train-images-idx3-ubyte.gz cannot be read"),
        (["--data", "{wrong}"], {}, "train-images-idx3-ubyte is not a whole IDX file"),
        (["--batch-size", "0"], {}, "--batch-size: must be at least 1, not 0"),
        (["--batch-size", "many"], {}, "--batch-size: invalid int value: 'many'"),
        (["--lr", "1e30"], {}, "the loss is nan at step 2: try a smaller --lr"),
        ([], {"HPCKIT_DEVICE": "tpu"}, "HPCKIT_DEVICE is 'tpu'"),
        (
            [],
            {"SLURM_NTASKS": 2, "SLURM_STEP_NUM_TASKS": 2, "SLURM_PROCID": 0},
            "set MASTER_ADDR",
        ),
    ],
)
def test_a_mistake_gets_one_line(
    arguments: list[str], variables: dict[str, object], what: str, tmp_path: Path
) -> None:
    for name, content in [("empty", None), ("torn", b"\x1f\x8b\x08"), ("wrong", b"\0\0\x08\x03")]:
        (tmp_path / name).mkdir()
        if content:
            ending = ".gz" if name == "torn" else ""
            (tmp_path / name / f"train-images-idx3-ubyte{ending}").write_bytes(content)
    filled = [x.replace("{", f"{tmp_path}/").replace("}", "") for x in arguments]
    said = complaint(start("ddp", *filled, "--out", tmp_path / "out", **variables))
    assert said.startswith("train.py: error: ")
    assert what in said


def test_a_run_does_not_go_on_with_another_learning_rate(short: list[object], alone: Path) -> None:
    said = complaint(start("ddp", *short, "--lr", 0.1, "--out", alone))
    assert said.startswith("train.py: error: checkpoints/last.pt was made with --lr 0.005, not 0.1")
