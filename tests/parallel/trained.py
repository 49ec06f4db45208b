"""A mirrored model in training, and the same one on one device."""

from collections.abc import Callable

import torch
from torch import nn

from hpckit.parallel.mirrored import (
    Mirrored,
    MirroredOptimizer,
    MirroredStrategy,
)

Make = Callable[[nn.Module], torch.optim.Optimizer]
Batches = list[tuple[torch.Tensor, torch.Tensor]]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=0.01),
    "momentum": lambda module: torch.optim.SGD(
        module.parameters(), lr=0.01, momentum=0.9, weight_decay=0.1
    ),
    "adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.01),
}


def data(count: int, batch: int, dtype: torch.dtype = torch.float32) -> Batches:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 5, dtype=dtype, generator=generator)
    targets = inputs.sum(1, keepdim=True) + 1
    return list(zip(inputs.split(batch), targets.split(batch), strict=True))


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)


def alone(
    model: nn.Module, batches: Batches, make: Make, epochs: int
) -> tuple[nn.Module, list[float]]:
    """Plain torch on one device, as one would write it without a strategy."""
    optimizer, losses = make(model), []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(inputs)
        losses.append(total / sum(len(inputs) for inputs, _ in batches))
    return model, losses


def furthest(model: Mirrored, wanted: nn.Module) -> float:
    """Return the greatest difference of a parameter, over all replicas."""
    return max(
        (mine - one).abs().max().item()
        for module in model.copies
        for mine, one in zip(module.parameters(), wanted.parameters(), strict=True)
    )


def mirrored(
    replicas: int, make: Make, module: nn.Module | None = None, **options: bool
) -> tuple[MirroredStrategy, Mirrored, MirroredOptimizer]:
    strategy = MirroredStrategy(f"cpu:{replicas}")
    model = strategy.mirror(module or network(), **options)
    return strategy, model, strategy.optimizer(model, make)


def one_loss(model: nn.Module, batches: Batches) -> float:
    inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    with torch.no_grad():
        return nn.functional.mse_loss(model(inputs), targets).item()
