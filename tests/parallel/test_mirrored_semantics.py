"""What tf.distribute.MirroredStrategy of TensorFlow 2.21 gave, run on 2 or 3 logical CPUs."""

from collections import namedtuple

import pytest
import torch

from hpckit.parallel.mirrored import (
    InputContext,
    MirroredStrategy,
    MirroredVariable,
    PerReplica,
    ReduceOp,
    ValueContext,
    compute_average_loss,
    get_replica_context,
    get_strategy,
    in_cross_replica_context,
)
from hpckit.parallel.scratch import ring_allreduce

pytestmark = pytest.mark.torch


def two() -> MirroredStrategy:
    return MirroredStrategy("cpu:2")


def number() -> int:
    return get_replica_context().replica_id_in_sync_group


def held(variable: MirroredVariable) -> list[float]:
    return [value.item() for value in variable.values]


def listed(value: object) -> list[object]:
    return [one.tolist() if isinstance(one, torch.Tensor) else one for one in value]  # type: ignore[attr-defined]


def test_all_devices_by_default() -> None:
    assert MirroredStrategy().num_replicas_in_sync == 1  # no GPU here: the CPU
    assert MirroredStrategy("cpu:3").num_replicas_in_sync == 3
    assert "MirroredStrategy(cpu, cpu)" in str(two())


@pytest.mark.parametrize("replicas", [2, 3, 7])
def test_a_buffer_that_no_replica_changes_stays_exact(replicas: int) -> None:
    lowest, infinite = torch.finfo(torch.float32).min, torch.tensor(float("-inf"))
    values = torch.cat([torch.tensor([lowest]), infinite[None], torch.rand(200)])
    strategy = MirroredStrategy(f"cpu:{replicas}")
    with strategy.scope():
        model = torch.nn.BatchNorm1d(1)
        model.register_buffer("constant", values.clone())
    strategy.run(lambda: None)
    assert torch.equal(model.constant, values)


def test_a_variable_begins_with_one_value_and_shares_no_memory() -> None:
    calls = []

    def initial() -> torch.Tensor:
        calls.append(1)
        return torch.rand(3)

    variable = two().variable(initial)
    first, second = variable.values
    assert calls == [1]
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()
    assert variable.sync == "on_write"
    assert variable.aggregation == "none"
    assert variable.trainable
    assert first.requires_grad
    assert not two().variable(1).trainable  # no gradient of whole numbers
    assert not two().variable(1.0, sync="on_read").trainable


@pytest.mark.parametrize(
    ("aggregation", "wanted"),
    [
        ("sum", [3.0, 3.0]),
        ("mean", [1.5, 1.5]),
        ("only_first_replica", [1.0, 1.0]),
        ("none", [1.0, 2.0]),
    ],
)
def test_assignment_in_replicas(aggregation: str, wanted: list[float]) -> None:
    strategy = two()
    variable = strategy.variable(0.0, aggregation=aggregation)
    strategy.run(lambda: variable.assign(number() + 1.0))
    assert held(variable) == wanted
    strategy.run(lambda: variable.assign_add(number() + 1.0))
    assert held(variable) == [2 * value for value in wanted]
    strategy.run(lambda: variable.assign_sub(number() + 1.0))
    assert held(variable) == wanted
    assert strategy.local_results(variable) == variable.values
    assert variable.read().item() == wanted[0]
    assert listed(strategy.run(variable.read)) == wanted


@pytest.mark.parametrize(
    ("aggregation", "read"), [("sum", 3.0), ("mean", 1.5), ("only_first_replica", 1.0)]
)
def test_a_variable_synchronised_on_read(aggregation: str, read: float) -> None:
    strategy = two()
    variable = strategy.variable(0.0, sync="on_read", aggregation=aggregation)
    strategy.run(lambda: variable.assign_add(number() + 1.0))
    assert held(variable) == [1.0, 2.0]
    assert variable.read().item() == read
    assert listed(strategy.run(variable.read)) == [1.0, 2.0]


def test_assignment_outside_of_replicas() -> None:
    strategy = two()
    variable = strategy.variable([1.0, 2.0])
    variable.assign([3.0, 4.0])
    variable.assign_add(1.0)
    variable.assign_sub(torch.tensor([0.0, 1.0]))
    assert listed(variable.values) == [[4.0, 4.0]] * 2
    variable.assign(PerReplica((torch.zeros(2), torch.ones(2))))
    assert listed(variable.values) == [[0.0, 0.0], [1.0, 1.0]]
    summed = strategy.variable(0.0, sync="on_read", aggregation="sum")
    summed.assign(3.0)
    assert held(summed) == [1.5, 1.5]
    assert summed.read().item() == 3.0
    with pytest.raises(ValueError, match="could add once, or once per replica"):
        summed.assign_add(1.0)
    with pytest.raises(ValueError, match="has no value outside of replicas"):
        strategy.variable(0.0, sync="on_read").read()
    assert repr(summed) == "MirroredVariable(1.5, 1.5; on_read, sum)"


def test_replica_context() -> None:
    def body(value: float) -> tuple[object, ...]:
        context = get_replica_context()
        assert get_strategy() is context.strategy
        assert not in_cross_replica_context()
        tree = {"a": torch.tensor([value, 1.0]), "b": [value]}
        return (
            context.replica_id_in_sync_group,
            context.num_replicas_in_sync,
            context.all_reduce("sum", value),
            context.all_reduce(ReduceOp.MEAN, int(value)),
            context.all_reduce("SUM", tree),
            context.device,
        )

    strategy = two()
    ids, counts, sums, means, trees, devices = strategy.run(body, (PerReplica((1.0, 2.0)),))
    assert listed(ids) == [0, 1]
    assert listed(counts) == [2, 2]
    assert listed(sums) == [3.0, 3.0]
    assert listed(means) == [1.5, 1.5]
    assert listed(trees["a"]) == [[3.0, 2.0]] * 2
    assert listed(trees["b"][0]) == [3.0, 3.0]
    assert listed(devices) == [torch.device("cpu")] * 2
    assert sums[0].data_ptr() != sums[1].data_ptr()


def test_gradients_go_through_all_reduce() -> None:
    strategy = two()

    def body() -> torch.Tensor:
        mine = torch.tensor(number() + 1.0, requires_grad=True)
        together = get_replica_context().all_reduce("sum", mine * mine)
        (together * (number() + 1)).backward()
        assert mine.grad is not None
        return mine.grad

    # d/dx_r of (1 + 2) * (x_0^2 + x_1^2)
    assert listed(strategy.run(body)) == [6.0, 12.0]


def test_all_gather_joins_also_uneven_parts() -> None:
    strategy = MirroredStrategy("cpu:3")
    made = strategy.run(lambda: torch.full((number(), 2), number()))
    wanted = [[1, 1], [2, 2], [2, 2]]
    assert strategy.gather(made).tolist() == wanted
    assert strategy.gather({"x": made}, axis=0)["x"].tolist() == wanted
    joined = strategy.run(lambda part: get_replica_context().all_gather(part.T, axis=1), (made,))
    assert [one.T.tolist() for one in joined] == [wanted] * 3
    for bad in (lambda: 1.0, lambda: torch.ones(2, number())):
        with pytest.raises(ValueError, match="gather along axis 0: values of shape"):
            strategy.run(lambda make: get_replica_context().all_gather(make()), (bad,))


def test_merge_call_is_made_once_outside_of_replicas() -> None:
    calls = []

    def merge(strategy: MirroredStrategy, value: PerReplica[int], *, plus: object) -> object:
        assert in_cross_replica_context()
        calls.append(listed(value))
        return PerReplica(tuple(one * 10 for one in value)), strategy.reduce("sum", value)

    strategy = two()
    mine, total = strategy.run(
        lambda: get_replica_context().merge_call(merge, (number() + 1,), {"plus": 1})
    )
    assert calls == [[1, 2]]
    assert listed(mine) == [10, 20]
    assert listed(total) == [3, 3]


@pytest.mark.parametrize(("op", "wanted"), [("sum", 3.0), ("mean", 1.5)])
def test_reduce(op: str, wanted: float) -> None:
    strategy = two()
    value = PerReplica((1.0, 2.0))
    assert strategy.reduce(op, value).item() == wanted
    assert strategy.reduce(op, {"a": (value,)})["a"][0].item() == wanted
    assert MirroredStrategy("cpu").reduce(op, 5).item() == 5


def test_reduce_along_an_axis_weighs_parts_by_their_length() -> None:
    strategy = MirroredStrategy("cpu:3")
    parts = PerReplica((torch.tensor([1.0, 2.0]), torch.tensor([6.0]), torch.zeros(0)))
    assert strategy.reduce("mean", parts, axis=0).item() == 3.0
    assert strategy.reduce("sum", parts, axis=0).item() == 9.0
    with pytest.raises(ValueError, match=r"differ in shape: \(2,\), \(1,\), \(0,\)"):
        strategy.reduce("sum", parts)
    with pytest.raises(ValueError, match="has no such axis"):
        strategy.reduce("sum", PerReplica((1, 2, 3)), axis=0)
    with pytest.raises(ValueError, match="'max' is not a reduction"):
        strategy.reduce("max", parts)


def test_reduce_of_a_plain_value() -> None:
    assert two().reduce("mean", 4.0).item() == 4.0
    with pytest.raises(ValueError, match="not a value of each replica"):
        two().reduce("sum", 4.0)


@pytest.mark.parametrize(
    ("total", "replicas", "batch", "wanted"),
    [
        (5, 2, 5, [[[0, 1, 2], [3, 4]]]),
        (10, 3, 10, [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]]),
        (9, 2, 4, [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8], []]]),
    ],
)
def test_global_batches_in_order_the_ceiling_first(
    total: int, replicas: int, batch: int, wanted: list[list[list[int]]]
) -> None:
    strategy = MirroredStrategy(f"cpu:{replicas}")
    batches = list(torch.arange(total).split(batch))
    data = strategy.distribute_dataset(batches)
    assert [listed(parts) for parts in data] == wanted
    assert len(data) == len(wanted)  # type: ignore[arg-type]
    plain = MirroredStrategy("cpu").distribute_dataset(batches)
    assert torch.equal(torch.cat(list(plain)), torch.arange(total))


def test_batches_of_many_things() -> None:
    strategy = two()
    batch = {"x": torch.ones(3, 2), "y": torch.ones(3).numpy(), "scale": 2, "name": "a"}
    (parts,) = strategy.distribute_dataset([batch])
    assert [len(part) for part in parts["x"]] == [len(part) for part in parts["y"]] == [2, 1]
    assert (parts["scale"], parts["name"]) == (2, "a")
    with pytest.raises(ValueError, match="they have 3, 2"):
        list(strategy.distribute_dataset([(torch.ones(3), torch.ones(2))]))
    with pytest.raises(ValueError, match="no tensor with an axis of samples"):
        list(strategy.distribute_dataset([torch.ones(())]))
    with pytest.raises(TypeError, match="generator has no length"):
        len(strategy.distribute_dataset(batch for _ in range(1)))  # type: ignore[arg-type]


def test_per_replica_batch_size() -> None:
    assert two().get_per_replica_batch_size(6) == 3
    for ask in (two().get_per_replica_batch_size, InputContext(2).get_per_replica_batch_size):
        with pytest.raises(ValueError, match="5 is not divisible by 2 replicas: use 4"):
            ask(5)


def test_datasets_from_a_function_give_each_replica_a_batch_in_turn() -> None:
    seen = []

    def make(context: InputContext) -> list[torch.Tensor]:
        seen.append(context)
        size = context.get_per_replica_batch_size(4)
        return list(torch.arange(6).split(size))

    data = two().distribute_datasets_from_function(make)
    assert [listed(parts) for parts in data] == [[[0, 1], [2, 3]], [[4, 5], []]]
    assert seen == [InputContext(num_replicas_in_sync=2)]


def test_values_from_a_function() -> None:
    def make(context: ValueContext) -> int:
        return context.replica_id_in_sync_group * 10 + context.num_replicas_in_sync

    value = two().distribute_values_from_function(make)
    assert two().local_results(value) == (2, 12)
    assert two().local_results(7) == (7,)
    assert MirroredStrategy("cpu").distribute_values_from_function(make) == 1


def test_run_hands_out_and_collects_structures() -> None:
    point = namedtuple("point", "x y")
    strategy = two()

    def body(pair: tuple[int, str], *, named: int) -> object:
        assert named == number()
        return {"pair": pair, "point": point(number(), [number()]), "none": None}

    result = strategy.run(body, ((PerReplica((1, 2)), "same"),), {"named": PerReplica((0, 1))})
    assert listed(result["pair"][0]) == [1, 2]
    assert listed(result["pair"][1]) == ["same", "same"]
    assert isinstance(result["point"], point)
    assert listed(result["point"].y[0]) == [0, 1]
    assert result["none"] is None
    assert MirroredStrategy("cpu").run(lambda: (1, [2])) == (1, [2])
    for bad in (lambda: [1] * number(), lambda: 1 if number() else [1], lambda: [{}, 1][number()]):
        with pytest.raises(ValueError, match="differ in structure"):
            strategy.run(bad)


def test_outside_of_a_replica_there_is_no_context() -> None:
    assert get_strategy() is None
    assert not in_cross_replica_context()
    with pytest.raises(RuntimeError, match="outside of a replica"):
        get_replica_context()
    strategy = two()
    with strategy.scope() as same:
        assert same is get_strategy() is strategy
        assert in_cross_replica_context()
        with pytest.raises(RuntimeError, match="outside of a replica"):
            get_replica_context()
        with strategy.scope():
            assert listed(strategy.run(number)) == [0, 1]
    assert get_strategy() is None


def test_mixing_strategies_is_refused() -> None:
    one, other = two(), MirroredStrategy("cpu:3")
    variable, model = other.variable(1.0), other.mirror(torch.nn.Linear(1, 1))
    optimizer = other.optimizer(model, lambda copy: torch.optim.SGD(copy.parameters()))
    with one.scope():
        for use in (
            lambda: other.run(number),
            lambda: other.scope().__enter__(),
            lambda: other.variable(1.0),
            lambda: other.reduce("sum", 1),
            variable.read,
            lambda: model(torch.ones(1)),
            optimizer.zero_grad,
        ):
            with pytest.raises(RuntimeError) as error:
                use()
            assert "Two strategies are mixed" in str(error.value)
            assert "MirroredStrategy(cpu, cpu, cpu)" in str(error.value)
            assert "MirroredStrategy(cpu, cpu) at" in str(error.value)
            assert "leave the scope" in str(error.value)
    for given in (variable, model, optimizer):
        with pytest.raises(RuntimeError, match="Make it with the strategy that uses it"):
            one.run(lambda value: value, (given,))
    with pytest.raises(RuntimeError, match="mixed: a variable of"):
        one.run(lambda: variable.assign(1.0))
    with pytest.raises(RuntimeError, match="mixed"):
        one.optimizer(model, lambda copy: torch.optim.SGD(copy.parameters()))


def test_values_of_another_number_of_replicas_are_refused() -> None:
    strategy, three = two(), PerReplica((1.0, 2.0, 3.0))
    variable = strategy.variable(0.0)
    for use in (
        lambda: strategy.run(number, (three,)),
        lambda: strategy.reduce("sum", three),
        lambda: strategy.gather([three]),
        lambda: variable.assign(three),
        lambda: MirroredStrategy("cpu").reduce("sum", three),
    ):
        with pytest.raises(RuntimeError, match="mixed: a value of 3 replicas is given to one of"):
            use()


def test_what_only_the_caller_of_replicas_can_do() -> None:
    strategy = two()
    for what in (
        lambda: strategy.run(number),
        lambda: strategy.scope().__enter__(),
        lambda: strategy.reduce("sum", PerReplica((1, 2))),
        lambda: strategy.variable(1.0),
    ):
        with pytest.raises(RuntimeError, match="is called in a replica"):
            strategy.run(what)
    with pytest.raises(RuntimeError, match="was called outside of a replica"):
        strategy.all_reduce_gradients([])


def test_average_loss_is_a_share_of_the_global_mean() -> None:
    strategy = MirroredStrategy("cpu:3")
    losses = PerReplica((torch.tensor([1.0, 2.0]), torch.tensor([6.0]), torch.zeros(0)))
    for size in (3, None):
        shares = strategy.run(compute_average_loss, (losses, size))
        assert strategy.reduce("sum", shares).item() == 3.0
    weighted = compute_average_loss(torch.ones(2), sample_weight=torch.tensor([1.0, 3.0]))
    assert weighted.item() == 2.0
    with pytest.raises(ValueError, match="not one per sample"):
        compute_average_loss(torch.tensor(1.0))
    with pytest.raises(ValueError, match="global batch size is 0"):
        compute_average_loss(torch.zeros(0))


def test_another_way_to_sum() -> None:
    calls = []

    def ring(tensors: object) -> None:
        calls.append(1)
        ring_allreduce(tensors)  # type: ignore[arg-type]

    strategy = MirroredStrategy("cpu:3", cross_device_ops=ring)
    model = strategy.mirror(torch.nn.Linear(2, 1))

    def body() -> list[list[float]]:
        (model(torch.full((1, 2), number() + 1.0))).sum().backward()
        strategy.all_reduce_gradients(model)
        return [p.grad.flatten().tolist() for p in model.parameters() if p.grad is not None]

    weight, bias = strategy.run(body)
    assert [listed(one) for one in weight] == [[6.0] * 3] * 2
    assert listed(bias[0]) == [3.0] * 3
    assert calls == [1]


@pytest.mark.parametrize(("value", "dtype"), [(True, torch.bool), (200, torch.uint8)])
def test_small_whole_numbers_neither_overflow_nor_are_words(value: int, dtype: torch.dtype) -> None:
    """True and True were True, and their mean 0.5; 200 and 200 were 144 in eight bits."""
    strategy = MirroredStrategy("cpu:2")

    def sums() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        one, here = torch.tensor([value], dtype=dtype), get_replica_context()
        return one, here.all_reduce("sum", one), here.all_reduce("mean", one)

    values, summed, mean = strategy.run(sums)
    assert strategy.reduce("sum", values).tolist() == [2 * value]
    assert strategy.reduce("mean", values).tolist() == [value]
    assert [one.tolist() for one in summed] == [[2 * value]] * 2
    assert [one.tolist() for one in mean] == [[value]] * 2
