"""Estimators of other libraries, and the one clear error about those that are none."""

from collections.abc import Iterator
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
normflows = pytest.importorskip("normflows")

from torch.distributions import Distribution, MultivariateNormal  # noqa: E402

from hpckit.inference.adapters import ZukoEstimator, check_estimator  # noqa: E402
from hpckit.inference.gaussian import TrainableGaussian  # noqa: E402
from hpckit.inference.spline_flow import SplineFlow  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

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
    assert check_estimator(estimator) == 3
    z, log_q = estimator.sample(50)
    torch.testing.assert_close(estimator.log_prob(z), log_q, rtol=1e-3, atol=1e-3)
    (z.sum() + log_q.sum()).backward()
    assert all(weight.grad is not None for weight in estimator.parameters())
    with pytest.raises(SetupError, match=r"NSF has no method sample .*: .* in ZukoEstimator"):
        check_estimator(zuko.flows.NSF(3))


def test_estimators_of_all_kinds_pass_and_leave_the_generator_alone() -> None:
    base = normflows.distributions.DiagGaussian(2)
    before = torch.get_rng_state()
    assert check_estimator(normflows.NormalizingFlow(base, [])) == 2
    assert check_estimator(TrainableGaussian([0.0])) == 1
    state_after_two = torch.get_rng_state()
    assert torch.equal(before, state_after_two)
    assert check_estimator(SplineFlow(3, 1, 4)) == 3


class Broken(TrainableGaussian):
    """Gives what it is told to."""

    drawn: object = None
    density: object = None

    def sample(self, n: int = 1) -> object:
        return super().sample(n) if self.drawn is None else self.drawn

    def log_prob(self, z: torch.Tensor) -> object:
        return self.density


@pytest.mark.parametrize(
    ("drawn", "density", "message"),
    [
        (torch.zeros(7, 2), None, r"sample\(7\) gives shape \(7, 2\): it must return the pair"),
        ((torch.zeros(2, 7), torch.zeros(7)), None, r"draws shape \(2, 7\): needs \(7, d\)"),
        (([0.0], torch.zeros(7)), None, r"draws list \[0.0\]: needs"),
        (
            (torch.zeros(7, 2), torch.zeros(7, 2)),
            None,
            r"sample\(7\) has log densities of shape \(7, 2\): needs \(7,\)",
        ),
        (None, torch.zeros(()), r"log_prob\(z\) has log densities of shape \(\): needs \(7,\)"),
        (None, 0.5, r"log_prob\(z\) has log densities of float 0.5: needs"),
    ],
)
def test_wrong_shapes_are_said(drawn: object, density: object, message: str) -> None:
    estimator = Broken([0.0, 0.0])
    estimator.drawn, estimator.density = drawn, density
    with pytest.raises(SetupError, match=message):
        check_estimator(estimator)


def test_missing_methods_are_said() -> None:
    with pytest.raises(SetupError, match=r"Linear has no method sample and no log_prob$"):
        check_estimator(torch.nn.Linear(2, 2))
    with pytest.raises(SetupError, match=r"MultivariateNormal.sample\(7\) fails: 'int' object"):
        check_estimator(MultivariateNormal(torch.zeros(2), torch.eye(2)))
