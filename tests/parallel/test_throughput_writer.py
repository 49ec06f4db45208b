"""Speed of one's own scripts, by a clock that is told what time it is."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hpckit.parallel import throughput_writer  # noqa: E402
from hpckit.parallel.throughput_writer import ThroughputWriter  # noqa: E402
from hpckit.run_folders.metrics import read_progress, tail_rows  # noqa: E402

pytestmark = pytest.mark.torch


class Clock:
    now = 100.0
    reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.delenv("RANK", raising=False)
    throughput_writer._say_once.cache_clear()
    return Clock()


def run(writer: ThroughputWriter, clock: Clock, *steps: tuple[float, int]) -> None:
    for seconds, samples in steps:
        clock.now += seconds
        writer.step(samples)


def lines(folder: Path) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("time") > 0 for row in rows)
    return rows


def test_lines_are_means_after_the_warm_up(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "new" / "run"
    writer = ThroughputWriter(folder, "cpu:4", warmup_steps=2, every=2, first_step=5, clock=clock)
    clock.now += 50
    run(writer, clock, (9, 64), (9, 64), (1, 60), (3, 20))
    with writer.paused():
        clock.now += 1000
    run(writer, clock, (2, 30))
    with writer.paused():
        clock.now += 1000
    run(writer, clock, (2, 30), (5, 10))
    speed = writer.summary()
    assert speed
    assert (speed.devices, speed.steps, speed.samples, speed.seconds) == ("4xCPU", 5, 150, 13)
    assert lines(folder) == [
        {"step": 9, "s_per_step": 2.0, "samples_per_s": 20.0, "devices": "4xCPU", "restart": 0},
        {"step": 11, "s_per_step": 2.0, "samples_per_s": 15.0, "devices": "4xCPU", "restart": 0},
        {"step": 12, "s_per_step": 5.0, "samples_per_s": 2.0, "devices": "4xCPU", "restart": 0},
    ]
    writer.close()
    assert writer.summary() == speed
    assert len(lines(folder)) == 3, "nothing is written twice"


def test_devices_are_waited_for_only_where_time_is_told(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(throughput_writer, "synchronize", lambda _: waits.append(1))
    with ThroughputWriter(tmp_path, "cpu", warmup_steps=3, every=4, clock=clock) as writer:
        seen = []
        for _ in range(11):
            run(writer, clock, (1, 1))
            seen.append(len(waits))
    assert seen == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert len(waits) == 3
    assert clock.reads == 4


def test_without_a_step_or_a_moving_clock_there_is_no_speed(tmp_path: Path, clock: Clock) -> None:
    with ThroughputWriter(tmp_path, "cpu", warmup_steps=1, every=1, clock=clock) as writer:
        run(writer, clock, (1, 8))
        assert writer.summary() is None
        run(writer, clock, (0, 8))
        assert writer.summary() is None
        assert not (tmp_path / "metrics.jsonl").exists()
        run(writer, clock, (2, 8))
        speed = writer.summary()
        assert speed
        assert (speed.steps, speed.samples, speed.seconds) == (2, 16, 2)


@pytest.mark.parametrize("torn", ['{"step": 7, "lo', ""])
def test_lines_are_added_and_a_torn_one_is_cut_off(tmp_path: Path, clock: Clock, torn: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 6, "loss": 0.5, "time": 1.0}\n' + torn)
    with ThroughputWriter(
        tmp_path, "cpu", warmup_steps=0, every=1, first_step=6, clock=clock
    ) as writer:
        run(writer, clock, (0.5, 8))
    assert [row["step"] for row in lines(tmp_path)] == [6, 7]
    with path.open("a") as file:
        file.write('{"step": 8, "samp')  # a reader sees this while another line is written
    assert len(tail_rows(path)) == 2
    progress = read_progress(tmp_path)
    assert progress
    assert (progress.step, progress.samples_per_s, progress.loss) == (7, 16.0, 0.5)


def test_only_rank_zero_writes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with ThroughputWriter(
        tmp_path / "run", "cpu", label="2xH200", warmup_steps=0, every=1, clock=clock
    ) as writer:
        run(writer, clock, (2, 8))
        assert str(writer.summary()).startswith("2xH200: 4 samples/s, 2.0000 s/step over 1 steps")
    assert not (tmp_path / "run").exists()


def test_events_for_tensorboard(tmp_path: Path, clock: Clock) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with ThroughputWriter(
        tmp_path, "cpu:2", warmup_steps=0, every=2, first_step=4, clock=clock
    ) as writer:
        run(writer, clock, (1, 8), (3, 8), (1, 8))
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["2xCPU/s_per_step", "2xCPU/samples_per_s"]
    found = [(event.step, event.value) for event in events.Scalars("2xCPU/samples_per_s")]
    assert found == [(6, 4.0), (7, 8.0)]


def test_without_tensorboard_one_line_says_so(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for name in ("one", "other"):
        with ThroughputWriter(
            tmp_path / name, "cpu", warmup_steps=0, every=1, clock=clock
        ) as writer:
            run(writer, clock, (1, 8))
        assert len(lines(tmp_path / name)) == 1
        assert not (tmp_path / name / "tensorboard").exists()
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("TensorBoard is not here (pip install tensorboard)")
    throughput_writer._say_once.cache_clear()


def test_gpus_are_named_and_waited_for(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    writer = ThroughputWriter(tmp_path, "GPU:*", warmup_steps=0, every=1, clock=clock)
    assert (writer.label, waited) == ("2xH200", [])
    run(writer, clock, (1, 8))
    assert waited == [torch.device("cuda", 0), torch.device("cuda", 1)]
    writer.close()
