"""Scripted GPUs through the real nvidia-ml-py and a real sampler: what is read is what was played.

A script runs faster than real time (`scale`), samples come every 0.2 s.
"""

import os
import signal
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from hpckit.stats.samples.records import GPM, MEAN, SHARED, SPOT, UNVERIFIED, VERIFIED
from tests.stats.conftest import Played, Start, read_folder
from tests.stats.exact import Exact, read_log
from tests.stats.stub.script import Gpu, Stub, busy, uuid

pytestmark = pytest.mark.long

WAVE = [(at * 5.0, 100.0 * (at % 2)) for at in range(40)]
SHORT = 2.4  # real seconds of a script
SCALE = 25.0


def play(start: Start, gpus: Sequence[Gpu], *, seconds: float = SHORT, **options: object) -> Played:
    running = start(gpus, scale=SCALE, **options)
    running.play_until(seconds * SCALE)
    return running.stop()


def exactly(played: Played, gpus: Sequence[Gpu]) -> list[Exact]:
    """What samples must say of each GPU."""
    reads = read_log(played.stub.folder / "reads", played.header.pid)
    return [
        Exact(played=played, at=at, gpu=gpu, reads=reads[uuid(gpu.index)])
        for at, gpu in enumerate(gpus)
    ]


def assert_true(played: Played, gpus: Sequence[Gpu]) -> None:
    """Means, memory peak and energy agree with the script's exact values within 1 %."""
    for position, exact in enumerate(exactly(played, gpus)):
        for name, curve in (
            ("utilization_permille", "util"),
            ("sm_permille", "sm"),
            ("occupancy_permille", "occupancy"),
            ("tensor_permille", "tensor"),
            ("dram_permille", "dram"),
        ):
            near = pytest.approx(exact.mean(curve, name) * 10, rel=0.01, abs=0.5)
            assert played.mean(position, name) == near, name
        assert played.energy_mj(position) == pytest.approx(exact.energy()[0] * 1000, rel=1e-3)
        peak = max(sample.memory_bytes or 0 for _, sample in played.gpu(position))
        assert peak == exact.peak("memory", "memory_bytes")


def test_constant(start: Start) -> None:
    gpus = [busy(index, [(0, 73)]) for index in range(4)]
    played = play(start, gpus, slow=1.0)
    assert_true(played, gpus)
    assert [gpu.uuid for gpu in played.header.gpus] == [uuid(index) for index in range(4)]
    assert played.header.gpus[1].pci == "00000000:19:00.0"
    assert played.header.gpus[0].memory_total_bytes == 150_754_820_096
    assert played.header.gpus[0].power_limit_mw == 700_000
    assert played.header.driver == "570.86.15"
    assert played.header.gpu_method == "all_visible"
    assert played.end is not None
    assert played.end.reason == "signal"
    assert played.damage.bad_lines == played.damage.torn == 0
    slow = played.slow[1].gpus[0]
    assert (slow.sm_mhz, slow.memory_mhz, slow.temperature_c) == (1980, 3201, 45)
    assert (slow.throttle_reasons, slow.memory_temperature_c) == (4, 52)
    assert slow.utilization_source == MEAN
    state = played.states[0].gpus[0]
    assert (state.ecc_corrected, state.ecc_uncorrected, state.remapped_rows) == (3, 0, 0)


def test_square_wave(start: Start) -> None:
    gpus = [busy(0, WAVE), busy(1, [(at + 2.5, value) for at, value in WAVE])]
    assert_true(play(start, gpus), gpus)


def test_spot_readings_between_samples(start: Start, stub: Stub) -> None:
    """Without the driver's buffer, a wave as long as the interval is known by several readings."""
    calls = stub.folder / "calls"
    gpus = [busy(0, [(at * 0.5, 100.0 * (at % 2)) for at in range(40)], na="samples")]
    running = start(gpus, interval=1.0, env={"NVML_STUB_CALLS": str(calls)})
    running.play_until(6.0)
    played = running.stop()
    said = calls.read_text().split()
    # Four readings for each sample but the first; a loaded machine may leave some out.
    assert said.count("utilization") > 2 * len(played.samples)
    assert said.count("memory") <= 2 * len(played.samples) + 2
    assert 20 < played.mean(0, "utilization_permille") / 10 < 80
    assert played.header.spot_us == 250_000


def test_idle_tail(start: Start) -> None:
    gpus = [busy(0, [(0, 95), (30, 0)])]
    played = play(start, gpus)
    assert_true(played, gpus)
    (exact,) = exactly(played, gpus)
    values = exact.values("utilization_permille")
    said = exact.said("utilization_permille")
    assert {values[part.number] for part in said if part.begin >= 30} == {0}


def test_late_start(start: Start) -> None:
    gpus = [busy(0, [(0, 0), (40, 100)])]
    played = play(start, gpus)
    assert_true(played, gpus)
    (exact,) = exactly(played, gpus)
    values = exact.values("utilization_permille")
    said = exact.said("utilization_permille")
    assert {values[part.number] for part in said if part.end <= 40} == {0}


def test_straggler(start: Start) -> None:
    gpus = [busy(index, [(0, 100 if index != 5 else 31)]) for index in range(8)]
    played = play(start, gpus)
    assert_true(played, gpus)
    means = [played.mean(position, "utilization_permille") for position in range(8)]
    assert min(range(8), key=means.__getitem__) == 5


def test_lost_gpu(start: Start) -> None:
    gpus = [busy(0), busy(1, lost=30)]
    played = play(start, gpus)
    after = [sample for at, sample in played.gpu(1) if at > 33]
    assert after
    assert all(sample.memory_bytes is None for sample in after)
    assert all(sample.utilization_permille is None for sample in after)
    assert all(sample.memory_bytes for _, sample in played.gpu(0))
    note = next(note for note in played.notes if note.code == "gpu_lost")
    assert note.gpu == uuid(1)
    assert "lost" in note.text


def test_errors_in_the_middle_of_a_run(start: Start, stub: Stub) -> None:
    """Whatever NVML's error, a GPU of which nothing can be read is lost; it may come back."""
    mended = stub.folder / "mended"
    board = busy(4)
    part = busy(4)
    part.uuid, part.slice_of = "MIG-1", uuid(4)
    part.words = {"instance": 1, "fail": "2 20"}
    gpus = [
        busy(0, fail="999 20"),
        busy(1, fail="16 20"),
        busy(2, fail="999 20", mended=mended),
        busy(3, fail=("3 20 inf energy", "3 20 inf power")),
        board,
        part,
        busy(5),
    ]
    running = start(gpus, scale=SCALE, slow=0.4)
    running.wait_for_notes("gpu_lost", 4)
    mended_at = (time.monotonic() - stub.start) * SCALE
    mended.touch()
    running.wait_for_notes("gpu_back", 1)
    running.wait_for_samples(len(read_folder(running.folder, stub).samples) + 2)
    played = running.stop()
    at = {gpu.uuid: position for position, gpu in enumerate(played.header.gpus)}
    gone = {note.gpu: note for note in played.notes if note.code == "gpu_lost"}
    found = {name: gone[name].error for name in gone}
    assert found == {uuid(0): 999, uuid(1): 16, uuid(2): 999, "MIG-1": 2}
    assert [note.gpu for note in played.notes if note.code == "gpu_back"] == [uuid(2)]
    for name in gone:
        # A sample is read between its time and the next one's.
        rows = [(when, row, end) for (when, row), (end, _) in pairwise(played.gpu(at[name]))]
        assert all(row.memory_bytes for _, row, end in rows if end < 20)
        assert not any(row.memory_bytes for when, row, end in rows if when > 20 and end < mended_at)
    assert played.gpu(at[uuid(2)])[-1][1].memory_bytes
    # One that no longer tells its energy is read on.
    last = played.gpu(at[uuid(3)])[-1][1]
    assert (last.energy_mj, last.power_mw, last.utilization_permille) == (None, None, 1000)
    stopped = [note.error for note in played.notes if note.gpu == uuid(3)]
    assert stopped == [3, 3]
    assert all(sample.energy_mj for _, sample in played.gpu(at[uuid(5)]))


def test_fields_a_board_does_not_have(start: Start) -> None:
    lacking = "energy samples throttle fields ecc remapped clocks"
    gpus = [
        busy(0, [(0, 50)], na=lacking, gpm=0),
        busy(1, [(0, 50)], na="utilization samples power"),
    ]
    played = play(start, gpus, slow=1.0)
    first, second = (played.gpu(position)[-1][1] for position in range(2))
    assert first.energy_mj is None
    assert first.power_mw == 385_000
    assert first.utilization_permille == 500
    assert (first.sm_permille, first.dram_permille) == (None, None)
    assert second.utilization_permille is None
    assert second.energy_mj is not None
    slow, state = played.slow[1].gpus[0], played.states[0].gpus[0]
    assert (slow.sm_mhz, slow.throttle_reasons, slow.memory_temperature_c) == (None, None, None)
    assert slow.utilization_source == SPOT
    assert (state.ecc_corrected, state.remapped_rows) == (None, None)
    said = [note.text for note in played.notes if note.code == "not_supported"]
    assert len(said) == len(set(said)) + 1  # each once, one by both GPUs


def test_mig_slices_are_told_apart(start: Start, stub: Stub) -> None:
    board = Gpu(index=0, curves={"power": [(0, 300_000)]})
    slices = []
    for instance, level in ((1, 80.0), (2, 10.0)):
        part = busy(0, [(0, level)])
        part.uuid, part.slice_of = f"MIG-{instance}", uuid(0)
        part.words = {"instance": instance, "memory_total": 18 * 2**30, "name": "H200 MIG 1g.18gb"}
        slices.append(part)
    played = play(start, [board, *slices], slow=1.0)
    assert [gpu.uuid for gpu in played.header.gpus] == ["MIG-1", "MIG-2"]
    assert {gpu.mig_parent for gpu in played.header.gpus} == {uuid(0)}
    for position, level in ((0, 80), (1, 10)):
        # GPM needs 100 ms between two readings, which a loaded machine may not leave.
        known = [row for _, row in played.gpu(position) if row.utilization_permille is not None]
        sample = known[-1]
        assert sample.utilization_permille == pytest.approx(level * 10, abs=1)
        assert sample.sm_permille == pytest.approx(level * 6, abs=1)
        assert (sample.energy_mj, sample.power_mw) == (None, None)
        assert sample.memory_bytes == 600 * 2**20 + 90 * 2**30
    assert played.slow[1].gpus[0].utilization_source == GPM
    assert played.slow[1].gpus[0].temperature_c == 45


def test_one_mig_slice_of_a_job(start: Start) -> None:
    parts = [busy(0, [(0, level)]) for level in (80.0, 10.0)]
    for instance, part in enumerate(parts, 1):
        part.uuid, part.slice_of, part.words = f"MIG-{instance}", uuid(0), {"instance": instance}
    env = {"CUDA_VISIBLE_DEVICES": "MIG-2", "SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "1"}
    played = play(start, [Gpu(index=0), *parts], seconds=1.5, env=env)
    assert [gpu.uuid for gpu in played.header.gpus] == ["MIG-2"]
    assert played.header.gpu_method == "cuda_uuid"


def test_hanging_driver(start: Start) -> None:
    gpus = [busy(0), busy(1, hang=15), busy(2)]
    running = start(gpus, scale=15.0)
    late = lambda played: [sample for at, sample in played.gpu(1) if at > 15]  # noqa: E731
    running.play_until(16)
    running.wait_for(lambda: len(late(read_folder(running.folder, running.stub))) >= 15)
    played = running.stop()
    note = next(note for note in played.notes if note.code == "gpu_hang")
    assert note.gpu == uuid(1)
    assert all(sample.memory_bytes is None for sample in late(played))
    assert all(sample.memory_bytes for _, sample in played.gpu(2))
    # Two seconds are waited, once; all samples after it would, if each did. A loaded machine may
    # stand still in some.
    assert max(sample.took_us or 0 for sample in played.samples) > 1_000_000
    waits = sorted(sample.took_us or 0 for sample in played.samples)
    assert waits[len(waits) // 2] < 1_000_000


def test_told_to_end_while_the_driver_hangs(start: Start, tmp_path: Path) -> None:
    """It does not wait until it would call that a hang: two seconds, and here ten minutes."""
    patient = tmp_path / "patient"
    patient.mkdir()
    (patient / "sitecustomize.py").write_text(
        "from hpckit.stats.sampler import gpuset\ngpuset._HANG_S = 600.0\n"
    )
    running = start([busy(0, hang=30)], scale=15.0, env={"PYTHONPATH": f"{patient}:{Path.cwd()}"})
    running.play_until(36)
    played = running.stop()
    assert played.end is not None
    assert "gpu_hang" not in played.codes()


def test_a_job_that_is_suspended_while_a_gpu_is_read(start: Start, tmp_path: Path) -> None:
    """The time is none in which the driver did not answer."""
    stops = tmp_path / "stops"
    stops.mkdir()
    (stops / "sitecustomize.py").write_text(
        "import os, signal, time\n"
        "from hpckit.stats.sampler import gpuset\n"
        "from hpckit.stats.sampler.gpuset import GpuReader\n"
        "gpuset._HANG_S = 1.5\n"
        "read = GpuReader.sample\n"
        "def sample(reader, now_us):\n"
        "    GpuReader.sample = read\n"
        "    time.sleep(0.1)\n"  # so that somebody waits for this, and goes on first
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    time.sleep(0.1)\n"
        "    return read(reader, now_us)\n"
        "GpuReader.sample = sample\n"
    )
    running = start([busy(0)], env={"PYTHONPATH": f"{stops}:{Path.cwd()}"})
    os.waitpid(running.process.pid, os.WUNTRACED)
    time.sleep(2)  # longer than what would be a hang
    running.process.send_signal(signal.SIGCONT)
    running.wait_for_samples(3)
    played = running.stop()
    assert "gpu_hang" not in played.codes()
    assert all(sample.memory_bytes for _, sample in played.gpu(0))


def test_told_to_end_while_nvml_starts(start: Start) -> None:
    running = start([busy(0, hang=0)])
    running.wait_for(running.stub.began.exists)
    played = running.stop()
    assert played.header.gpus == ()
    assert "no_nvml" in played.codes()
    assert played.samples[0].cpu_us


def test_no_nvml(start: Start) -> None:
    running = start([], scale=SCALE, env={"LD_LIBRARY_PATH": "/nowhere"})
    running.wait_for_samples(5)
    played = running.stop()
    assert played.header.gpus == ()
    assert played.codes() >= {"no_nvml"}
    assert "Not Found" in next(note.text for note in played.notes if note.code == "no_nvml")
    assert played.samples[-1].cpu_us
    assert played.samples[-1].memory_bytes


def test_driver_not_loaded(start: Start) -> None:
    played = play(start, [], seconds=1.5, env={"NVML_STUB_SCRIPT": "/nowhere"})
    assert "Driver Not Loaded" in next(n.text for n in played.notes if n.code == "no_nvml")


def test_counter_reset(start: Start) -> None:
    gpus = [busy(0, [(0, 100)], energy_reset=30)]
    played = play(start, gpus)
    assert "counter_reset" in played.codes()
    (exact,) = exactly(played, gpus)
    # What was used between the last sample before the reset and the reset itself is not known.
    assert played.energy_mj(0) == pytest.approx(exact.energy()[0] * 1000, rel=1e-3)
    assert all((sample.power_mw or 0) < 700_000 for _, sample in played.gpu(0))


@pytest.mark.parametrize(("job", "indices"), [("1", "0-1"), ("2", "2,3")])
def test_two_jobs_on_one_node(start: Start, job: str, indices: str) -> None:
    gpus = [busy(index, [(0, 10.0 * index)]) for index in range(4)]
    env = {"SLURM_JOB_ID": job, "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": indices}
    played = play(start, gpus, seconds=2, env=env)
    mine = [0, 1] if job == "1" else [2, 3]
    assert [gpu.index for gpu in played.header.gpus] == mine
    assert played.header.gpu_method == "slurm_job_gpus"
    for position, index in enumerate(mine):
        assert played.mean(position, "utilization_permille") == pytest.approx(100 * index, abs=2)


def test_device_cgroup_refuses_the_others(start: Start) -> None:
    gpus = [busy(index, forbidden=index < 2) for index in range(4)]
    env = {"SLURM_JOB_ID": "5", "SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1"}
    played = play(start, gpus, seconds=1, env=env)
    assert [gpu.index for gpu in played.header.gpus] == [2, 3]
    assert played.header.gpu_method == "constrained"


def test_whose_processes(start: Start) -> None:
    mine, other = os.getpid(), 1
    gpus = [
        busy(0, process=f"{mine} 1000000"),
        busy(1, process=f"{other} 1000000"),
        busy(2),
        busy(3, process="4000000 1000000"),
    ]
    played = play(start, gpus, seconds=1)
    found = [gpu.confidence for gpu in played.states[0].gpus]
    assert found == [VERIFIED, SHARED, UNVERIFIED, UNVERIFIED]
    assert played.states[0].gpus[0].processes == ((mine, 1_000_000),)


def test_harmful_calls_are_never_made(start: Start, tmp_path: object) -> None:
    # The stub aborts the process when one is.
    played = play(start, [busy(0)], seconds=1, slow=0.3)
    assert played.end is not None
