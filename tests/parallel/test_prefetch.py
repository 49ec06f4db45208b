"""Batches made beforehand: the same ones in order, errors where they are used, no thread left."""

import threading
import time
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from hpckit.parallel.prefetch import prefetch  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def numbers(count: int, made: list[int] | None = None) -> Iterator[tuple[torch.Tensor, ...]]:
    for number in range(count):
        if made is not None:
            made.append(number)
        yield torch.tensor([number]), torch.tensor([-number])


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_all_batches_come_in_order(depth: int) -> None:
    found = [(int(a), int(b)) for a, b in prefetch(numbers(20), CPU, depth=depth)]
    assert found == [(number, -number) for number in range(20)]
    assert threads() == []


def test_so_many_are_made_beforehand() -> None:
    made: list[int] = []
    stream = prefetch(numbers(20, made), CPU, depth=3)
    next(stream)
    deadline = time.monotonic() + 60
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)  # a sixth would be made by now; that it is not never fails by chance
    # One is in use, three wait, and one more waits for room.
    assert made == [0, 1, 2, 3, 4]
    stream.close()
    assert threads() == []


def test_an_error_is_raised_where_the_batches_are_used() -> None:
    def broken() -> Iterator[tuple[torch.Tensor, ...]]:
        yield from numbers(2)
        raise OSError("the disk is gone")

    stream = prefetch(broken(), CPU)
    assert [int(next(stream)[0]), int(next(stream)[0])] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)
    assert threads() == []


def test_no_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="depth is 0"):
        next(prefetch(numbers(1), CPU, depth=0))
