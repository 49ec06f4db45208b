"""Training, evaluation and prediction on global batches, the same for any number of replicas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from hpckit.parallel.mirrored.context import get_replica_context
from hpckit.parallel.mirrored.data import DistributedDataset, samples
from hpckit.parallel.mirrored.gradients import MirroredOptimizer
from hpckit.parallel.mirrored.losses import Loss, mean_of_samples, refuse_sum
from hpckit.parallel.mirrored.model import Mirrored
from hpckit.parallel.mirrored.values import Tree, leaves, local_results, map_tree

if TYPE_CHECKING:  # the strategy offers what is here
    from hpckit.parallel.mirrored.strategy import MirroredStrategy

History = dict[str, list[float]]


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

    def read(self) -> dict[str, float]:
        """Return the means so far."""
        return {name: float(value / self._samples) for name, value in self._sums.items()}


@dataclass
class Progress:
    """How far training is; callbacks get it. Set `stop` to end after the current epoch or step.

    `epoch` and `batch` (in the epoch) count from 0, `step` over all epochs from 1.
    """

    model: Mirrored
    optimizer: MirroredOptimizer
    epochs: int
    epoch: int = 0
    batch: int = 0
    step: int = 0
    stop: bool = False
    history: History = field(default_factory=dict)
    means: Means = field(default_factory=Means)

    @property
    def logs(self) -> dict[str, float]:
        """The means of this epoch so far; reading them waits for the device."""
        return self.means.read()


class Callback:
    """What training calls; each does nothing until a subclass says what."""

    def on_train_begin(self, progress: Progress) -> None:
        """Before the first epoch."""

    def on_epoch_begin(self, progress: Progress) -> None:
        """Before an epoch."""

    def on_batch_end(self, progress: Progress) -> None:
        """After a step."""

    def on_epoch_end(self, progress: Progress) -> None:
        """After an epoch, when its values are in the history."""

    def on_train_end(self, progress: Progress) -> None:
        """After the last epoch, also if stopped; not after an error."""


@dataclass
class Fitting:
    """One call of `fit`."""

    strategy: "MirroredStrategy"
    model: Mirrored
    optimizer: MirroredOptimizer
    loss: Loss
    metrics: dict[str, Loss]

    def run(
        self,
        batches: Iterable[Tree],
        epochs: int,
        validation: Iterable[Tree] | None,
        callbacks: Sequence[Callback],
    ) -> History:
        """Train; return the history."""
        progress = Progress(self.model, self.optimizer, epochs)
        measures = {"loss": self.loss, **self.metrics}
        for name, measure in measures.items():
            refuse_sum(name, measure)
        data = _distributed(self.strategy, batches)
        _tell(callbacks, "on_train_begin", progress)
        while progress.epoch < epochs and not progress.stop:
            self._epoch(data, progress, callbacks)
            found = progress.logs
            if validation is not None:
                measured = evaluate(self.strategy, self.model, validation, measures)
                found |= {f"val_{name}": value for name, value in measured.items()}
            for name, value in found.items():
                progress.history.setdefault(name, []).append(value)
            _tell(callbacks, "on_epoch_end", progress)
            progress.epoch += 1
        _tell(callbacks, "on_train_end", progress)
        return progress.history

    def _epoch(
        self, data: DistributedDataset, progress: Progress, callbacks: Sequence[Callback]
    ) -> None:
        progress.means = Means()
        _tell(callbacks, "on_epoch_begin", progress)
        steps = progress.step
        with _mode(self.model, training=True):
            for progress.batch, batch in enumerate(data):
                progress.means.add(*_summed(self.strategy, self._step, batch))
                progress.step += 1
                _tell(callbacks, "on_batch_end", progress)
                if progress.stop:
                    break
        if progress.step == steps:
            raise ValueError(
                f"There is no batch in epoch {progress.epoch + 1}. A generator can be read only "
                "once: give a list or a DataLoader."
            )

    def _step(self, batch: Tree) -> tuple[dict[str, torch.Tensor], int]:
        """Train one step, in each replica; return the sums of its measures, and its samples."""
        inputs, targets, count = _pair(batch)
        self.optimizer.zero_grad()
        sums = _zeros(("loss", *self.metrics))
        # Where gradients cross over in the backward pass, losses must be weighed before it.
        synced = self.model.synced
        share = count / _total(count) if synced else 1.0
        if synced and not count:
            outputs = leaves(self.model(inputs))
            torch.autograd.backward([output.sum() for output in outputs])
        if count:
            predictions = self.model(inputs)
            loss = mean_of_samples(self.loss, predictions, targets, count)
            torch.autograd.backward(loss * share)
            with torch.no_grad():
                sums["loss"] = loss.detach().double() * count
                sums |= _sums(self.metrics, predictions, targets, count)
        self.optimizer.step(samples=None if synced else count)
        return sums, count


def evaluate(
    strategy: "MirroredStrategy",
    model: Mirrored,
    batches: Iterable[Tree],
    measures: Mapping[str, Loss],
) -> dict[str, float]:
    """Return the mean over all samples of each measure."""
    for name, measure in measures.items():
        refuse_sum(name, measure)

    def step(batch: Tree) -> tuple[dict[str, torch.Tensor], int]:
        inputs, targets, count = _pair(batch)
        if not count:
            return _zeros(measures), 0
        return _sums(measures, model(inputs), targets, count), count

    means, found = Means(), False
    with torch.no_grad(), _mode(model, training=False):
        for batch in _distributed(strategy, batches):
            means.add(*_summed(strategy, step, batch))
            found = True
    if not found:
        raise ValueError("There is no batch to evaluate on.")
    return means.read()


@dataclass(frozen=True, slots=True)
class _Output:
    """What a replica predicts; a leaf, since who has no samples has no tree to give."""

    tree: Tree
    samples: int


def predict(strategy: "MirroredStrategy", model: Mirrored, batches: Iterable[Tree]) -> Tree:
    """Return the predictions of all samples, in order, on the CPU."""

    def step(batch: Tree) -> _Output:
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        count = samples(inputs)
        tree = map_tree(lambda leaf: leaf.cpu(), model(inputs)) if count else None
        return _Output(tree, count)

    outputs: list[_Output] = []
    with torch.no_grad(), _mode(model, training=False):
        for batch in _distributed(strategy, batches):
            outputs += local_results(strategy.run(step, (batch,)))
    trees = [output.tree for output in outputs if output.samples]
    if not trees:
        raise ValueError("There is no sample to predict from.")
    return map_tree(lambda *parts: torch.cat(parts), *trees)


@contextmanager
def _mode(model: Mirrored, *, training: bool) -> Iterator[None]:
    """Have a model in a mode; to evaluate, all copies have the same buffers."""
    before = model.training
    if not training:
        model.sync_buffers()
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


def _summed(
    strategy: "MirroredStrategy", step: Loss | object, batch: Tree
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Run a step on all replicas; return the sums and the number of samples of all."""
    result: tuple[dict[str, torch.Tensor], torch.Tensor] = strategy.reduce(
        "sum",
        strategy.run(step, (batch,)),  # type: ignore[arg-type]
    )
    return result


def _sums(
    measures: Mapping[str, Loss], predictions: object, targets: object, count: int
) -> dict[str, torch.Tensor]:
    return {
        name: mean_of_samples(measure, predictions, targets, count).double() * count
        for name, measure in measures.items()
    }


def _zeros(names: Iterable[str]) -> dict[str, torch.Tensor]:
    zero = torch.zeros((), dtype=torch.float64, device=get_replica_context().device)
    return dict.fromkeys(names, zero)


def _total(count: int) -> int:
    return int(get_replica_context().all_reduce("sum", count))


def _pair(batch: Tree) -> tuple[Tree, Tree, int]:
    """Return a replica's inputs, targets and number of samples.

    Raises:
        ValueError: a batch is no pair.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"A batch must be (inputs, targets), not a {type(batch).__name__}.")
    return batch[0], batch[1], samples(batch)


def _distributed(strategy: "MirroredStrategy", batches: Iterable[Tree]) -> DistributedDataset:
    if isinstance(batches, DistributedDataset):
        return batches
    return strategy.distribute_dataset(batches)


def _tell(callbacks: Sequence[Callback], what: str, progress: Progress) -> None:
    for callback in callbacks:
        getattr(callback, what)(progress)
