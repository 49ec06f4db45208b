"""The samples file: what is written is read, and damage costs only what it hit."""

import json
import random
import sys
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpckit.stats.sampler.schedule import period_s
from hpckit.stats.samples.encoding import encoder, seal
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.packing import GPU_PLACES, NODE_PLACES, SampleBlock, _joined
from hpckit.stats.samples.reading import main, read_blocks, read_header, read_records
from hpckit.stats.samples.records import (
    End,
    GpuInfo,
    GpuSample,
    GpuSlow,
    GpuState,
    Header,
    Note,
    Record,
    Sample,
    Slow,
    State,
    file_name,
    samples_files,
)
from tests.conftest import examples


def header(gpus: int = 2) -> Header:
    table = tuple(
        GpuInfo(
            index=index,
            uuid=f"GPU-{index:08x}-1111-2222-3333-444444444444",
            name="NVIDIA H200 141GB HBM3e SXM5",
            minor=index,
            pci=f"00000000:{index:02X}:00.0",
            memory_total_bytes=150_754_820_096,
            power_limit_mw=700_000,
            gpm=True,
        )
        for index in range(gpus)
    )
    return Header(
        host="gpu-a100-017.cluster.example.org",
        boot_id="0f0f0f0f-1111-2222-3333-444444444444",
        pid=4_194_303,
        epoch_us=1_780_000_000_000_000,
        mono_us=10_000_000_000_000,
        interval_us=10_000_000,
        ids={"job_id": "12345678", "restart": "0", "run_id": "ddp-20261101-abcdef"},
        gpus=table,
        gpu_method="constrained",
        cores=192,
        memory_limit_bytes=2 << 40,
        cgroup="v2",
        driver="570.86.15",
    )


def limits(name: str) -> st.SearchStrategy[int | None]:
    place = {**NODE_PLACES, **GPU_PLACES}[name]
    numbers = st.integers(0, place.missing - 1).map(lambda number: number * place.scale)
    return st.none() | numbers


gpu_samples = st.builds(GpuSample, **{name: limits(name) for name in GPU_PLACES})
samples = st.builds(
    Sample,
    mono_us=st.integers(0, 2**63),
    gpus=st.tuples(gpu_samples, gpu_samples),
    **{name: limits(name) for name in NODE_PLACES if name not in ("mono_us", "memory_bytes")},
    memory_bytes=st.none() | st.integers(0, 2**48 - 2),
)


# A GPU and a node both have `memory_bytes`; the GPU's counts KiB in 32 bits.
@given(found=st.lists(samples, max_size=5))
def test_samples_round_trip(found: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "a.r0.1.jsonl"
    records: list[Record] = [header(), *found]
    path.write_bytes(b"".join(map(encoder(2), records)))
    damage = Damage()
    assert list(read_records(path, damage)) == records
    assert damage == Damage()


def others() -> list[Record]:
    processes = ((17, 3 << 30), (18, None))
    return [
        Slow(mono_us=5, epoch_us=6, gpus=(GpuSlow(sm_mhz=1980, utilization_source="mean"),) * 2),
        State(mono_us=7, gpus=(GpuState(ecc_corrected=1, processes=processes), GpuState())),
        Note(mono_us=8, code="gpu_lost", text="a \u2028 \n line", gpu="GPU-1"),
        End(mono_us=9, reason="signal"),
    ]


def test_other_records_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.r0.1.jsonl"
    records = [header(), *others()]
    path.write_bytes(b"".join(map(encoder(2), records)))
    assert list(read_records(path, Damage())) == records
    assert header().epoch_at(10_000_001_000_000) == 1_780_000_001_000_000


def test_values_that_do_not_fit_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.r0.1.jsonl"
    gpu = GpuSample(power_mw=1 << 40, utilization_permille=-1, sm_permille=1001)
    sample = Sample(mono_us=1, cpu_us=-5, gpus=(gpu,))
    path.write_bytes(b"".join(map(encoder(1), [header(1), sample])))
    found = list(read_records(path, Damage()))[1]
    assert found == Sample(mono_us=1, gpus=(GpuSample(sm_permille=1001),))


def whole_file(tmp: Path, count: int = 30) -> tuple[Path, list[Record]]:
    path = tmp / "a.r0.1.jsonl"
    gpus = (GpuSample(energy_mj=10**10), GpuSample(memory_bytes=1 << 30))
    records: list[Record] = [header()]
    records += [Sample(mono_us=at, cpu_us=at * 3, gpus=gpus) for at in range(count)]
    records += others()
    path.write_bytes(b"".join(map(encoder(2), records)))
    return path, records


@settings(max_examples=examples(200))
@given(cut=st.integers(0, 9_000))
def test_a_torn_tail_costs_the_last_record(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, records = whole_file(tmp_path_factory.mktemp("s"))
    content = path.read_bytes()[:cut]
    path.write_bytes(content)
    damage = Damage()
    found = list(read_records(path, damage))
    assert damage.bad_lines == damage.unknown == 0
    lines = content.count(b"\n")
    if lines == 0 and not found:
        assert damage.headless == 1
        return
    # A last line that is whole but for its newline counts.
    assert lines <= len(found) <= lines + 1
    assert set(map(repr, found)) <= set(map(repr, records))
    assert damage.torn == (len(found) == lines and not content.endswith(b"\n"))


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["flip", "hole", "insert", "drop"]))
def test_damage_costs_only_what_it_hit(
    seed: int, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, records = whole_file(tmp_path_factory.mktemp("s"))
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    lines = set(bytes(content).splitlines())
    start = content.index(b"\n") + 1
    at, length = chance.randrange(start, len(content)), chance.randrange(1, 600)
    if kind == "flip":
        content[at] ^= 1 << chance.randrange(8)
        length = 1
    elif kind == "hole":
        length = min(length, len(content) - at)
        content[at : at + length] = bytes(length)
    elif kind == "insert":
        content[at:at] = chance.randbytes(length)
    else:
        del content[at : at + length]
    path.write_bytes(content)
    damage = Damage()
    found = list(read_records(path, damage))
    known = set(map(repr, records))
    assert all(repr(record) in known for record in found)
    lost = len(records) - len(found)
    # A sample's line has 178 bytes here; the longest other one about 200.
    assert 0 <= lost <= length // 60 + 3
    # Whole lines that are gone leave no trace.
    if lost and not set(bytes(content).splitlines()) <= lines:
        assert damage != Damage()


def test_anything_else_is_no_samples_file(tmp_path: Path) -> None:
    path = tmp_path / "a.r0.1.jsonl"
    for content in (b"", b"\0" * 5_000_000, b"x" * 3_000_000, b"{}\n[]\n", b"\n\n\xff\xfe\n"):
        path.write_bytes(content)
        damage = Damage()
        assert list(read_records(path, damage)) == []
        assert damage.headless == 1
        assert read_header(path) is None


def test_newer_versions_are_read_as_far_as_known(tmp_path: Path) -> None:
    path, records = whole_file(tmp_path, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    text = lines[0][:-10].replace(b'"host"', b'"colour":"red","host"')
    lines[0] = seal(text.replace(b'"index"', b'"age":[1],"index"'))
    lines.insert(2, seal(b'{"k":"prophecy","mono_us":5}'))
    lines.insert(3, seal(b'{"k":"note","mono_us":5}'))
    lines.insert(4, seal(b'{"k":"slow","mono_us":5,"epoch_us":6,"g":[[1,2,3,4,5,"mean",99]]}'))
    path.write_bytes(b"".join(lines))
    damage = Damage()
    found = list(read_records(path, damage))
    assert found[0] == records[0]
    assert damage.unknown == 2
    newer = next(record for record in found if isinstance(record, Slow))
    assert newer.gpus[0].utilization_source == "mean"


def test_a_file_is_readable_by_its_second_header(tmp_path: Path) -> None:
    path, records = whole_file(tmp_path, 3)
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(b"\0" * len(first) + b"\n" + first + b"\n" + rest)
    damage = Damage()
    assert list(read_records(path, damage)) == records
    assert damage == Damage(holes=1)


def test_a_file_is_printed_with_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = whole_file(tmp_path, 3)
    monkeypatch.setattr("sys.argv", ["reading", str(path)])
    main()
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert len(lines) == len(records)
    assert lines[1]["gpus"][0]["energy_mj"] == 10**10
    assert json.loads(said.err)["damage"]["bad_lines"] == 0


def test_columns(tmp_path: Path) -> None:
    path, _ = whole_file(tmp_path, 10)
    blocks = [
        found for found in read_blocks(path, Damage(), samples=4) if isinstance(found, SampleBlock)
    ]
    assert [len(block) for block in blocks] == [4, 4, 2]
    times = blocks[1].node("mono_us")
    assert times is not None
    assert list(times.values) == [4, 5, 6, 7]
    energy = blocks[0].gpu(0, "energy_mj")
    unknown = blocks[0].gpu(1, "energy_mj")
    memory = blocks[0].gpu(1, "memory_bytes")
    assert energy is not None
    assert unknown is not None
    assert memory is not None
    assert energy.to_list() == [10**10] * 4
    assert unknown.to_list() == [None] * 4
    assert memory.to_list() == [1 << 30] * 4
    assert blocks[0].gpu(0, "prophecy") is None


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("kind", ["H", "I"])
def test_both_halves_of_numbers(kind: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = array(kind, [0, 1, 65535, 513, 7]), array("H", [0, 65535, 0, 258, 7])
    monkeypatch.setattr(sys, "byteorder", order)
    shift = low.itemsize * 8
    wanted = [part + (upper << shift) for part, upper in zip(low, high, strict=True)]
    assert _joined(low, high) == array("Q", wanted)


def test_a_day_of_8_gpus_at_10_s_is_below_4_mb() -> None:
    """All fields at their longest; packed ones have one length anyway."""
    encode = encoder(8)
    elapsed, count = 0.0, 0
    while elapsed < 86_400:
        elapsed += period_s(elapsed, 10.0)
        count += 1
    gpu = GpuSlow(
        sm_mhz=2100,
        memory_mhz=3201,
        throttle_reasons=0xFFF,
        temperature_c=100,
        memory_temperature_c=105,
        utilization_source="mean",
    )
    slow = Slow(mono_us=10**14, epoch_us=1_780_000_000_000_000, gpus=(gpu,) * 8)
    state = State(
        mono_us=10**14,
        gpus=(
            GpuState(
                ecc_corrected=10**6,
                ecc_uncorrected=10**3,
                remapped_rows=512,
                processes=((4_194_303, 150_000_000_000),) * 2,
            ),
        )
        * 8,
    )
    sample = Sample(mono_us=10**14, gpus=(GpuSample(),) * 8)
    size = len(encode(sample)) * count + len(encode(slow)) * 1441
    # Headers each hour; processes that come and go a hundred times, and as many notes.
    size += len(encode(header(8))) * 25 + len(encode(state)) * 100
    size += len(encode(Note(mono_us=10**14, code="gpu_error", text="x" * 200))) * 100
    assert size < 4_000_000


def test_names(tmp_path: Path) -> None:
    names = [file_name("b", 0, 9), file_name("a.b", 1, 3), file_name("a.b", 0, 11)]
    for name in (*names, "notes.txt", "a.r1.jsonl", "x.r1.2.jsonl.tmp"):
        (tmp_path / name).touch()
    found = [(file.host, file.restart, file.pid) for file in samples_files(tmp_path)]
    assert found == [("a.b", 0, 11), ("b", 0, 9), ("a.b", 1, 3)]
    assert samples_files(tmp_path / "nowhere") == ()
