"""Fit a simulator of one's own: a black box that evaluates one set of parameters at a time.

    python own_simulator.py
    mpirun -n 4 python own_simulator.py
    hpckit submit mpi own_simulator.py --nodes 2 --tasks-per-node 4

A bakery sells bread on 60 days: customers come at a rate that is to be found, and each buys with a
probability that is to be found, too. Sales alone cannot tell the two apart (their product is what
counts), but the prior and the number of visitors who leave without bread can. The simulator is
plain numpy, so torch cannot differentiate it: the score method needs no gradient of it.
"""

import numpy as np
import torch

from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.vi import VI
from hpckit.parallel.mpi import find_ranks

TRUE = (np.log(40.0), 0.5)  # log of customers a day; logit of buying


def simulate(log_rate: float, logit: float) -> np.ndarray:
    """Return customers who bought and who did not, (60, 2), drawn by numpy's global generator."""
    customers = np.random.poisson(np.exp(min(log_rate, 10.0)), 60)
    bought = np.random.binomial(customers, 1 / (1 + np.exp(-logit)))
    return np.stack([bought, customers - bought], axis=1)


def loss(params: torch.Tensor, data: np.ndarray) -> float:
    """Return how far the daily means are from those observed, in standard errors squared."""
    difference = simulate(*params.tolist()).mean(0) - data.mean(0)
    return float((difference**2 / (data.var(0) / len(data))).sum() / 2)


def main() -> None:
    """Observe, fit, and say what was found."""
    ranks = find_ranks()
    # Rank 0 observes; all must compare with the same.
    np.random.seed(1)
    (data,) = ranks.share(lambda: [simulate(*TRUE).astype(np.float64)])
    prior = torch.distributions.MultivariateNormal(torch.tensor([3.0, 0.0]), torch.eye(2))
    posterior = TrainableGaussian(torch.tensor([3.0, 0.0]), 0.5)
    vi = VI(
        loss=loss,
        prior=prior,
        posterior_estimator=posterior,
        optimizer=torch.optim.Adam(posterior.parameters(), lr=0.05),
        gradient_estimation_method="score",
        n_samples_per_epoch=30,
        n_samples_regularisation=500,
        gradient_clipping_norm=10.0,
        ranks=ranks,
    )
    vi.run(data, n_epochs=200, max_epochs_without_improvement=100)
    if ranks.leads:
        spread = posterior.covariance.diagonal().sqrt().tolist()
        for name, mean, sd, true in zip(
            ("log customers", "logit of buying"), posterior.mu.tolist(), spread, TRUE, strict=True
        ):
            print(f"{name:16} {mean:6.2f} +- {sd:.2f}   (true {true:.2f})")


if __name__ == "__main__":
    main()
