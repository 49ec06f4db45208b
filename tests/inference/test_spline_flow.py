"""The spline flow: normflows' numbers, a proper density, an nn.Module like any other."""

import copy
import math
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
normflows = pytest.importorskip("normflows")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hpckit.inference.convert import from_normflows, from_normflows_state  # noqa: E402
from hpckit.inference.rational_quadratic import spline  # noqa: E402
from hpckit.inference.spline_flow import SplineFlow  # noqa: E402
from hpckit.parallel.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.torch
DOUBLE = torch.float64


def theirs(
    dim: int, *, layers: int = 3, units: int = 16, kind: torch.dtype = DOUBLE, noise: float = 0.2
) -> torch.nn.Module:
    """Return a flow of normflows with weights far from the first ones."""
    torch.manual_seed(dim)
    flows = []
    for _ in range(layers):
        flows.append(normflows.flows.AutoregressiveRationalQuadraticSpline(dim, 2, units))
        flows.append(normflows.flows.LULinearPermute(dim))
    base = normflows.distributions.DiagGaussian(dim, trainable=False)
    return scattered(normflows.NormalizingFlow(base, flows).to(kind), noise)


def scattered(flow: torch.nn.Module, noise: float = 0.2) -> torch.nn.Module:
    with torch.no_grad():
        for weight in flow.parameters():
            weight.add_(noise * torch.randn_like(weight))
    return flow


def run(flow: torch.nn.Module, work: Callable[[torch.nn.Module], torch.Tensor]) -> torch.Tensor:
    flow.zero_grad()
    torch.manual_seed(7)
    result = work(flow)
    result.sum().backward()
    return result.detach()


def gradients(flow: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return gradients under our names: a flow of normflows with gradients for weights."""
    if isinstance(flow, SplineFlow):
        # A single variable's network has inputs that no unit sees.
        return {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad
            for name, weight in flow.named_parameters()
        }
    state = flow.state_dict()
    for name, weight in flow.named_parameters():
        state[name] = torch.zeros_like(weight) if weight.grad is None else weight.grad
    return {name: part.detach() for name, part in from_normflows_state(state).named_parameters()}


def kl(flow: torch.nn.Module) -> torch.Tensor:
    z, log_q = flow.sample(300)
    return torch.stack((log_q.mean(), (z + 2).square().sum(1).mean() / 2))


def both(flow: torch.nn.Module) -> torch.Tensor:
    z, log_q = flow.sample(300)
    return torch.cat((z, log_q[:, None]), 1)


def far(flow: torch.nn.Module) -> torch.Tensor:
    """A fifth of these points is in the tails of the splines."""
    dim = flow.dim if isinstance(flow, SplineFlow) else flow.q0.shape[0]
    kind = next(flow.parameters()).dtype
    return flow.log_prob(2.5 * torch.randn(300, dim, dtype=torch.float32).to(kind))


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize("work", [both, kl, far])
def test_numbers_and_gradients_are_those_of_normflows(
    dim: int, work: Callable[[torch.nn.Module], torch.Tensor]
) -> None:
    flow = theirs(dim)
    ours = from_normflows(flow)
    torch.testing.assert_close(run(ours, work), run(flow, work), rtol=1e-10, atol=1e-10)
    expected = gradients(flow)
    for name, gradient in gradients(ours).items():
        size = float(expected[name].abs().sum())
        torch.testing.assert_close(
            gradient, expected[name], rtol=1e-9, atol=1e-10 * (1 + size), msg=name
        )


@pytest.mark.parametrize("work", [both, kl, far])
def test_so_are_they_in_single_precision(
    work: Callable[[torch.nn.Module], torch.Tensor],
) -> None:
    flow = theirs(3, layers=4, units=64, kind=torch.float32, noise=0.05)
    ours = from_normflows(flow)
    torch.testing.assert_close(run(ours, work), run(flow, work), rtol=1e-5, atol=1e-5)
    expected = gradients(flow)
    for name, gradient in gradients(ours).items():
        size = float(expected[name].abs().max())
        # normflows' own gradients are 3e-5 of `size` off those in double precision, on an AMD EPYC.
        torch.testing.assert_close(
            gradient, expected[name], rtol=1e-3, atol=1e-4 * (1 + size), msg=name
        )


def test_it_has_the_size_and_the_first_weights_of_normflows() -> None:
    flow = theirs(3, layers=4, units=64, kind=torch.float32, noise=0)
    copied, ours = from_normflows(flow), SplineFlow(seed=1)
    assert sum(weight.numel() for weight in ours.parameters()) == 85_572
    assert [*copied.state_dict()] == [*ours.state_dict()]
    first = dict(copied.named_parameters())
    for name, drawn in ours.named_parameters():
        for measure in (torch.mean, torch.std, torch.max):
            found, expected = (measure(part.detach()).item() for part in (drawn, first[name]))
            spread = first[name].detach().abs().max().item()
            assert found == pytest.approx(expected, abs=0.4 * spread), name
    z, log_q = ours.sample(100)
    torch.testing.assert_close(log_q, torch.distributions.Normal(0, 1).log_prob(z).sum(1))


def test_a_seed_makes_the_flow_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    flow, same, other = (SplineFlow(6, 2, 8, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), before)
    weights, equal, unequal = (
        torch.cat([part.flatten().double() for part in each.state_dict().values()])
        for each in (flow, same, other)
    )
    assert torch.equal(weights, equal)
    assert not torch.equal(weights, unequal)
    orders = {tuple(layer.linear.permutation.tolist()) for layer in flow.layers}
    assert len(orders) == 2
    assert all(sorted(order) == [*range(6)] for order in orders)


@given(dim=st.integers(1, 6), units=st.integers(1, 9), blocks=st.integers(0, 2), seed=st.integers())
@settings(max_examples=25)
def test_log_prob_is_the_density_of_samples(dim: int, units: int, blocks: int, seed: int) -> None:
    flow = scattered(SplineFlow(dim, 2, units, blocks, 3, 2.0, seed=seed % 2**32).double())
    z, log_q = flow.sample(40)
    assert z.shape == (40, dim)
    torch.testing.assert_close(flow.log_prob(z), log_q, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("dim", "count"), [(1, 20_001), (2, 401)])
def test_the_density_integrates_to_one(dim: int, count: int) -> None:
    torch.manual_seed(2)
    flow = scattered(SplineFlow(dim, 2, 16, seed=dim), 0.2)
    line = torch.linspace(-8, 8, count)
    points = torch.cartesian_prod(*[line] * dim).reshape(-1, dim)
    with torch.no_grad():
        density = flow.log_prob(points).double().exp()
    plain = torch.distributions.Normal(0, 1).log_prob(points).sum(1).exp()
    assert float((density - plain).abs().max()) > 0.1
    assert float(density.sum() * (16 / (count - 1)) ** dim) == pytest.approx(1, abs=3e-3)


def test_training_finds_a_bimodal_density() -> None:
    """Fit by reverse KL alone, which is 0 only where both densities are equal."""
    torch.manual_seed(0)
    flow = SplineFlow(2, 2, 16, seed=0)
    optimizer = torch.optim.Adam(flow.parameters(), 1e-2)
    normal = torch.distributions.Normal(torch.tensor([-1.0, 1.0]), 0.5)

    def distance(n: int) -> torch.Tensor:
        z, log_q = flow.sample(n)
        log_p = normal.log_prob(z[:, :1]).logsumexp(1) - math.log(2)
        return (log_q - log_p - torch.distributions.Normal(z[:, 0], 0.3).log_prob(z[:, 1])).mean()

    first = distance(2000).item()
    for _ in range(150):
        optimizer.zero_grad()
        distance(200).backward()
        optimizer.step()
    assert first > 1
    assert abs(distance(20_000).item()) < 0.1


@pytest.mark.parametrize("columns", [8, 1])
@pytest.mark.parametrize("inverse", [False, True])
def test_written_gradients_of_a_spline_are_its_gradients(columns: int, inverse: bool) -> None:
    torch.manual_seed(3)
    values = torch.tensor([-5, -2.9, -1, 0, 0.3, 1.7, 2.8, 4], dtype=DOUBLE, requires_grad=True)
    raw = (2 * torch.randn(11, columns, dtype=DOUBLE)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda values, raw: spline(values, raw, 3.0, inverse=inverse), (values, raw)
    )


def test_splines_go_there_and_back_and_end_where_they_should() -> None:
    raw = 3 * torch.randn(23, 6, dtype=DOUBLE)
    values = torch.tensor([-3.0, 3.0, -3.0001, 100, 2.9999, 0], dtype=DOUBLE)
    images, logs = spline(values, raw, 3.0)
    assert images[:4].tolist() == pytest.approx(values[:4].tolist())
    assert logs[2:4].tolist() == [0, 0]
    again, back = spline(images, raw, 3.0, inverse=True)
    torch.testing.assert_close(again, values)
    torch.testing.assert_close(back, -logs)


def test_what_is_not_a_number_stays_so() -> None:
    flow = SplineFlow(2, 1, 4)
    log_q = flow.log_prob(torch.tensor([[math.nan, 0.0], [0.0, 0.0]]))
    assert log_q.isnan().tolist() == [True, False]


def test_it_is_copied_saved_and_converted_as_any_module(tmp_path: Path) -> None:
    flow = scattered(SplineFlow(3, 2, 8, seed=1))
    kl(flow).sum().backward()
    twin = copy.deepcopy(flow)
    torch.save(flow.state_dict(), tmp_path / "flow.pt")
    loaded = SplineFlow(3, 2, 8, seed=2)
    loaded.load_state_dict(torch.load(tmp_path / "flow.pt", weights_only=True))
    expected = run(flow, both)
    assert torch.equal(run(twin, both), expected)
    assert torch.equal(run(loaded, both), expected)
    z = torch.randn(50, 3)
    torch.testing.assert_close(
        loaded.double().log_prob(z.double()).float(), flow.log_prob(z), rtol=1e-4, atol=1e-4
    )
    assert flow.to("meta").sample(5)[0].device.type == "meta"


def test_use_in_inference_mode_leaves_no_traces() -> None:
    flow = SplineFlow(2, 1, 4, bins=13)
    with torch.inference_mode():
        flow.sample(2)
    z, log_q = flow.sample(2)
    (z.sum() + log_q.sum()).backward()


def test_other_flows_of_normflows_are_refused() -> None:
    flow = theirs(2)
    coupled = normflows.flows.CoupledRationalQuadraticSpline(2, 1, 8)
    flow.flows.append(coupled)
    with pytest.raises(SetupError, match=r"are not weights of AutoregressiveRational.* is new"):
        from_normflows(flow)
    with pytest.raises(SetupError, match="these are not weights of AutoregressiveRational"):
        from_normflows_state(coupled.state_dict())
    moved = theirs(2)
    moved.q0.loc.fill_(1)
    with pytest.raises(SetupError, match="q0 is not a standard normal"):
        from_normflows(moved)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dim": 0}, "dim=0: it needs at least 1"),
        ({"bins": 1}, "bins=1: it needs at least 2"),
        ({"bins": 1001}, "1001 bins within 3.0: have at most 1000"),
        ({"tail_bound": 0.0}, "within 0.0: .* a bound above 0"),
    ],
)
def test_impossible_sizes_are_refused(asked: dict[str, float], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        SplineFlow(**asked)
