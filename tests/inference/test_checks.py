"""What a script gives a fit that cannot be: each error names the value, and what to give."""

import math
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from hpckit.inference.contacts import Contacts
from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.model import L2Loss, simulate_and_observe_model
from hpckit.inference.random_walk import RandomWalk
from hpckit.inference.sir import SIR
from hpckit.inference.spline_flow import SplineFlow
from hpckit.inference.vi import VI
from hpckit.parallel.errors import SetupError

pytestmark = pytest.mark.torch
NORMAL = torch.distributions.Normal
EDGES = numpy.array([[0, 1], [1, 2], [2, 3]])


def square(params: torch.Tensor, data: object) -> torch.Tensor:
    return params.square().sum()


def fit(**given: object) -> VI:
    options = {
        "loss": square,
        "prior": torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
        "posterior_estimator": TrainableGaussian([0.0, 0.0]),
        "n_samples_regularisation": 50,
        "progress_bar": False,
        **given,
    }
    return VI(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("prior", [NORMAL(0.0, 1.0), NORMAL(torch.zeros(1), torch.ones(1))])
def test_a_prior_gives_one_density_for_each_draw(prior: torch.distributions.Normal) -> None:
    """Of one parameter a plain Normal gives (n, 1), and the divergence was n times too large."""
    with pytest.raises(SetupError, match=r"log_prob\(\) returns shape \(50, 1\).*Independent"):
        fit(prior=prior, posterior_estimator=TrainableGaussian([0.5])).step(None)
    good = torch.distributions.Independent(NORMAL(torch.zeros(1), torch.ones(1)), 1)
    start = TrainableGaussian([0.5], 2.0)
    _, _, divergence = fit(
        prior=good, posterior_estimator=start, n_samples_regularisation=100_000
    ).step(None)
    exact = -math.log(2) + (4 + 0.25) / 2 - 0.5
    assert divergence.item() == pytest.approx(exact, abs=0.03)


class Columns(TrainableGaussian):
    """Log densities of shape (n, 1)."""

    def log_prob(self, z: torch.Tensor) -> torch.Tensor:
        return super().log_prob(z)[:, None]


class DrawnColumns(Columns):
    def sample(self, n: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        z, log_q = super().sample(n)
        return z, log_q[:, None]


@pytest.mark.parametrize(
    ("estimator", "who"), [(Columns, r"log_prob\(\)"), (DrawnColumns, r"sample\(\)")]
)
def test_an_estimator_gives_one_density_for_each_draw(estimator: type, who: str) -> None:
    fitted = fit(posterior_estimator=estimator([0.0, 0.0]), gradient_estimation_method="score")
    with pytest.raises(SetupError, match=f"the estimator's {who} returns shape"):
        fitted.step(None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"w": math.inf}, "w is inf"),
        ({"w": "a"}, "w is 'a'"),
        ({"gradient_clipping_norm": None}, "gradient_clipping_norm is None"),
        ({"n_samples_per_epoch": True}, "n_samples_per_epoch is True"),
        ({"device": "x"}, "device is 'x': give cpu"),
        ({"device": "meta"}, "device is meta, but the posterior estimator is on cpu"),
        ({"loss": "x"}, "loss is 'x': give a function"),
        ({"prior": None}, "prior is None: give a distribution"),
        ({"posterior_estimator": nn.Linear(2, 2)}, r"is a Linear: give a torch module with sample"),
        ({"posterior_estimator": SplineFlow}, "is a SplineFlow"),
        ({"optimizer": "adam"}, "optimizer is 'adam': give one of torch"),
        (
            {"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)},
            "the SGD has no parameter of the posterior estimator",
        ),
        (
            {"optimizer": torch.optim.LBFGS(nn.Linear(1, 1).parameters())},
            "LBFGS evaluates the model several times",
        ),
    ],
)
def test_parts_of_a_fit_that_cannot_be_are_refused(given: dict, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        fit(**given)


@pytest.mark.parametrize("epochs", [-1, 2.5, "3", None, math.nan])
def test_epochs_are_a_whole_number(epochs: object) -> None:
    with pytest.raises(SetupError, match="n_epochs is"):
        fit().run(None, epochs)  # type: ignore[arg-type]


@pytest.mark.parametrize("patience", [-1, math.nan, None, "2"])
def test_patience_is_a_number(patience: object) -> None:
    with pytest.raises(SetupError, match="max_epochs_without_improvement is"):
        fit().run(None, 2, patience)  # type: ignore[arg-type]


@pytest.mark.parametrize("tau", [0, -1, math.nan, math.inf, "1"])
def test_a_temperature_is_above_zero(tau: object) -> None:
    """A negative one never came to an end."""
    with pytest.raises(SetupError, match="tau_softmax is"):
        RandomWalk(3, tau)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 2.5, "3", None])
def test_steps_and_agents_are_whole_numbers(steps: object) -> None:
    for make in (RandomWalk, lambda steps: SIR(EDGES, steps)):
        with pytest.raises(SetupError, match="n_timesteps is"):
            make(steps)  # type: ignore[operator]
    if steps is not None:
        with pytest.raises(SetupError, match="n_agents is"):
            Contacts(EDGES, steps)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="dim="):
        SplineFlow(steps)  # type: ignore[arg-type]


def test_a_zero_that_is_written_down_is_not_a_contact() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    matrix = scipy_sparse.csr_matrix(numpy.ones((3, 3)))
    matrix[0, 1] = 0  # stays in the matrix as an entry
    assert matrix.nnz == 9
    as_torch = torch.from_numpy(matrix.toarray()).to_sparse()
    indices = torch.tensor([[0, 1], [1, 0]])
    values = torch.tensor([0.0, 1.0])
    written = torch.sparse_coo_tensor(indices, values, (2, 2), check_invariants=True)
    ones = torch.ones(1, 3)
    assert Contacts(matrix).sum_over(ones).tolist() == [[2, 3, 3]]
    assert Contacts(as_torch).sum_over(ones).tolist() == [[2, 3, 3]]
    assert Contacts(written).sum_over(torch.ones(1, 2)).tolist() == [[0, 1]]


@pytest.mark.parametrize("params", [[0.0, 0, 0], None, torch.zeros(3, dtype=torch.long)])
def test_parameters_are_a_tensor_of_numbers_with_a_point(params: object) -> None:
    with pytest.raises(SetupError, match=r"Parameters are a .*: give a tensor of floating-point"):
        SIR(EDGES, 2).run_and_observe(params)  # type: ignore[arg-type]


@pytest.mark.parametrize("horizon", [-1, 2.5, "all"])
def test_a_horizon_is_a_number_of_steps(horizon: object) -> None:
    with pytest.raises(SetupError, match=r"gradient_horizon is .*: give 0 or more, or None"):
        simulate_and_observe_model(RandomWalk(3), torch.zeros(1), horizon)  # type: ignore[arg-type]


def test_arrays_that_ranks_share_are_data_of_the_loss() -> None:
    loss = L2Loss(RandomWalk(3))
    assert loss(torch.zeros(1), [numpy.zeros(4)]).item() >= 0
    with pytest.raises(SetupError, match="data are empty"):
        loss(torch.zeros(1), [])


@pytest.mark.parametrize("given", [{"mu": [math.nan]}, {"mu": [0.0], "sigma": math.inf}])
def test_a_gaussian_begins_with_finite_numbers(given: dict) -> None:
    with pytest.raises(SetupError, match=r"give finite numbers|sigma=inf: give one number"):
        TrainableGaussian(**given)


def test_a_fit_goes_on_only_with_the_settings_that_a_script_names(tmp_path: Path) -> None:
    """Another size of the simulator was another problem, and the fit went on with it."""
    fit(out=tmp_path, more_settings={"--n-agents": 200}).run(None, 2)
    same = fit(out=tmp_path, resume=True, more_settings={"--n-agents": 200})
    assert len(same.run(None, 3).losses["total"]) == 3
    with pytest.raises(SetupError, match="was made with --n-agents 200, not 300"):
        fit(out=tmp_path, resume=True, more_settings={"--n-agents": 300}).run(None, 4)
    # What an older checkpoint does not tell is not compared.
    fit(out=tmp_path, resume=True, more_settings={"--n-agents": 200, "--lr": 1}).run(None, 4)
