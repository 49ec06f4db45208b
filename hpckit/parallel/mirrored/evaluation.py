"""Means of losses and metrics over global batches, and predictions: nothing is trained."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from hpckit.parallel.mirrored.context import Strategy, get_replica_context, refuse_replica
from hpckit.parallel.mirrored.data import DistributedDataset, SplitDataset, samples
from hpckit.parallel.mirrored.measures import Loss, mean_of_samples, refuse_sum
from hpckit.parallel.mirrored.mirrored_model import Mirrored
from hpckit.parallel.mirrored.per_replica import Tree, local_results, map_tree
from hpckit.parallel.sharing import has_samples


class Means:
    """Means over samples, whose sums stay on the device until they are read."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._samples: torch.Tensor | int = 0

    def add(self, sums: Mapping[str, torch.Tensor], count: torch.Tensor) -> None:
        """Add the sums over some samples."""
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._samples = self._samples + count

    @property
    def samples(self) -> int:
        """How many samples there are so far."""
        return int(self._samples)

    def read(self) -> dict[str, float]:
        """Return the means so far."""
        return {name: float(value / self._samples) for name, value in self._sums.items()}


def evaluate(
    strategy: Strategy,
    model: Mirrored | nn.Module,
    batches: Iterable[Tree],
    measures: Mapping[str, Loss],
) -> dict[str, float]:
    """Return the mean over all samples of each measure."""
    for name, measure in measures.items():
        refuse_sum(name, measure)

    def step(batch: Tree) -> tuple[dict[str, torch.Tensor], int]:
        inputs, targets, count = pair(batch)
        if not count:
            return zeros(measures), 0
        return sums_of(measures, model(inputs), targets, count), count

    means = Means()
    with torch.no_grad(), in_mode(model, training=False):
        for batch in distributed(strategy, batches):
            means.add(*run_summed(strategy, step, batch))
    if not means.samples:
        raise ValueError("There is no sample to evaluate on.")
    return means.read()


@dataclass(frozen=True, slots=True)
class _Output:
    """What a replica predicts; a leaf, since who has no samples has no tree to give."""

    tree: Tree
    samples: int


def predict(strategy: Strategy, model: Mirrored | nn.Module, batches: Iterable[Tree]) -> Tree:
    """Return the predictions of all samples, in order, on the CPU."""

    def step(batch: Tree) -> _Output:
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        count = samples(inputs)
        tree = map_tree(_on_cpu, model(inputs)) if count else None
        return _Output(tree, count)

    outputs: list[_Output] = []
    with torch.no_grad(), in_mode(model, training=False):
        for batch in distributed(strategy, batches):
            outputs += local_results(strategy.run(step, (batch,)))
    trees = [output.tree for output in outputs if output.samples]
    if not trees:
        raise ValueError("There is no sample to predict from.")
    return map_tree(_joined, *trees)


def _on_cpu(leaf: Tree) -> Tree:
    return leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf


def _joined(*parts: Tree) -> Tree:
    """Return one leaf of the predictions of all samples: tensors joined, or what is no tensor.

    Raises:
        TypeError: it has no axis of samples.
    """
    if all(has_samples(part) for part in parts):
        return torch.cat(parts)
    if all(part is None or isinstance(part, str | bool) for part in parts) and len(set(parts)) == 1:
        return parts[0]
    kinds = ", ".join(dict.fromkeys(_kind(part) for part in parts))
    raise TypeError(
        f"Predictions cannot be joined of {kinds}: return tensors with samples along axis 0, or "
        "tuples, lists and dicts of them."
    )


def _kind(part: Tree) -> str:
    if isinstance(part, torch.Tensor):
        return f"tensors of shape {tuple(part.shape)}"
    return type(part).__name__


@contextmanager
def in_mode(model: Mirrored | nn.Module, *, training: bool) -> Iterator[None]:
    """Have a model in a mode, then as it was; to evaluate, all copies have the same buffers.

    Where it is in that mode already, parts of it that are not stay so: BatchNorm that is kept in
    eval mode, for example.
    """
    copies = model.copies if isinstance(model, Mirrored) else (model,)
    before = [(module, module.training) for one in copies for module in one.modules()]
    if not training and isinstance(model, Mirrored):
        model.sync_buffers()
    if model.training != training:
        model.train(training)
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


def run_summed(
    strategy: Strategy, step: Callable[..., Tree], batch: Tree
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Run a step on all replicas; return the sums and the number of samples of all."""
    result: tuple[dict[str, torch.Tensor], torch.Tensor] = strategy.reduce(
        "sum",
        strategy.run(step, (batch,)),
    )
    return result


def sums_of(
    measures: Mapping[str, Loss], predictions: object, targets: object, count: int
) -> dict[str, torch.Tensor]:
    """Return the sum over a replica's samples of each measure."""
    return {
        name: mean_of_samples(measure, predictions, targets, count).double() * count
        for name, measure in measures.items()
    }


def zeros(names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Return the sums of a replica that has no samples."""
    zero = torch.zeros((), dtype=torch.float64, device=get_replica_context().device)
    return dict.fromkeys(names, zero)


def pair(batch: Tree) -> tuple[Tree, Tree, int]:
    """Return a replica's inputs, targets and number of samples.

    Raises:
        ValueError: a batch is no pair.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(
            f"A batch must be (inputs, targets), not a {type(batch).__name__}; for one batch give "
            "[(inputs, targets)]."
        )
    return batch[0], batch[1], samples(batch)


def distributed(strategy: Strategy, batches: Iterable[Tree]) -> DistributedDataset:
    """Return global batches in parts, if they are not already.

    Raises:
        TypeError: they are one batch, or none.
    """
    if isinstance(batches, DistributedDataset):
        return batches
    # Datasets of torch, and Keras's sequences, are read by number until there is no more.
    given: object = batches
    read = isinstance(given, Iterable) or hasattr(type(given), "__getitem__")
    if isinstance(given, torch.Tensor) or not read:
        raise TypeError(
            f"The batches are a {type(batches).__name__}: give a list of them, as [batch], or a "
            "DataLoader."
        )
    refuse_replica(strategy, "distribute_dataset()")
    return SplitDataset(batches, strategy.replicas)
