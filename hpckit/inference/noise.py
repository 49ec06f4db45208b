"""Random numbers that belong to a sample, whichever batch and rank evaluates it.

Each sample has a generator of its own, seeded from the run's seed, the epoch and its index. So a
run on eight ranks gives the numbers of a run on one. A simulator that draws from the global
generators of torch, numpy or random instead is run sample by sample inside `seeded_globals`.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy
import torch

from hpckit.parallel.errors import SetupError

_streams: ContextVar[tuple[torch.Generator, ...] | None] = ContextVar("_streams", default=None)


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
