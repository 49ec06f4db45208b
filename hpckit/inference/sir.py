"""Susceptible, infected, recovered: an epidemic on a graph, differentiable, in batches.

The model of blackbirds' examples. Parameters are log10 of the initial infected fraction, of beta
(the chance that one contact infects in a step) and of gamma (the chance to recover in a step), each
held below 0 by a soft minimum.

A step is one of a batch of samples, with its derivatives written out. An agent with n infected
contacts (at most 5 count) is infected with p = 1 - (1 - beta)**n, and an infected one recovers with
p = gamma. Within 1e-10 of 0 or 1 there is no gradient. blackbirds lets what cannot happen do so
with 1e-10; here agents only go from susceptible to infected to recovered.

In each step an agent has one of eight probabilities, so these are looked up by a code: 0 nothing
can happen; 1 to 5 infected contacts; 6 for more of them; 7 infected. What is kept for the gradient
is four bytes for each agent and step, the slope of its change by beta or, negative, by gamma; and
one for its code if the gradient passes through the state.
"""

from typing import Any, ClassVar, cast

import torch
from torch.nn import functional

from hpckit.inference import noise
from hpckit.inference.checks import check_counts
from hpckit.inference.contacts import Contacts, Graph
from hpckit.inference.model import OneStepModel, check_numbers
from hpckit.inference.noise import TAU, Context, draw_bernoulli, softness, sum_of_row, yes
from hpckit.parallel.errors import SetupError

MAX_CONTACTS = 5
MORE, INFECTED = 6, 7
MIN_PROBABILITY = 1e-10
# In the order of codes: the slope of 1 - (1 - beta)**n is n (1 - beta)**(n - 1), that of gamma 1,
# with a minus to tell it from the others.
_FACTORS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, -1.0)


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
            SetupError: the graph cannot be read, or there are less than no steps.
        """
        check_counts(0, n_timesteps=n_timesteps)
        self.n_timesteps = n_timesteps
        self.device = torch.device(device)
        self.contacts = Contacts(graph, n_agents, self.device)
        self.n_agents = self.contacts.n_agents

    def initialize(self, params: torch.Tensor) -> torch.Tensor:
        """Return the state at time 0, where each agent is infected with the initial fraction."""
        check_numbers(params)
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


def probabilities(rates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each sample and code the probability p, and the slope of p by beta or gamma.

    The slopes are over tau p (1 - p), and negative for gamma. Both are (B, 8) and float64; rates
    are (B, 2).
    """
    rates = rates.double()
    beta, gamma = rates[:, :1], rates[:, 1:]
    sure = torch.ones_like(beta)
    escape = torch.cat((sure, (1 - beta).expand(-1, MAX_CONTACTS)), dim=1).cumprod(dim=1)
    infection = 1 - escape
    # Rates that are not numbers show in all of the result.
    p = torch.cat((infection, infection[:, -1:], gamma), dim=1) + 0 * rates.sum(1, keepdim=True)
    earlier = torch.cat((sure, escape[:, :-1], escape[:, -2:-1], sure), dim=1)
    slope = earlier * torch.tensor(_FACTORS, dtype=rates.dtype, device=rates.device)
    spread = p * (1 - p)
    return p, (slope / (TAU * spread)).masked_fill_(spread < MIN_PROBABILITY, 0.0)


class _Transition(torch.autograd.Function):
    """Also returns what the derivatives need: slopes and codes, (B, N)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        state: torch.Tensor, rates: torch.Tensor, v: torch.Tensor, contacts: Contacts
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        infected, susceptible, recovered = state.unbind(1)
        code = contacts.multiply(infected).clamp_(max=MORE).mul_(susceptible)
        # Where a rate is not a number, neither is the state; a code must be a code all the same.
        code = code.add_(infected, alpha=INFECTED).int().clamp_(0, INFECTED)
        p, slope = _look_up(torch.stack(probabilities(rates)).to(v.dtype), code)
        slope = slope.mul_(softness(p, v))
        changes = yes(p, v)
        infection, recovery = changes * susceptible, changes * infected
        after = (infected + infection - recovery, susceptible - infection, recovered + recovery)
        return torch.stack(after, dim=1), slope, code.to(torch.uint8)

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]
    ) -> None:
        _, rates, _, ctx.contacts = inputs
        _, slope, code = output
        ctx.mark_non_differentiable(slope, code)
        ctx.save_for_backward(slope, *((rates, code) if ctx.needs_input_grad[0] else ()))
        ctx.save_for_forward(slope, rates, code)

    @staticmethod
    def backward(
        ctx: Context, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor, None, None]:
        slope, *more = ctx.saved_tensors
        infected, susceptible, recovered = gradients[0].unbind(1)
        by_beta = slope.clamp(min=0) * (infected - susceptible)
        by_gamma = slope.clamp(max=0) * (infected - recovered)
        by_rates = torch.cat((sum_of_row(by_beta), sum_of_row(by_gamma)), dim=-1)
        if not more:
            return None, by_rates, None, None
        rates, code = more
        by_count = _by_count(rates, by_beta, code)
        others = by_count / code.clamp(min=1)
        through = ctx.contacts.sum_over(others.double(), backwards=True).to(slope.dtype)
        infected = infected + by_gamma * rates[:, 1:] + through
        state = torch.stack((infected, susceptible + by_count, recovered), dim=1)
        return state, by_rates, None, None

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        by_state, by_rates = tangents[:2]
        slope, rates, code = ctx.saved_tensors
        beta, gamma = by_rates[:, :1], by_rates[:, 1:]
        infected, susceptible, recovered = by_state.unbind(1)
        others = ctx.contacts.sum_over(infected.double()).to(slope.dtype) / code.clamp(min=1)
        infection = slope.clamp(min=0) * beta
        infection = infection + _by_count(rates, slope, code) * (susceptible + others)
        recovery = -slope.clamp(max=0) * (gamma + rates[:, 1:] * infected)
        state = (infected + infection - recovery, susceptible - infection, recovered + recovery)
        return torch.stack(state, dim=1), None, None


def _look_up(tables: torch.Tensor, code: torch.Tensor) -> list[torch.Tensor]:
    """Return what each table (tables, B, 8) has for the samples' codes (B, N)."""
    _, samples, codes = tables.shape
    rows = torch.arange(0, samples * codes, codes, dtype=code.dtype, device=code.device)
    entries = (code + rows[:, None]).flatten()
    return [table.index_select(0, entries).view(code.shape) for table in tables.flatten(1)]


def _by_count(rates: torch.Tensor, by_beta: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    """Return n times the derivative by the number n of infected contacts, from that by beta.

    dp/dn = -(1 - beta)**n log(1 - beta) and dp/dbeta = n (1 - beta)**(n - 1). Where more contacts
    than 5 are infected, one less makes no difference.
    """
    counts = (code >= 1) & (code <= MAX_CONTACTS)
    return torch.where(counts, by_beta * torch.special.entr(1 - rates[:, :1]), 0.0)


def transition(
    state: torch.Tensor, rates: torch.Tensor, v: torch.Tensor, contacts: Contacts
) -> torch.Tensor:
    """Return the state one step later, differentiable by state and rates.

    Args:
        state: (B, 3, N), for each agent 1 for infected, susceptible or recovered.
        rates: (B, 2), beta and gamma.
        v: (B, N), uniform in [0, 1).
        contacts: who meets whom.
    """
    after, _, _ = _Transition.apply(state, rates, v, contacts)  # type: ignore[no-untyped-call]
    return cast("torch.Tensor", after)
