"""The epidemic: its law, its gradients against plain autograd, samples that know no neighbours."""

import networkx
import numpy
import pytest

torch = pytest.importorskip("torch")

from scipy import sparse, stats  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

from hpckit.inference import noise  # noqa: E402
from hpckit.inference.contacts import Contacts, watts_strogatz_edges  # noqa: E402
from hpckit.inference.model import L2Loss, simulate_and_observe_model  # noqa: E402
from hpckit.inference.noise import noise_of, sample_seed  # noqa: E402
from hpckit.inference.sir import SIR  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    # torch's forward mode scripts its own rules when it is first used.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
AGENTS, LENGTH = 120, 25
EDGES = watts_strogatz_edges(AGENTS, 10, 0.1, 1)
PARAMS = torch.tensor([-1.0, -1.1, -1.2], dtype=torch.float64)
HORIZONS = [0, 1, 2, 10, LENGTH - 1, LENGTH, None]


def rates(params: numpy.ndarray) -> numpy.ndarray:
    return 10 ** (-numpy.log(numpy.exp(-2 * params) + 1) / 2)


def by_the_law(matrix, params, length: int, runs: int, seed: int) -> numpy.ndarray:
    """Return infected and recovered (2, length + 1, runs) of the law, written out in numpy."""
    rng = numpy.random.default_rng(seed)
    fraction, beta, gamma = rates(numpy.asarray(params))
    infected = (rng.random((runs, len(matrix))) < fraction).astype(float)
    susceptible, recovered = 1 - infected, numpy.zeros_like(infected)
    seen = [(infected.sum(1), recovered.sum(1))]
    for _ in range(length):
        near = numpy.clip(infected @ matrix.T * susceptible, 0, 5)
        infection = numpy.clip(1 - (1 - beta) ** near, 1e-10, 1)
        recovery = numpy.clip(gamma * infected, 1e-10, 1)
        new_infected = rng.random(infected.shape) < infection
        new_recovered = rng.random(infected.shape) < recovery
        infected = infected + new_infected - new_recovered
        susceptible = susceptible - new_infected
        recovered = recovered + new_recovered
        seen.append((infected.sum(1), recovered.sum(1)))
    return numpy.array(seen).transpose(1, 0, 2)


def matrix_of(edges: numpy.ndarray, agents: int) -> numpy.ndarray:
    matrix = numpy.zeros((agents, agents))
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = 1
    return matrix


def smallest_p(mine: numpy.ndarray, wanted: numpy.ndarray) -> float:
    """Return the smallest p of tests of mean (Welch) and spread (Brown, Forsythe), Bonferroni's."""
    found = []
    for observable in range(2):
        for time in (1, 5, 12, 30):
            pair = mine[observable, time], wanted[observable, time]
            if numpy.ptp(pair[0]) or numpy.ptp(pair[1]):
                found.append(stats.ttest_ind(*pair, equal_var=False).pvalue)
                found.append(stats.levene(*pair, center="median").pvalue)
    return min(found) * len(found)


@pytest.mark.parametrize(
    ("params", "degree"), [([-1.3, -1.3, -1.3], 10), ([-0.5, -0.3, -0.7], 20), ([-1, 0.1, 0.3], 4)]
)
def test_the_epidemic_follows_the_law(params, degree) -> None:
    """200 runs against 200 of the law, at the 1 % level."""
    edges = watts_strogatz_edges(300, degree, 0.1, 3)
    with noise_of([sample_seed(7, 0, run) for run in range(200)]), torch.no_grad():
        seen = SIR(edges, 30).run_and_observe(torch.tensor([params] * 200))
    mine = numpy.stack([counts.T.numpy() for counts in seen])
    matrix = matrix_of(edges, 300)
    assert smallest_p(mine, by_the_law(matrix, params, 30, 200, seed=1)) > 0.01
    # The tests see a fifth more or less of one rate.
    for one in range(3):
        other = numpy.array(params, dtype=float)
        other[one] -= 0.1
        assert smallest_p(mine, by_the_law(matrix, other, 30, 200, seed=1)) < 0.01


def soft(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the hard Gumbel softmax at 0.1 of (p, 1 - p), the second Gumbel number taken as 0."""
    logits = torch.stack((p.log() + (1 - v).log() - v.log(), (1 - p).log()), dim=-1)
    outcome = torch.softmax(logits / 0.1, dim=-1)[..., 0]
    return (v < p).double() - outcome.detach() + outcome


def plain(matrix, params, length: int, horizon: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return infected and recovered of one sample, in plain torch for plain autograd."""
    fraction, beta, gamma = 10 ** (-torch.log(torch.exp(-2 * params) + 1) / 2)
    agents = len(matrix)

    def draw() -> torch.Tensor:
        return noise.uniform((agents,), samples=1, dtype=torch.float64)[0]

    infected = soft(fraction * torch.ones(agents, dtype=torch.float64), draw())
    susceptible, recovered = 1 - infected, torch.zeros_like(infected)
    seen = [torch.stack((infected.sum(), recovered.sum()))]
    for time in range(1, length + 1):
        if horizon is not None and time % (horizon + 1) == 0:
            infected, susceptible, recovered = (
                each.detach() for each in (infected, susceptible, recovered)
            )
        v = draw()
        near = torch.clip(torch.as_tensor(matrix) @ infected * susceptible, 0, 5)
        new_infected = soft(torch.clip(1 - (1 - beta) ** near, 1e-10, 1), v)
        new_recovered = soft(torch.clip(gamma * infected, 1e-10, 1), v)
        infected = infected + new_infected - new_recovered
        susceptible, recovered = susceptible - new_infected, recovered + new_recovered
        seen.append(torch.stack((infected.sum(), recovered.sum())))
    return torch.stack(seen).unbind(1)


def directed() -> tuple[networkx.DiGraph, numpy.ndarray]:
    graph = networkx.gnp_random_graph(60, 0.15, seed=2, directed=True)
    return graph, networkx.to_numpy_array(graph).T


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("kind", ["small world", "one way"])
def test_gradients_are_those_of_autograd(kind, horizon) -> None:
    graph, matrix = (EDGES, matrix_of(EDGES, AGENTS)) if kind == "small world" else directed()
    weights = torch.linspace(-1, 2, LENGTH + 1, dtype=torch.float64)

    def gradient(run) -> tuple[torch.Tensor, torch.Tensor]:
        params = PARAMS.clone().requires_grad_()
        with noise_of([3]):
            infected, recovered = run(params)
        return torch.autograd.grad((weights * infected + weights.flip(0) * recovered).sum(), params)

    (got,) = gradient(
        lambda params: simulate_and_observe_model(SIR(graph, LENGTH), params, horizon)
    )
    (wanted,) = gradient(lambda params: plain(matrix, params, LENGTH, horizon))
    assert torch.allclose(got, wanted, rtol=1e-9)


def test_each_horizon_is_another_gradient() -> None:
    gradients = {horizon: evaluate(PARAMS[None], horizon, [3])[-1].tolist() for horizon in HORIZONS}
    assert gradients[LENGTH] == gradients[None]
    assert len({str(gradient) for gradient in gradients.values()}) == len(HORIZONS) - 1


def evaluate(params: torch.Tensor, horizon: int | None, seeds: list[int]) -> list[torch.Tensor]:
    """Return infected, recovered, losses and their gradients for samples (B, 3)."""
    params = params.clone().requires_grad_()
    model = SIR(EDGES, LENGTH)
    with noise_of(seeds):
        seen = simulate_and_observe_model(model, params.detach(), horizon)
    with noise_of(seeds):
        losses = L2Loss(model, horizon)(params, [torch.zeros(LENGTH + 1, dtype=params.dtype)])
    return [*seen, losses.detach(), torch.autograd.grad(losses.sum(), params)[0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("horizon", [0, 5, None])
def test_a_sample_is_the_same_in_any_batch(horizon, dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    params = (PARAMS + 0.4 * torch.randn(20, 3, generator=generator)).to(dtype)
    together = evaluate(params, horizon, list(range(100, 120)))
    assert together[0].shape == (20, LENGTH + 1)
    groups = [[0], [7], [19], [0, 1, 2, 3, 4], [7, 3, 19, 2, 5]]
    for group in groups:
        apart = evaluate(params[group], horizon, [100 + one for one in group])
        for mine, wanted in zip(apart, (each[group] for each in together), strict=True):
            if dtype == torch.float32:
                assert torch.equal(mine, wanted)
            else:  # exp and log of float64 differ in their last bit with the place in a batch
                assert torch.allclose(mine, wanted, rtol=1e-12, atol=0)
        assert all(torch.equal(apart[kind], together[kind][group]) for kind in range(2))


@pytest.mark.parametrize("horizon", [0, 3, None])
def test_forward_mode_gives_the_same_derivatives(horizon) -> None:
    params = torch.stack((PARAMS, PARAMS + 0.2))
    backward = evaluate(params, horizon, [3, 4])[-1]
    model, data = SIR(EDGES, LENGTH), [torch.zeros(LENGTH + 1, dtype=torch.float64)]

    def losses(params: torch.Tensor) -> torch.Tensor:
        with noise_of([3, 4]):
            return L2Loss(model, horizon)(params, data)

    def first(params: torch.Tensor) -> torch.Tensor:
        with noise_of([3]):
            return L2Loss(model, horizon)(params, data)

    for one in range(3):
        tangent = torch.zeros_like(params)
        tangent[:, one] = 1
        with forward_ad.dual_level():
            slope = forward_ad.unpack_dual(losses(forward_ad.make_dual(params, tangent))).tangent
        assert torch.allclose(slope, backward[:, one], rtol=1e-10)
    _, slope = torch.func.jvp(losses, (params,), (torch.ones_like(params),))
    assert torch.allclose(slope, backward.sum(1), rtol=1e-10)
    for way in (torch.func.jacrev, lambda f: torch.func.jacfwd(f, randomness="same")):
        assert torch.allclose(way(first)(params[0]), backward[0], rtol=1e-10)


@pytest.mark.parametrize("horizon", [0, None])
def test_parameters_that_are_not_numbers_show_and_hurt_no_other_sample(horizon) -> None:
    nan = float("nan")
    bad = [[nan, -1, -1], [-1, nan, -1], [-1, -1, nan], [nan, nan, nan]]
    params = torch.tensor([*bad, [-1.0, -1, -1]])
    *_, losses, gradients = evaluate(params, horizon, [1, 2, 3, 4, 5])
    assert losses[:4].isnan().all()
    alone = evaluate(params[4:], horizon, [5])
    assert torch.equal(losses[4:], alone[-2])
    assert torch.equal(gradients[4:], alone[-1])


@pytest.mark.parametrize("horizon", [0, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_parameters_are_certainties_with_finite_gradients(horizon, dtype) -> None:
    big = 200.0
    params = [[big, big, big], [-big, big, big], [-1, -big, -big], [-1, big, -big], [-8, -8, -8]]
    infected, recovered, losses, gradients = evaluate(
        torch.tensor(params, dtype=dtype), horizon, [1, 2, 3, 4, 5]
    )
    assert losses.isfinite().all()
    assert gradients.isfinite().all()
    assert infected[0].tolist() == [AGENTS] + [0] * LENGTH  # all fall ill, all recover at once
    assert infected[1].max() == 0
    assert infected[2].min() == infected[2].max() > 0  # nobody infects, nobody recovers
    assert infected[3, -1] == AGENTS
    assert infected[4].max() == recovered[4].max() == 0


def test_states_are_blackbirds_and_agents_are_in_one_of_them() -> None:
    model = SIR(EDGES, LENGTH)
    series = model.run(PARAMS)
    assert series.shape == (LENGTH + 1, 3, AGENTS)
    assert torch.equal(series.sum(1), torch.ones(LENGTH + 1, AGENTS, dtype=torch.float64))
    assert set(series.unique().tolist()) == {0.0, 1.0}
    infected, recovered = model.observe(series)
    assert infected.shape == recovered.shape == (LENGTH + 1,)
    assert (recovered.diff() >= 0).all()
    assert recovered[-1] > 0
    assert model.run(PARAMS.repeat(4, 1)).shape == (LENGTH + 1, 4, 3, AGENTS)
    with pytest.raises(SetupError, match=r"takes 3 parameters .* \(2,\) is 2"):
        model.run(PARAMS[:2])


def test_a_short_horizon_keeps_four_bytes_per_agent_and_step() -> None:
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    params = PARAMS.float().repeat(8, 1).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        L2Loss(SIR(EDGES, LENGTH))(params, [torch.zeros(LENGTH + 1)]).sum()
    draws = 8 * AGENTS * (LENGTH + 1)
    assert 4 * draws <= sum(kept.values()) < 6 * draws  # and some per sample and step


def test_graphs_of_all_kinds_are_the_same_contacts() -> None:
    graph = networkx.watts_strogatz_graph(AGENTS, 10, 0.1, seed=1)
    matrix = matrix_of(EDGES, AGENTS)
    both = numpy.concatenate((EDGES, EDGES[:, ::-1]))
    dense = torch.tensor(matrix)
    kinds = [
        graph,
        networkx.relabel_nodes(graph, {node: f"agent {node}" for node in graph}),
        EDGES,
        torch.tensor(both),
        sparse.csr_array(matrix),
        dense.to_sparse(),
    ]
    x = torch.randn(3, AGENTS, dtype=torch.float64)
    for kind in kinds:
        assert torch.allclose(Contacts(kind).sum_over(x), x @ dense)


def test_contacts_one_way_pass_from_the_edges_first_to_its_second_agent() -> None:
    contacts = Contacts(networkx.DiGraph([(0, 1), (0, 2)]))
    x = torch.tensor([[1.0, 10.0, 100.0]])
    assert contacts.sum_over(x).tolist() == [[0.0, 1.0, 1.0]]
    assert contacts.sum_over(x, backwards=True).tolist() == [[110.0, 0.0, 0.0]]


def test_agents_without_contacts_are_there() -> None:
    lonely = SIR(numpy.array([[0, 1]]), 3, n_agents=5)
    assert lonely.run(PARAMS).shape == (4, 3, 5)
    assert SIR(numpy.empty((0, 2), dtype=int), 3, n_agents=5).run(PARAMS).shape == (4, 3, 5)


@pytest.mark.parametrize(
    ("graph", "n_agents", "message"),
    [
        (numpy.zeros((3, 3)), None, r"shape \(3, 3\) and type float64 is not a list of edges"),
        (numpy.array([[0, 7]]), 5, "agents 0 to 7, but there are 5 agents"),
        (numpy.array([[-1, 2]]), None, "agents -1 to 2, but there are 3 agents"),
    ],
)
def test_what_is_no_graph_is_refused(graph, n_agents, message) -> None:
    with pytest.raises(SetupError, match=message):
        SIR(graph, 3, n_agents=n_agents)
