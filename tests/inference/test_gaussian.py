"""The trainable Gaussian: gradients of the KL against the closed form, and a sound covariance."""

import pytest

torch = pytest.importorskip("torch")

from torch.distributions import MultivariateNormal, kl_divergence  # noqa: E402

from hpckit.inference.gaussian import TrainableGaussian  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.torch
COVARIANCE = torch.tensor([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
PRIOR = MultivariateNormal(-2 * torch.ones(3), torch.eye(3))


def gradients(estimator: TrainableGaussian, kl: torch.Tensor) -> list[torch.Tensor]:
    return [*torch.autograd.grad(kl, [*estimator.parameters()])]


def test_gradients_of_the_kl_are_those_of_the_closed_form() -> None:
    torch.manual_seed(0)
    estimator = TrainableGaussian([0.0, 1.0, -1.0], covariance=COVARIANCE)
    exact = kl_divergence(MultivariateNormal(estimator.mu, estimator.covariance), PRIOR)
    z, log_q = estimator.sample(400_000)
    drawn = (log_q - PRIOR.log_prob(z)).mean()
    assert drawn.item() == pytest.approx(exact.item(), abs=0.02)
    for found, expected in zip(
        gradients(estimator, drawn), gradients(estimator, exact), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0.01, atol=0.01)


def test_the_entropy_counts() -> None:
    """The gradient of KL to the variance, which lost its entropy in blackbirds: 0.25, not 0.5.

    For N(0, 2I) against N(-2, I), of each variable: (1 - 1/2) / 2.
    """
    torch.manual_seed(0)
    variance = torch.full((3,), 2.0, requires_grad=True)
    estimator = TrainableGaussian([0.0, 0.0, 0.0], sigma=2**0.5)
    z, log_q = estimator.sample(200_000)
    root = estimator.scale_tril
    (by_root,) = torch.autograd.grad((log_q - PRIOR.log_prob(z)).mean(), estimator.raw_diagonal)
    (slope,) = torch.autograd.grad(root.diagonal().sum(), estimator.raw_diagonal)
    by_variance = by_root / slope / (2 * variance.sqrt())
    assert by_variance.tolist() == pytest.approx([0.25] * 3, abs=0.01)


def test_training_finds_mean_and_covariance() -> None:
    torch.manual_seed(0)
    target = MultivariateNormal(torch.tensor([1.0, -1.0, 0.5]), COVARIANCE)
    estimator = TrainableGaussian([0.0, 0.0, 0.0])
    optimizer = torch.optim.Adam(estimator.parameters(), 0.03)
    for _ in range(300):
        optimizer.zero_grad()
        z, log_q = estimator.sample(100)
        (log_q - target.log_prob(z)).mean().backward()
        optimizer.step()
    torch.testing.assert_close(estimator.mu.detach(), target.loc, atol=0.1, rtol=0)
    torch.testing.assert_close(estimator.covariance.detach(), COVARIANCE, atol=0.2, rtol=0)


@pytest.mark.parametrize("step", [-1e3, 1e3])
def test_the_covariance_stays_positive_definite(step: float) -> None:
    estimator = TrainableGaussian([0.0, 0.0], covariance=COVARIANCE[:2, :2]).double()
    with torch.no_grad():
        estimator.raw_diagonal += step
    z, log_q = estimator.sample(4)
    assert torch.linalg.cholesky_ex(estimator.covariance.detach()).info.item() == 0
    assert z.isfinite().all()
    assert log_q.isfinite().all()


@pytest.mark.parametrize(
    ("given", "covariance"),
    [
        ({}, [[1.0]]),
        ({"mu": [1, 2], "sigma": 3}, [[9.0, 0.0], [0.0, 9.0]]),
        ({"mu": [1.0, 2.0], "sigma": [1e-3, 2.0]}, [[1e-6, 0.0], [0.0, 4.0]]),
        ({"mu": [1.0, 2.0], "covariance": [[2.0, 1.0], [1.0, 2.0]]}, [[2.0, 1.0], [1.0, 2.0]]),
        ({"mu": torch.zeros(1, dtype=torch.float64), "sigma": 50.0}, [[2500.0]]),
    ],
)
def test_it_starts_where_it_is_told(given: dict[str, object], covariance: list[object]) -> None:
    estimator = TrainableGaussian(**given)
    z, log_q = estimator.sample(50)
    expected = MultivariateNormal(estimator.mu, torch.tensor(covariance).to(estimator.mu))
    torch.testing.assert_close(estimator.covariance, expected.covariance_matrix)
    torch.testing.assert_close(estimator.log_prob(z), expected.log_prob(z), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(log_q, expected.log_prob(z), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu": 0.0}, r"mean has shape \(\)"),
        ({"mu": [0.0, 0.0], "sigma": [1.0, -1.0]}, r"sigma=\[1.0, -1.0\]: .* above 0"),
        ({"mu": [0.0, 0.0], "covariance": [[1.0]]}, r"covariance of shape \(1, 1\) .* of 2"),
        ({"mu": [0.0, 0.0], "covariance": [[1.0, 2.0], [2.0, 1.0]]}, "not symmetric and pos"),
        ({"mu": [0.0, 0.0], "covariance": [[1.0, 0.5], [0.0, 1.0]]}, "not symmetric and pos"),
    ],
)
def test_what_is_no_gaussian_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        TrainableGaussian(**given)
