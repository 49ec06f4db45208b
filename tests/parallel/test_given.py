"""What a script gives that cannot be: it is named, and what to give instead."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpckit.parallel.dp import data_parallel
from hpckit.parallel.errors import SetupError
from hpckit.parallel.microbatch import MicrobatchTrainer
from hpckit.parallel.mirrored import Callback, MirroredStrategy, compute_average_loss
from hpckit.parallel.scratch import copy_params, train_batch

pytestmark = pytest.mark.torch
INPUTS = torch.linspace(-1, 1, 12).reshape(6, 2)
BATCHES = [(INPUTS, INPUTS.sum(1, keepdim=True))]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def absolute(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (predictions - targets).abs().mean(1)


def trainer(model: object = None, loss: object = None, make: object = sgd) -> MicrobatchTrainer:
    return MicrobatchTrainer(model or nn.Linear(2, 1), loss or nn.MSELoss(), make, "cpu:2")  # type: ignore[arg-type]


def fit(loss: object = None, batches: object = BATCHES, **options: object) -> dict:
    strategy = MirroredStrategy("cpu:2")
    model = strategy.mirror(nn.Linear(2, 1))
    optimizer = strategy.optimizer(model, sgd)
    return strategy.fit(model, batches, loss or nn.MSELoss(), optimizer, **options)  # type: ignore[arg-type]


def step(samples: object, replicas: str = "cpu:2") -> None:
    strategy = MirroredStrategy(replicas)
    model = strategy.mirror(nn.Linear(2, 1))
    optimizer = strategy.optimizer(model, sgd)

    def one() -> None:
        model(INPUTS).mean().backward()
        optimizer.step(samples=samples)  # type: ignore[arg-type]

    strategy.run(one)


def made_by(make: object) -> None:
    strategy = MirroredStrategy("cpu:2")
    strategy.optimizer(strategy.mirror(nn.Linear(2, 1)), make)  # type: ignore[arg-type]


def scoped_lbfgs(closure: Callable | None = None) -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    strategy.run(lambda: (model(INPUTS).mean().backward(), optimizer.step(closure)))  # type: ignore[func-returns-value]


@pytest.mark.parametrize("make", [made_by, partial(trainer, None, None)])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "optimizer is None"),
        (sgd(nn.Linear(2, 1)), "optimizer is a SGD"),
        (lambda model: None, "returned None"),
        (lambda model: sgd(nn.Linear(2, 1)), "SGD has no parameter of the Linear"),
        (lambda model: torch.optim.LBFGS(model.parameters()), "LBFGS evaluates the model several"),
    ],
)
def test_what_makes_no_optimizer_of_the_model_is_refused(
    make: Callable, given: object, said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        make(given)


def test_lbfgs_of_a_scope_is_refused_with_and_without_a_function() -> None:
    for closure in (None, lambda: None):
        with pytest.raises(ValueError, match="LBFGS evaluates"):
            scoped_lbfgs(closure)


@pytest.mark.parametrize("model", [print, nn.Linear])
def test_what_is_no_model_is_refused(model: object) -> None:
    strategy = MirroredStrategy("cpu:2")
    for use in (trainer, strategy.mirror, partial(data_parallel, devices="cpu:2")):
        with pytest.raises(TypeError, match=r"model is .*: give a module of torch"):
            use(model)  # type: ignore[operator]
    with pytest.raises(TypeError, match="mirrored already"):
        strategy.mirror(strategy.mirror(nn.Linear(2, 1)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="compile is 'yes'"):
        strategy.mirror(nn.Linear(2, 1), compile="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("use", [fit, partial(trainer, None)])
def test_what_is_no_loss_is_refused(use: Callable) -> None:
    with pytest.raises(TypeError, match="loss is 'mse': give a function"):
        use("mse")
    with pytest.raises(TypeError, match=r"loss is the class MSELoss: give MSELoss\(\)"):
        use(nn.MSELoss)


def test_a_metric_never_takes_the_place_of_the_loss_or_of_another() -> None:
    """One named `loss` was differentiated instead of the loss."""
    same = {"loss": absolute}
    for metrics in (same, [absolute, absolute], ["mse", "mse"]):
        with pytest.raises(ValueError, match=r"A metric is named '.*: give names of their own"):
            fit(metrics=metrics)
    assert set(fit(metrics={"a": "mae", "b": absolute})) == {"loss", "a", "b"}
    assert set(fit(metrics=absolute)) == {"loss", "absolute"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": -1}, "epochs is -1"),
        ({"epochs": 2.5}, "epochs is 2.5"),
        ({"epochs": "3"}, "epochs is '3'"),
        ({"callbacks": Callback()}, "callbacks is a Callback: give a list"),
        ({"callbacks": [Callback]}, "Callback'> is not a callback"),
        ({"batches": INPUTS}, "batches are a Tensor: give a list"),
        ({"batches": None}, "batches are a NoneType"),
        ({"batches": BATCHES[0]}, r"give \[\(inputs, targets\)\]"),
    ],
)
def test_a_course_of_training_that_cannot_be_is_refused(options: dict, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        fit(**options)


@pytest.mark.parametrize("replicas", ["cpu", "cpu:2"])
@pytest.mark.parametrize("samples", [-3, float("nan"), float("inf"), "3", True, [3]])
def test_gradients_are_weighed_by_numbers_only(replicas: str, samples: object) -> None:
    with pytest.raises(ValueError, match=r"samples is .*: give the number of samples"):
        step(samples, replicas)
    for good in (3, 2.5, torch.tensor(3)):
        step(good, replicas)


@pytest.mark.parametrize("size", [0, -4, 2.5, "4", True, None, float("nan")])
def test_a_global_batch_is_a_whole_number(size: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        MirroredStrategy("cpu:2").get_per_replica_batch_size(size)  # type: ignore[arg-type]
    if size is not None:
        with pytest.raises(ValueError, match="must be a whole number"):
            compute_average_loss(torch.ones(4), size)  # type: ignore[arg-type]


def test_a_weight_is_that_of_its_sample() -> None:
    """Weights of (4, 1) and losses of (4,) were a square, four times the loss."""
    losses, weights = torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 0, 0, 1])
    assert compute_average_loss(losses, 4, weights).item() == 1.25
    assert compute_average_loss(losses, 4, weights.tolist()).item() == 1.25
    assert compute_average_loss(losses, 4, 2.0).item() == 5
    of_two = torch.stack([losses, losses, losses, losses], 1)  # the losses of a sample are a row
    assert compute_average_loss(of_two, 4, weights).item() == 5
    with pytest.raises(ValueError, match=r"shape \(4, 1\) for losses of shape \(4,\)"):
        compute_average_loss(losses, 4, weights[:, None])


@pytest.mark.parametrize("args", [INPUTS, "ab", 3, None])
def test_arguments_of_a_run_are_a_tuple(args: object) -> None:
    """A batch by itself was taken apart, each replica's part given to all."""
    strategy = MirroredStrategy("cpu:2")
    with pytest.raises(TypeError, match=r"give a tuple of them, as strategy.run\(step, \(batch,"):
        strategy.run(print, args)  # type: ignore[arg-type]
    (batch,) = strategy.distribute_dataset([INPUTS])
    with pytest.raises(TypeError, match="are a PerReplica"):
        strategy.run(print, batch)
    with pytest.raises(TypeError, match="named arguments of run"):
        strategy.run(print, (), [1])


def test_variables_say_what_they_can_be() -> None:
    strategy = MirroredStrategy("cpu:2")
    assert strategy.variable(1.0, aggregation="SUM").aggregation == "sum"
    with pytest.raises(ValueError, match="aggregation is 'median': write one of 'none', 'sum'"):
        strategy.variable(1.0, aggregation="median")
    with pytest.raises(ValueError, match="sync is 'never': write one of 'on_write'"):
        strategy.variable(1.0, sync="never")
    with pytest.raises(TypeError, match="variable is None: give a tensor"):
        strategy.variable(None)
    table = strategy.variable([[1.0, 2.0], [3.0, 4.0]])
    for wrong in ([7.0, 8.0], [[7.0, 8.0]]):
        with pytest.raises(ValueError, match=r"given to a variable of shape \(2, 2\)"):
            table.assign(wrong)
        with pytest.raises(ValueError, match="variable of shape"):
            strategy.run(table.assign_add, (wrong,))
    table.assign(5.0)
    assert table.read().tolist() == [[5, 5], [5, 5]]


def test_a_mean_is_not_a_loss_for_each_sample() -> None:
    """It was divided by the samples twice: steps and losses were six times too small."""

    def model(inputs: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
        return inputs @ parameters[0]

    replicas = [copy_params([torch.ones(2, 1)], "cpu") for _ in range(2)]
    with pytest.raises(ValueError, match=r"samples has shape \(\): give a loss with reduction"):
        train_batch(*BATCHES[0], replicas, model, nn.MSELoss(), 0.1)
    each = nn.MSELoss(reduction="none")
    assert train_batch(*BATCHES[0], replicas, model, each, 0.1) == pytest.approx(0)


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has no optimizer: .*state_dict\(\)"):
        trainer().load_state_dict({"model": nn.Linear(2, 1).state_dict()})


def test_a_batch_without_tensors_is_told_from_unequal_ones() -> None:
    with pytest.raises(ValueError, match="no tensor with samples along axis 0 in the inputs"):
        trainer().train(INPUTS.tolist(), [[1.0]] * 6)


@pytest.mark.parametrize("given", [3.5, b"cpu", [1.5], [None], 0, -1, True])
def test_what_is_no_word_for_a_device_is_refused(given: object) -> None:
    with pytest.raises(SetupError, match=r"is not a device. Write its name, such as cuda:0; for"):
        MirroredStrategy(given)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="is not a device"):
        data_parallel(nn.Linear(2, 1), given)  # type: ignore[arg-type]


class Wrapped:
    """An optimizer that is not torch's, but does what one does; as apex's LARC."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> object:
        return getattr(self.optimizer, name)


def test_a_wrapper_of_an_optimizer_is_one() -> None:
    strategy = MirroredStrategy("cpu:2")
    model = strategy.mirror(nn.Linear(2, 1), compile=None)
    optimizer = strategy.optimizer(model, lambda copy: Wrapped(sgd(copy)))  # type: ignore[arg-type, return-value]
    assert "loss" in strategy.fit(model, BATCHES, nn.MSELoss(), optimizer)
    assert trainer(make=lambda copy: Wrapped(sgd(copy))).train(*BATCHES[0]).stepped


def test_a_model_that_is_frozen_needs_no_optimizer() -> None:
    """What is trained may be in the loss."""
    head = nn.Linear(1, 1)
    frozen = nn.Linear(2, 1).requires_grad_(False)

    def loss(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return absolute(head(predictions), targets)

    before = head.weight.detach().clone()
    training = MicrobatchTrainer(frozen, loss, lambda _: sgd(head), "cpu")
    training.train(*BATCHES[0])
    assert not head.weight.equal(before)


def test_batches_may_be_read_by_number_and_metrics_a_list_of_modules() -> None:
    stacked = TensorDataset(INPUTS[None], BATCHES[0][1][None])
    assert set(fit(batches=stacked, validation_data=stacked)) == {"loss", "val_loss"}
    metrics = nn.ModuleList([nn.L1Loss(), nn.HuberLoss()])
    assert set(fit(metrics=metrics)) == {"loss", "L1Loss", "HuberLoss"}


def test_a_callback_is_what_has_its_methods() -> None:
    seen: list[int] = []

    class Plain:
        def __getattr__(self, name: str) -> object:
            if not name.startswith("on_"):
                raise AttributeError(name)
            return lambda progress: seen.append(progress.step)

    fit(callbacks=iter([Plain()]))
    assert seen == [0, 0, 1, 1, 1]


def test_weights_keep_their_precision_and_axes_of_length_one() -> None:
    """Cast to the kind of the losses, 0.5 was 0 of whole numbers and True of hits."""
    weights = torch.tensor([0.5, 0.5, 0.25, 1.0])
    for hits in (torch.tensor([1, 0, 1, 1]), torch.tensor([True, False, True, True])):
        assert compute_average_loss(hits, 4, weights).item() == 0.4375
    assert compute_average_loss(torch.ones(4).half(), 4, weights).dtype == torch.float32
    steps = torch.ones(4, 3)
    assert compute_average_loss(steps, 4, weights[:, None]).item() == 1.6875
    assert compute_average_loss(steps, 4, torch.tensor([[1.0, 0, 0]])).item() == 1
    assert compute_average_loss(torch.ones(4), 4, torch.tensor([0.5])).item() == 0.5
    with pytest.raises(ValueError, match=r"shape \(3,\) for losses of shape \(4, 3\)"):
        compute_average_loss(steps, 4, torch.ones(3))


def test_values_of_a_dict_are_arguments() -> None:
    strategy = MirroredStrategy("cpu:2")
    (batch,) = strategy.distribute_dataset([{"x": INPUTS, "y": BATCHES[0][1]}])
    sums = strategy.run(lambda x, y: (x[:, :1] * y).sum(), batch.values())
    expected = (INPUTS[:, :1] * BATCHES[0][1]).sum()
    assert strategy.reduce("sum", sums).item() == pytest.approx(expected.item(), rel=1e-5)


def test_yes_and_yes_is_yes_in_a_variable() -> None:
    strategy = MirroredStrategy("cpu:2")
    flag = strategy.variable(False, aggregation="sum")
    strategy.run(lambda: flag.assign_add(torch.tensor(True)))
    assert flag.read().item() is True


def test_losses_of_words_are_several_for_each_sample() -> None:
    def model(inputs: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
        return inputs @ parameters[0]

    def flat(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (predictions - targets).square().reshape(-1)

    replicas = [copy_params([torch.zeros(2, 3)], "cpu") for _ in range(4)]
    assert train_batch(INPUTS, torch.ones(6, 3), replicas, model, flat, 0.1) == pytest.approx(3)


def test_a_state_needs_a_scaler_only_for_fp16() -> None:
    training = trainer()
    wanted = nn.Linear(2, 1)
    training.load_state_dict({"model": wanted.state_dict(), "optimizer": sgd(wanted).state_dict()})
    assert training.model.weight.equal(wanted.weight)
