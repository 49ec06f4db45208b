"""The functions of "Dive into Deep Learning" (d2l.ai), 13.3 and 13.5, by its names and orders.

What its notebooks have as globals, the network and the loss, are arguments here, with the book's
as the default. They are `hpckit.parallel.scratch`, `sharing` and `benchmark` under other names.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from hpckit.parallel import benchmark
from hpckit.parallel.scratch import Loss, Model, Parameters, allreduce, copy_params
from hpckit.parallel.scratch import train_batch as train_on_replicas
from hpckit.parallel.sharing import split_batch

__all__ = [
    "BenchMark", "Benchmark", "allreduce", "copy_params", "get_params", "lenet", "split_batch",
    "train_batch",
]  # fmt: skip

get_params = copy_params  # (params, device); the chapter has both names


class Benchmark(benchmark.Benchmark):
    """Prints its text and how long a `with` block took, which waits for no device by itself.

    `hpckit.parallel.benchmark.Benchmark` waits for the devices that it is given.
    """

    def __init__(self, description: str = "Done") -> None:
        super().__init__(name=description)


BenchMark = Benchmark  # as courses that follow the book spell it


def lenet(X: torch.Tensor, params: Sequence[torch.Tensor]) -> torch.Tensor:  # noqa: N803
    """Return the scores of a small LeNet.

    Args:
        X: images of shape (samples, 1, 28, 28).
        params: weight and bias of two convolutions and two linear layers, these as (in, out).
    """
    first, first_bias, second, second_bias, third, third_bias, last, last_bias = params
    hidden = functional.relu(functional.conv2d(X, first, first_bias))
    hidden = functional.relu(
        functional.conv2d(functional.avg_pool2d(hidden, 2), second, second_bias)
    )
    hidden = functional.avg_pool2d(functional.relu(hidden), 2).flatten(1)
    return functional.relu(hidden @ third + third_bias) @ last + last_bias


def cross_entropy(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the loss of each sample."""
    return functional.cross_entropy(scores, y, reduction="none")


def train_batch(
    X: torch.Tensor,  # noqa: N803
    y: torch.Tensor,
    device_params: Sequence[Parameters],
    devices: Sequence[torch.device | str],
    lr: float,
    *,
    net: Model = lenet,
    loss: Loss = cross_entropy,
) -> float:
    """Train one step on a batch split over devices; return the mean loss.

    Args:
        X: samples first.
        y: one target for each.
        device_params: the parameters on each device, as `get_params` returns them.
        devices: of `device_params`, in their order.
        lr: learning rate, of the mean loss over the whole batch.
        net: gives predictions of samples and parameters.
        loss: gives one loss per sample.

    Raises:
        ValueError: the parameters are not on the devices, or the batch is empty or no pair.
    """
    own = [params[0].device for params in device_params]
    if own != [torch.empty(0, device=device).device for device in devices]:
        raise ValueError(
            f"Parameters are on {', '.join(map(str, own))}, not on the devices "
            f"{', '.join(map(str, devices))}: make them by get_params(params, device) for each."
        )
    return train_on_replicas(X, y, device_params, net, loss, lr)
