"""Optimizers by name, learning rates for other batch sizes, shares of samples."""

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from hpckit.parallel.errors import SetupError  # noqa: E402
from hpckit.parallel.optimizers import make_optimizer, scaled_lr, whole_state  # noqa: E402
from hpckit.parallel.sharing import batches, parts  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("scaling", "expected"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_learning_rate_follows_the_batch(scaling: str, expected: float) -> None:
    assert scaled_lr(0.1, 256, 64, scaling) == pytest.approx(expected)
    assert scaled_lr(0.1, 64, 64, scaling) == 0.1


def test_unknown_words_are_refused() -> None:
    with pytest.raises(SetupError, match="'cubic' must be one of none, linear, sqrt"):
        scaled_lr(0.1, 1, 1, "cubic")
    with pytest.raises(SetupError, match="'lion' must be one of adam, sgd"):
        make_optimizer("lion", [], 0.1)


def test_a_process_alone_keeps_the_whole_state() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = make_optimizer("adam", [weight], 0.1, zero=True)
    weight.sum().backward()
    optimizer.step()
    state = whole_state(optimizer, leads=True)
    assert state is not None
    assert state["state"][0]["exp_avg"].tolist() == pytest.approx([0.1] * 3)
    assert whole_state(optimizer, leads=False) is None


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 7), st.integers(0, 3))
def test_each_sample_is_in_the_same_batch_for_any_ranks(
    total: int, batch: int, ranks: int, epoch: int
) -> None:
    def shares(world: int) -> list[set[int]]:
        found: list[set[int]] = [set() for _ in range(-(-total // batch))]
        for rank in range(world):
            sampler = DistributedSampler(range(total), num_replicas=world, rank=rank, seed=3)
            sampler.set_epoch(epoch)
            for number, share in enumerate(batches(sampler, batch)):
                assert not found[number] & set(share)
                found[number] |= set(share)
        return found

    assert shares(ranks) == shares(1)
    assert sorted(index for share in shares(1) for index in share) == list(range(total))


@given(st.lists(st.integers(), max_size=30), st.integers(1, 8))
def test_parts_are_in_order_and_even(share: list[int], count: int) -> None:
    found = parts(share, count)
    assert len(found) == count
    assert [item for part in found for item in part] == share
    assert max(map(len, found)) - min(map(len, found)) <= 1
