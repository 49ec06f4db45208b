"""Checkpoints and metrics that a job left behind when it was ended at a bad moment."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hpckit.parallel.errors import SetupError  # noqa: E402
from hpckit.parallel.run_folder import (  # noqa: E402
    Metrics,
    load_checkpoint,
    make_folder,
    save_checkpoint,
)

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


def test_lines_that_are_none_are_left_out_of_the_metrics(tmp_path: Path) -> None:
    lines = ['{"step": 1}', '{"step": 2', "", "7", '{"loss": 1}', '{"step": 2}', '{"step": 3}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 2')
    Metrics(tmp_path, 2, {}).write(3, 1, loss=0.5)
    kept = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in kept] == [1, 2, 3]
