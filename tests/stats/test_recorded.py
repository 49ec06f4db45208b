"""A samples file that hpckit 0.1 wrote (commit eb37c8c): its places differ from today's."""

from dataclasses import asdict
from pathlib import Path

import pytest

from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.packing import NODE_PLACES
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import End, GpuSample, Note, Sample, Slow, State
from hpckit.stats.summary.summarise import summarise

FILE = Path(__file__).parents[1] / "recorded" / "samples" / "n1.r0.7.jsonl"


def test_every_value_is_read_where_the_header_says() -> None:
    assert b'"took_us":{"kind":"I","at":68' in FILE.read_bytes()
    assert NODE_PLACES["took_us"].at != 68  # else this file shows nothing
    damage = Damage()
    records = list(read_records(FILE, damage))
    assert damage == Damage()
    samples = [record for record in records if isinstance(record, Sample)]
    assert len(samples) == 6
    assert asdict(samples[3]) == {
        "mono_us": 40_000_000,
        "cpu_us": (1 << 40) + 120_000_000,
        "memory_bytes": (5 << 30) + 3,
        "memory_peak_bytes": 300 << 30,
        "cache_bytes": 3 << 33,
        "swap_bytes": 1 << 34,
        "io_read_bytes": 3 * 4096,
        "io_write_bytes": 300,
        "oom_kills": 1,
        "own_cpu_us": (1 << 33) + 1500,
        "own_rss_bytes": 19 << 20,
        "took_us": 803,
        "gpus": (
            {
                "energy_mj": (1 << 40) + 15_000_000,
                "memory_bytes": 60 << 30,
                "power_mw": 500_000,
                "utilization_permille": 903,
                "sm_permille": 500,
                "occupancy_permille": 303,
                "tensor_permille": 200,
                "dram_permille": 100,
            },
            asdict(samples[3].gpus[1]),
        ),
    }
    assert samples[3].gpus[1].memory_bytes == 61 << 30
    assert samples[2].gpus[1] == GpuSample()
    slow = [record for record in records if isinstance(record, Slow)]
    assert slow[1].gpus[0]._asdict() == {
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "throttle_reasons": 4,
        "temperature_c": 65,
        "memory_temperature_c": 75,
        "utilization_source": "mean",
    }
    assert [type(record) for record in records[-3:]] == [State, Note, End]


def test_figures_of_old_samples() -> None:
    columns = read_columns(FILE, 0)
    assert columns
    found = summarise([columns])
    first, second = found.per_gpu
    assert first.utilization_percent == pytest.approx(90.3)
    assert first.sm_occupancy_percent == pytest.approx(30.3)
    assert (first.temperature_peak_c, first.memory_temperature_peak_c) == (65, 75)
    assert first.energy_joules == second.energy_joules == 25_000
    (node,) = found.per_node
    assert (node.io_read_bytes, node.io_write_bytes) == (5 * 4096, 500)
    assert node.oom_kills == found.summary.oom_kills == 1
    assert node.memory_peak_cache_bytes == 300 << 30
    # The highest of all samples, not of the first and the last.
    assert node.swap_peak_bytes == 1 << 34
    assert node.sampler_rss_bytes == 19 << 20
