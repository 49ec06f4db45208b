"""Figures from samples, against sums done slowly, one sample at a time."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import GpuSample, Header, Note, Sample
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.coverage import enough_of
from hpckit.stats.summary.summarise import summarise
from tests.report.made import BEGAN_US, START, table, write_samples

permille = st.none() | st.integers(0, 1000) | st.sampled_from([0, 0, 9, 10, 1000])
gap_us = st.integers(500_000, 14_000_000)
rows = st.lists(
    st.tuples(gap_us, permille, permille, st.none() | st.integers(0, 1 << 38)),
    min_size=1,
    max_size=60,
)


def columns_of(folder: Path, samples: list[Sample], interval_us: int = 10_000_000) -> Columns:
    header = Header(
        host="n1", boot_id="b", pid=1, epoch_us=START * 10**6, mono_us=BEGAN_US,
        interval_us=interval_us, gpus=table(1), cores=8, memory_limit_bytes=1 << 40,
    )  # fmt: skip
    encode = encoder(1)
    path = folder / "n1.r0.1.jsonl"
    path.write_bytes(b"".join(map(encode, (header, *samples))))
    found = read_columns(path, 0)
    assert found is not None
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
def test_means_peaks_and_idle_time_are_those_of_slow_sums(
    tmp_path: Path, drawn: list[tuple[int, int | None, int | None, int | None]]
) -> None:
    times, at = [], BEGAN_US
    for gap, *_ in drawn:
        times.append(at)
        at += gap
    samples = [
        Sample(
            mono_us=time,
            gpus=(GpuSample(utilization_permille=used, sm_permille=sm, memory_bytes=memory),),
        )
        for time, (_, used, sm, memory) in zip(times, drawn, strict=True)
    ]
    account = summarise([columns_of(tmp_path, samples)])
    weights = [0, *(after - before for before, after in pairwise(times))]
    gpu = account.per_gpu[0]

    def of(column: int) -> tuple[int, list[tuple[int, int]], set[bool]]:
        """The time in which a reading is known, what it was, and whether that may be enough."""
        known = [
            (weight, row[column])
            for weight, row in zip(weights, drawn, strict=True)
            if row[column] is not None
        ]
        either = sum(
            weight
            for weight, (_, *readings) in zip(weights, drawn, strict=True)
            if any(value is not None for value in readings)
        )
        part = sum(weight for weight, _ in known)
        # To the time read, the edges are added: a second before the first sample and the last one's
        # own weight after it. At the limit of what is enough, both answers are right.
        edges = 1_000_000 + weights[-1]
        return part, known, {enough_of(part, whole) for whole in (either, either + edges)}

    _, known_memory, enough = of(3)
    if gpu.memory_peak_bytes is None:
        assert not known_memory or False in enough
    else:
        assert True in enough
        assert gpu.memory_peak_bytes == max(value for _, value in known_memory) // 1024 * 1024
    total, known, enough = of(1)
    if gpu.utilization_percent is None:
        assert not total or False in enough
        assert account.summary.gpu_utilization_percent is None
        return
    assert True in enough
    mean = sum(weight * used for weight, used in known) / total / 10
    assert gpu.utilization_percent == pytest.approx(mean, abs=0.02)
    assert gpu.utilization_peak_percent == pytest.approx(max(used for _, used in known) / 10)
    idle = sum(weight for weight, used in known if used < 10)
    assert gpu.idle_percent == pytest.approx(idle / total * 100)
    assert gpu.covered_percent is None or gpu.covered_percent <= 100
    assert gpu.hours == pytest.approx(total / 3.6e9)
    busy = [time for time, (_, used, *_) in zip(times, drawn, strict=True) if (used or 0) >= 10]
    if busy:  # what a GPU did after its utilization was last read is not known
        seen = max(time for time, row in zip(times, drawn, strict=True) if row[1] is not None)
        if gpu.idle_tail_s is None:
            assert times[-1] - seen > 0
        else:
            assert gpu.idle_tail_s == pytest.approx((seen - busy[-1]) / 1e6)
    else:
        assert gpu.first_use_s is None


def test_a_hole_in_the_samples_counts_for_three_periods_only(tmp_path: Path) -> None:
    times = [0, 10, 20, 1000, 1010]
    samples = [
        Sample(
            mono_us=BEGAN_US + at * 10**6, gpus=(GpuSample(utilization_permille=500, energy_mj=at),)
        )
        for at in times
    ]
    span = Span(restart=0, start=START, end=START + 1010)
    account = summarise([columns_of(tmp_path, samples)], [span])
    assert account.per_gpu[0].hours == pytest.approx((10 + 10 + 30 + 10) / 3600)
    # The counter knows of the hole: its energy is all there.
    assert account.per_gpu[0].energy_joules == pytest.approx(1.010)
    assert account.summary.coverage_percent == pytest.approx(100 * (60 + 1 + 10) / 1010)


def test_energy_over_a_counter_reset_is_the_sum_of_both_sides(tmp_path: Path) -> None:
    values = [5_000, 7_000, 1_000, 4_000]
    samples = [
        Sample(mono_us=BEGAN_US + at * 10**7, gpus=(GpuSample(energy_mj=value),))
        for at, value in enumerate(values)
    ]
    path = tmp_path / "n1.r0.1.jsonl"
    columns_of(tmp_path, samples)
    note = Note(mono_us=BEGAN_US, code="counter_reset", text="x", gpu="GPU-n1-0")
    path.write_bytes(path.read_bytes() + encoder(1)(note))
    found = read_columns(path, 0)
    assert found is not None
    assert summarise([found]).per_gpu[0].energy_joules == pytest.approx(2 + 1 + 3)


def test_attempts_have_their_own_figures_and_the_job_those_of_all(tmp_path: Path) -> None:
    first = write_samples(tmp_path, [[50.0] * 61], period_s=10, end=False)
    second = write_samples(tmp_path, [[100.0] * 31], restart=1, period_s=10, late_s=1000)
    files = [read_columns(first, 0), read_columns(second, 1)]
    spans = [
        Span(restart=0, start=START, end=START + 900, state="NODE_FAIL", gpus=1),
        Span(restart=1, start=START + 1000, end=START + 1300, state="COMPLETED", gpus=1),
    ]
    account = summarise([file for file in files if file], spans)
    one, two = account.attempts
    assert one.gpu_utilization_percent == pytest.approx(50)
    assert two.gpu_utilization_percent == pytest.approx(100)
    assert one.coverage_percent == pytest.approx(100 * (600 + 11) / 900)
    assert two.coverage_percent == 100
    assert account.summary.gpu_utilization_percent == pytest.approx((600 * 50 + 300 * 100) / 900)
    assert account.summary.gpu_hours == pytest.approx(1200 / 3600)
    assert [note.code for note in account.notes] == ["sampler_stopped"]
    assert len(account.timelines) == 2


def test_two_samplers_on_one_node_count_each_gpu_and_the_node_once(tmp_path: Path) -> None:
    one = write_samples(tmp_path / "a", [[80.0] * 31, [20.0] * 31])
    two = write_samples(tmp_path / "b", [[80.0] * 30, [20.0] * 30])
    files = [read_columns(path, 0) for path in (one, two)]
    account = summarise([file for file in files if file])
    assert len(account.per_gpu) == 2
    assert account.summary.gpu_hours == pytest.approx(2 * 300 / 3600)
    assert account.per_node[0].cpu_s == pytest.approx(4 * 300)


def test_imbalance_and_first_use_and_tail(tmp_path: Path) -> None:
    late = [0.0] * 31 + [90.0] * 90
    tail = [90.0] * 61 + [0.0] * 60
    path = write_samples(tmp_path, [late, tail])
    found = read_columns(path, 0)
    assert found is not None
    account = summarise([found], [Span(restart=0, start=START - 60, end=START + 1200)])
    one, two = account.per_gpu
    assert one.first_use_s == pytest.approx(60 + 300)
    assert (one.idle_tail_s, two.idle_tail_s) == (0, 600)
    assert account.summary.gpu_imbalance_percent == pytest.approx(
        (one.utilization_percent or 0) - (two.utilization_percent or 0)
    )
    assert account.summary.gpu_hours_idle == pytest.approx((300 + 600) / 3600)


def test_regular_pauses_are_found_with_what_the_cores_did(tmp_path: Path) -> None:
    pattern = [90.0, 90.0, 90.0, 5.0] * 30
    cores = [4.0, 4.0, 4.0, 15.8] * 30
    found = read_columns(write_samples(tmp_path, [pattern], cores_used=cores), 0)
    assert found is not None
    stalls = summarise([found]).per_gpu[0].stalls
    assert stalls is not None
    assert stalls.count == 29
    assert stalls.period_s == pytest.approx(40)
    assert stalls.share_percent == pytest.approx(25, abs=1)
    assert stalls.cpu_during_percent == pytest.approx(15.8 / 16 * 100, abs=0.5)
    assert stalls.cpu_otherwise_percent == pytest.approx(25, abs=1)
    steady = read_columns(write_samples(tmp_path / "steady", [[90.0] * 120]), 0)
    assert steady is not None
    assert summarise([steady]).per_gpu[0].stalls is None


@pytest.mark.parametrize("read", [40, 320])
def test_a_gpu_whose_utilization_is_read_no_more_has_no_idle_tail(
    tmp_path: Path, read: int
) -> None:
    """Its memory and energy are; it may be at work. Of 60 min, 53 are enough to say something."""
    used = [90.0] * 30 + [0.0] * 331
    found = read_columns(write_samples(tmp_path, [used], stopped={"utilization_permille": read}), 0)
    assert found is not None
    (one,) = summarise([found]).per_gpu
    assert one.covered_percent == 100
    assert one.idle_tail_s == (None if read == 40 else 2900)


def test_a_lost_gpu_keeps_its_energy_and_has_no_idle_tail(tmp_path: Path) -> None:
    readings = [(5_000, 900), (7_000, 900), (None, None), (None, None)]
    samples = [
        Sample(
            mono_us=BEGAN_US + at * 10**7,
            gpus=(GpuSample(energy_mj=energy, utilization_permille=used),),
        )
        for at, (energy, used) in enumerate(readings)
    ]
    path = tmp_path / "n1.r0.1.jsonl"
    columns_of(tmp_path, samples)
    note = Note(mono_us=BEGAN_US, code="gpu_lost", text="x", gpu="GPU-n1-0")
    path.write_bytes(path.read_bytes() + encoder(1)(note))
    found = read_columns(path, 0)
    assert found is not None
    (lost,) = summarise([found]).per_gpu
    assert (lost.lost, lost.energy_joules, lost.power_watts_mean) == (True, 2.0, 0.2)
    assert (lost.idle_tail_s, lost.idle_percent, lost.utilization_percent) == (0, 0, 90)


def test_a_sum_of_energy_with_an_unknown_part_is_unknown(tmp_path: Path) -> None:
    header = Header(
        host="n1", boot_id="b", pid=1, epoch_us=START * 10**6, mono_us=BEGAN_US,
        interval_us=10**7, gpus=table(2), cores=8,
    )  # fmt: skip
    samples = [
        Sample(mono_us=BEGAN_US + at * 10**7, gpus=(GpuSample(energy_mj=at * 1000), GpuSample()))
        for at in (1, 3)
    ]
    path = tmp_path / "n1.r0.1.jsonl"
    path.write_bytes(b"".join(map(encoder(2), (header, *samples))))
    found = read_columns(path, 0)
    assert found is not None
    account = summarise([found])
    assert [gpu.energy_joules for gpu in account.per_gpu] == [2.0, None]
    assert account.summary.energy_joules is None


@pytest.mark.parametrize(("spot_us", "error"), [(250_000, 100 / 14400**0.5), (None, 100 / 19)])
def test_the_error_of_spot_readings_is_said(
    tmp_path: Path, spot_us: int | None, error: float
) -> None:
    """Of a mean of 50 %: an hour's four readings a second; the 361 of a file of 0.1."""
    path = write_samples(tmp_path, [[0.0, 100.0] * 180 + [50.0]], source="spot", spot_us=spot_us)
    found = read_columns(path, 0)
    assert found is not None
    account = summarise([found])
    (gpu,) = account.per_gpu
    assert gpu.utilization_error_percent == pytest.approx(error, rel=0.01)
    (said,) = [note.text for note in account.notes if note.code == "spot"]
    assert f"± {error:.2g} %" in said
    mean = read_columns(write_samples(tmp_path / "mean", [[50.0] * 361]), 0)
    assert mean is not None
    assert summarise([mean]).per_gpu[0].utilization_error_percent is None


@pytest.mark.parametrize(("read_us", "percent"), [(10_000_000, 0.3), (30_000, 100), (2_700, None)])
def test_the_samplers_start_is_no_share_of_the_moment_that_it_read(
    tmp_path: Path, read_us: int, percent: float | None
) -> None:
    gpus = (GpuSample(),)
    read = [Sample(mono_us=BEGAN_US + at, own_cpu_us=30_000, gpus=gpus) for at in (0, read_us)]
    node = summarise([columns_of(tmp_path, read)]).per_node[0]
    assert node.sampler_cpu_percent == (percent and pytest.approx(percent))


def test_one_sample_is_no_growth_of_a_counter(tmp_path: Path) -> None:
    gpu = GpuSample(energy_mj=5_000, utilization_permille=900)
    sample = Sample(mono_us=BEGAN_US + 10**6, cpu_us=4_000_000, gpus=(gpu,))
    span = Span(restart=0, start=START, end=START + 20)
    summary = summarise([columns_of(tmp_path, [sample])], [span]).summary
    assert (summary.energy_joules, summary.cpu_s) == (None, None)
