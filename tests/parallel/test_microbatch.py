"""Microbatches over devices: the weights are those of one big batch on one device."""

import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.patience import LONG_S

torch = pytest.importorskip("torch")

from hypothesis import example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from hpckit.parallel.errors import SetupError  # noqa: E402
from hpckit.parallel.microbatch import MicrobatchTrainer  # noqa: E402
from hpckit.parallel.models import make_model  # noqa: E402
from hpckit.parallel.spans import spans  # noqa: E402
from tests.parallel.nets import gap, network  # noqa: E402

pytestmark = pytest.mark.torch
GUIDE = Path(__file__).parents[2] / "docs" / "microbatching.md"
EXACT = [(torch.float32, 1e-6), (torch.float64, 1e-12)]
Pair = tuple[torch.Tensor, torch.Tensor]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def trainer_of(model: nn.Module, devices: str = "cpu", **options: object) -> MicrobatchTrainer:
    options = {"uneven": "weight", **options}
    return MicrobatchTrainer(model, nn.MSELoss(), sgd, devices, **options)  # type: ignore[arg-type]


def data(*sizes: int, dtype: torch.dtype = torch.float64) -> list[Pair]:
    torch.manual_seed(1)
    made = [torch.randn(size, 3, dtype=dtype) for size in sizes]
    return [(inputs, inputs[:, :2].sin()) for inputs in made]


def plain(model: nn.Module, batches: list[Pair], loss: Callable = functional.mse_loss) -> list:
    """Train as one would on one device; return losses."""
    optimizer, losses = sgd(model), []
    for inputs, targets in batches:
        optimizer.zero_grad()
        losses.append(loss(model(inputs), targets))
        losses[-1].backward()
        optimizer.step()
    return [loss.item() for loss in losses]


@settings(max_examples=60)
@given(
    replicas=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    microbatch=st.none() | st.integers(1, 15),
    exact=st.sampled_from(EXACT),
    each=st.booleans(),
)
# Of microbatches of 4 and 3, a third replica has no sample and then one.
@example(replicas=3, sizes=[7, 1], microbatch=4, exact=EXACT[1], each=False)
def test_any_parts_are_one_big_batch(
    replicas: int,
    sizes: list[int],
    microbatch: int | None,
    exact: tuple[torch.dtype, float],
    each: bool,
) -> None:
    dtype, most = exact
    batches = data(*sizes, dtype=dtype)
    alone, model = network(dtype), network(dtype)
    losses = plain(alone, batches)
    trainer = MicrobatchTrainer(
        model,
        nn.MSELoss(reduction="none" if each else "mean"),
        sgd,
        f"cpu:{replicas}",
        microbatch=microbatch,
        uneven="weight",
    )
    for (inputs, targets), loss in zip(batches, losses, strict=True):
        before = model(inputs).detach()
        result = trainer.train(inputs, targets, outputs=True)
        assert result.loss == pytest.approx(loss, rel=most * 10)
        assert (result.outputs - before).abs().max().item() <= most
        assert (result.stepped, result.waiting, result.samples) == (True, 0, len(inputs))
    assert gap(alone, model) <= most
    assert gap(network(dtype), model) > 1000 * most, "nothing was trained"
    inputs, targets = data(7, dtype=dtype)[0]
    assert (trainer.predict(inputs) - alone(inputs)).abs().max().item() <= 2 * most
    wanted = functional.mse_loss(alone(inputs), targets).item()
    assert trainer.evaluate(inputs, targets).loss == pytest.approx(wanted, rel=most * 10)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    replicas=st.integers(1, 3),
    frequency=st.integers(1, 3),
)
def test_accumulated_calls_weigh_each_sample_alike(
    sizes: list[int], replicas: int, frequency: int
) -> None:
    batches = data(*sizes)
    groups = [batches[at : at + frequency] for at in range(0, len(batches), frequency)]
    alone, model = network(), network()
    plain(alone, [tuple(torch.cat(parts) for parts in zip(*one, strict=True)) for one in groups])
    trainer = trainer_of(model, f"cpu:{replicas}", microbatch=4, sync_frequency=frequency)
    results = [trainer.train(*batch) for batch in batches]
    assert [result.stepped for result in results] == [
        (at + 1) % frequency == 0 for at in range(len(sizes))
    ]
    left = len(sizes) % frequency
    assert results[-1].waiting == trainer.waiting == sum(sizes[len(sizes) - left :])
    assert trainer.flush() is (left > 0)
    assert gap(alone, model) <= 1e-12
    assert (trainer.flush(), trainer.waiting) == (False, 0)


@given(st.integers(1, 40), st.none() | st.integers(1, 45), st.integers(1, 8))
def test_spans_have_each_sample_once_and_in_order(
    total: int, microbatch: int | None, replicas: int
) -> None:
    found = spans(total, microbatch, replicas)
    seen = [at for share in found for begin, end in share for at in range(begin, end)]
    assert seen == list(range(total))
    sizes = [share[-1][1] - share[0][0] for share in found]
    assert all(size == microbatch for size in sizes[:-1])
    assert all(len(share) == replicas and share[0][1] > share[0][0] for share in found)
    assert max(sizes) <= (microbatch or total)


@pytest.mark.parametrize(
    ("batch", "microbatch", "devices", "said"),
    [
        (10, 4, 1, "A batch of 10 cannot be split into microbatches of 4: give a batch of 8 or 12"),
        (3, 4, 1, "A batch of 3 cannot be split into microbatches of 4: give a batch of 4,"),
        (20, 8, 2, "A batch of 20 cannot be split into microbatches of 8: give a batch of 16 or"),
        (8, 4, 3, "A microbatch of 4 cannot be split over 3 devices: give one of 3 or 6,"),
        (2, 2, 3, "A microbatch of 2 cannot be split over 3 devices: give one of 3,"),
        (10, None, 3, "A batch of 10 cannot be split over 3 devices: give one of 9 or 12,"),
    ],
)
def test_parts_that_are_not_equal(
    batch: int, microbatch: int | None, devices: int, said: str
) -> None:
    model = network()
    trainer = MicrobatchTrainer(
        model, nn.MSELoss(), sgd, f"cpu:{devices}", microbatch=microbatch, sync_frequency=2
    )
    (pair,) = data(batch)
    with pytest.raises(ValueError, match=said) as error:
        trainer.train(*pair)
    assert str(error.value).endswith("weight the parts by their samples: uneven='weight'.")
    assert (gap(model, network()), trainer.waiting) == (0, 0)
    assert len(trainer.predict(pair[0])) == trainer.evaluate(*pair).samples == batch


def test_equal_parts_need_no_permission() -> None:
    alone, model = network(), network()
    plain(alone, data(12))
    MicrobatchTrainer(model, nn.MSELoss(), sgd, "cpu:2", microbatch=4).train(*data(12)[0])
    assert gap(alone, model) <= 1e-12


def sizes_seen(model: nn.Module) -> list[int]:
    """Return a list that grows by the size of each part, in order if there is one replica."""
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    return seen


@pytest.mark.parametrize(
    ("given_", "seen"), [(None, [4, 4, 2]), (False, [10]), (3, [3, 3, 3, 1]), (100, [10])]
)
def test_one_call_may_say_otherwise(given_: int | bool | None, seen: list[int]) -> None:
    model, (pair,) = network(), data(10)
    sizes = sizes_seen(model)
    trainer = trainer_of(model, microbatch=4)
    steps: list[object] = []
    trainer.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    trainer.train(*pair, microbatch=given_)  # type: ignore[arg-type]
    trainer.evaluate(*pair, microbatch=given_)  # type: ignore[arg-type]
    trainer.predict(pair[0], microbatch=given_)  # type: ignore[arg-type]
    assert sizes == seen * 3
    assert len(steps) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"microbatch": 0}, "microbatch is 0: give a number of samples"),
        ({"microbatch": True}, "microbatch is True"),
        ({"microbatch": "8"}, "microbatch is '8': give a number of samples"),
        ({"microbatch": 8.0}, "microbatch is 8"),
        ({"sync_frequency": "2"}, "sync_frequency is '2'"),
        ({"sync_frequency": 0}, "sync_frequency is 0"),
        ({"uneven": "drop"}, "uneven is 'drop': give 'error' or 'weight'"),
        ({"amp": "fp8"}, "amp is 'fp8': give 'bf16', 'fp16' or None"),
        (
            {"amp": "fp16"},
            "amp='fp16' needs GPUs, but replica 0 on cpu is not on a GPU: give amp='bf16'",
        ),
    ],
)
def test_settings_that_cannot_be(options: dict[str, object], said: str) -> None:
    with pytest.raises(SetupError, match=re.escape(said)):
        trainer_of(network(), **options)


def test_batches_that_cannot_be() -> None:
    trainer = trainer_of(network())
    inputs, targets = data(5)[0]
    for method in (trainer.train, trainer.evaluate):
        with pytest.raises(ValueError, match="A batch has 5 inputs and 4 targets"):
            method(inputs, targets[:4])
        with pytest.raises(ValueError, match="The batch is empty"):
            method(inputs[:0], targets[:0])
    with pytest.raises(
        ValueError, match=r"tensors of the inputs must have the same number .* have 5, 4"
    ):
        trainer.predict((inputs, inputs[:4]))
    with pytest.raises(ValueError, match='has reduction="sum"'):
        MicrobatchTrainer(network(), nn.MSELoss(reduction="sum"), sgd)
    with pytest.raises(ValueError, match='has reduction="sum"'):
        MicrobatchTrainer(network(), partial(nn.functional.mse_loss, reduction="sum"), sgd)
    for devices in ("cpu", "cpu:3"):
        empty = trainer_of(network(), devices).predict(inputs[:0])
        assert empty.shape == (0, 2)


@pytest.mark.parametrize("layer", [nn.Linear(5, 3), nn.Linear(1, 1), None])
def test_a_model_that_is_no_longer_that_of_the_copies_is_refused(layer: nn.Module | None) -> None:
    model, (pair,) = network(), data(6)
    trainer = trainer_of(model, "cpu:2")
    if layer is None:
        model.append(nn.Linear(2, 2))
    else:
        model[0] = layer
    with pytest.raises(RuntimeError, match="other layers or weights than when its copies"):
        trainer.predict(pair[0])


class Two(nn.Module):
    """Takes a dict and returns one, with a tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, inputs: dict) -> dict:
        left, right = inputs["pair"]
        assert left.dtype == torch.float64, "numpy's arrays have become tensors"
        value = self.inner(left * inputs["factor"]) + right
        return {"value": value, "rest": (left.detach(), None)}


def test_nested_inputs_outputs_and_targets() -> None:
    torch.manual_seed(3)
    left, right = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    inputs = {"pair": (left.numpy(), right), "factor": 0.5}
    wanted = {"a": [right.cos()]}

    def loss(outputs: dict, targets: dict) -> torch.Tensor:
        return (outputs["value"] - targets["a"][0]).square().mean(1)

    alone, model = Two(), Two()
    tensors = {**inputs, "pair": (left, right)}
    plain(alone, [(tensors, wanted)], lambda *both: loss(*both).mean())
    trainer = MicrobatchTrainer(model, loss, sgd, "cpu:2", microbatch=3, uneven="weight")
    result = trainer.train(inputs, wanted, outputs=True)
    assert gap(alone, model) <= 1e-12
    assert torch.equal(result.outputs["rest"][0], left)
    assert result.outputs["rest"][1] is None
    assert not result.outputs["value"].requires_grad
    assert trainer.train(inputs, wanted).outputs is None


def test_the_leading_replicas_statistics_are_kept() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(12, 3)
    wanted, model = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    for begin in (0, 6):  # microbatches of 6; the first of two replicas has the first 3 of each
        wanted(inputs[begin : begin + 3])
    trainer = trainer_of(model, "cpu:2", microbatch=6)
    trainer.train(inputs, inputs)
    torch.testing.assert_close(model.running_var, wanted.running_var)
    assert model.num_batches_tracked == 2
    predicted = trainer.predict(inputs)  # the second replica has the same statistics
    torch.testing.assert_close(predicted, model.eval()(inputs).detach())
    assert model.num_batches_tracked == 2


def test_modes_are_as_they_were() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).double()
    model[0].eval()  # frozen statistics stay so while the rest trains
    seen: list[tuple[bool, bool]] = []
    model[1].register_forward_hook(lambda layer, *_: seen.append((layer.training, model.training)))
    trainer, (pair,) = trainer_of(model, "cpu:2"), data(4)
    trainer.train(*pair)
    assert model[0].num_batches_tracked == 0
    trainer.predict(pair[0])
    with torch.no_grad():
        assert trainer.train(*pair).stepped
    assert seen == [(True, True)] * 2 + [(False, False)] * 2 + [(True, True)] * 2
    assert (model.training, model[0].training, model[1].training) == (True, False, True)
    model.eval()
    trainer.train(*pair)
    assert model[0].num_batches_tracked == 1
    assert not any(module.training for module in model.modules())


class Trips(nn.Sequential):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if (inputs == 13).any():
            raise ArithmeticError("trips")
        return super().forward(inputs)


def test_an_error_names_its_replica_and_leaves_nothing_behind() -> None:
    alone, model = network(), Trips(*network())
    trainer = trainer_of(model, "cpu:2", microbatch=2, sync_frequency=2)
    first, second, third = data(5, 4, 6)
    bad = second[0].clone()
    bad[3] = 13
    trainer.train(*first)
    with pytest.raises(ArithmeticError, match="trips") as error:
        trainer.train(bad, second[1])
    assert error.value.__notes__ == [
        "Raised in replica 1 on cpu.",
        "Gradients of 5 samples before it are dropped.",
    ]
    everyones = [one for module in trainer._copies.modules for one in module.parameters()]
    assert all(one.grad is None for one in everyones), "memory is given back"
    assert trainer.waiting == 0
    trainer.train(*second)
    assert trainer.train(*third).stepped
    assert all(one.grad is None for one in everyones)
    plain(alone, [tuple(map(torch.cat, zip(second, third, strict=True)))])
    assert gap(alone, model) <= 1e-12


def test_gradients_that_are_never_applied_are_reported() -> None:
    trainer = trainer_of(network(), sync_frequency=3)
    trainer.train(*data(5)[0])
    with pytest.raises(RuntimeError, match=r"Gradients of 5 samples .* call flush"):
        trainer.state_dict()
    with pytest.warns(RuntimeWarning, match=r"Gradients of 5 samples were never applied"):
        del trainer


def test_a_state_goes_on_with_any_number_of_devices() -> None:
    batches = data(5, 7, 6)
    alone = network()
    plain(alone, batches)
    begun = trainer_of(network(), "cpu:3", microbatch=2)
    begun.train(*batches[0])
    trainer = trainer_of(network(), "cpu:2")
    trainer.load_state_dict(begun.state_dict())
    for batch in batches[1:]:
        trainer.train(*batch)
    assert gap(alone, trainer.model) <= 1e-12


def test_replicas_follow_weights_loaded_into_the_model() -> None:
    model, (pair,) = network(), data(6)
    trainer = trainer_of(model, "cpu:3")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    assert (trainer.predict(pair[0]) - model(pair[0])).abs().max().item() <= 1e-12
    trainer.train(*pair)
    assert model[0].weight.grad is None
    assert torch.equal(model[0].weight, before)
    pointers = [one.data_ptr() for module in trainer._copies.modules for one in module.parameters()]
    assert len(set(pointers)) == len(pointers) == 12


def test_a_part_that_only_some_replicas_use() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.never = (nn.Linear(3, 2).double() for _ in range(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            one_by_one = [(self.left if one[0] < 0 else self.right)(one) for one in inputs]
            return torch.stack(one_by_one)

    def made() -> Branches:
        torch.manual_seed(0)
        return Branches()

    inputs = torch.randn(4, 3, dtype=torch.float64).abs()
    inputs[:2] *= -1
    pair, alone, model = (inputs, inputs[:, :2]), made(), made()
    plain(alone, [pair])
    trainer_of(model, "cpu:2").train(*pair)
    assert gap(alone, model) <= 1e-12
    assert torch.equal(model.never.weight, made().never.weight)


def test_replicas_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=LONG_S)  # one after the other, they would not meet
    model = nn.Sequential(nn.Linear(3, 2).double())
    model.register_forward_hook(lambda *_: barrier.wait() * 0 or None)
    trainer_of(model, "cpu:3", microbatch=6).train(*data(12)[0])


def test_bfloat16_computes_in_it_and_keeps_the_weights() -> None:
    batches = data(8, 8, 6, dtype=torch.float32)
    alone, model = network(torch.float32), network(torch.float32)
    plain(alone, batches)
    trainer = trainer_of(model, "cpu:2", microbatch=4, amp="bf16")
    results = [trainer.train(*batch, outputs=True) for batch in batches]
    assert results[0].outputs.dtype == trainer.predict(batches[0][0]).dtype == torch.bfloat16
    assert model[0].weight.dtype == torch.float32
    assert 1e-5 < gap(alone, model) < 1e-2


@pytest.mark.parametrize("frequency", [1, 2])
def test_scaled_losses_change_nothing_but_overflow_leaves_a_step_out(frequency: int) -> None:
    """The scaler is torch's for CPUs: what fp16 does around it, without a GPU."""
    batches = data(8, 5, dtype=torch.float64) * frequency
    alone, model = network(), network()
    joined = [tuple(map(torch.cat, zip(*batches[at : at + frequency], strict=True)))
              for at in range(0, len(batches), frequency)]  # fmt: skip
    plain(alone, joined)
    trainer = trainer_of(model, "cpu:2", microbatch=3, sync_frequency=frequency)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    trainer.scaler = trainer._accumulation.scaler = scaler
    for batch in batches:
        trainer.train(*batch)
    assert gap(alone, model) <= 1e-12
    before = [parameter.clone() for parameter in model.parameters()]
    huge = (batches[0][0] * float("inf"), batches[0][1])
    results = [trainer.train(*huge) for _ in range(frequency)]
    assert [result.stepped for result in results] == [False] * frequency
    assert results[-1].waiting == 0
    assert scaler.get_scale() == 512
    assert all(map(torch.equal, before, model.parameters()))
    trainer.load_state_dict({**trainer.state_dict()})
    assert [trainer.train(*batch).stepped for batch in batches[:frequency]][-1]


def test_the_guides_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(GUIDE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    losses = [float(text) for line in printed[:3] for text in re.findall(r"\d+\.\d+", line)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)


def test_verbose_copies_have_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model("linear", verbose=True)
    trainer = MicrobatchTrainer(model, nn.MSELoss(), sgd, "cpu:3")
    trainer.evaluate(torch.ones(6, 5), torch.ones(6, 1))
    said = sorted(capsys.readouterr().out.splitlines())
    assert said == [f"replica {number} on cpu: input (2, 5)" for number in range(3)]
