"""Training on any number of replicas against one device: even, uneven and empty parts."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpckit.parallel.mirrored import (
    Callback,
    Mirrored,
    MirroredOptimizer,
    MirroredStrategy,
    PerReplica,
    Progress,
    compute_average_loss,
    get_replica_context,
)
from hpckit.parallel.mirrored import gradients as gradients_module
from hpckit.parallel.scratch import allreduce
from tests.parallel.trained import (
    OPTIMIZERS,
    alone,
    data,
    furthest,
    mirrored,
    network,
    one_loss,
)

pytestmark = pytest.mark.torch


def each_loss(predicted: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (predicted - wanted).square().mean(1)


def assert_equal_on_all(model: Mirrored) -> None:
    for same in zip(*(module.parameters() for module in model.copies), strict=True):
        assert all(torch.equal(same[0], one) for one in same)
        assert len({one.data_ptr() for one in same}) == len(same)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_the_losses_are_those_of_one_device(
    replicas: int, optimizer: str, dtype: torch.dtype, most: float
) -> None:
    """The Keras experiment: 100 samples in batches of 30, so that the last has 10."""
    make, batches = OPTIMIZERS[optimizer], data(100, 30, dtype)
    wanted, losses = alone(network(dtype), batches, make, 5)
    strategy, model, optimizer_ = mirrored(replicas, make, network(dtype))
    history = strategy.fit(model, batches, nn.MSELoss(), optimizer_, 5)
    assert history["loss"] == pytest.approx(losses, rel=most)
    # Adam divides by the root of squares: rounding of small gradients counts more.
    assert furthest(model, wanted) < (most if optimizer != "adam" else 10 * most)
    assert_equal_on_all(model)
    assert losses[-1] < 0.9 * losses[0], "nothing was trained, so that nothing was compared"


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 9), st.booleans())
def test_any_batches_on_any_number_of_replicas(
    replicas: int, count: int, batch: int, mean: bool
) -> None:
    batches = data(count, batch, torch.float64)
    wanted, losses = alone(network(torch.float64), batches, OPTIMIZERS["momentum"], 2)
    strategy, model, optimizer = mirrored(replicas, OPTIMIZERS["momentum"], network(torch.float64))
    loss = nn.MSELoss() if mean else each_loss
    history = strategy.fit(model, batches, loss, optimizer, 2)
    assert history["loss"] == pytest.approx(losses, rel=1e-11)
    assert furthest(model, wanted) < 1e-12
    assert_equal_on_all(model)


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_loop_of_ones_own(replicas: int, optimizer: str) -> None:
    """As TensorFlow's guide has it: each replica's share of the loss, then run and reduce."""
    make = OPTIMIZERS[optimizer]
    batches = DataLoader(
        TensorDataset(*(torch.cat(part) for part in zip(*data(100, 30), strict=True))),
        batch_size=30,
    )
    wanted, losses = alone(network(), data(100, 30), make, 3)
    strategy, model, optimizer_ = mirrored(replicas, make)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer_.zero_grad()
        loss = compute_average_loss(each_loss(model(inputs), targets))
        loss.backward()
        optimizer_.step()
        return loss.detach()

    for epoch in range(3):
        total = 0.0
        for inputs, targets in strategy.distribute_dataset(batches):
            shares = strategy.run(step, (inputs, targets))
            samples = sum(map(len, strategy.local_results(inputs)))
            total += strategy.reduce("sum", shares).item() * samples
        assert total / 100 == pytest.approx(losses[epoch], rel=1e-6)
    assert furthest(model, wanted) < 1e-5
    assert_equal_on_all(model)


def test_a_replica_without_samples_gives_no_nan_and_takes_part() -> None:
    strategy, model, optimizer = mirrored(3, OPTIMIZERS["sgd"])

    def step(inputs: torch.Tensor) -> float:
        loss = model(inputs).square().mean()  # NaN of no sample
        loss.backward()
        if not len(inputs):  # as of a loss that divides by the number of samples
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, math.nan)
        optimizer.step(samples=len(inputs))
        return loss.item()

    (batch,) = strategy.distribute_dataset([torch.ones(2, 5)])
    losses = strategy.run(step, (batch,))
    assert math.isnan(losses[2])
    assert_equal_on_all(model)
    assert all(p.isfinite().all() for module in model.copies for p in module.parameters())
    with pytest.raises(ValueError, match="No replica has a sample"):
        strategy.run(step, (torch.ones(0, 5),))
    with pytest.raises(
        ValueError, match=r"every replica gives samples, or no replica does, not \(None, 1, 1\)"
    ):
        strategy.run(optimizer.step, (PerReplica((None, 1, 1)),))
    with pytest.raises(RuntimeError, match="in a function that"):
        optimizer.step()


def test_a_parameter_that_some_replicas_or_none_use() -> None:
    """What none uses has no gradient, so that momentum and weight decay leave it as it was."""
    modules = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(3))
    modules[2].requires_grad_(False)
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["momentum"], modules)

    def step() -> list[float | None]:
        if get_replica_context().replica_id_in_sync_group == 0:
            model.local[0](torch.ones(1)).sum().backward()  # type: ignore[index]
        optimizer.step()
        return [None if p.grad is None else p.grad.item() for p in model.parameters()]

    gradients = strategy.run(step)
    assert [list(one) if one else None for one in gradients] == [[1.0, 1.0], None, None]
    assert model.copies[1][0].weight.item() != modules[0].weight.item()  # type: ignore[index]
    assert model.copies[1][1].weight.item() == modules[1].weight.item()  # type: ignore[index]


def test_gradients_go_in_buckets_of_each_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients_module, "_BUCKET_BYTES", 110)
    calls = []

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Linear(5, 8).double()
            self.rest = nn.Linear(8, 3)
            self.turned = nn.Parameter(torch.ones(3, 4).T)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.turned @ self.rest(self.wide(inputs).float()).T
            return made.sum(0)

    torch.manual_seed(0)
    module = Mixed()
    strategy, model, optimizer = mirrored(3, OPTIMIZERS["sgd"], copy.deepcopy(module))
    original = strategy.cross_device_ops

    def counted(tensors: object) -> None:
        calls.append(tensors[0].dtype)  # type: ignore[index]
        original(tensors)  # type: ignore[arg-type]

    strategy.cross_device_ops = counted
    batches = [(torch.randn(7, 5, dtype=torch.float64), torch.ones(7))]
    wanted, _ = alone(module, batches, OPTIMIZERS["sgd"], 1)
    strategy.fit(model, batches, nn.MSELoss(), optimizer)
    assert furthest(model, wanted) < 1e-6
    assert_equal_on_all(model)
    assert calls == [torch.float32] * 2 + [torch.float64] * 2


def test_on_the_cpu_gradients_are_summed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    flattened = []
    original = gradients_module._flattened
    monkeypatch.setattr(
        gradients_module, "_flattened", lambda bucket: flattened.append(1) or original(bucket)
    )
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 9, 2))
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.manual_seed(0)
    batches = [(torch.randn(7, 3, 5, 5), torch.randn(7, 2))]

    def gradients(ops: Callable[..., None] | None) -> list[list[torch.Tensor]]:
        strategy = MirroredStrategy("cpu:3", cross_device_ops=ops)
        model = strategy.mirror(module)
        optimizer = strategy.optimizer(model, OPTIMIZERS["sgd"])
        strategy.fit(model, batches, nn.MSELoss(), optimizer)
        return [[one.grad for one in copy.parameters()] for copy in model.copies]  # type: ignore[misc]

    direct = gradients(None)
    assert not flattened
    flat = gradients(allreduce)
    assert flattened
    for one, other in zip(direct, flat, strict=True):
        assert all(map(torch.equal, one, other))
        assert all(map(torch.equal, one, direct[0]))
    places = {gradient.data_ptr() for one in direct for gradient in one}
    assert len(places) == 3 * 4  # each replica has its own


def test_gradients_of_other_shapes_are_refused() -> None:
    strategy = MirroredStrategy("cpu:2")

    def step(size: int) -> None:
        weight = torch.ones(size, requires_grad=True)
        weight.sum().backward()
        strategy.all_reduce_gradients([weight])

    with pytest.raises(ValueError, match=r"differ in shape: \(3,\) and \(1,\)"):
        strategy.run(step, (PerReplica((3, 1)),))


def test_a_sparse_gradient_is_refused() -> None:
    embedding = nn.Embedding(3, 1, sparse=True)
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"], embedding)

    def step() -> None:
        model(torch.tensor([1])).sum().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="sparse=False"):
        strategy.run(step)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("saved_by", "read_by"), [(1, 3), (2, 3), (3, 2), (3, 1), (7, 2)])
def test_training_goes_on_with_another_number_of_replicas(
    saved_by: int, read_by: int, optimizer: str, tmp_path: object
) -> None:
    make, batches = OPTIMIZERS[optimizer], data(20, 6, torch.float64)
    through = mirrored(saved_by, make, network(torch.float64))
    wanted = through[0].fit(through[1], batches, nn.MSELoss(), through[2], 4)["loss"]
    strategy, model, first = mirrored(saved_by, make, network(torch.float64))
    strategy.fit(model, batches, nn.MSELoss(), first, 2)
    path = f"{tmp_path}/checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": first.state_dict()}, path)
    state = torch.load(path)
    assert sum(one.numel() for one in state["model"].values()) == 5 * 16 + 16 + 16 + 1

    other, restored, second = mirrored(read_by, make, nn.Sequential(*network().double()))
    restored.load_state_dict(state["model"])
    second.load_state_dict(state["optimizer"])
    losses = other.fit(restored, batches, nn.MSELoss(), second, 2)["loss"]
    assert losses == pytest.approx(wanted[2:], rel=1e-12)
    assert_equal_on_all(restored)
    nn.Sequential(*network().double()).load_state_dict(state["model"])  # a plain module too


def test_optimizers_share_no_state_after_restoring() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["momentum"])
    strategy.fit(model, data(4, 4), nn.MSELoss(), optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    buffers = [
        {state["momentum_buffer"].data_ptr() for state in one.state.values()}
        for one in optimizer.copies
    ]
    assert not buffers[0] & buffers[1]
    optimizer.zero_grad()
    assert all(p.grad is None for module in model.copies for p in module.parameters())


def test_mirror_leaves_the_module_alone_and_keeps_tied_weights() -> None:
    module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    module[1].weight = module[0].weight
    strategy, model, _ = mirrored(2, OPTIMIZERS["sgd"], module)
    for one in model.copies:
        assert one[0].weight is one[1].weight  # type: ignore[index]
        assert one[0].weight.data_ptr() != module[0].weight.data_ptr()  # type: ignore[index]
    locals_ = strategy.run(lambda: model.local)
    assert list(locals_) == list(model.copies)
    assert model.local is model.copies[0]
    strategy.run(lambda: model.eval() if get_replica_context().replica_id_in_sync_group else None)
    assert [one.training for one in model.copies] == [True, False]


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_evaluate_and_predict(replicas: int) -> None:
    batches = data(10, 4)
    model_alone = network()
    strategy, model, _ = mirrored(replicas, OPTIMIZERS["sgd"])
    found = strategy.evaluate(
        model,
        batches,
        nn.MSELoss(),
        metrics={"close": lambda mine, wanted: (mine - wanted).abs()[:, 0] < 1},
    )
    inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    outputs = model_alone(inputs).detach()
    assert found["loss"] == pytest.approx(one_loss(model_alone, batches), rel=1e-6)
    assert found["close"] == pytest.approx(((outputs - targets).abs() < 1).double().mean().item())
    torch.testing.assert_close(strategy.predict(model, batches), outputs)
    torch.testing.assert_close(strategy.predict(model, inputs.split(9)), outputs)
    assert model.training
    assert all(p.grad is None for module in model.copies for p in module.parameters())


@pytest.mark.parametrize("replicas", [1, 3])
def test_losses_and_metrics_are_real_numbers(replicas: int) -> None:
    batches = data(7, 4)
    strategy, model, _ = mirrored(replicas, OPTIMIZERS["sgd"])
    found = strategy.evaluate(model, batches, lambda *_: 2, metrics={"half": lambda *_: 0.5})
    assert found == {"loss": 2.0, "half": 0.5}
    for wrong, error in (
        (lambda mine, _: mine * 1j, ValueError),
        (lambda mine, _: (mine.mean(), mine), TypeError),
        (lambda *_: None, TypeError),
    ):
        with pytest.raises(error, match="A loss or metric"):
            strategy.evaluate(model, batches, wrong)


class Answering(nn.Module):
    """Returns what it is told beside its scores."""

    def __init__(self, more: object) -> None:
        super().__init__()
        self.scores, self.more = network(), more

    def forward(self, inputs: torch.Tensor) -> dict[str, object]:
        scores = self.scores(inputs)
        more = scores.mean() if self.more == "mean" else self.more
        return {"scores": scores, "more": more}


@pytest.mark.parametrize("replicas", [1, 3])
def test_predictions_beside_which_words_stand(replicas: int) -> None:
    strategy = MirroredStrategy(f"cpu:{replicas}")
    batches = [inputs for inputs, _ in data(7, 4)]
    for more in (None, "word", True):
        found = strategy.predict(strategy.mirror(Answering(more)), batches)
        assert found["more"] == more
        assert found["scores"].shape == (7, 1)
    for more, told in (("mean", r"tensors of shape \(\)"), (3, "int")):
        with pytest.raises(TypeError, match=f"Predictions cannot be joined of {told}"):
            strategy.predict(strategy.mirror(Answering(more)), batches)


def freeze(model: Mirrored, _: MirroredOptimizer) -> None:
    next(model.parameters()).requires_grad_(False)


def load(model: Mirrored, _: MirroredOptimizer) -> None:
    model.local.load_state_dict(network().state_dict())


def schedule(_: Mirrored, optimizer: MirroredOptimizer) -> None:
    torch.optim.lr_scheduler.ConstantLR(optimizer.local, 0.5)


def betas(_: Mirrored, optimizer: MirroredOptimizer) -> None:
    optimizer.local.param_groups[0]["betas"] = (0.5, 0.6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (freeze, "Other parameters are frozen"),
        (load, "weights of one alone were changed"),
        (schedule, r"differ \(lr is 0\.005 and 0\.01\)"),
        (betas, r"differ \(betas is \(0\.5, 0\.6\)"),
    ],
)
def test_who_changes_one_copy_alone_is_told(change: Callable[..., None], said: str) -> None:
    """Else replicas would train different models from then on, and no loss would tell."""
    for trained in (False, True):
        strategy, model, optimizer = mirrored(3, OPTIMIZERS["adam"])
        if trained:
            strategy.fit(model, data(7, 4), nn.MSELoss(), optimizer)
        change(model, optimizer)
        with pytest.raises(RuntimeError, match=said):
            strategy.fit(model, data(7, 4), nn.MSELoss(), optimizer)


def test_what_is_done_to_all_copies_is_right() -> None:
    strategy, model, optimizer = mirrored(3, OPTIMIZERS["adam"])
    batches = data(7, 4)  # the second batch leaves the last replica without samples
    strategy.fit(model, batches, nn.MSELoss(), optimizer)
    model.load_state_dict(network().state_dict())
    for one in model.copies:
        one[0].requires_grad_(False)
    for one in optimizer.copies:
        one.param_groups[0]["lr"] = 0.5
    before = model.local[0].weight.clone()
    strategy.fit(model, batches, nn.MSELoss(), optimizer)
    assert_equal_on_all(model)
    assert torch.equal(model.local[0].weight, before)

    def clamp() -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.1, 0.1)

    strategy.run(clamp)
    strategy.fit(model, batches, nn.MSELoss(), optimizer)
    assert_equal_on_all(model)


def test_lazy_layers_would_be_others_on_each_replica() -> None:
    lazy = nn.LazyLinear(1)
    with pytest.raises(ValueError, match="LazyLinear has uninitialized parameters"):
        MirroredStrategy("cpu:2").mirror(lazy)
    lazy(torch.ones(1, 5))
    MirroredStrategy("cpu:2").mirror(lazy)


class Recorder(Callback):
    def __init__(self, stop_after: int | None = None) -> None:
        self.calls: list[object] = []
        self.stop_after = stop_after

    def on_train_begin(self, progress: Progress) -> None:
        self.calls.append(("train", progress.epochs))

    def on_epoch_begin(self, progress: Progress) -> None:
        self.calls.append(("epoch", progress.epoch))

    def on_batch_end(self, progress: Progress) -> None:
        self.calls.append((progress.batch, progress.step))
        assert progress.logs["loss"] > 0
        progress.stop = progress.step == self.stop_after

    def on_epoch_end(self, progress: Progress) -> None:
        self.calls.append(("ended", len(progress.history["loss"])))

    def on_train_end(self, progress: Progress) -> None:
        self.calls.append("end")


def test_callbacks_and_history() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"])
    recorder = Recorder()
    history = strategy.fit(
        model, data(4, 2), nn.MSELoss(), optimizer, 2,
        metrics={"error": nn.L1Loss()}, validation=data(3, 3), callbacks=[Callback(), recorder],
    )  # fmt: skip
    assert recorder.calls == [
        ("train", 2), ("epoch", 0), (0, 1), (1, 2), ("ended", 1),
        ("epoch", 1), (0, 3), (1, 4), ("ended", 2), "end",
    ]  # fmt: skip
    assert {name: len(values) for name, values in history.items()} == dict.fromkeys(
        ["loss", "error", "val_loss", "val_error"], 2
    )
    stopped = Recorder(stop_after=1)
    strategy.fit(model, data(4, 2), nn.MSELoss(), optimizer, 2, callbacks=[stopped])
    assert stopped.calls == [("train", 2), ("epoch", 0), (0, 1), ("ended", 1), "end"]


def test_wrong_data_and_losses() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"])
    with pytest.raises(ValueError, match=r"no batch in epoch 2\. A generator can be read"):
        strategy.fit(model, (one for one in data(4, 2)), nn.MSELoss(), optimizer, 2)
    with pytest.raises(ValueError, match='loss has reduction="sum"'):
        strategy.fit(model, data(4, 2), nn.MSELoss(reduction="sum"), optimizer)
    with pytest.raises(ValueError, match=r"must be \(inputs, targets\), not a Tensor"):
        strategy.fit(model, [torch.ones(2, 5)], nn.MSELoss(), optimizer)
    with pytest.raises(ValueError, match=r"loss of 2 samples has shape \(5,\)"):
        strategy.fit(model, data(4, 4), lambda *_: torch.ones(5), optimizer)
    with pytest.raises(ValueError, match="no sample to evaluate"):
        strategy.evaluate(model, [], nn.MSELoss())
    with pytest.raises(ValueError, match="no sample to evaluate"):
        strategy.evaluate(model, [(torch.ones(0, 5), torch.ones(0, 1))], nn.MSELoss())
    with pytest.raises(ValueError, match="no sample to predict"):
        strategy.predict(model, [])


def test_datasets_of_a_function_are_trained_on_as_they_are() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"], network(torch.float64))
    made = strategy.distribute_datasets_from_function(lambda _: data(100, 15, torch.float64))
    wanted, losses = alone(
        network(torch.float64), data(100, 30, torch.float64), OPTIMIZERS["sgd"], 1
    )
    assert strategy.fit(model, made, nn.MSELoss(), optimizer)["loss"] == pytest.approx(losses)
    assert furthest(model, wanted) < 1e-12
    assert isinstance(next(iter(made))[0], PerReplica)


def test_autocast_round_all_of_training_sees_each_steps_weights() -> None:
    """Torch keeps cast weights while a block lasts, and one replica runs in the caller's."""
    losses = []
    for replicas in (1, 2):
        strategy, model, optimizer = mirrored(replicas, OPTIMIZERS["sgd"])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            history = strategy.fit(model, data(40, 8), nn.MSELoss(), optimizer, 4)
        losses.append(history["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] == pytest.approx(
        alone(network(), data(40, 8), OPTIMIZERS["sgd"], 4)[1], rel=0.05
    )


def test_a_schedule_and_groups_of_parameters() -> None:
    """Each copy of an optimizer is torch's own, with all that torch has for it."""

    def make(module: nn.Module) -> torch.optim.Optimizer:
        weights = [one for name, one in module.named_parameters() if name.endswith("weight")]
        biases = [one for name, one in module.named_parameters() if name.endswith("bias")]
        return torch.optim.SGD([{"params": weights}, {"params": biases, "lr": 0.001}], lr=0.01)

    class Schedule(Callback):
        def on_train_begin(self, progress: Progress) -> None:
            copies = progress.optimizer.copies
            self.steps = [torch.optim.lr_scheduler.StepLR(one, 1, 0.5) for one in copies]

        def on_epoch_end(self, progress: Progress) -> None:
            for one in self.steps:
                one.step()

    trained = []
    for replicas in (1, 3):
        strategy, model, optimizer = mirrored(replicas, make, network(torch.float64))
        batches = data(20, 6, torch.float64)
        strategy.fit(model, batches, nn.MSELoss(), optimizer, 3, callbacks=[Schedule()])
        assert [group["lr"] for group in optimizer.local.param_groups] == [0.00125, 0.000125]
        trained.append(model)
    assert furthest(trained[1], trained[0].copies[0]) < 1e-12


def test_a_variable_is_trained_by_hand() -> None:
    strategy = MirroredStrategy("cpu:2")
    slope = strategy.variable(0.0)

    def step(inputs: torch.Tensor) -> None:
        weight = slope.read()
        weight.grad = None
        (weight * inputs - 3 * inputs).square().mean().backward()
        strategy.all_reduce_gradients([weight], samples=len(inputs))
        slope.assign_sub(0.1 * weight.grad)  # type: ignore[operator]

    for _ in range(50):
        strategy.run(step, (PerReplica((torch.ones(2), torch.full((1,), 2.0))),))
    assert [one.item() for one in slope.values] == pytest.approx([3.0, 3.0])


def test_gradients_are_clipped_between_reduction_and_step() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"])

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        (100 * nn.functional.mse_loss(model(inputs), targets)).backward()
        strategy.all_reduce_gradients(model, samples=len(inputs))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.local.step()
        return norm

    (batch,) = strategy.distribute_dataset(data(5, 5))
    norms = strategy.run(step, batch)
    assert norms[0].item() == norms[1].item() > 1
    assert_equal_on_all(model)


def test_replicas_run_inside_a_merge() -> None:
    strategy = MirroredStrategy("cpu:2")

    def merge(same: MirroredStrategy) -> PerReplica[int]:
        made: PerReplica[int] = same.run(
            lambda: get_replica_context().replica_id_in_sync_group + 10
        )
        return made

    result = strategy.run(lambda: get_replica_context().merge_call(merge))
    assert list(result) == [10, 11]
