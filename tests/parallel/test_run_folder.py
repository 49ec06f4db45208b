"""Checkpoints and metrics that a job left behind when it was ended at a bad moment."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

torch = pytest.importorskip("torch")

from hpckit.parallel.errors import SetupError  # noqa: E402
from hpckit.parallel.journal import Journal  # noqa: E402
from hpckit.parallel.run_folder import (  # noqa: E402
    Metrics,
    load_checkpoint,
    make_folder,
    restoring,
    save_checkpoint,
    save_whole,
)
from hpckit.parallel.throughput_writer import ThroughputWriter  # noqa: E402
from hpckit.run_folders.metrics import METRICS, all_rows, counted_rows, read_progress  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A run's folder after two checkpoints."""
    make_folder(tmp_path)
    for step in (1, 2):
        save_checkpoint(tmp_path, {"step": step, "weights": torch.full((5000,), step)}, ["last.pt"])
    return tmp_path


def flipped(whole: bytes) -> bytes:
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda whole: whole[: len(whole) // 2],
    "empty": lambda _: b"",
    "of zeros": lambda whole: bytes(len(whole)),
    "one bit is another": flipped,
    "text": lambda _: b"hello\n",
    "the end of it is lost": lambda whole: whole[:-1],
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    saved: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = saved / "checkpoints" / "last.pt"
    newest.write_bytes(DAMAGE[how](newest.read_bytes()))
    found = load_checkpoint(saved)
    assert found
    assert found["step"] == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{newest} cannot be read: ")
    assert line.endswith("going on from previous.pt, the one before")


def test_whole_checkpoints_are_loaded_in_silence(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = load_checkpoint(saved)
    assert found
    assert found["step"] == 2
    assert {path.name for path in (saved / "checkpoints").iterdir()} == {"last.pt", "previous.pt"}
    (saved / "checkpoints" / "last.pt").unlink()  # the machine died between two renames
    found = load_checkpoint(saved)
    assert found
    assert found["step"] == 1
    assert capsys.readouterr().out == ""


def test_without_one_that_can_be_read_training_does_not_start_anew(saved: Path) -> None:
    for name in ("last.pt", "previous.pt"):
        (saved / "checkpoints" / name).write_bytes(b"")
    with pytest.raises(SetupError, match=r"last\.pt cannot be read: .*previous\.pt cannot .*never"):
        load_checkpoint(saved)
    for name in ("last.pt", "previous.pt"):
        (saved / "checkpoints" / name).unlink()
    assert load_checkpoint(saved) is None


def test_another_workloads_checkpoint_is_refused(tmp_path: Path) -> None:
    for name, told in ({"last": {"workload": "dp"}, "older": {}}).items():
        state = {"step": 1, "settings": {}, **told}
        save_checkpoint(make_folder(tmp_path / name), state, ["last.pt"])
    with pytest.raises(SetupError, match=r"last\.pt was made by the workload dp, not by mir"):
        load_checkpoint(tmp_path / "last", "mirrored")
    for name, workload in (("last", "dp"), ("last", None), ("older", "mirrored")):
        found = load_checkpoint(tmp_path / name, workload)
        assert found is not None
        assert found["step"] == 1


def test_what_another_program_wrote_there_is_one_clear_error(tmp_path: Path) -> None:
    """Many scripts call their file checkpoints/last.pt."""
    path = make_folder(tmp_path) / "checkpoints" / "last.pt"
    for state in ({"model": {}}, [1, 2], torch.ones(2)):
        torch.save(state, path)
        with pytest.raises(SetupError, match=r"last\.pt is not a checkpoint of dp, but another"):
            load_checkpoint(tmp_path, "dp")
    torch.save({"model": {}}, path)
    assert load_checkpoint(tmp_path) == {"model": {}}, "a script's own, which names no workload"


def test_a_state_that_does_not_fit_is_one_clear_error() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    for load in (
        lambda: torch.nn.Linear(2, 1).load_state_dict(torch.nn.Linear(3, 1).state_dict()),
        lambda: optimizer.load_state_dict({"state": {}, "param_groups": []}),
        lambda: {}["learner"],
    ):
        with pytest.raises(SetupError, match="is of another network or optimizer"), restoring():
            load()


def test_a_run_folder_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "in"):
        with pytest.raises(SetupError, match=r"file.* cannot be created: .*; give another --out"):
            make_folder(folder)
    monkeypatch.setattr(os, "access", lambda path, mode: "checkpoints" not in str(path))
    with pytest.raises(SetupError, match=r"may not write in the run folder .*/checkpoints: "):
        make_folder(tmp_path / "run")
    make_folder(tmp_path / "run", writes=False)
    assert make_folder(tmp_path / "bench", inside="").is_dir()
    assert not list((tmp_path / "bench").iterdir())


def test_a_process_killed_while_it_saves_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    program = """if True:
        import itertools, sys, torch
        from pathlib import Path
        from hpckit.parallel.run_folder import make_folder, save_checkpoint
        folder = make_folder(Path(sys.argv[1]))
        for step in itertools.count(1):
            state = {"step": step, "weights": torch.full((20000,), step)}
            save_checkpoint(folder, state, ["last.pt"])
            print(step, flush=True)
    """
    saver = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE)
    assert saver.stdout
    for _ in range(100):
        done = int(saver.stdout.readline())
    # It is stopped 50 times, wherever it is in its work; to its files that is as good as its end.
    for _ in range(50):
        os.kill(saver.pid, signal.SIGSTOP)
        os.waitpid(saver.pid, os.WUNTRACED)
        found = load_checkpoint(tmp_path)
        assert found
        assert found["step"] >= done
        assert bool((found["weights"] == found["step"]).all())
        os.kill(saver.pid, signal.SIGCONT)
        done = int(saver.stdout.readline())
    saver.kill()
    saver.communicate()


def test_what_an_earlier_attempt_logged_stays_also_of_steps_that_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / METRICS
    first = Metrics(tmp_path, 0, {"total_steps": 9})
    for step in (2, 4, 6, 8):
        first.write(step, 1, loss=1 / step)
    with path.open("a") as file:
        file.write('7\n{"loss": 1}\n{"step": 9, "lo')  # the job is killed
    monkeypatch.setenv("HPCKIT_RESTART", "1")
    Metrics(tmp_path, 4, {"total_steps": 9}).write(6, 1, loss=0.5)
    progress = read_progress(tmp_path)
    assert progress is not None
    assert (progress.step, progress.total_steps, progress.loss) == (6, 9, 0.5)
    monkeypatch.setenv("HPCKIT_RESTART", "2")
    Metrics(tmp_path, 5, {}).write(6, 1, loss=0.25)
    every = [
        (row["restart"], row["step"], row.get("loss")) for row in all_rows(path) if "step" in row
    ]
    assert every == [
        (0, 2, 1 / 2), (0, 4, 1 / 4), (0, 6, 1 / 6), (0, 8, 1 / 8),
        (1, 4, None), (1, 6, 0.5), (2, 5, None), (2, 6, 0.25),
    ]  # fmt: skip
    counted = [row for row in counted_rows(all_rows(path)) if "step" in row]
    assert [(row["restart"], row["step"]) for row in counted] == [(0, 2), (0, 4), (2, 6)]


def test_a_new_training_in_an_old_folder_begins_its_metrics_anew(tmp_path: Path) -> None:
    for loss in (1.0, 2.0):
        Metrics(tmp_path, 0, {}).write(1, 1, loss=loss)
    assert [row["loss"] for row in all_rows(tmp_path / METRICS)] == [2.0]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, and what fills all of it but a little."""
    folder = tmp_path / "disk"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "hpckit-test", str(folder)]
    subprocess.run(argv, check=True)
    make_folder(folder)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_on_a_full_disk_the_lines_wait_and_none_is_torn(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics, filler = Metrics(disk, 0, {}), disk / "filler"
    for step in range(1, 21):
        metrics.write(step, 1, loss=1 / step)
    before = (disk / METRICS).read_text()
    filler.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
    for step in range(21, 121):  # more than the file's last page has room for
        metrics.write(step, 1, loss=1 / step)
        text = (disk / METRICS).read_text()
        assert text.startswith(before)
        assert text.endswith("}\n")
    path = disk / METRICS
    assert capsys.readouterr().out == (
        f"hpckit: {path} cannot be written: No space left on device. The training goes on, and the "
        "lines wait\n"
    )
    filler.unlink()
    metrics.write(121, 1, loss=1 / 121)
    assert [row["step"] for row in all_rows(path)] == list(range(1, 122))
    assert "is written again, with " in capsys.readouterr().out


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_ends_no_script_that_measures_its_speed(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    moments, filler = itertools.count(), disk / "filler"
    writer = ThroughputWriter(
        disk, "cpu", warmup_steps=0, every=1, clock=lambda: float(next(moments))
    )
    filler.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
    for _ in range(100):  # more than a page has room for
        writer.step(8)
    filler.unlink()
    writer.step(8)
    assert [row["step"] for row in all_rows(disk / METRICS)] == list(range(1, 102))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_checkpoint_that_a_full_disk_refuses_leaves_the_one_before_and_the_room(
    disk: Path,
) -> None:
    save_checkpoint(disk, {"step": 1, "weights": torch.full((5000,), 1)}, ["last.pt"])
    room = os.statvfs(disk).f_bavail
    with pytest.raises(SetupError) as refused:
        save_checkpoint(disk, {"step": 2, "weights": torch.full((50000,), 2)}, ["last.pt"])
    path = disk / "checkpoints" / "last.pt"
    said = f"the checkpoint {path} cannot be written: No space left on device"
    assert (str(refused.value), os.statvfs(disk).f_bavail) == (said, room)
    found = load_checkpoint(disk)
    assert found is not None
    assert found["step"] == 1


def test_what_a_training_logs_outlives_its_folder_for_a_while(tmp_path: Path) -> None:
    folder, away = make_folder(tmp_path / "run"), tmp_path / "away"
    metrics = Metrics(folder, 0, {})
    metrics.write(1, 1, loss=1.0)
    folder.rename(away)
    metrics.write(2, 1, loss=0.5)
    with pytest.raises(SetupError, match=r"last\.pt cannot be written: No such file or directory"):
        save_checkpoint(folder, {"step": 2}, ["last.pt"])
    away.rename(folder)
    metrics.write(3, 1, loss=0.25)
    assert [row["step"] for row in all_rows(folder / METRICS)] == [1, 2, 3]


class Rows:
    """Keeps what a journal writes."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def write(self, step: int, epoch: int, **figures: float | str) -> None:
        self.rows.append({"step": step, "epoch": epoch, **figures})


def journal_of(**shape: int) -> Journal:
    return Journal(**shape, settings={}, devices="1xCPU", workload="ddp")


def test_a_run_of_few_steps_has_its_loss_in_a_line_of_steps() -> None:
    """Two epochs of three steps, a line at each fourth: and one at the last."""
    journal = journal_of(samples=6, batch_size=2, epochs=2, log_every=4, checkpoint_every=0)
    rows = Rows()
    journal.open(cast("Metrics", rows))
    for _ in journal.epochs_left():
        for loss in (2.0, 4.0, 8.0):
            journal.count(loss, 0.0)
    assert [(row["step"], row["epoch"], row["loss"]) for row in rows.rows] == [(4, 2, 1), (6, 2, 4)]


def test_an_epochs_speed_is_that_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of a second each, then tests and a checkpoint of 100 seconds."""
    now = 0.0
    monkeypatch.setattr("hpckit.parallel.journal.time.perf_counter", lambda: now)
    journal = journal_of(samples=4, batch_size=2, epochs=2, log_every=9, checkpoint_every=1)
    rows = Rows()
    journal.open(cast("Metrics", rows))
    for _ in journal.epochs_left():
        for _ in range(2):
            now += 1.0
            journal.count(1.0, 0.0)
        now += 100.0
        journal.end_epoch(1.0, 0.5)
        now += 100.0
    speeds = [row["samples_per_s"] for row in rows.rows if "test_loss" in row]
    assert speeds == [2.0, 2.0]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_weights_that_the_last_step_of_an_epoch_spoilt_get_no_checkpoint(loss: float) -> None:
    """Else the next attempt would go on from them, and fail in its first step."""
    journal = journal_of(samples=1, batch_size=1, epochs=1, log_every=9, checkpoint_every=1)
    rows = Rows()
    journal.open(cast("Metrics", rows))
    journal.count(1.0, 1.0)
    with pytest.raises(SetupError, match=f"held-out loss is {loss} after epoch 1: try a smaller"):
        journal.end_epoch(loss, 0.5)
    assert not [row for row in rows.rows if "test_loss" in row]


def test_a_run_killed_between_two_checkpoints_writes_both_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """best.pt is there whenever last.pt says how good it is."""

    def begun() -> Journal:
        return journal_of(samples=1, batch_size=1, epochs=2, log_every=9, checkpoint_every=1)

    def write(path: Path, state: dict[str, object], *, keep: bool = False) -> None:
        if killed and killed.pop():
            raise KeyboardInterrupt
        save_whole(path, state, keep=keep)

    monkeypatch.setattr("hpckit.parallel.run_folder.save_whole", write)
    make_folder(tmp_path)
    killed, journal = [True, False], begun()  # the second write
    journal.count(1.0, 1.0)
    names = journal.end_epoch(1.0, 0.5)
    assert len(names) == 2
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, journal.state(), names)
    again, found = begun(), load_checkpoint(tmp_path)
    if found is not None:
        again.resume(found)
    for _ in range(again.step, 2):
        again.count(1.0, 1.0)
        names = again.end_epoch(1.0, 0.5)
        save_checkpoint(tmp_path, again.state(), names)
    best = torch.load(tmp_path / "checkpoints" / "best.pt", weights_only=True)
    assert best["best"] == 0.5
