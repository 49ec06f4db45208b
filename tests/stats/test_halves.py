"""A long samples file is read in two halves, and is the same as read at once."""

import json
import os
import random
from functools import partial
from pathlib import Path

import pytest

from hpckit.stats.samples import collecting, reading
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.encoding import encoder, seal
from hpckit.stats.samples.records import (
    End,
    GpuInfo,
    GpuSample,
    GpuSlow,
    Header,
    Note,
    Record,
    Sample,
    Slow,
)

SAMPLES = 600


def written(*, energy: bool = True, gaps: bool = False) -> bytes:
    table = tuple(GpuInfo(index=at, uuid=f"GPU-{at}") for at in range(2))
    head = Header(
        host="a", boot_id="b", pid=1, epoch_us=10**15, mono_us=10**9, interval_us=10**6, gpus=table
    )
    records: list[Record] = [head]
    for at in range(SAMPLES):
        gpu = GpuSample(
            energy_mj=10**6 + at if energy or at >= SAMPLES - 50 else None,
            power_mw=500_000 + at,
            utilization_permille=at % 900,
            memory_bytes=at << 20,
        )
        if gaps and at % 3 != 1:
            gpu = GpuSample()
        mono_us = 10**9 + at * 10**6
        sample = Sample(mono_us=mono_us, cpu_us=at, memory_bytes=at << 10, gpus=(gpu, gpu))
        records.append(sample)
        if at % 60 == 0:
            rows = (GpuSlow(sm_mhz=at, utilization_source="mean"),) * 2
            records.append(Slow(mono_us=mono_us, epoch_us=10**15, gpus=rows))
    records.append(Note(mono_us=mono_us, code="disk", text="slow"))
    records.append(End(mono_us=mono_us, reason="parent"))
    return b"".join(map(encoder(2), records))


def both(path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[Columns, Columns]:
    path.write_bytes(content)
    monkeypatch.setattr(reading, "HALVED_BYTES", len(content) + 1)
    whole = read_columns(path, 0)
    monkeypatch.setattr(reading, "HALVED_BYTES", 0)
    halved = read_columns(path, 0)
    assert whole is not None
    assert halved is not None
    return whole, halved


def alike(whole: Columns, halved: Columns) -> None:
    """Compare all but what of counters is between their first and last value."""
    for name in ("header", "times", "node", "gpus", "slow", "notes", "end", "damage"):
        assert getattr(whole, name) == getattr(halved, name), name
    for mine, its in zip(whole.energies, halved.energies, strict=True):
        assert mine is not None
        assert its is not None
        assert [mine.values[0], mine.values[-1]] == [its.values[0], its.values[-1]]
    assert whole.counter_times[-1] == halved.counter_times[-1]


def test_halves_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.r0.1.jsonl"
    whole, halved = both(path, written(), monkeypatch)
    alike(whole, halved)
    assert len(halved) == SAMPLES
    assert len(halved.counter_times) > len(whole.counter_times)  # so it was read in two
    parts = reading.halves(path)
    assert parts is not None
    assert path.read_bytes()[: parts[1][0]].endswith(b"\n")


def test_counters_are_known_from_the_first_to_the_last_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the samples at a block's ends have none; so the halves say the same."""
    for found in both(tmp_path / "a.r0.1.jsonl", written(gaps=True), monkeypatch):
        for energy in found.energies:
            assert energy is not None
            known = [value for value in energy.values if value != energy.missing]
            assert (known[0], known[-1]) == (10**6 + 1, 10**6 + SAMPLES - 2)


@pytest.mark.parametrize("gaps", [False, True])
def test_many_blocks_are_the_whole(
    gaps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.r0.1.jsonl"
    path.write_bytes(written(gaps=gaps))
    whole = [read_columns(path, 0), read_columns(path, 0, every_energy=True)]
    monkeypatch.setattr(collecting, "read_blocks", partial(reading.read_blocks, samples=7))
    parts = [read_columns(path, 0), read_columns(path, 0, every_energy=True)]
    assert parts[0] is not None
    assert whole[0] is not None
    assert len(parts[0].counter_times) > 2 * collecting._TOGETHER
    alike(whole[0], parts[0])
    assert whole[1] == parts[1]


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_read_and_counted_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    content = bytearray(written())
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(3000, len(content) - 5000)
        if seed % 2:
            content[at : at + chance.randrange(9000)] = bytes(chance.randrange(9000))
        else:
            # In a sample: that before one is damaged is told by its whole piece of the file alone.
            at = content.index(b'{"s":"', at) + 20
            content[at] ^= 1 + chance.randrange(255)
    del content[len(content) - chance.randrange(300) :]
    alike(*both(tmp_path / "a.r0.1.jsonl", bytes(content), monkeypatch))


def test_a_hole_of_the_file_system_ends_where_data_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = written()
    path = tmp_path / "a.r0.1.jsonl"
    path.write_bytes(content[:40_000])
    with path.open("r+b") as file:
        file.seek(200 << 20)
        file.write(content[40_000:])
    monkeypatch.setattr(reading, "HALVED_BYTES", 0)
    assert reading.halves(path) is None  # its middle is in the hole
    found = read_columns(path, 0)
    assert found is not None
    assert found.damage.holes == 1
    assert os.stat(path).st_blocks * 512 < 1 << 20


def test_what_does_not_go_on_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second half is of an earlier time, or has a counter that the first one has not."""
    lines = written().splitlines(keepends=True)
    half = len(lines) // 2
    turned = b"".join([lines[0], *lines[half:], *lines[1:half]])
    whole, halved = both(tmp_path / "a.r0.1.jsonl", turned, monkeypatch)
    alike(whole, halved)
    assert whole.damage.astray > 200
    whole, halved = both(tmp_path / "a.r0.1.jsonl", written(energy=False), monkeypatch)
    assert [gpu.keys() for gpu in whole.gpus] == [gpu.keys() for gpu in halved.gpus]
    assert "power_mw" not in collecting._GPU
    assert "power_mw" not in halved.gpus[0]


@pytest.mark.parametrize(("kind", "high"), [("I", None), ("I", 62), ("H", 62), ("Q", 62)])
def test_times_may_be_of_another_kind(kind: str, high: int | None, tmp_path: Path) -> None:
    """No version writes such a file; one that cannot be read spoils no page of others."""
    head, *lines = written().splitlines()
    document = json.loads(head.rsplit(b" ", 1)[0])
    document["layout"]["node"]["mono_us"].update(kind=kind, high=high)
    path = tmp_path / "a.r0.1.jsonl"
    path.write_bytes(seal(json.dumps(document).encode()) + b"\n".join(lines))
    found = read_columns(path, 0)
    assert (found is None) == (kind == "Q")
    assert found is None or found.times.typecode == ("Q" if high else kind)
