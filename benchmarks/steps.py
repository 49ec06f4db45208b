"""Steps of training that several benchmarks time, also those of tests/gpu."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data.distributed import DistributedSampler

if TYPE_CHECKING:
    from hpckit.parallel.mirrored import Mirrored, MirroredOptimizer, MirroredStrategy
    from hpckit.parallel.tasks import Samples

WARM = 10
"""Steps that are taken first, and not timed."""


def per_step(step: Callable[[], object], seconds: float) -> float:
    """Return seconds per call, after `WARM` calls that are not timed."""
    for _ in range(WARM):
        step()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        count += 1
    return (time.perf_counter() - began) / max(count, 1)


def plain_step(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    labels: torch.Tensor,
) -> Callable[[], float]:
    """Return a step of a network alone; it returns the loss."""

    def step() -> float:
        optimizer.zero_grad()
        loss = cross_entropy(network(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def mirrored_step(
    strategy: MirroredStrategy,
    model: Mirrored,
    optimizer: MirroredOptimizer,
    inputs: torch.Tensor,
    labels: torch.Tensor,
) -> Callable[[], float]:
    """Return a step of a MirroredStrategy's model and optimizer; it returns the loss."""
    (batch,) = strategy.distribute_dataset([(inputs, labels)])

    def part(some: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(some), wanted, reduction="sum") / len(labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda: float(strategy.reduce("sum", strategy.run(part, batch)).item())


def bare_loop(
    network: torch.nn.Module,
    images: Samples,
    *,
    batch: int,
    epochs: int,
    rank: int = 0,
    ranks: int = 1,
) -> float:
    """Train a network as one would without hpckit; return seconds per step.

    `batch` is that of all ranks together. The first `WARM` steps are not timed.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    sampler: Any = DistributedSampler(images, num_replicas=ranks, rank=rank)
    share, steps, spent = batch // ranks, 0, 0.0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        order = list(sampler)
        since = time.perf_counter()
        for at in range(0, len(order), share):
            plain_step(network, optimizer, *images[order[at : at + share]])()
            now = time.perf_counter()
            steps += 1
            if steps > WARM:
                spent += now - since
            since = now
    return spent / (steps - WARM)
