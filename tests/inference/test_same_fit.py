"""Ranks that do not fit the same are found, and what differs is named."""

from dataclasses import dataclass, replace
from functools import partial

import pytest

pytest.importorskip("torch")

import numpy
import torch

from hpckit.inference.data_digest import digest
from hpckit.inference.model import L2Loss
from hpckit.inference.same_fit import optimizer_settings, refuse_differences, simulators
from hpckit.inference.sir import SIR
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks

pytestmark = pytest.mark.torch
CONTACTS = "the contacts of the simulator"


@dataclass(frozen=True)
class Beside(Ranks):
    """The first of several ranks, of which the others have a `table` of their own."""

    table: torch.Tensor | None = None

    def add(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.table is None else values + self.table


@dataclass(frozen=True)
class Alone(Ranks):
    """Any rank of several, which notes what it sends and hears the same of all."""

    def add(self, values: torch.Tensor) -> torch.Tensor:
        raise Sent(values)


class Sent(Exception):  # noqa: N818
    pass


def compare(*made: dict[str, object], settings: tuple[dict[str, object], ...] = ()) -> None:
    """Let as many ranks as there are dicts compare what they have, and rank 0 judge."""
    size = len(made)
    table = torch.zeros(size, len(made[0]) + (len(settings[0]) if settings else 0)).long()
    for number in range(1, size):
        with pytest.raises(Sent) as sent:
            refuse_differences(
                Alone(number, size), made[number], settings[number] if settings else {}
            )
        table += sent.value.args[0]
    refuse_differences(Beside(0, size, table=table), made[0], settings[0] if settings else {})


@dataclass
class Day:
    sales: numpy.ndarray
    name: str


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.arange(3.0), torch.tensor([0.0, 1.0, 2.5])),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2).double()),
        (torch.ones(2).bfloat16(), torch.zeros(2).bfloat16()),
        (torch.eye(3).to_sparse(), torch.zeros(3, 3).to_sparse()),
        (numpy.arange(6).reshape(2, 3), numpy.arange(6).reshape(2, 3).T.copy().T + 1),
        (numpy.array([1, "a", None], object), numpy.array([1, "b", None], object)),
        ([torch.zeros(2), {"a": (1, 2.0)}], [torch.zeros(2), {"a": (1, 2.5)}]),
        ([[1, 2], [3]], [[1], [2, 3]]),
        ({"a": 1}, {"b": 1}),
        (Day(numpy.ones(2), "mon"), Day(numpy.ones(2), "tue")),
        ("12", 12),
        (None, 0),
        ({1, 2}, {1, 3}),
    ],
    ids=str,
)
def test_digests_tell_what_differs(one: object, other: object) -> None:
    assert None not in {digest(one), digest(other)}
    assert digest(one) != digest(other)


def test_digests_of_the_same_are_equal_wherever_it_is() -> None:
    series = torch.arange(12.0).reshape(3, 4)
    same = [series, series.clone().requires_grad_(), series.numpy(), series.T.contiguous().T]
    assert len({digest(one) for one in same}) == 1
    assert digest({"a": 1, "b": (2, 3)}) == digest({"b": [2, 3], "a": 1})
    assert digest(float("nan")) == digest(float("nan"))
    assert digest(numpy.float64(0.1)) == digest(0.1) != digest(numpy.float32(0.1))
    assert digest({"w": numpy.int64(3), "on": numpy.True_}) == digest({"w": 3, "on": True})
    assert digest(numpy.longdouble(1)) == digest(numpy.longdouble(1)) is not None
    assert 0 < (digest(series) or 0) < 2**63


def test_digests_of_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"day": ["mon", "tue"], "sales": [1.0, 2.0]})
    assert digest(frame) == digest(frame.copy()) != digest(frame.rename(columns={"day": "d"}))
    assert digest(frame) not in (digest(frame.assign(sales=0.0)), digest(frame.iloc[::-1]), None)
    assert digest(frame.sales) == digest(frame.sales.copy()) != digest(frame.sales + 1)


def test_what_has_no_digest_is_not_compared_and_is_no_error() -> None:
    ring: list[object] = []
    ring.append(ring)
    for value in (object(), [1, object()], ring, lambda: 1, torch.zeros(2, device="meta")):
        assert digest(value) is None
    compare({"the data": object()}, {"the data": object()})
    compare({"the data": object()}, {"the data": 1})


def test_the_error_names_what_differs_on_which_rank_and_what_to_do() -> None:
    same, other = {"the data": 1, CONTACTS: 2}, {"the data": 1, CONTACTS: 3}
    compare(same, same, same)
    with pytest.raises(SetupError) as failed:
        compare(same, same, other)
    assert str(failed.value).startswith(f"not the same on rank 2 as on rank 0: {CONTACTS}. Make")
    assert "ranks.share" in str(failed.value)
    assert "check_ranks=False" in str(failed.value)
    with pytest.raises(SetupError, match=r"on ranks 1, 2 as on rank 0: seed\. Give all ranks"):
        compare({}, {}, {}, settings=({"seed": 0}, {"seed": 1}, {"seed": 2}))


def ring(agents: int) -> SIR:
    return SIR(numpy.array([[one, (one + 1) % agents] for one in range(agents)]), 5)


def test_a_simulator_is_found_wherever_a_loss_has_it() -> None:
    model = ring(8)

    class Holder:
        def __init__(self) -> None:
            self.parts = {"model": [model]}

        def loss(self, params: torch.Tensor, data: object) -> torch.Tensor:
            return params

    def closure(params: torch.Tensor, data: object) -> torch.Tensor:
        return model.run_and_observe(params)[0]

    wanted = digest(simulators(L2Loss(model))[0][CONTACTS])
    assert wanted is not None
    losses = [L2Loss(ring(8)), closure, Holder().loss, partial(closure, data=None), global_loss]
    assert [digest(simulators(one)[0][CONTACTS]) for one in losses] == [wanted] * len(losses)
    assert digest(simulators(L2Loss(ring(9)))[0][CONTACTS]) != wanted
    assert simulators(torch.nn.functional.mse_loss)[0][CONTACTS] == []


def global_loss(params: torch.Tensor, data: object) -> torch.Tensor:
    return GLOBAL.run_and_observe(params)[0]


GLOBAL = ring(8)


def test_the_estimator_in_a_loss_is_not_compared_for_it_gets_rank_0s_weights() -> None:
    estimator, network = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    found, _ = simulators([estimator, network], estimator.modules())
    assert found["the weights of the networks in the loss"] == [dict(network.named_parameters())]


def test_an_optimizer_is_its_numbers() -> None:
    weights = [torch.zeros(1, requires_grad=True)]
    adam = partial(torch.optim.Adam, weights)
    one, same, other = (digest(optimizer_settings(adam(lr=lr))) for lr in (0.1, 0.1, 0.2))
    assert one == same != other


def test_ranks_alone_compare_nothing() -> None:
    refuse_differences(replace(Ranks(), comm=None), {"the data": 1}, {})
