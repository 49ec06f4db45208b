"""Data parallelism from scratch, with plain tensors: what DistributedDataParallel does inside.

After chapter 13.5 of "Dive into Deep Learning" (d2l.ai), where replicas are lists of parameters.
Each replica computes the gradient of the sum of its samples' losses; these are added up over
replicas; and each updates its own parameters by the same step. With replicas of unequal parts, also
empty ones, this is exact, since sums need no weights.
"""

from collections.abc import Callable, Sequence

import torch

from hpckit.parallel.sharing import split_batch

Parameters = list[torch.Tensor]
Reduce = Callable[[Sequence[torch.Tensor]], None]
Model = Callable[[torch.Tensor, Parameters], torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def copy_params(parameters: Sequence[torch.Tensor], device: torch.device | str) -> Parameters:
    """Return copies on a device that gradients can be taken of; they never share memory.

    `tensor.to(device)` alone returns the same tensor where it is there already, and two replicas
    would be one.
    """
    return [
        parameter.detach().to(device, copy=True).requires_grad_(parameter.is_floating_point())
        for parameter in parameters
    ]


def allreduce(tensors: Sequence[torch.Tensor]) -> None:
    """Replace each tensor by the sum of all: added up on the first's device, then copied back.

    The first device receives and sends everything: 2 (n - 1) times the data through one link.
    """
    _check_shapes(tensors)
    total = tensors[0]
    for tensor in tensors[1:]:
        total += tensor.to(total.device)
    for tensor in tensors[1:]:
        tensor.copy_(total)


def ring_allreduce(tensors: Sequence[torch.Tensor]) -> None:
    """Replace each tensor by the sum of all, passing parts round a ring.

    Each of n devices sends 2 (n - 1) / n times the data to its neighbour, whatever n is: first each
    part is added up on its way round, then the sums go round once more (Patarasuk and Yuan 2009).
    """
    _check_shapes(tensors)
    count = len(tensors)
    # Flat copies where memory is not contiguous, written back at the end.
    flat = [tensor.reshape(-1) for tensor in tensors]
    parts = [list(tensor.tensor_split(count)) for tensor in flat]
    for step in range(count - 1):
        moving = [parts[at][(at - step) % count].clone() for at in range(count)]
        for at in range(count):
            here = parts[at][(at - 1 - step) % count]
            here += moving[at - 1].to(here.device)
    for step in range(count - 1):
        moving = [parts[at][(at + 1 - step) % count].clone() for at in range(count)]
        for at in range(count):
            parts[at][(at - step) % count].copy_(moving[at - 1])
    for tensor, whole in zip(tensors, flat, strict=True):
        if whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole.view_as(tensor))


def train_batch(
    inputs: torch.Tensor,
    targets: torch.Tensor,
    replicas: Sequence[Parameters],
    model: Model,
    loss: Loss,
    learning_rate: float,
    *,
    reduce: Reduce = allreduce,
) -> float:
    """Train one step of SGD on a batch split over replicas; return the mean loss.

    Args:
        inputs: samples first.
        targets: one for each input.
        replicas: the parameters of each; all have the same values before and after.
        model: gives predictions of inputs and parameters.
        loss: gives one loss per sample, or several of each (`reduction="none"`), to be added up.
        learning_rate: of the mean loss over the whole batch.
        reduce: makes each of several tensors their sum.

    Raises:
        ValueError: there is no sample, not as many targets as inputs, or not a loss for each.
    """
    if not len(inputs):
        raise ValueError("The batch is empty: there is nothing to train on.")
    devices = [parameters[0].device for parameters in replicas]
    losses = [
        _of_each(loss(model(part, parameters), wanted), len(part)).sum()
        for part, wanted, parameters in zip(
            *split_batch(inputs, targets, devices), replicas, strict=True
        )
    ]
    torch.autograd.backward(losses)  # one call: each device has a thread of its own in it
    with torch.no_grad():
        for same in zip(*replicas, strict=True):
            reduce([_gradient(parameter) for parameter in same])
        for parameters in replicas:
            for parameter in parameters:
                parameter -= learning_rate / len(inputs) * _gradient(parameter)
                parameter.grad = None
    return sum(value.item() for value in losses) / len(inputs)


def _of_each(losses: torch.Tensor, samples: int) -> torch.Tensor:
    """Refuse a mean: divided by the samples once more, it would train by far too small steps.

    Raises:
        ValueError: there is not one loss for each sample, or as many more for each.
    """
    # Of texts, those of all words may stand in one row.
    if not losses.dim() or len(losses) % max(samples, 1):
        raise ValueError(
            f"The loss of {samples} samples has shape {tuple(losses.shape)}: give a loss with "
            'reduction="none", which has one value for each sample.'
        )
    return losses


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Return a parameter's gradient; of one that a replica did not use, 0."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _check_shapes(tensors: Sequence[torch.Tensor]) -> None:
    if not tensors:
        raise ValueError("There is no tensor to add up.")
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise ValueError(f"Tensors to add up differ in shape: {sorted(shapes)}.")
