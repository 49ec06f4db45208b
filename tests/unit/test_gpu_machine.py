"""What checks ask of a machine with another GPU: chips played by hand, without torch."""

from types import SimpleNamespace as Plain

import pytest

from hpckit.stats.samples.records import GpuInfo
from tests.gpu import machine as module
from tests.gpu.checks import Recorder
from tests.gpu.machine import Machine
from tests.gpu.test_device_bench import least_of, tell_overlap
from tests.gpu.test_inference import least

GIB = 2**30


class Chip(Machine):
    """The real machine's own lines, on a chip that is only said."""

    def __init__(self, capability, *, free=64 * GIB, sms=108, name="X", **info) -> None:
        cuda = Plain(
            get_device_capability=lambda _: capability, is_available=lambda: True,
            get_device_properties=lambda _: Plain(multi_processor_count=sms),
            mem_get_info=lambda _: (free, free), memory_reserved=lambda _: 0,
            synchronize=lambda _: None, empty_cache=lambda: None,
        )  # fmt: skip
        self.__dict__["torch"] = Plain(cuda=cuda, device=lambda *words: words, __version__="2.5")
        info = GpuInfo(index=0, uuid="GPU-1", name=name, **info)
        self.unit = Plain(info=info, handle=None, board=None)
        self.nvml = Plain(call=lambda *_: None, buffered_percents=lambda *_: [])


V100 = Chip((7, 0), sms=80, name="Tesla V100-SXM2-16GB")
A100 = Chip((8, 0), name="NVIDIA A100-SXM4-40GB")
SLICE = Chip((8, 0), sms=14, free=4 * GIB, mig_parent="GPU-0")
H100 = Chip((9, 0), sms=132, name="NVIDIA H100 80GB HBM3", gpm=True)


@pytest.mark.parametrize(
    ("chip", "word", "why"),
    [(V100, "tf32", "TF32 needs compute capability 8.0, not 7.0"), (A100, "tf32", ""),
     (V100, "bf16", "bf16 needs compute capability 8.0, not 7.0"), (H100, "GPM", ""),
     (A100, "GPM", "the GPU has no GPM (Hopper and newer have)"),
     (SLICE, "utilization", "NVML has no utilization of a MIG slice, and the GPU has no GPM"),
     (V100, "utilization", "NVML does not tell the utilization of this GPU"),
     (SLICE, "whole GPU", "MIG is on: this is a slice")],
)  # fmt: skip
def test_a_chip_says_what_it_lacks(chip, word, why) -> None:
    assert chip.lacks(word) == why


def test_a_torch_that_sees_no_gpu_makes_no_check(monkeypatch) -> None:
    monkeypatch.setattr(module, "module_here", lambda _: True)
    chip = Chip((9, 0))
    assert chip.lacks("torch") == ""
    chip.torch.cuda.is_available = lambda: False
    assert chip.lacks("torch") == "torch 2.5 sees no GPU"


def test_limits_of_an_h200_are_no_other_chips() -> None:
    assert least_of(H100, 8192) == 0.85
    assert [least_of(chip, 8192) for chip in (V100, A100, SLICE)] == [None] * 3
    assert least_of(H100, 4096) is None
    assert least(SLICE) is None


def test_programs_at_once_follow_the_memory_of_gpu_and_host(monkeypatch) -> None:
    for room, places in ((None, 4), (64 * GIB, 4), (6 * GIB, 3), (GIB, 2)):
        monkeypatch.setattr(module, "host_room_bytes", lambda room=room: room)
        assert SLICE.places() == places


@pytest.mark.parametrize(
    ("work", "copying", "both", "good"),
    [(0.13, 0.06, 0.131, True), (0.13, 0.06, 0.15, False),  # PCIe, then NVLink
     (0.11, 0.008, 0.1105, True), (0.11, 0.008, 0.111, True), (0.11, 0.008, 0.117, False)],
)  # fmt: skip
def test_overlap_is_judged_by_what_can_be_told(work, copying, both, good) -> None:
    seconds = {"copies to the host": copying, "work, then copies to the host": work + copying,
               "copies while it works": both}  # fmt: skip
    recorder = Recorder()
    tell_overlap(recorder, seconds, (work + copying - both) / min(work, copying))
    assert (recorder.misses() == []) == good
