"""One step of an epidemic for a batch of samples, with its derivatives written out.

An agent with n infected contacts (at most 5 count) is infected with p = 1 - (1 - beta)**n, and an
infected one recovers with p = gamma. Probabilities below 1e-10 count as 1e-10, without a gradient;
what nobody can see happen does not: agents change in the order susceptible, infected, recovered.

In each step an agent has one of eight probabilities, so these are looked up by a code: 0 nothing
can happen; 1 to 5 infected contacts; 6 for more of them; 7 infected. What is kept for the gradient
is five bytes for each agent and step: its code, and the slope of its change by beta or gamma.
"""

from typing import Any, cast

import torch

from hpckit.inference.bernoulli import TAU, Context, is_yes, softness, sum_of_row
from hpckit.inference.contacts import Contacts

MAX_CONTACTS = 5
MORE, INFECTED = 6, 7
MIN_PROBABILITY = 1e-10


def probabilities(rates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each sample and code the probability p, and the slope of p by beta or gamma.

    The slopes are over tau p (1 - p). Both are (B, 8) and float64; rates are (B, 2).
    """
    beta, gamma = rates.double().unbind(-1)
    escape = [torch.ones_like(beta)]
    for _ in range(MAX_CONTACTS):
        escape.append(escape[-1] * (1 - beta))
    infection = [1 - one for one in escape]
    by_beta = [n * escape[n - 1] for n in range(1, MAX_CONTACTS + 1)]
    p = torch.stack((*infection, infection[-1], gamma), dim=1)
    slope = torch.stack(
        (torch.zeros_like(beta), *by_beta, by_beta[-1], torch.ones_like(gamma)), dim=1
    )
    certain = (p < MIN_PROBABILITY) | (p >= 1)
    return p, torch.where(certain, 0.0, slope / (TAU * p * (1 - p)))


class _Transition(torch.autograd.Function):
    """Also returns what the derivatives need: slopes and codes, (B, N)."""

    @staticmethod
    def forward(
        state: torch.Tensor, rates: torch.Tensor, v: torch.Tensor, contacts: Contacts
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        infected, susceptible = state[:, 0] > 0.5, state[:, 1] > 0.5
        count = contacts.sum_over(infected.float()).clamp_(max=MORE)
        code = count.mul_(susceptible).long().masked_fill_(infected, INFECTED)
        p, slope = (table.to(v.dtype) for table in probabilities(rates))
        p = p.gather(1, code)
        slope = softness(p, v).mul_(slope.gather(1, code))
        changes = is_yes(p, v)
        infected, susceptible = infected ^ changes, susceptible & ~changes
        after = torch.stack((infected, susceptible, ~(infected | susceptible)), dim=1).to(v.dtype)
        # Rates that are not numbers show in the result.
        return after.add_(0 * rates.sum(-1)[:, None, None]), slope, code.to(torch.uint8)

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]
    ) -> None:
        _, rates, _, ctx.contacts = inputs
        _, slope, code = output
        ctx.mark_non_differentiable(slope, code)
        ctx.save_for_backward(rates, slope, code)
        ctx.save_for_forward(rates, slope, code)

    @staticmethod
    def backward(
        ctx: Context, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor, None, None]:
        rates, slope, code = ctx.saved_tensors
        infected, susceptible, recovered = gradients[0].unbind(1)
        recovers = code == INFECTED
        change = torch.where(recovers, recovered - infected, infected - susceptible) * slope
        by_gamma = torch.where(recovers, change, 0.0)
        by_rates = torch.cat((sum_of_row(change - by_gamma), sum_of_row(by_gamma)), dim=-1)
        if not ctx.needs_input_grad[0]:
            return None, by_rates, None, None
        by_count = _by_count(rates, change, code)
        others = by_count / code.clamp(min=1)
        through = ctx.contacts.sum_over(others.double(), backwards=True).to(change.dtype)
        infected = infected + by_gamma * rates[:, 1:] + through
        state = torch.stack((infected, susceptible + by_count, recovered), dim=1)
        return state, by_rates, None, None

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        by_state, by_rates = tangents[:2]
        rates, slope, code = ctx.saved_tensors
        recovers = code == INFECTED
        beta, gamma = by_rates[:, :1], by_rates[:, 1:]
        change = torch.where(recovers, gamma, beta) * slope
        infected, susceptible, recovered = by_state.unbind(1)
        others = ctx.contacts.sum_over(infected.double()).to(slope.dtype) / code.clamp(min=1)
        change = change + _by_count(rates, slope, code) * (susceptible + others)
        change = change + torch.where(recovers, slope * rates[:, 1:] * infected, 0.0)
        infection, recovery = torch.where(recovers, 0.0, change), torch.where(recovers, change, 0.0)
        state = (infected + infection - recovery, susceptible - infection, recovered + recovery)
        return torch.stack(state, dim=1), None, None


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
