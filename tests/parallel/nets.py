"""A small network, and how far two are from each other."""

import torch
from torch import nn


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def gap(one: nn.Module, other: nn.Module) -> float:
    """Return the greatest difference of a parameter."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((mine - wanted).abs().max().item() for mine, wanted in pairs)
