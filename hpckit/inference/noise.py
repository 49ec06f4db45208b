"""Random numbers that belong to a sample, whichever batch and rank evaluates it.

Each sample has a generator of its own, seeded from the run's seed, the epoch and its index. So a
run on eight ranks gives the numbers of a run on one. A simulator that draws from the global
generators of torch, numpy or random instead is run sample by sample inside `seeded_globals`.

Yes or no by chance (`draw_bernoulli`) has a gradient, that of the hard Gumbel softmax over two
outcomes. The difference of the Gumbel numbers is then logistic, so one uniform number v per draw is
enough: yes where v < p. The gradient is that of the soft outcome, y = sigmoid(logit / tau) with
logit = log(p / (1 - p)) + log((1 - v) / v) (Jang, Gu, Poole 2017: arXiv 1611.01144).
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy
import torch

from hpckit.parallel.errors import SetupError

_streams: ContextVar[tuple[torch.Generator, ...] | None] = ContextVar("_streams", default=None)
TAU = 0.1
# What autograd hands to a function; torch has no type with the attributes a function may set.
Context = Any


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Return the seed of one sample of one epoch: 63 well-mixed bits.

    torch's CPU generator keeps 32 of them, those of a GPU all.
    """
    digest = hashlib.blake2b(f"{seed}/{epoch}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@contextmanager
def noise_of(seeds: Sequence[int], device: torch.device | str = "cpu") -> Iterator[None]:
    """Draw the noise of a batch of samples, each from its own generator on the device.

    Numbers differ between kinds of device: noise of "cpu" is the same for models on any.
    """
    generators = tuple(torch.Generator(device).manual_seed(seed) for seed in seeds)
    with _drawing_from(generators):
        yield


@contextmanager
def noise_of_one(position: int) -> Iterator[None]:
    """Draw for one sample of the batch only, as for models without batches."""
    streams = _streams.get()
    with _drawing_from(streams and (streams[position],)):
        yield


@contextmanager
def _drawing_from(generators: tuple[torch.Generator, ...] | None) -> Iterator[None]:
    token = _streams.set(generators)
    try:
        yield
    finally:
        _streams.reset(token)


def uniform(
    shape: Sequence[int],
    *,
    samples: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return numbers in [0, 1) of shape (samples, *shape).

    Args:
        shape: of one sample's numbers.
        samples: how many there are; inside `noise_of` it may be left out.
        dtype: None is torch's default.
        device: where the numbers are wanted.

    Raises:
        SetupError: the number of samples is not known, or not that of `noise_of`.
    """

    def fill(numbers: torch.Tensor, generator: torch.Generator | None) -> None:
        numbers.uniform_(generator=generator)

    return _draw(fill, shape, samples, dtype, torch.device(device))


def normal(
    shape: Sequence[int],
    *,
    samples: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return standard normal numbers, as `uniform` does uniform ones."""

    def fill(numbers: torch.Tensor, generator: torch.Generator | None) -> None:
        numbers.normal_(generator=generator)

    return _draw(fill, shape, samples, dtype, torch.device(device))


def _draw(
    fill: Callable[[torch.Tensor, torch.Generator | None], None],
    shape: Sequence[int],
    samples: int | None,
    dtype: torch.dtype | None,
    device: torch.device,
) -> torch.Tensor:
    streams = _streams.get()
    if streams is None:
        if samples is None:
            raise SetupError("The number of samples is unknown here: give `samples`.")
        numbers = torch.empty((samples, *shape), dtype=dtype, device=device)
        fill(numbers, None)
        return numbers
    if samples not in (None, len(streams)):
        raise SetupError(
            f"The model draws for {samples} samples inside noise_of() for {len(streams)}: "
            "give noise_of() one seed for each sample."
        )
    # A generator fills memory of its own device only.
    place = streams[0].device if streams else device
    numbers = torch.empty((len(streams), *shape), dtype=dtype, device=place)
    for row, generator in zip(numbers.unbind(), streams, strict=True):
        fill(row, generator)
    return numbers.to(device)


@contextmanager
def seeded_globals(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's global generators (CPU and device), numpy's and random's; restore them after."""
    device = torch.device(device)
    before = numpy.random.get_state(), random.getstate()
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        try:
            torch.default_generator.manual_seed(seed)
            if gpus:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])
            random.seed(seed)
            yield
        finally:
            numpy.random.set_state(before[0])
            random.setstate(before[1])


def yes(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return 1 where v < p, else 0, and NaN where p is: v is in [0, 1) and p in [0, 1].

    torch's numbers are multiples of a grain (2**-24 in float32) and 0 is one of them. Half a grain
    more makes what has a probability of 1e-10 not happen, instead of 600 times too often.
    """
    return (p - v).sub_(torch.finfo(v.dtype).eps / 4).ceil_()


def softness(p: torch.Tensor, v: torch.Tensor, tau: float = TAU) -> torch.Tensor:
    """Return y (1 - y), at most 1/4: the slope of y by p is this over tau p (1 - p).

    With odds r of the soft outcome at tau = 1, y is r**k / (1 + r**k), k = 1 / tau; and 1/r gives
    the same. For integer k this takes sums, products and quotients alone, whose bits are the same
    wherever in a batch a number stands; those of exp and log are not.
    """
    yes, no = p * (1 - v), (1 - p) * v
    tiny = torch.finfo(v.dtype).tiny
    odds = torch.minimum(yes, no).div_(torch.maximum(yes, no).clamp_(min=tiny))
    odds = _power(odds, 1 / tau)
    return odds / (1 + odds).square_()


def _power(number: torch.Tensor, exponent: float) -> torch.Tensor:
    whole = round(exponent)
    if abs(exponent - whole) > 1e-9:
        return number**exponent
    result = None
    while whole:
        if whole & 1:
            result = number if result is None else result * number
        whole >>= 1
        if whole:
            number = number * number
    return torch.ones_like(number) if result is None else result


def sum_of_row(numbers: torch.Tensor) -> torch.Tensor:
    """Return sums over the last dimension, (..., 1): in float64, where order hardly counts."""
    return numbers.sum(-1, keepdim=True, dtype=torch.float64).to(numbers.dtype)


def draw_bernoulli(p: torch.Tensor, v: torch.Tensor, tau: float = TAU) -> torch.Tensor:
    """Return 1 with probability p, else 0, differentiable by p; NaN where p is.

    Args:
        p: (..., 1), the probability of all draws of a row.
        v: (..., N), uniform in [0, 1).
        tau: temperature of the gradient.
    """
    drawn, _ = _Draw.apply(p, v, tau)  # type: ignore[no-untyped-call]
    return cast("torch.Tensor", drawn)


class _Draw(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(p: torch.Tensor, v: torch.Tensor, tau: float) -> tuple[torch.Tensor, torch.Tensor]:
        spread = tau * p * (1 - p)
        slope = torch.where(spread > 0, softness(p, v, tau) / spread, 0.0)
        return yes(p, v), slope

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]
    ) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return sum_of_row(gradients[0] * slope), None, None

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slope,) = ctx.saved_tensors
        return tangents[0] * slope, None
