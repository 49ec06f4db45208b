"""What can be fitted: a simulator, what is observed of it, and what is believed beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpckit.inference.contacts import watts_strogatz_edges
from hpckit.inference.model import L2Loss, Model
from hpckit.inference.noise import sample_seed, seeded_globals
from hpckit.inference.random_walk import RandomWalk
from hpckit.inference.sir import SIR
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks

# Streams of random numbers of what is made once, apart from those of the fit.
_GRAPH, _DATA = -2, -3


@dataclass(frozen=True)
class Problem:
    """A simulator and its data.

    Attributes:
        model: the simulator, on the rank's device.
        loss: of parameters and data.
        data: observed time series, (T + 1,) each.
        observables: their names.
        parameters: the names of the simulator's parameters.
        truth: the parameters that made the data.
        prior: what is believed of them beforehand.
        description: a line about it.
    """

    model: Model
    loss: L2Loss
    data: list[torch.Tensor]
    observables: tuple[str, ...]
    parameters: tuple[str, ...]
    truth: torch.Tensor
    prior: torch.distributions.MultivariateNormal
    description: str


def make_problem(
    name: str,
    ranks: Ranks,
    device: torch.device,
    *,
    agents: int,
    steps: int,
    horizon: int | None,
    seed: int,
) -> Problem:
    """Make a problem: rank 0 makes graph and data once, for all.

    Args:
        name: "sir" or "random_walk".
        ranks: all of them.
        device: of this rank.
        agents: of the epidemic.
        steps: after the initial state.
        horizon: see `simulate_and_observe_model`.
        seed: of graph and data.
    """
    make = _sir if name == "sir" else _random_walk
    return make(ranks, device, agents, steps, horizon, seed)


def _sir(
    ranks: Ranks,
    device: torch.device,
    agents: int,
    steps: int,
    horizon: int | None,
    seed: int,
) -> Problem:
    (edges,) = ranks.share(lambda: [_small_world(agents, seed)])
    model = SIR(torch.from_numpy(edges), steps, device, n_agents=agents)
    truth = torch.tensor([0.05, 0.05, 0.05]).log10()
    return Problem(
        model=model,
        loss=L2Loss(model, horizon),
        data=_observed(ranks, model, truth, device, seed),
        observables=("infected", "recovered"),
        parameters=("log10 initial infected", "log10 beta", "log10 gamma"),
        truth=truth,
        prior=_normal(-2.0 * torch.ones(3, device=device)),
        description=f"SIR epidemic: {agents} agents, {len(edges)} contacts, {steps} steps",
    )


def _random_walk(
    ranks: Ranks,
    device: torch.device,
    agents: int,
    steps: int,
    horizon: int | None,
    seed: int,
) -> Problem:
    del agents  # it walks alone
    model = RandomWalk(steps)
    truth = torch.tensor([0.3]).logit()
    return Problem(
        model=model,
        loss=L2Loss(model, horizon),
        data=_observed(ranks, model, truth, device, seed),
        observables=("position",),
        parameters=("logit p",),
        truth=truth,
        prior=_normal(torch.zeros(1, device=device)),
        description=f"random walk: {steps} steps",
    )


def _small_world(agents: int, seed: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the edges (E, 2) of a Watts-Strogatz graph: 10 neighbours, one edge in 10 rewired.

    Raises:
        SetupError: there are too few agents, or networkx is missing.
    """
    if agents <= 10:
        raise SetupError(f"--n-agents {agents}: each has 10 neighbours, so at least 11 are needed")
    return watts_strogatz_edges(agents, 10, 0.1, sample_seed(seed, _GRAPH, 0))


def _observed(
    ranks: Ranks, model: Model, truth: torch.Tensor, device: torch.device, seed: int
) -> list[torch.Tensor]:
    def simulate() -> Sequence[np.ndarray[Any, np.dtype[Any]]]:
        with torch.no_grad(), seeded_globals(sample_seed(seed, _DATA, 0), device):
            return [row.cpu().numpy() for row in model.run_and_observe(truth.to(device))]

    return [torch.from_numpy(row).to(device) for row in ranks.share(simulate)]


def _normal(mean: torch.Tensor) -> torch.distributions.MultivariateNormal:
    return torch.distributions.MultivariateNormal(mean, torch.eye(len(mean), device=mean.device))
