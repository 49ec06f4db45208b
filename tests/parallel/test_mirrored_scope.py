"""What is built in `scope()` and used in `run`, as TensorFlow's users type it."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from hpckit.parallel.mirrored import (
    HierarchicalCopyAllReduce,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    NcclAllReduce,
    PerReplica,
    ReductionToOneDevice,
    compute_average_loss,
    get_replica_context,
    has_strategy,
)
from tests.parallel.nets import gap
from tests.patience import LONG_S

pytestmark = pytest.mark.torch
DOUBLE = torch.float64
INPUTS = torch.arange(30, dtype=DOUBLE).reshape(10, 3) / 30
TARGETS = 2 * INPUTS.sum(1, keepdim=True)
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def classes_are_their_own() -> Iterator[None]:
    yield
    assert type(nn.Linear(1, 1)) is nn.Linear


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.05)


def keras_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """The step of TensorFlow's guide to custom training loops."""

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        errors = (model(inputs) - targets).square().sum(1)
        loss = compute_average_loss(errors, global_batch_size=10)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().sum(1).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def parts(strategy: MirroredStrategy) -> tuple[PerReplica[torch.Tensor], ...]:
    (batch,) = strategy.experimental_distribute_dataset([(INPUTS, TARGETS)])
    return batch  # type: ignore[no-any-return]


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
@pytest.mark.parametrize("make", [sgd, adam])
@pytest.mark.parametrize("where", ["in scope", "after it"])
def test_what_every_user_of_tensorflow_types(
    replicas: int, make: Callable[[nn.Module], torch.optim.Optimizer], where: str
) -> None:
    strategy = MirroredStrategy(f"cpu:{replicas}")
    with strategy.scope():
        model = network()
        optimizer = make(model)
    if where == "after it":
        optimizer = make(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    step = keras_step(model, optimizer)
    alone = network()
    other = make(alone)
    its_schedule = torch.optim.lr_scheduler.StepLR(other, 2, 0.5)
    its_step = plain_step(alone, other)
    before = gap(model, alone)
    for _ in range(5):
        losses = strategy.run(step, parts(strategy))
        wanted = its_step(INPUTS, TARGETS)
        assert strategy.reduce("sum", losses).item() == pytest.approx(wanted.item(), rel=1e-12)
        schedule.step()
        its_schedule.step()
    assert before == 0
    assert gap(model, alone) < 1e-12
    assert gap(model, network()) > 0.01, "nothing was trained, so that nothing was compared"
    # Outside of run they are plain torch: saved, pickled, copied and read as such.
    assert (type(model), type(optimizer)) == (nn.Sequential, type(other))
    assert optimizer.state_dict().keys() == other.state_dict().keys()
    assert gap(pickle.loads(pickle.dumps(model)), alone) < 1e-12
    for mine, its in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-9, atol=1e-12)


def test_what_is_done_outside_holds_in_the_next_run() -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = network()
    optimizer = sgd(model)
    step = keras_step(model, optimizer)
    strategy.run(step, parts(strategy))
    loaded = {name: value + 1 for name, value in network().state_dict().items()}
    model.load_state_dict(loaded)
    model[0].requires_grad_(False)  # type: ignore[index]
    model.eval()
    optimizer.state.clear()
    modes = strategy.run(lambda *_: (model.training, model[2].training), parts(strategy))  # type: ignore[index]
    assert [list(mode) for mode in modes] == [[False, False]] * 2
    strategy.run(step, parts(strategy))
    alone = network()
    alone.load_state_dict(loaded)
    alone[0].requires_grad_(False)  # type: ignore[index]
    plain_step(alone, sgd(alone))(INPUTS, TARGETS)
    assert gap(model, alone) < 1e-12
    assert torch.equal(model[0].weight, loaded["0.weight"])  # type: ignore[index]


def test_gradients_add_up_over_runs_until_they_are_dropped() -> None:
    strategy = MirroredStrategy("cpu:3")
    with strategy.scope():
        model = network()
    optimizer, alone = sgd(model), network()
    other = sgd(alone)

    def accumulate(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        ((model(inputs) - targets).square().sum() / 10).backward()

    for _ in range(2):
        strategy.run(accumulate, parts(strategy))
        ((alone(INPUTS) - TARGETS).square().sum() / 10).backward()
    strategy.run(lambda: optimizer.step())  # a bound step, found outside of run, is refused
    other.step()
    assert gap(model, alone) < 1e-12
    strategy.run(optimizer.zero_grad)
    assert all(parameter.grad is None for parameter in model.parameters())
    norms = strategy.run(
        lambda: (
            model(INPUTS).sum().backward(),
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1e-3),
        )[1]
    )
    assert [norm.item() > 1e-3 for norm in norms] == [True] * 3
    assert strategy.run(lambda: len(optimizer.param_groups[0])).values[0] > 1
    with pytest.raises(RuntimeError, match=r"optimizer's lr is of all replicas.* outside of run"):
        strategy.run(lambda: optimizer.param_groups[0].update(lr=1))
    with pytest.raises(RuntimeError, match="step the same SGD"):
        strategy.run(optimizer.step)


class Mixed(nn.Module):
    """Layers whose copies take care: tied and recurrent weights, a hook, a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tied = nn.Linear(3, 3), nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.recurrent = nn.GRU(3, 3, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 1))
        self.scale, self.seen = 1.0, 0
        self.register_buffer("total", torch.zeros((), dtype=DOUBLE))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen += len(inputs)
        self.total += inputs.detach().sum()
        hidden, _ = self.recurrent(self.tied(self.first(inputs))[:, None])
        out: torch.Tensor = self.normed(hidden[:, 0]) * self.scale
        return out


def test_layers_whose_copies_take_care() -> None:
    torch.manual_seed(1)
    base = Mixed().double()
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = nn.Sequential(
            copy.deepcopy(base)
        )  # built before the scope, and put in a module in it
    model[0].scale = base.scale = 0.5
    optimizer, other = adam(model), adam(base)
    for _ in range(3):
        strategy.run(keras_step(model, optimizer), parts(strategy))
        plain_step(base, other)(INPUTS, TARGETS)
    assert gap(model, base) < 1e-12
    assert model[0].tied.weight is model[0].first.weight
    assert model[0].recurrent._flat_weights[0] is model[0].recurrent.weight_ih_l0
    assert model[0].seen == 15, "what the first replica counted"
    # Of buffers, the mean over replicas; in each run they begin with that.
    assert model[0].total.item() == pytest.approx(base.total.item() / 2)


def test_two_models_and_optimizers_and_calls_in_a_merge() -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        one, two = network(), network()
        optimizers = sgd(one), adam(two)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> object:
        for model, optimizer in zip((one, two), optimizers, strict=True):
            keras_step(model, optimizer)(inputs, targets)
        same = [one[0].weight is model_weight for model_weight in one.parameters()][0]  # noqa: RUF015
        outside = get_replica_context().merge_call(lambda _: one[0].weight.clone())
        return same, outside, one[0].weight.detach().clone()

    same, outside, inside = strategy.run(step, parts(strategy))
    assert list(same) == [True, True]
    assert all(torch.equal(value, one[0].weight) for value in (*outside, *inside))
    for model, make in ((one, sgd), (two, adam)):
        alone = network()
        plain_step(alone, make(alone))(INPUTS, TARGETS)
        assert gap(model, alone) < 1e-12


def test_threads_of_the_caller_do_not_disturb_each_other() -> None:
    """Two strategies at once, and one that only builds beside a scope."""
    models: dict[int, nn.Module] = {}
    inside, go_on = threading.Event(), threading.Event()
    seeding = threading.Lock()  # all threads have one generator of random weights

    def made() -> nn.Module:
        with seeding:
            return network()

    def beside() -> None:
        assert inside.wait(60)
        models[9] = made()
        go_on.set()

    def work(replicas: int) -> None:
        strategy = MirroredStrategy(f"cpu:{replicas}")
        with strategy.scope():
            model = made()
            optimizer = sgd(model)
            if replicas == 2:
                inside.set()
                assert go_on.wait(60)
                assert models[9] not in strategy.built
                assert model in strategy.built
        for _ in range(5):
            strategy.run(keras_step(model, optimizer), parts(strategy))
        models[replicas] = model

    threads = [threading.Thread(target=work, args=(number,)) for number in (2, 3)]
    threads.append(threading.Thread(target=beside))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = network()
    optimizer = sgd(alone)
    for _ in range(5):
        plain_step(alone, optimizer)(INPUTS, TARGETS)
    assert max(gap(models[2], alone), gap(models[3], alone)) < 1e-12


def test_a_shared_optimizer_is_refused_in_the_first_step() -> None:
    """A model that no scope knows would train on whichever replica writes last."""
    strategy = MirroredStrategy("cpu:2")
    model = network()
    shared, before_steps = sgd(model), threading.Barrier(2, timeout=LONG_S)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        (model(inputs) - targets).square().sum().backward()
        before_steps.wait()  # torch itself refuses weights that change before backward() is done
        shared.step()

    with pytest.raises(RuntimeError, match=r"step the same SGD.*with strategy\.scope\(\)"):
        strategy.run(step, parts(strategy))
    mirrored = strategy.mirror(network())
    with pytest.raises(RuntimeError, match="step the same Adam"):
        strategy.run(keras_step(mirrored, adam(mirrored)), parts(strategy))  # type: ignore[arg-type]
    own = [sgd(module) for module in mirrored.copies]  # one for each replica is as it should be
    strategy.run(
        lambda *part: keras_step(
            mirrored.local, own[get_replica_context().replica_id_in_sync_group]
        )(*part),
        parts(strategy),
    )
    alone = MirroredStrategy("cpu")
    alone.run(keras_step(model, sgd(model)), (INPUTS, TARGETS))


def test_what_cannot_be_done_to_a_model_of_a_scope() -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = network()
        half = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(2))])
    optimizer = sgd(model)

    def set_rate() -> None:  # as schedulers do
        for group in optimizer.param_groups:
            group["lr"] = 0.5

    def by_hand() -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += get_replica_context().replica_id_in_sync_group

    for wrong, words in (
        (lambda: half.step(), r"shape \(2,\) that does not belong to a module built"),
        (lambda: optimizer.step(lambda: 1.0), r"step\(closure\) evaluates the model again"),
        (
            lambda: optimizer.add_param_group({"params": []}),
            r"add_param_group.* outside of run\(\)",
        ),
        (lambda: optimizer.load_state_dict({}), r"load_state_dict.* outside of run\(\)"),
        (lambda: optimizer.state_dict(), r"state_dict.* outside of run\(\)"),
        (set_rate, r"optimizer's lr is of all replicas, and one cannot change it"),
        (by_hand, r"Replica 1 has changed Linear\.weight by itself"),
        (
            lambda: strategy.all_reduce_gradients(model.parameters()),
            r"optimizer\.step\(\) sums the gradients",
        ),
    ):
        with pytest.raises((RuntimeError, ValueError), match=words):
            strategy.run(wrong)
        assert type(model) is nn.Sequential


@pytest.mark.parametrize("stepped", [True, False])
@pytest.mark.parametrize("thread", [True, False])
def test_weights_taken_outside_of_a_run_are_refused(stepped: bool, thread: bool) -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = network()
    optimizer, outside = sgd(model), list(model.parameters())
    model(INPUTS).sum().backward()
    before = [weight.grad for weight in outside]

    def penalised() -> None:
        model(INPUTS).sum().backward()
        if thread:
            helper = threading.Thread(target=lambda: model(INPUTS).sum().backward())
            helper.start()
            helper.join()
        else:
            torch.stack([weight.square().sum() for weight in outside]).sum().backward()
        if stepped:
            optimizer.step()

    with pytest.raises(RuntimeError, match=r"taken outside of run\(\), or in another thread"):
        strategy.run(penalised)
    assert all(weight.grad is grad for weight, grad in zip(outside, before, strict=True))


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_weights_are_refused(register: str) -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = network()
    handle = getattr(model[2].weight, register)(lambda _: None)  # type: ignore[index]
    with pytest.raises(RuntimeError, match=r"Linear\.weight has a hook for its gradient"):
        strategy.run(lambda: None)
    handle.remove()
    strategy.run(lambda: None)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_run_in_a_merge(replicas: int) -> None:
    strategy = MirroredStrategy(f"cpu:{replicas}")
    told: list[object] = []

    def merged(_: MirroredStrategy) -> None:
        told.append(strategy.run(lambda: 1))

    def work() -> None:  # in a thread: where it waited for itself, only this test fails
        strategy.run(lambda: get_replica_context().merge_call(merged))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert len(told) == 1


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_fit_evaluate_and_predict_take_it(replicas: int) -> None:
    strategy = MirroredStrategy(f"cpu:{replicas}")
    with strategy.scope():
        model = network()
    batches = list(zip(INPUTS.split(4), TARGETS.split(4), strict=True))  # the last has 2
    history = strategy.fit(
        model, batches, nn.MSELoss(), sgd(model), 3,
        metrics=["mse", nn.L1Loss()], validation_data=batches,
    )  # fmt: skip
    alone = network()
    step = plain_step(alone, sgd(alone))
    losses = [sum(step(*batch).item() * len(batch[0]) for batch in batches) / 10 for _ in range(3)]
    assert history["loss"] == pytest.approx(losses, rel=1e-12)
    assert history["mse"] == pytest.approx(losses, rel=1e-12)
    assert gap(model, alone) < 1e-12
    assert set(history) == {"loss", "mse", "L1Loss", "val_loss", "val_mse", "val_L1Loss"}
    found = strategy.evaluate(model, batches, nn.MSELoss(), metrics={"mae": nn.L1Loss()})
    assert found["loss"] == pytest.approx(history["val_loss"][-1])
    torch.testing.assert_close(strategy.predict(model, batches), alone(INPUTS).detach())
    assert model.training


def test_each_mistake_in_fit_has_one_clear_error() -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = network()
    mirrored = strategy.mirror(network())
    batches, loss = [(INPUTS, TARGETS)], nn.MSELoss()

    def fit(one: object, optimizer: object, **more: object) -> Callable[[], object]:
        return lambda: strategy.fit(one, batches, more.pop("loss", loss), optimizer, **more)  # type: ignore[arg-type]

    for wrong, words in (
        (fit(nn.Linear(3, 1), sgd(model)), "A Linear has no copy on each replica: build the model"),
        (fit(mirrored, sgd(model)), r"The optimizer is a SGD; this model needs strategy\.optimiz"),
        (fit(model, "adam"), "The optimizer is 'adam'; this model needs an optimizer of torch"),
        (fit(model, sgd(model), loss="mse"), "The loss is 'mse': give a function"),
        (
            fit(model, sgd(model), metrics=["auc"]),
            "'auc' is not a metric: write accuracy, acc, mse",
        ),
        (fit(model, sgd(model), metrics={"a": 3}), "The metric a is 3: give a function"),
        (fit(model, sgd(model), metrics=["accuracy"]), r"several classes, not .* shape \(5, 1\)"),
        (
            lambda: strategy.optimizer(model, sgd),
            "needs a model that mirror.. returned, not a Sequential",
        ),
        (lambda: mirrored.compile(), r"no compile\(\): strategy\.fit\(model, batches, loss"),
        (lambda: mirrored.weight, "no 'weight'; model.local is one copy"),
        (MultiWorkerMirroredStrategy, "hpckit submit ddp train.py --nodes 2 --gpus 4"),
    ):
        with pytest.raises((TypeError, ValueError, AttributeError), match=words):
            wrong()  # type: ignore[operator]


def test_accuracy_by_name() -> None:
    strategy = MirroredStrategy("cpu:2")
    with strategy.scope():
        model = nn.Identity()
        model.register_buffer("nothing", torch.zeros(1))
    scores = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0]])
    loss = nn.CrossEntropyLoss(reduction="none")
    for targets in (torch.tensor([1, 1, 1]), torch.tensor([[0.0, 1.0]] * 3)):
        found = strategy.evaluate(model, [(scores, targets)], loss, metrics=["accuracy"])
        assert found["accuracy"] == pytest.approx(2 / 3)


def test_tensorflows_names() -> None:
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    made = strategy.experimental_distribute_values_from_function(
        lambda one: one.replica_id_in_sync_group
    )
    assert strategy.experimental_local_results(made) == (0, 1)

    def seen() -> tuple[object, ...]:
        here = get_replica_context()
        return has_strategy(), here.strategy is strategy, here.devices

    assert not has_strategy()
    with strategy.scope():
        assert has_strategy()
    found = strategy.run(seen)
    assert [list(one) for one in found[:2]] == [[True, True]] * 2
    assert list(found[2][0]) == [torch.device("cpu")] * 2


@pytest.mark.parametrize(
    "reduce", [HierarchicalCopyAllReduce(), ReductionToOneDevice(), ReductionToOneDevice("cpu")]
)
def test_cross_device_operations_by_name(reduce: Callable[..., None]) -> None:
    for count in range(1, 9):
        tensors = [torch.full((3,), float(number + 1)) for number in range(count)]
        reduce(tensors)
        assert {tuple(one.tolist()) for one in tensors} == {(count * (count + 1) / 2,) * 3}
    strategy = MirroredStrategy("cpu:3", cross_device_ops=reduce)
    with strategy.scope():
        model = network()
    strategy.run(keras_step(model, sgd(model)), parts(strategy))
    alone = network()
    plain_step(alone, sgd(alone))(INPUTS, TARGETS)
    assert gap(model, alone) < 1e-12
    with pytest.raises(ValueError, match="NcclAllReduce needs NCCL and a GPU for each replica"):
        NcclAllReduce()([torch.ones(1), torch.ones(1)])
