"""Running statistics, and parts that stay shared or in eval mode, on several replicas."""

import copy
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from hpckit.parallel.mirrored import (
    Mirrored,
    MirroredOptimizer,
    MirroredStrategy,
)
from tests.parallel.trained import (
    OPTIMIZERS,
    alone,
    data,
    furthest,
    mirrored,
    one_loss,
)

pytestmark = pytest.mark.torch


def normalized() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()


def test_running_statistics_are_each_replicas_own_until_read() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"], normalized())
    strategy.fit(model, data(8, 8, torch.float64), nn.MSELoss(), optimizer)
    own = [module[1].running_mean.clone() for module in model.copies]  # type: ignore[index]
    assert not torch.equal(*own)
    assert torch.equal(model.state_dict()["1.running_mean"], (own[0] + own[1]) / 2)
    assert model.state_dict()["1.num_batches_tracked"].item() == 1
    assert torch.equal(model.copies[0][1].running_mean, own[0])  # type: ignore[index]
    model.sync_buffers()
    assert torch.equal(model.copies[1][1].running_mean, (own[0] + own[1]) / 2)  # type: ignore[index]


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("bias", [True, False])
def test_synchronised_statistics_are_those_of_one_device(
    replicas: int, momentum: float | None, bias: bool
) -> None:
    module, batches = normalized(), data(25, 8, torch.float64)  # the last has 1 sample
    module[1].momentum = momentum  # type: ignore[index]
    if not bias:
        module[1].bias = None  # type: ignore[index]
    batches[-1] = data(2, 2, torch.float64)[0]  # of which BatchNorm has a variance
    strategy, model, optimizer = mirrored(
        replicas, OPTIMIZERS["momentum"], module, sync_batch_norm=True
    )
    wanted, losses = alone(copy.deepcopy(module), batches, OPTIMIZERS["momentum"], 3)
    history = strategy.fit(model, batches, nn.MSELoss(), optimizer, 3)
    assert history["loss"] == pytest.approx(losses, rel=1e-11)
    assert furthest(model, wanted) < 1e-11
    state = model.state_dict()
    assert state.keys() == wanted.state_dict().keys()
    for name, value in wanted.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-11, atol=1e-11)
    found = strategy.evaluate(model, batches, nn.MSELoss())["loss"]
    assert found == pytest.approx(one_loss(wanted.eval(), batches), rel=1e-11)


def shared() -> nn.Sequential:
    """One BatchNorm in two places, and a weight that it shares with another one."""
    first, other = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    other.weight = first.weight
    linear = nn.Linear(5, 5)
    return nn.Sequential(linear, first, nn.Sequential(linear, first), other, nn.Linear(5, 1))


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_modules_in_several_places_stay_shared_when_synchronised(replicas: int) -> None:
    torch.manual_seed(0)
    module, batches = shared().double(), data(24, 8, torch.float64)
    strategy, model, optimizer = mirrored(
        replicas, OPTIMIZERS["momentum"], module, sync_batch_norm=True
    )
    wanted, losses = alone(copy.deepcopy(module), batches, OPTIMIZERS["momentum"], 3)
    history = strategy.fit(model, batches, nn.MSELoss(), optimizer, 3)
    assert history["loss"] == pytest.approx(losses, rel=1e-11)
    state = model.state_dict()
    assert state.keys() == wanted.state_dict().keys()
    for name, value in wanted.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-11, atol=1e-11)


def test_the_state_has_the_mean_of_buffers_under_each_name() -> None:
    strategy, model, optimizer = mirrored(2, OPTIMIZERS["sgd"], shared().double())
    strategy.fit(model, data(8, 8, torch.float64), nn.MSELoss(), optimizer)
    own = [copy[1].running_mean for copy in model.copies]  # type: ignore[index]
    state = model.state_dict()
    for name in ("1.running_mean", "2.1.running_mean"):
        assert torch.equal(state[name], (own[0] + own[1]) / 2), name


def replicated(
    strategy: MirroredStrategy,
    optim: Callable[[nn.Module], torch.optim.Optimizer],
    built: bool,
    *,
    kept_in_eval_mode: bool = False,
) -> tuple[Mirrored | nn.Module, MirroredOptimizer | torch.optim.Optimizer]:
    """Build a model in the scope, or mirror one; give it an optimizer."""
    with strategy.scope() if built else nullcontext():
        module = normalized()
    module[1].train(not kept_in_eval_mode)
    if built:
        return module, optim(module)
    model = strategy.mirror(module)
    return model, strategy.optimizer(model, optim)


@pytest.mark.parametrize("built", [False, True], ids=["mirrored", "built in scope"])
def test_parts_that_are_kept_in_eval_mode_stay_so(built: bool) -> None:
    strategy = MirroredStrategy("cpu:2")
    model, optimizer = replicated(strategy, OPTIMIZERS["sgd"], built, kept_in_eval_mode=True)
    copies = model.copies if isinstance(model, Mirrored) else (model,)
    batches = data(8, 4, torch.float64)
    strategy.fit(model, batches, nn.MSELoss(), optimizer, 2, validation_data=batches)
    strategy.predict(model, [batches[0][0]])
    for one in copies:
        assert [part.training for part in one.children()] == [True, False, True]
        assert not one[1].running_mean.any()  # type: ignore[index]


@pytest.mark.parametrize("epochs", [(2,), (1, 1)], ids=["at once", "evaluated between"])
@pytest.mark.parametrize("built", [False, True], ids=["mirrored", "built in scope"])
def test_statistics_are_of_the_replicas_that_had_samples(
    built: bool, epochs: tuple[int, ...]
) -> None:
    """Four samples over three replicas: two, two and none. Means are then those of one device."""

    def still(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), 0.0)

    batches = data(16, 4, torch.float64)
    wanted, _ = alone(normalized(), batches, still, 2)
    strategy = MirroredStrategy("cpu:3")
    model, optimizer = replicated(strategy, still, built)
    for some in epochs:
        strategy.fit(model, batches, nn.MSELoss(), optimizer, some)
        strategy.evaluate(model, batches, nn.MSELoss())
    found, mean = model.state_dict(), "1.running_mean"
    torch.testing.assert_close(found[mean], wanted.state_dict()[mean], rtol=1e-11, atol=1e-11)


def test_synchronised_statistics_alone_or_of_one_value() -> None:
    strategy, model, optimizer = mirrored(
        2, OPTIMIZERS["sgd"], nn.BatchNorm1d(5), sync_batch_norm=True
    )
    with pytest.raises(ValueError, match="cannot train on 1 value per channel"):
        strategy.fit(model, [(torch.ones(1, 5), torch.ones(1, 5))], nn.MSELoss(), optimizer)
    images = nn.BatchNorm2d(3, affine=False, track_running_stats=False)
    strategy, model, _ = mirrored(
        2, lambda _: torch.optim.SGD([nn.Parameter(torch.ones(1))]), images, sync_batch_norm=True
    )
    made = torch.randn(3, 3, 4, 4)
    (parts,) = strategy.distribute_dataset([made.bfloat16()])
    together = strategy.gather(strategy.run(model, (parts,)))
    torch.testing.assert_close(together, images(made.bfloat16()), rtol=0.02, atol=0.02)
