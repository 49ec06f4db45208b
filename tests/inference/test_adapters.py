"""Estimators of other libraries."""

from collections.abc import Iterator
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from torch.distributions import Distribution  # noqa: E402

from hpckit.inference.adapters import ZukoEstimator  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def zuko() -> Iterator[ModuleType]:
    """Import zuko, which turns off checks of arguments in all of torch's distributions."""
    before = Distribution._validate_args, Distribution.arg_constraints
    yield pytest.importorskip("zuko")
    Distribution._validate_args, Distribution.arg_constraints = before


def test_a_flow_of_zuko_is_an_estimator(zuko: ModuleType) -> None:
    torch.manual_seed(0)
    estimator = ZukoEstimator(zuko.flows.NSF(3, transforms=2, hidden_features=[16]))
    z, log_q = estimator.sample(50)
    assert (z.shape, log_q.shape) == ((50, 3), (50,))
    torch.testing.assert_close(estimator.log_prob(z), log_q, rtol=1e-3, atol=1e-3)
    (z.sum() + log_q.sum()).backward()
    assert all(weight.grad is not None for weight in estimator.parameters())
