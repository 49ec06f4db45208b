"""One line around a model: the numbers are those of the plain model on any number of replicas."""

import copy
import re
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

import pytest

from tests.patience import LONG_S

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from hpckit.parallel import dp  # noqa: E402
from hpckit.parallel.devices import find_replicas  # noqa: E402
from hpckit.parallel.dp import LogicalDataParallel, data_parallel  # noqa: E402
from hpckit.parallel.models import make_model  # noqa: E402
from tests.parallel.nets import gap, network  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@settings(max_examples=40)
@given(
    replicas=st.integers(1, 7),
    batch=st.integers(1, 12),
    exact=st.sampled_from([(torch.float32, 1e-6), (torch.float64, 1e-12)]),
)
def test_training_is_that_of_the_plain_model(
    replicas: int, batch: int, exact: tuple[torch.dtype, float]
) -> None:
    dtype, most = exact
    plain, master = network(dtype), network(dtype)
    parallel = data_parallel(master, f"cpu:{replicas}")
    for model, module in ((plain, plain), (parallel, master)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(1)
        for _ in range(3):
            inputs = torch.randn(batch, 3, dtype=dtype)
            optimizer.zero_grad()
            functional.mse_loss(model(inputs), inputs[:, :2]).backward()
            optimizer.step()
    assert gap(plain, master) <= most
    assert gap(master, network(dtype)) > 1e-3, "nothing was trained, so nothing was compared"
    torch.testing.assert_close(parallel(inputs), plain(inputs), rtol=most, atol=most)


@pytest.mark.parametrize(
    ("batch", "sizes"), [(5, [3, 2]), (1, [1]), (4, [2, 2]), (0, [0]), (2, [1, 1])]
)
def test_parts_are_those_of_torchs_own(batch: int, sizes: list[int]) -> None:
    seen: dict[int, int] = {}

    class Spy(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen[int(inputs[0]) if len(inputs) else 0] = len(inputs)
            return inputs * 2

    inputs = torch.arange(batch).float()
    assert torch.equal(data_parallel(Spy(), "cpu:2")(inputs), inputs * 2)
    assert [seen[first] for first in sorted(seen)] == sizes


def test_replicas_run_at_the_same_time() -> None:
    class Together(nn.Module):
        barrier = threading.Barrier(3, timeout=LONG_S)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.barrier.wait()
            time.sleep(0.02 * (3 - float(inputs[0])))  # the first is the last to end
            return inputs

    parallel = data_parallel(Together(), "cpu:3")
    assert parallel(torch.arange(3)).tolist() == [0, 1, 2]


def test_the_first_replicas_buffers_are_kept_and_the_others_dropped() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(10, 4)
    wanted, norm = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    wanted(inputs[:5])
    data_parallel(norm, "cpu:2")(inputs)
    torch.testing.assert_close(norm.running_mean, wanted.running_mean)
    assert norm.num_batches_tracked == 1


def test_what_a_replica_writes_into_its_weights_is_lost() -> None:
    class Writer(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if inputs[0, 0] > 0:
                with torch.no_grad():
                    self.weight.zero_()
            return super().forward(inputs)

    model = Writer(1, 1, bias=False)
    before = model.weight.clone()
    outputs = data_parallel(model, "cpu:2")(torch.tensor([[-1.0], [1.0]]))
    assert torch.equal(model.weight, before)
    assert outputs[1] == 0


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.again = self.first
        self.scales = nn.ParameterList([torch.tensor(2.0)])
        self.absent = None
        self.recurrent = nn.GRU(3, 3, batch_first=True)
        self.normed = parametrizations.weight_norm(nn.Linear(3, 3))

    def forward(
        self, pair: tuple[torch.Tensor, torch.Tensor], *, factor: float, more: dict | None = None
    ) -> dict[str, object]:
        left, right = pair
        assert self.tied.weight is self.first.weight
        assert self.again is self.first
        hidden = self.again(self.tied(self.first(left))) * self.scales[0] * factor
        steps, _ = self.recurrent(torch.stack([hidden, right], 1))
        if more:
            hidden = hidden + more["x"]
        return {"hidden": (self.normed(hidden), None), "steps": [steps], "mean": steps.mean()}


def test_nested_tied_and_recurrent() -> None:
    torch.manual_seed(0)
    plain = Nested().double()
    master = copy.deepcopy(plain)
    parallel = data_parallel(master, "cpu:3")
    left, right, x = torch.randn(3, 7, 3, dtype=torch.float64)
    results = [model((left, right), factor=0.5, more={"x": x}) for model in (plain, parallel)]
    for result in results:
        (result["hidden"][0].square().sum() + result["steps"][0].cos().sum()).backward()
    one, other = results
    torch.testing.assert_close(other["hidden"][0], one["hidden"][0], rtol=0, atol=1e-12)
    torch.testing.assert_close(other["steps"][0], one["steps"][0], rtol=0, atol=1e-12)
    assert other["hidden"][1] is None
    assert other["mean"].shape == (3,), "one number for each replica, as torch's own"
    for mine, wanted in zip(master.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, wanted.grad, rtol=0, atol=1e-12)
    assert isinstance(other["hidden"], tuple)


def test_modes_and_settings_reach_replicas() -> None:
    class Tell(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            told.append((self.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            return super().forward(inputs)

    told: list[tuple[bool, bool, bool]] = []
    model = Tell(2, 2)
    parallel = data_parallel(model, "cpu:2")
    parallel.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = parallel(torch.ones(4, 2))
    assert told == [(False, False, True)] * 2
    assert outputs.dtype == torch.bfloat16
    assert not outputs.requires_grad


def test_a_frozen_part_gets_no_gradient() -> None:
    model = network()
    model[0].requires_grad_(False)
    data_parallel(model, "cpu:2")(torch.randn(4, 3, dtype=torch.float64)).sum().backward()
    assert model[0].weight.grad is None
    assert model[2].weight.grad is not None


def test_an_error_names_its_replica() -> None:
    class Fails(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if inputs[0] > 0:
                raise KeyError("mine")
            return inputs

    with pytest.raises(KeyError, match="mine") as error:
        data_parallel(Fails(), "cpu:2")(torch.arange(2))
    assert error.value.__notes__ == ["Raised in replica 1 on cpu."]


def test_what_cannot_be_split_or_joined() -> None:
    class Add(nn.Module):
        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return one + other

    class Length(nn.Module):
        def forward(self, inputs: torch.Tensor) -> int:
            return len(inputs)

    with pytest.raises(ValueError, match=r"the same number of samples on axis 0; they have 4, 1\."):
        data_parallel(Add(), "cpu:2")(torch.ones(4), torch.ones(1))
    assert data_parallel(Add(), "cpu:2")(torch.ones(4), torch.tensor(1.0)).tolist() == [2.0] * 4
    with pytest.raises(TypeError, match="type int differ between parts and cannot be joined"):
        data_parallel(Length(), "cpu:2")(torch.ones(3))
    assert data_parallel(Length(), "cpu:2")(torch.ones(4)) == 2, "the same for both parts"


@dataclass(frozen=True)
class Waves:
    """As a simulator returns them: a field of each shot, and what is the same for all."""

    field: torch.Tensor
    step_s: float
    extra: object = None


class Pair(NamedTuple):
    first: torch.Tensor
    second: Waves


@pytest.mark.parametrize("wrap", ["dataclass", "named tuple", "list in a dataclass"])
def test_outputs_and_inputs_of_ones_own_kinds_are_split_and_joined(wrap: str) -> None:
    class Solver(nn.Module):
        def forward(self, shots: Waves) -> object:
            told.append(len(shots.field))
            made = Waves(shots.field * 2, shots.step_s, [shots.field] if "list" in wrap else None)
            return Pair(shots.field, made) if wrap == "named tuple" else made

    told: list[int] = []
    field = torch.arange(6.0).reshape(3, 2)
    out = data_parallel(Solver(), "cpu:2")(Waves(field, 0.5))
    assert sorted(told) == [1, 2]
    if wrap == "named tuple":
        assert torch.equal(out.first, field)
        out = out.second
    assert isinstance(out, Waves)
    assert (out.field.tolist(), out.step_s) == ((field * 2).tolist(), 0.5)
    assert out.extra is None or torch.equal(out.extra[0], field)  # type: ignore[index]


@dataclass(frozen=True)
class Scaled:
    """Is made of more than its fields, and checks them."""

    logits: torch.Tensor
    scale: InitVar[float]
    best: torch.Tensor = field(init=False)

    def __post_init__(self, scale: float) -> None:
        assert self.logits.dim() == 2
        object.__setattr__(self, "logits", self.logits * scale)
        object.__setattr__(self, "best", self.logits.argmax(1))


@pytest.mark.parametrize("devices", ["cpu:1", "cpu:2"])
def test_a_dataclass_is_made_only_once(devices: str) -> None:
    class Solver(nn.Module):
        def forward(self, given: Scaled) -> Scaled:
            return Scaled(given.logits, 2.0)

    given = Scaled(torch.tensor([[1.0, 2.0], [4.0, 3.0], [5.0, 6.0]]), 3.0)
    out = data_parallel(Solver(), devices)(given)
    assert torch.equal(out.logits, given.logits * 2)
    assert out.best.tolist() == [1, 0, 1]


class Other:
    """Holds a tensor; nobody knows how to join two of these."""

    def __init__(self, field: torch.Tensor) -> None:
        self.field = field


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Other, "type Other cannot be joined: return tensors, or tuples, named tuples"),
        (lambda part: torch.distributions.Normal(part, 1.0), "type Normal cannot be joined"),
        (lambda part: part if len(part) > 1 else None, "type Tensor, NoneType cannot be joined"),
        (lambda part: Waves(part, len(part)), r"int differ between parts .*joined \(2, 1\)"),
        (lambda part: Waves(part, 1.0) if len(part) > 1 else part, "different kinds: Waves, Tens"),
    ],
)
def test_outputs_that_cannot_be_joined_are_named(
    make: Callable[[torch.Tensor], object], words: str
) -> None:
    class Makes(nn.Module):
        def forward(self, inputs: torch.Tensor) -> object:
            return make(inputs)

    with pytest.raises((TypeError, ValueError), match=words):
        data_parallel(Makes(), "cpu:2")(torch.ones(3))


class Named(tuple[object, ...]):
    """As deepwave's PropagatorOutput: names that its parts alone do not tell."""

    def __new__(cls, names: tuple[str, ...], values: tuple[object, ...] | None = None) -> "Named":
        if values is None:
            raise TypeError("Named cannot be made of values alone")
        return super().__new__(cls, values)


class Titled(dict[str, object]):
    """Has more than its items."""


def titled(part: torch.Tensor) -> Titled:
    made = Titled(rows=part)
    made.title = "rows"  # type: ignore[attr-defined]
    return made


class Rows(list[torch.Tensor]):
    pass


@dataclass(frozen=True)
class State:
    """As deepwave's AuxiliaryState: tensors, and what their shapes are."""

    tensors: dict[str, torch.Tensor]
    shape: tuple[object, ...] = ()


@pytest.mark.parametrize(
    "make",
    [
        lambda part: OrderedDict(rows=part),
        lambda part: defaultdict(list, rows=part),
        lambda part: Rows([part]),
        lambda part: torch.max(part, 1),
        lambda part: [State({"a": part}, (3, 7))],
    ],
    ids=["OrderedDict", "defaultdict", "list", "what torch.max returns", "dataclass"],
)
def test_outputs_keep_their_class(make: Callable[[torch.Tensor], Any]) -> None:
    class Makes(nn.Module):
        def forward(self, inputs: torch.Tensor) -> object:
            return make(inputs)

    rows = torch.arange(8.0).reshape(4, 2)
    whole, out = make(rows), data_parallel(Makes(), "cpu:2")(rows)
    assert type(out) is type(whole)
    found, wanted = (list(one.values()) if isinstance(one, dict) else list(one)
                     for one in (out, whole))  # fmt: skip
    if isinstance(found[0], State):
        found, wanted = found[0].tensors["a"], wanted[0].tensors["a"]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    if isinstance(out, defaultdict):
        assert out["new"] == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda part: Named(("rows",), (part,)), r"A Named cannot be put .*made of values alone\)"),
        (titled, "A Titled cannot be put .*attribute title would be lost"),
        (lambda part: State({"a": part}, (2, 2)), r"State cannot be joined: shape \(2, 2\) is"),
        (lambda part: [State({"a": part}, ((2, 2), (9,)))], "State cannot be joined: shape"),
    ],
)
def test_outputs_that_joining_would_change_are_refused(
    make: Callable[[torch.Tensor], object], words: str
) -> None:
    class Makes(nn.Module):
        def forward(self, inputs: torch.Tensor) -> object:
            return make(inputs)

    with pytest.raises(TypeError, match=words):
        data_parallel(Makes(), "cpu:2")(torch.ones(4, 2))


def test_arguments_that_cannot_be_made_anew_are_plain_in_the_parts() -> None:
    """As in torch's own scatter."""

    class Takes(nn.Module):
        def forward(self, inputs: Named) -> torch.Tensor:
            told.append(type(inputs))
            return inputs[0]  # type: ignore[return-value]

    told: list[type] = []
    rows = torch.ones(4, 2)
    assert torch.equal(data_parallel(Takes(), "cpu:2")(Named(("rows",), (rows,))), rows)
    assert told == [tuple, tuple]


def test_devices_in_all_their_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(devices: object) -> int:
        made = data_parallel(nn.Linear(1, 1), devices)  # type: ignore[arg-type]
        assert isinstance(made, LogicalDataParallel)
        assert sorted(made.state_dict()) == ["module.bias", "module.weight"]
        return len(made.replicas)

    assert count("cpu:3") == count([CPU] * 3) == count(find_replicas("cpu:3")) == 3
    assert count(None) == count("cpu") == count(CPU) == count(["cpu", "cpu"]) == 1
    with pytest.raises(ValueError, match="No device is named"):
        data_parallel(nn.Linear(1, 1), [])
    with pytest.raises(ValueError, match=r"2 is not a device\. .*2 replicas on the CPU, cpu:2"):
        data_parallel(nn.Linear(1, 1), 2)  # type: ignore[arg-type]


def test_gpus_get_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[torch.device]] = []
    monkeypatch.setattr(nn.Module, "to", lambda self, device: self)
    monkeypatch.setattr(dp.nn, "DataParallel", lambda model, device_ids: made.append(device_ids))
    gpus = [torch.device("cuda", 0), torch.device("cuda", 1)]
    data_parallel(nn.Linear(1, 1), gpus)
    assert made == [gpus]
    shared = data_parallel(nn.Linear(1, 1), gpus[:1] * 2)
    assert isinstance(shared, LogicalDataParallel)


def test_a_verbose_model_tells_its_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model("linear", seed=0, verbose=True)
    inputs = torch.randn(5, 5)
    with torch.no_grad():
        data_parallel(model, "cpu:2")(inputs)
    said = sorted(re.findall(r"replica (\d) on cpu: input \((\d), 5\)", capsys.readouterr().out))
    assert said == [("0", "3"), ("1", "2")]
