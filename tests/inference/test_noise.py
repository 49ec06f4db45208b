"""Random numbers belong to a sample: to its seed, and to nothing around it."""

import random

import numpy
import pytest

torch = pytest.importorskip("torch")

from hpckit.inference.noise import (  # noqa: E402
    noise_of,
    noise_of_one,
    normal,
    sample_seed,
    seeded_globals,
    uniform,
)
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("draw", [uniform, normal])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_draws_the_same_in_any_batch(draw, dtype) -> None:
    def drawn(seeds: list[int]) -> torch.Tensor:
        with noise_of(seeds):  # the second draw goes on from the first
            first = draw((3, 7), dtype=dtype, samples=len(seeds))
            return torch.cat((first, draw((3, 7), dtype=dtype)), dim=1)

    many = drawn([11, 12, 13, 14])
    assert many.shape == (4, 6, 7)
    assert torch.equal(many[2], drawn([13])[0])
    assert torch.equal(many[[3, 0]], drawn([14, 11]))
    assert len(many.unique()) == many.numel()


def test_without_seeds_torchs_generator_is_used() -> None:
    torch.manual_seed(5)
    drawn = uniform((4,), samples=2)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(2, 4))
    with pytest.raises(SetupError, match="give `samples`"):
        uniform((4,))


def test_a_model_for_another_number_of_samples_is_refused() -> None:
    with noise_of([1, 2]), pytest.raises(SetupError, match=r"draws for 3 samples .* for 2"):
        uniform((4,), samples=3)


def test_one_of_the_batch_draws_alone_and_then_the_batch_again() -> None:
    with noise_of([1, 2]):
        with noise_of_one(1):
            alone = uniform((4,))
        both = uniform((4,))
    with noise_of([2]):
        assert torch.equal(alone, uniform((4,)))
        assert torch.equal(both[1:], uniform((4,)))


def test_seeds_of_samples_are_known_and_far_apart() -> None:
    # The value must not change between versions: runs would not be repeatable.
    assert sample_seed(0, 0, 0) == 759540517790923586
    seeds = {sample_seed(*key) for key in numpy.ndindex(4, 20, 50)}
    assert len(seeds) == 4000
    assert all(0 <= seed < 2**63 for seed in seeds)
    ones = numpy.mean([[seed >> bit & 1 for bit in range(63)] for seed in seeds], axis=0)
    assert abs(ones - 0.5).max() < 0.04  # 5 standard deviations of 4000 coins
    # torch's CPU generator keeps the low 32 bits.
    assert len({seed & 0xFFFFFFFF for seed in seeds}) == 4000


def test_global_generators_are_seeded_and_put_back() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(()).item(), numpy.random.rand(), random.random()

    torch.manual_seed(0), numpy.random.seed(0), random.seed(0)
    first, second = draw(), draw()
    torch.manual_seed(0), numpy.random.seed(0), random.seed(0)
    assert draw() == first
    with seeded_globals(2**62 + 1):
        one = draw()
    with seeded_globals(2**62 + 1):
        assert draw() == one
    with pytest.raises(KeyError), seeded_globals(2):
        {}["a simulator's mistake"]
    with seeded_globals(1):  # the high bits count, too, for numpy and random
        assert draw()[1:] != one[1:]
    assert draw() == second
