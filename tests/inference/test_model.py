"""Running a simulator: what users of blackbirds bring, batches, and how far back gradients go."""

import math

import pytest

torch = pytest.importorskip("torch")

from hpckit.inference import noise  # noqa: E402
from hpckit.inference.model import L2Loss, Model, simulate_and_observe_model  # noqa: E402
from hpckit.inference.noise import noise_of, sample_seed  # noqa: E402
from hpckit.inference.random_walk import RandomWalk  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.torch
LENGTH = 12


class Fibonacci(Model):
    """x(t) = a x(t-1) + b x(t-2): a user's model that needs two steps and knows no batches."""

    n_timesteps = LENGTH

    def initialize(self, params):
        return torch.stack((params[0], params[1])).reshape(2, 1)

    def step(self, params, x):
        return (params[0] * x[-1] + params[1] * x[-2]).reshape(1, 1)

    def observe(self, x):
        return [x.flatten(), -x.flatten()]

    def trim_time_series(self, x):
        return x[-2:]


class Noisy(Fibonacci):
    def step(self, params, x):
        return super().step(params, x) + noise.normal((1,), samples=1, dtype=x.dtype)


class Inside(Model):
    """A model that keeps its state to itself, as wrappers of other simulators do."""

    n_timesteps = 3

    def initialize(self, params):
        self.state = params

    def step(self, params, x):
        self.state = 2 * self.state

    def observe(self, x):
        return [self.state]

    def trim_time_series(self, x):
        return None

    def detach_gradient_horizon(self, x, gradient_horizon):
        self.state = self.state.detach()


def test_a_users_model_runs_with_its_past() -> None:
    params = torch.tensor([1.0, 1.0], dtype=torch.float64)
    seen, negative = Fibonacci().run_and_observe(params)
    assert seen.tolist() == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377]
    assert torch.equal(negative, -seen)
    assert torch.equal(Fibonacci().run(params).flatten(), seen)


def test_a_model_without_batches_takes_one_sample_after_the_other() -> None:
    params = torch.tensor([[0.5, 0.2], [0.1, -0.3], [0.9, 0.05]], dtype=torch.float64)
    seeds = [4, 5, 6]
    with noise_of(seeds):
        together, _ = simulate_and_observe_model(Noisy(), params)
    assert together.shape == (3, LENGTH + 2)
    for sample, seed, seen in zip(params, seeds, together, strict=True):
        with noise_of([seed]):
            assert torch.equal(Noisy().run_and_observe(sample)[0], seen)


def test_a_model_that_keeps_its_state_can_be_cut_too() -> None:
    params = torch.tensor([3.0], requires_grad=True)
    for horizon, slope in ((None, 8.0), (3, 8.0), (2, 0.0), (0, 0.0)):
        (seen,) = simulate_and_observe_model(Inside(), params, horizon)
        assert seen.tolist() == [3, 6, 12, 24]
        last = seen[-1]
        got = torch.autograd.grad(last, params)[0].item() if last.requires_grad else 0.0
        assert got == slope


def by_hand(params: torch.Tensor, horizon: int | None) -> torch.Tensor:
    """Return the Fibonacci model's series, cut before every (horizon + 1)th step."""
    older, old = params[0], params[1]
    seen = [older, old]
    for time in range(1, LENGTH + 1):
        if horizon is not None and time % (horizon + 1) == 0:
            older, old = older.detach(), old.detach()
        older, old = old, params[0] * old + params[1] * older
        seen.append(old)
    return torch.stack(seen)


@pytest.mark.parametrize("horizon", [0, 1, 2, 10, LENGTH - 1, LENGTH, 500, None])
def test_the_horizon_cuts_where_it_says(horizon) -> None:
    params = torch.tensor([0.9, 0.4], dtype=torch.float64, requires_grad=True)
    weights = torch.linspace(1, 2, LENGTH + 2, dtype=torch.float64)
    seen, _ = simulate_and_observe_model(Fibonacci(), params, horizon)
    (got,) = torch.autograd.grad(seen @ weights, params)
    (wanted,) = torch.autograd.grad(by_hand(params, horizon) @ weights, params)
    assert torch.allclose(got, wanted, rtol=1e-13)


def test_each_horizon_gives_another_gradient_and_the_longest_is_the_full_one() -> None:
    gradients = {}
    for horizon in (0, 1, 2, 10, LENGTH, None):
        params = torch.tensor([0.9, 0.4], dtype=torch.float64, requires_grad=True)
        seen, _ = simulate_and_observe_model(Fibonacci(), params, horizon)
        gradients[horizon] = tuple(torch.autograd.grad(seen.sum(), params)[0].tolist())
    assert len(set(gradients.values())) == 5
    assert gradients[LENGTH] == gradients[None]


@pytest.mark.parametrize(
    ("params", "horizon", "message"),
    [(torch.zeros(1), -1, "gradient_horizon is -1"), (torch.zeros(()), 0, r"shape \(\)")],
)
def test_what_cannot_be_run_is_refused(params, horizon, message) -> None:
    with pytest.raises(SetupError, match=message):
        simulate_and_observe_model(RandomWalk(3), params, horizon)


def test_the_loss_is_one_number_per_sample() -> None:
    walk = RandomWalk(20)
    params = torch.tensor([[0.3], [-1.0], [2.0]], requires_grad=True)
    data = walk.run_and_observe(params[0].detach())
    with noise_of([1, 2, 3]):
        losses = L2Loss(walk)(params, data)
    assert losses.shape == (3,)
    losses.sum().backward()
    for number, seed in enumerate((1, 2, 3)):
        alone = params[number].detach().requires_grad_()
        with noise_of([seed]):
            loss = L2Loss(walk)(alone, data)
        assert loss.shape == ()
        assert loss.item() == losses[number].item()
        assert torch.autograd.grad(loss, alone)[0].item() == params.grad[number].item()
    with noise_of([1]):
        seen = walk.run_and_observe(params[0].detach())[0]
    assert losses[0].item() == pytest.approx(((seen - data[0]) ** 2).mean().item(), rel=1e-6)
    with pytest.raises(SetupError, match=r"\(5,\) and the model shows \(21,\)"):
        L2Loss(walk)(params[0], [torch.zeros(5)])


def test_a_random_walk_goes_where_its_parameter_says() -> None:
    """Mean n (2p - 1) and variance 4 n p (1 - p), within 4 standard errors of 4000 walks."""
    samples, length = 4000, 50
    with noise_of([sample_seed(1, 0, index) for index in range(samples)]), torch.no_grad():
        (seen,) = RandomWalk(length).run_and_observe(torch.full((samples, 1), 0.4))
    p = 1 / (1 + math.exp(-0.4))
    assert seen.shape == (samples, length + 1)
    assert set(seen.diff().unique().tolist()) == {-1.0, 1.0}
    variance = 4 * length * p * (1 - p)
    assert abs(seen[:, -1].mean() - length * (2 * p - 1)) < 4 * math.sqrt(variance / samples)
    assert abs(seen[:, -1].var() / variance - 1) < 4 * math.sqrt(2 / samples)


def test_the_walks_gradient_is_that_of_the_mean() -> None:
    """A pathwise gradient against finite differences of the expected end.

    The straight-through gradient is biased: it is the slope of the soft outcome, whose mean by p
    is between 0.992 and 1.016 at tau = 0.1 (integrated over v; 0.992 here) and not 1. Steps of a
    walk do not act on each other, so here that bias is all there is.
    """
    samples, length, logit, width = 10000, 10, 0.1, 0.5

    def end(at: float) -> tuple[torch.Tensor, torch.Tensor]:
        params = torch.full((samples, 1), at, dtype=torch.float64, requires_grad=True)
        with noise_of([sample_seed(2, 0, index) for index in range(samples)]):
            (seen,) = simulate_and_observe_model(RandomWalk(length), params)
        return seen[:, -1].mean(), params

    mean, params = end(logit)
    slope = torch.autograd.grad(mean, params)[0].sum().item()
    # The same noise on both sides: standard errors are about 0.6 % in both.
    finite = (end(logit + width)[0] - end(logit - width)[0]).item() / (2 * width)
    exact = 2 * length * (1 / (1 + math.exp(-logit))) * (1 - 1 / (1 + math.exp(-logit)))
    assert finite == pytest.approx(exact, rel=0.03)  # the width itself costs 2 %
    assert slope == pytest.approx(0.992 * exact, rel=0.025)
