"""device_bench: what it measures on a CPU, and the arithmetic of what only a GPU shows."""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from hpckit.parallel import benchmark
from tests.workloads.nursery import Forked
from tests.workloads.processes import WORKLOADS, complaint, environment, finish

sys.path.insert(0, str(WORKLOADS / "device_bench"))
import bench
import chips
import kinds
from chips import Chip

pytestmark = pytest.mark.torch
SMALL = ("--size", 50, "--product-size", 32, "--repeat", 2, "--megabytes", 1, "--seconds", 0)
H100 = Chip("NVIDIA H100 80GB HBM3", (9, 0), 132)


def start(*words: object) -> Forked:
    return Forked(Path(bench.__file__), [*map(str, words)], environment(OMP_NUM_THREADS=1))


def test_a_cpu_is_measured_without_limits_that_nobody_knows(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    said = finish(start(*SMALL, "--devices", "cpu:2", "--out", out))
    found = json.loads((out / "device_bench.json").read_text())
    assert found["devices"] == ["cpu", "cpu"]
    assert list(found["products"]) == ["cpu"]
    assert list(found["products"]["cpu"]) == ["fp32", "bf16", "fp16"]
    for row in found["products"]["cpu"].values():
        assert row["tflops"] > 0
        assert (row["sm_clock_mhz"], row["limit_tflops"], row["of_limit"]) == (None, None, None)
    assert found["seconds"]["done"] >= found["seconds"]["handed out"] > 0
    assert not {"copies", "overlap"} & found.keys()
    assert "tf32  not here: only GPUs have it" in said


def test_a_mistake_gets_one_line(tmp_path: Path) -> None:
    said = complaint(start("--seconds", "nan", "--out", tmp_path))
    assert said.startswith("bench.py: error: argument --seconds: must be at least 0")
    (tmp_path / "file").write_text("")
    said = complaint(start(*SMALL, "--out", tmp_path / "file"))
    assert "file cannot be created: File exists; give another --out" in said


@pytest.mark.parametrize(
    ("chip", "boost_mhz"),
    [
        (H100, {"fp32": 1980, "tf32": 1830, "bf16": 1830, "fp16": 1830, "fp8": 1830}),
        (
            Chip("NVIDIA H100 PCIe", (9, 0), 114),
            {"fp32": 1755, "tf32": 1620, "bf16": 1620, "fp16": 1620, "fp8": 1620},
        ),
        (Chip("NVIDIA A100-SXM4-80GB", (8, 0), 108), {"fp32": 1410, "tf32": 1410, "bf16": 1410}),
        (Chip("Tesla V100-SXM2-32GB", (7, 0), 80), {"fp32": 1530, "fp16": 1530}),
    ],
)
def test_limits_at_the_clock_of_a_data_sheet_are_the_data_sheets(
    chip: Chip, boost_mhz: dict[str, int]
) -> None:
    """Two sources for each number: rates per clock, and the sheets' figures with their clocks."""
    for kind, mhz in boost_mhz.items():
        assert chip.at_clock(kind, mhz) == pytest.approx(chip.by_sheet(kind), rel=0.005)


def test_what_is_not_known_has_no_limit() -> None:
    assert H100.at_clock("bf16", None) is None
    assert H100.at_clock("int4", 1830) is None
    slice_ = Chip("NVIDIA H100 80GB HBM3 MIG 1g.10gb", (9, 0), 16)
    assert slice_.by_sheet("bf16") is None
    assert slice_.at_clock("bf16", 1000) == pytest.approx(65.536)
    ada = Chip("NVIDIA L40S", (8, 9), 142)
    assert (ada.at_clock("bf16", 2520), ada.by_sheet("bf16")) == (None, None)
    cut = Chip("NVIDIA H20", (9, 0), 78)
    assert cut.at_clock("bf16", 1980) is None
    assert cut.unknown("bf16") == "no limit is known of NVIDIA H20 (compute capability 9.0)"
    assert ada.unknown("bf16") == "no limit is known of NVIDIA L40S (compute capability 8.9)"
    assert Chip("AMD Instinct MI300X", None, 304).unknown("bf16").endswith("not NVIDIA's)")
    assert Chip("CPU", None, 0).unknown("bf16") == ""
    assert H100.unknown("bf16") == ""


def test_amds_gpus_are_not_taken_for_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SimpleNamespace(name="AMD Instinct MI250X", major=9, minor=0, multi_processor_count=110)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: seen)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert Chip.of(torch.device("cuda", 0)).capability is None
    monkeypatch.setattr(torch.version, "hip", None)
    assert Chip.of(torch.device("cuda", 0)).capability == (9, 0)


def test_a_kind_that_a_chip_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    for capability, lacked in [
        ((7, 0), {"tf32", "bf16", "fp8"}),
        ((8, 0), {"fp8"}),
        ((9, 0), set()),
        (None, {"tf32"}),
    ]:
        chip = Chip("a GPU", capability, 1)
        monkeypatch.setattr(kinds.Chip, "of", lambda _, chip=chip: chip)
        assert {kind for kind in kinds.KINDS if kinds.lacking(kind, gpu)} == lacked


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp16"])
def test_products_are_right(kind: str) -> None:
    product = kinds.make(kind, 32, torch.device("cpu"))
    left, right = (cell.cell_contents for cell in product.__closure__ or ())
    wanted = left.double() @ right.double()
    assert (product().double() - wanted).abs().max() < 0.1


def test_products_of_fp8_are_right() -> None:
    product = kinds.make("fp8", 64, torch.device("cpu"))
    found = product()
    closed = dict(zip(product.__code__.co_freevars, product.__closure__ or (), strict=True))
    rows, columns = (closed[name].cell_contents.double() for name in ("rows", "columns"))
    wanted = rows @ columns.t()
    assert found.dtype == torch.bfloat16
    assert (found.double() - wanted).abs().max() < 0.01 * wanted.abs().max()


def test_tf32_is_allowed_for_a_while() -> None:
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    with kinds.tf32():
        assert settings.fp32_precision == "tf32"
    assert settings.fp32_precision == before


def test_the_clock_is_that_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML's readings are of the time just before, so the first half of them does not count."""
    told = iter([300, 300, 1500, 1502])
    over = SimpleNamespace(left=4)

    def rate(_: object) -> int:
        over.left -= 1
        return next(told, 1501)

    monkeypatch.setattr(torch.cuda, "clock_rate", rate)
    with chips.watching(torch.device("cuda", 0)) as clock:
        while over.left > 0:
            time.sleep(0.001)
    assert clock.seen[:4] == [300, 300, 1500, 1502]
    assert clock.mhz == pytest.approx(1501, abs=1)
    assert chips.Clock([300, 1500]).mhz == 1500


def test_a_clock_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "clock_rate", fail)
    with chips.watching(torch.device("cuda", 0)) as clock:
        pass
    assert clock.mhz is None
    assert clock.problem == "nvidia-ml-py does not seem to be installed"
    speed = kinds.Speed(tflops=700.0, sheet_tflops=989.4)
    assert bench.line(speed) == f"{700:>9}{'':>11}{'':>13}{'989  71%':>12}"


@pytest.mark.parametrize(("both", "part"), [(3.0, 1.0), (4.0, 0.0), (3.05, 0.95), (4.5, -0.5)])
def test_overlap_is_of_the_shorter_one(both: float, part: float) -> None:
    assert bench.hidden(3.0, 1.0, both) == pytest.approx(part)
    assert bench.hidden(1.0, 3.0, both) == pytest.approx(part)


def test_one_round_at_another_clock_does_not_change_the_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = [(9, 9, 30), (3, 1, 3), (6, 2, 3), (3, 1, 3.02), (3, 1, 3.04), (3, 1, 4)]
    told = iter(rounds)
    monkeypatch.setattr(bench, "overlap_once", lambda *_: next(told))
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: None)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    seconds, part = bench.overlap(torch.rand(2, 2), 1)
    assert list(seconds.values()) == [1, 4, 3.02]
    assert part == pytest.approx(0.98)


def test_done_counts_the_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is slow to finish: the wait belongs to "done", not to "handed out"."""
    waits: list[float] = []

    def synchronize(devices: tuple[torch.device, ...]) -> None:
        if devices:
            waits.append(time.perf_counter())
            time.sleep(0.05)

    monkeypatch.setattr(benchmark, "synchronize", synchronize)
    (replica,) = bench.find_replicas("cpu")
    found = bench.products((replica,), [torch.rand(4, 4)], 1)
    assert found["done"] >= 0.05
    assert found["done"] - found["handed out"] >= 0.05


def test_what_only_a_gpu_does_runs_where_the_cpu_plays_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Streams and pinned memory are pretended: this shows the calls, not that they overlap."""
    waits: list[str] = []
    stream = SimpleNamespace(wait_stream=waits.append)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda one: nullcontext(one))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "the stream of the work")
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, one: waits.append(one))
    for name in ("empty", "ones"):
        make = getattr(torch, name)
        unpinned = lambda *a, make=make, pin_memory=False, **k: make(*a, **k)  # noqa: E731
        monkeypatch.setattr(torch, name, unpinned)
    seconds, _ = bench.overlap(torch.rand(8, 8), 6)
    assert list(seconds) == [
        "copies to the host", "work, then copies to the host", "copies while it works",
    ]  # fmt: skip
    assert waits == ["the stream of the work", stream] * 6 * 6  # one round sets up, five count
    found = bench.copies(torch.device("cpu"), 1, 0)
    assert list(found) == [
        "to the device, pinned",
        "to the host, pinned",
        "to the device, not pinned",
        "to the host, not pinned",
    ]
    assert min(found.values()) > 0
    assert "copies of 1 MiB, cpu" in capsys.readouterr().out


def test_calls_are_counted_until_they_take_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += 0.25

    assert benchmark.seconds_per_call(call, seconds=4) == 0.25
    assert now[0] == 0.25 * (1 + 10)  # ten times as many at most; that is long enough
    assert benchmark.seconds_per_call(call, seconds=0) == 0.25
