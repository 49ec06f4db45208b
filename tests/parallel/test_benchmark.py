"""Benchmark: which devices it waits for, and what it prints."""

import re

import pytest

torch = pytest.importorskip("torch")

from hpckit.parallel import benchmark  # noqa: E402
from hpckit.parallel.benchmark import Benchmark, seconds_per_call  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.torch


def test_it_waits_for_devices_by_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(str(device)))
    for devices in (["cuda:1"], [torch.device("cuda:1")], ["cpu", "cuda:1"], ["GPU:1", "cuda:1"]):
        waited.clear()
        with Benchmark(*devices):
            pass
        assert waited == ["cuda:1"] * 2, devices
    waited.clear()
    with Benchmark() as handed_out:
        pass
    assert waited == []
    assert handed_out.seconds >= 0
    assert seconds_per_call(lambda: None, "cpu", seconds=0) >= 0


def test_a_name_is_printed_at_the_end_of_a_block_that_ends_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Benchmark("cpu", name="Copy to CPU"):
        assert capsys.readouterr().out == ""
    assert re.fullmatch(r"Copy to CPU: \d+\.\d{4} sec\n", capsys.readouterr().out)
    with Benchmark("cpu"), pytest.raises(KeyError), Benchmark(name="fails"):
        raise KeyError
    assert capsys.readouterr().out == ""


def test_a_word_that_is_not_a_device_is_named() -> None:
    words = r"'Run on GPU0' is not a device\. .* A text to print is Benchmark\(\.\.\., name=TEXT\)"
    with pytest.raises(SetupError, match=words):
        Benchmark("Run on GPU0")
    with pytest.raises(SetupError, match="1 is not a device"):
        benchmark.Benchmark(1)  # type: ignore[arg-type]
