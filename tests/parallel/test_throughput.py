"""Speed after warm-up, without what happens between epochs."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from hpckit.parallel.throughput import Throughput, device_label, short_name  # noqa: E402

pytestmark = pytest.mark.torch


def test_only_steps_after_the_warm_up_count() -> None:
    moments: Iterator[float] = iter([0, 0, 10, 12, 13, 100, 104, 107])
    throughput = Throughput("2xH200", warmup_steps=2, clock=lambda: next(moments))
    throughput.start()
    throughput.step(64)  # 10 s, of which most is loading libraries
    throughput.step(64)
    assert throughput.speed is None
    throughput.step(64)  # 1 s
    throughput.start()  # 87 s of tests
    throughput.step(64)  # 4 s
    throughput.step(8)  # 3 s
    speed = throughput.speed
    assert speed
    assert (speed.steps, speed.samples, speed.seconds) == (3, 136, 8)
    assert str(speed) == "2xH200: 17 samples/s, 2.6667 s/step over 3 steps after warm-up"


def test_a_run_without_a_measured_step_has_no_speed() -> None:
    throughput = Throughput("1xCPU", warmup_steps=0, clock=lambda: 5.0)
    assert throughput.speed is None
    throughput.step(1)
    assert throughput.speed is None, "no time has passed"


def test_devices_have_a_name() -> None:
    assert device_label([torch.device("cpu")] * 4) == "4xCPU"
    assert device_label([torch.device("cpu")], 8) == "8xCPU"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("Tesla V100-PCIE-32GB", "V100"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_names_are_as_people_say_them(name: str, short: str) -> None:
    assert short_name(name) == short


def test_the_time_of_getting_batches_is_that_of_the_steps_that_count() -> None:
    moments = iter([0.0, 0.0, 0.0, 5.0, 8.0, 9.0, 11.0, 14.0, 20.0])
    throughput = Throughput("1xCPU", warmup_steps=1, clock=lambda: next(moments))
    throughput.start()
    with throughput.reading():  # 5 s of the first step, which warms up
        pass
    throughput.step(1)  # at 8 s
    with throughput.reading():  # from 9 to 11 s
        pass
    throughput.step(1)  # at 14 s
    throughput.step(1)  # at 20 s, without a batch
    speed = throughput.speed
    assert speed
    assert (speed.seconds, speed.input_s) == (12.0, 2.0)
