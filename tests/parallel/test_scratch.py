"""Data parallelism from scratch against one device, over even, uneven and empty parts."""

import re
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from hpckit.parallel import d2l
from hpckit.parallel.scratch import allreduce, copy_params, ring_allreduce, train_batch
from hpckit.parallel.sharing import part_sizes, split_batch

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
Reduce = Callable[[Sequence[torch.Tensor]], None]


def lenet(images: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    hidden = functional.avg_pool2d(functional.relu(functional.conv2d(images, w1, b1)), 2)
    hidden = functional.avg_pool2d(functional.relu(functional.conv2d(hidden, w2, b2)), 2)
    hidden = functional.relu(hidden.flatten(1) @ w3 + b3)
    return hidden @ w4 + b4


def weights(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(20, 1, 3, 3), 20, (50, 20, 5, 5), 50, (800, 128), 128, (128, 10), 10]
    return [
        torch.zeros(shape, dtype=dtype)
        if isinstance(shape, int)
        else torch.randn(shape, dtype=dtype) * 0.05
        for shape in shapes
    ]


def each_loss(predicted: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(predicted, wanted, reduction="none")


def trained(
    replicas: int, batch: int, reduce: Reduce, dtype: torch.dtype
) -> tuple[list[list[torch.Tensor]], list[float]]:
    copies = [copy_params(weights(dtype), CPU) for _ in range(replicas)]
    torch.manual_seed(1)
    losses = []
    for _ in range(10):
        images = torch.randn(batch, 1, 28, 28, dtype=dtype)
        labels = torch.randint(0, 10, (batch,))
        losses.append(train_batch(images, labels, copies, lenet, each_loss, 0.2, reduce=reduce))
    return copies, losses


@pytest.mark.parametrize("reduce", [allreduce, ring_allreduce])
@pytest.mark.parametrize(("replicas", "batch"), [(2, 8), (2, 5), (3, 10), (4, 16), (2, 1), (3, 2)])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_ten_steps_are_those_of_one_device(
    reduce: Reduce, replicas: int, batch: int, dtype: torch.dtype, most: float
) -> None:
    alone, losses = trained(1, batch, reduce, dtype)
    together, same_losses = trained(replicas, batch, reduce, dtype)
    assert losses == pytest.approx(same_losses, rel=most * 10)
    for parameters in together:
        for mine, wanted in zip(parameters, alone[0], strict=True):
            assert (mine - wanted).abs().max().item() <= most
    moved = (alone[0][0] - weights(dtype)[0]).abs().max().item()
    assert moved > 1000 * most, "nothing was trained, so that nothing was compared"


def test_the_books_names_and_orders() -> None:
    """The notebook's own lines: parameters by device, a batch, the learning rate."""
    devices = [CPU] * 2
    all_params = [d2l.get_params(weights(torch.float64), device) for device in devices]
    torch.manual_seed(1)
    x, y = torch.randn(5, 1, 28, 28, dtype=torch.float64), torch.randint(0, 10, (5,))
    x_shards, y_shards = d2l.split_batch(x, y, devices)
    assert [len(part) for part in (*x_shards, *y_shards)] == [3, 2, 3, 2]
    mean = d2l.train_batch(x, y, all_params, devices, 0.2)
    alone = copy_params(weights(torch.float64), CPU)
    assert mean == pytest.approx(train_batch(x, y, [alone], lenet, each_loss, 0.2), rel=1e-12)
    for parameters in all_params:
        for mine, wanted in zip(parameters, alone, strict=True):
            assert (mine - wanted).abs().max().item() < 1e-12
    with pytest.raises(ValueError, match="Parameters are on cpu, cpu, not on the devices cpu, m"):
        d2l.train_batch(x, y, all_params, [CPU, torch.device("meta")], 0.2)


def test_the_books_benchmark_prints_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    with d2l.BenchMark("cuda:0"), d2l.Benchmark():  # a text, and no device to wait for
        pass
    assert re.fullmatch(r"Done: \d\.\d{4} sec\ncuda:0: \d\.\d{4} sec\n", capsys.readouterr().out)


def test_copies_never_share_memory() -> None:
    original = [torch.ones(3), torch.arange(3)]
    copied = copy_params(original, CPU)
    with torch.no_grad():
        copied[0] += 1
    assert original[0].tolist() == [1, 1, 1]
    assert [tensor.requires_grad for tensor in copied] == [True, False]
    assert copied[0].data_ptr() != original[0].data_ptr()


@given(st.integers(1, 6), st.lists(st.integers(0, 4), max_size=3), st.booleans())
def test_both_reductions_give_the_sum_on_every_replica(
    count: int, shape: list[int], transposed: bool
) -> None:
    made = [torch.randn(shape, dtype=torch.float64) for _ in range(count)]
    if transposed and len(shape) > 1:
        made = [tensor.transpose(0, 1) for tensor in made]
    total = torch.stack(made).sum(0)
    for reduce in (allreduce, ring_allreduce):
        tensors = [tensor.clone(memory_format=torch.preserve_format) for tensor in made]
        reduce(tensors)
        for tensor in tensors:
            torch.testing.assert_close(tensor, total, rtol=1e-12, atol=1e-12)


def test_a_sum_of_unequal_shapes_is_refused() -> None:
    for reduce in (allreduce, ring_allreduce):
        with pytest.raises(ValueError, match=r"differ in shape: \[\(2,\), \(3,\)\]"):
            reduce([torch.ones(2), torch.ones(3)])
        with pytest.raises(ValueError, match="no tensor"):
            reduce([])


@pytest.mark.parametrize(
    ("total", "parts", "sizes"),
    [(5, 2, [3, 2]), (10, 3, [4, 4, 2]), (1, 2, [1, 0]), (4, 4, [1] * 4), (0, 2, [0, 0]),
     (5, 4, [2, 2, 1, 0])],
)  # fmt: skip
def test_parts_are_tensorflows(total: int, parts: int, sizes: list[int]) -> None:
    assert part_sizes(total, parts) == sizes


def test_a_batch_in_order_and_without_loss() -> None:
    images, labels = torch.arange(10).reshape(5, 2), torch.arange(5)
    inputs, targets = split_batch(images, labels, [CPU] * 3)
    assert torch.equal(torch.cat(inputs), images)
    assert [part.tolist() for part in targets] == [[0, 1], [2, 3], [4]]


def test_wrong_batches() -> None:
    with pytest.raises(ValueError, match="5 inputs and 4 targets"):
        split_batch(torch.ones(5), torch.ones(4), [CPU])
    with pytest.raises(ValueError, match="cannot be split into 0 parts"):
        split_batch(torch.ones(5), torch.ones(5), [])
    with pytest.raises(ValueError, match="batch is empty"):
        train_batch(
            torch.ones(0, 1), torch.ones(0), [[torch.ones(1)]], lambda x, _: x, each_loss, 1.0
        )
