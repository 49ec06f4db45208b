"""What a script gives a fit that cannot be: each error names the value, and what to give."""

import copy
import math
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from hpckit.inference.contacts import Contacts
from hpckit.inference.gaussian import TrainableGaussian
from hpckit.inference.model import L2Loss, Model, simulate_and_observe_model
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


class Flat:
    """A prior that is the same everywhere."""

    def __init__(self, height: object) -> None:
        self.height = height

    def log_prob(self, z: torch.Tensor) -> object:
        return self.height


def test_a_flat_prior_may_give_one_number() -> None:
    wanted = fit(prior=Flat(torch.zeros(50))).step(None)
    for height in (0, 0.0, numpy.log(1.0), torch.zeros(()), torch.zeros(1)):
        assert fit(prior=Flat(height)).step(None) == wanted

    class Added(Flat):
        def log_prob(self, z: torch.Tensor) -> torch.Tensor:
            return z.sum()

    for prior, given in ((Added(0), r"shape \(\)"), (Flat(math.nan), "float"), (Flat("a"), "str")):
        with pytest.raises(SetupError, match=rf"the prior's log_prob\(\) returns {given} for 50"):
            fit(prior=prior).step(None)


class Factors(TrainableGaussian):
    """Densities of each parameter, as plain Normals give them."""

    def sample(self, n: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        normal = NORMAL(self.mu, 1.0)
        z = normal.rsample((n,))
        return z, normal.log_prob(z)


@pytest.mark.parametrize("mean", [[0.5], [0.5, 0.0]])
def test_densities_of_each_parameter_on_both_sides_add_up(mean: list[float]) -> None:
    given = {"posterior_estimator": Factors(mean), "n_samples_regularisation": 100_000}
    _, _, divergence = fit(prior=NORMAL(0.0, 1.0), **given).step(None)
    assert divergence.item() == pytest.approx(0.125, abs=0.01)


def test_without_weight_a_prior_is_not_asked() -> None:
    free = fit(prior=None, w=0)
    assert free.step(None)[2].item() == 0
    with pytest.raises(SetupError, match="prior is None"):
        free.initialize_estimator()
    with pytest.raises(SetupError, match="prior is None"):
        fit(prior=None, w=0, initialize_estimator_to_prior=True)


class Holder:
    """Has an estimator, or an optimizer, without being one."""

    def __init__(self, held: object, *hidden: str) -> None:
        self.held, self.hidden = held, hidden

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or name in self.hidden:
            raise AttributeError(name)
        return getattr(self.held, name)

    def __deepcopy__(self, memo: dict) -> "Holder":
        return Holder(copy.deepcopy(self.held, memo), *self.hidden)


def test_wrappers_are_estimators_and_optimizers() -> None:
    wanted = fit().run(None, 3).losses
    for hidden in ((), ("log_prob", "modules")):
        estimator = TrainableGaussian([0.0, 0.0])
        optimizer = Holder(torch.optim.Adam(estimator.parameters()), "param_groups")
        given = fit(posterior_estimator=Holder(estimator, *hidden), optimizer=optimizer)
        assert given.run(None, 3).losses == wanted
    without = Holder(TrainableGaussian([0.0, 0.0]), "log_prob")
    with pytest.raises(SetupError, match="is a Holder: give a torch module with sample"):
        fit(posterior_estimator=without, gradient_estimation_method="score")


class Steps(Model):
    """Takes any numbers, and arrays."""

    n_timesteps = 3

    def initialize(self, params: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1)

    def step(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x[-1:] + params.sum()

    def observe(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x]

    def trim_time_series(self, time_series: torch.Tensor) -> torch.Tensor:
        return time_series[-1:]

    def detach_gradient_horizon(self, time_series: torch.Tensor, horizon: int) -> torch.Tensor:
        return time_series.detach()

    def extend_time_series(self, time_series: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([time_series, x])


def test_a_model_of_ones_own_takes_what_it_can() -> None:
    for params in (torch.tensor([1, 1]), numpy.ones(2), torch.ones(2, dtype=torch.float64)):
        (seen,) = simulate_and_observe_model(Steps(), params, math.inf)
        assert seen.tolist() == [0, 2, 4, 6]


def test_contacts_with_several_numbers_are_contacts() -> None:
    """As torch_geometric makes them of edges with attributes."""
    ends = torch.tensor([[0, 1, 2], [1, 0, 0]])
    values = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    graph = torch.sparse_coo_tensor(ends, values, (3, 3, 2), check_invariants=True)
    assert Contacts(graph).sum_over(torch.ones(1, 3)).tolist() == [[1, 1, 0]]
