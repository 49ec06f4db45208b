"""Susceptible, infected, recovered: an epidemic on a graph, differentiable, in batches.

The model of blackbirds' examples. Parameters are log10 of the initial infected fraction, of beta
(the chance that one contact infects in a step) and of gamma (the chance to recover in a step), each
held below 0 by a soft minimum.
"""

from typing import ClassVar

import torch
from torch.nn import functional

from hpckit.inference import noise
from hpckit.inference.bernoulli import draw_bernoulli
from hpckit.inference.contacts import Contacts, Graph
from hpckit.inference.epidemic import transition
from hpckit.inference.model import OneStepModel
from hpckit.parallel.errors import SetupError


class SIR(OneStepModel):
    """An epidemic among the N agents of a graph.

    The state has shape (1, 3, N), or (1, B, 3, N) for a batch of parameters (B, 3): for each agent
    1 for infected, susceptible or recovered.
    """

    batched: ClassVar[bool] = True

    def __init__(
        self,
        graph: Graph,
        n_timesteps: int,
        device: torch.device | str = "cpu",
        *,
        n_agents: int | None = None,
    ) -> None:
        """Make a model.

        Args:
            graph: who meets whom, as `Contacts` takes it: networkx, edges (E, 2), or sparse.
            n_timesteps: number of steps after the initial state.
            device: where it runs.
            n_agents: needed with edges if the last agents meet nobody.

        Raises:
            SetupError: the graph cannot be read.
        """
        self.n_timesteps = n_timesteps
        self.device = torch.device(device)
        self.contacts = Contacts(graph, n_agents, self.device)
        self.n_agents = self.contacts.n_agents

    def initialize(self, params: torch.Tensor) -> torch.Tensor:
        """Return the state at time 0, where each agent is infected with the initial fraction."""
        rates = self._rates(params)
        infected = draw_bernoulli(rates[:, :1], self._noise(rates))
        state = torch.stack((infected, 1 - infected, torch.zeros_like(infected)), dim=1)
        return state.reshape(1, *params.shape[:-1], 3, self.n_agents)

    def step(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the state one time later."""
        rates = self._rates(params)
        state = x[-1].reshape(-1, 3, self.n_agents)
        state = transition(state, rates[:, 1:], self._noise(rates), self.contacts)
        return state.reshape(1, *x.shape[1:])

    def observe(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the numbers of infected and of recovered agents, (T,) or (T, B) each."""
        totals = x.sum(-1)
        return [totals[..., 0], totals[..., 2]]

    def _rates(self, params: torch.Tensor) -> torch.Tensor:
        """Return initial fraction, beta and gamma, (B, 3).

        exp and log may differ in their last bit with the place in a batch; of float64 numbers
        nothing of that is left in float32.
        """
        if params.shape[-1] != 3:
            raise SetupError(
                f"SIR takes 3 parameters (log10 of initial fraction, beta and gamma): the last "
                f"dimension of {tuple(params.shape)} is {params.shape[-1]}."
            )
        # -log(exp(-2 p) + 1) / 2, which is close to min(p, 0)
        exponents = functional.logsigmoid(2 * params.reshape(-1, 3).to(self.device).double()) / 2
        return (10**exponents).to(params.dtype)

    def _noise(self, rates: torch.Tensor) -> torch.Tensor:
        """Return a number per agent. One is enough: who can be infected cannot recover."""
        return noise.uniform(
            (self.n_agents,), samples=len(rates), dtype=rates.dtype, device=rates.device
        )
