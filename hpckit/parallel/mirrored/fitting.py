"""Keras's `fit`, `evaluate` and `predict`: the same for any number of replicas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from hpckit.parallel.given import whole
from hpckit.parallel.mirrored import evaluation
from hpckit.parallel.mirrored.context import Strategy, check_own, get_replica_context
from hpckit.parallel.mirrored.data import DistributedDataset
from hpckit.parallel.mirrored.evaluation import (
    Means,
    distributed,
    in_mode,
    pair,
    run_summed,
    sums_of,
    zeros,
)
from hpckit.parallel.mirrored.gradients import MirroredOptimizer
from hpckit.parallel.mirrored.measures import (
    Loss,
    Metrics,
    mean_of_samples,
    measures_of,
    refuse_sum,
)
from hpckit.parallel.mirrored.mirrored_model import Mirrored
from hpckit.parallel.mirrored.per_replica import Tree, leaves

History = dict[str, list[float]]


@dataclass
class Progress:
    """How far training is; callbacks get it. Set `stop` to end after the current epoch or step.

    `epoch` and `batch` (in the epoch) count from 0, `step` over all epochs from 1.
    """

    model: Mirrored | nn.Module
    optimizer: MirroredOptimizer | torch.optim.Optimizer
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


_CALLED = [name for name in vars(Callback) if name.startswith("on_")]


class KerasMethods(Strategy):
    """A strategy that trains, evaluates and predicts by itself."""

    def fit(
        self,
        model: Mirrored | nn.Module,
        batches: Iterable[Tree],
        loss: Loss,
        optimizer: MirroredOptimizer | torch.optim.Optimizer,
        epochs: int = 1,
        *,
        metrics: Metrics = None,
        validation_data: Iterable[Tree] | None = None,
        validation: Iterable[Tree] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> dict[str, list[float]]:
        """Train on global batches of (inputs, targets); return the history, a value per epoch.

        Args:
            model: built in `scope()`, or what `mirror` returned.
            batches: read once per epoch; tensors, samples first.
            loss: of predictions and targets, one value per sample (`reduction="none"`) or the mean
                over samples.
            optimizer: torch's, of a model built in `scope()`; else what `optimizer` returned.
            epochs: how many.
            metrics: more values by name, each as `loss` is; or a list of names, of `accuracy` (the
                largest score is that of the class), `mse` and `mae`, and of functions.
            validation_data: global batches to evaluate on after each epoch, as `val_loss` and so
                on.
            validation: the same, by its first name.
            callbacks: called in the caller's thread, between steps.

        Raises:
            ValueError: an epoch has no batch, the loss is a sum, a metric is not known, two have
                one name, or epochs is not a whole number.
            TypeError: the model has no copies, or the optimizer or a callback is not of its kind.
        """
        _check_model(self, model)
        _check_optimizer(self, model, optimizer)
        training = _Fitting(self, model, optimizer, measures_of(loss, metrics))
        held_out = validation if validation_data is None else validation_data
        return training.run(batches, epochs, held_out, callbacks)

    def evaluate(
        self,
        model: Mirrored | nn.Module,
        batches: Iterable[Tree],
        loss: Loss,
        *,
        metrics: Metrics = None,
    ) -> dict[str, float]:
        """Return the mean over all samples of the loss, and of each metric; nothing is trained."""
        _check_model(self, model)
        return evaluation.evaluate(self, model, batches, measures_of(loss, metrics))

    def predict(self, model: Mirrored | nn.Module, batches: Iterable[Tree]) -> Tree:
        """Return the predictions of all samples, in order, on the CPU.

        Args:
            model: built in `scope()`, or what `mirror` returned.
            batches: inputs, or (inputs, targets), of which targets are left aside.
        """
        _check_model(self, model)
        return evaluation.predict(self, model, batches)


@dataclass
class _Fitting:
    """One call of `fit`."""

    strategy: Strategy
    model: Mirrored | nn.Module
    optimizer: MirroredOptimizer | torch.optim.Optimizer
    measures: dict[str, Loss]

    def run(
        self,
        batches: Iterable[Tree],
        epochs: int,
        validation: Iterable[Tree] | None,
        callbacks: Sequence[Callback],
    ) -> History:
        """Train; return the history."""
        progress = Progress(self.model, self.optimizer, epochs)
        for name, measure in self.measures.items():
            refuse_sum(name, measure)
        callbacks = _checked(epochs, callbacks)
        data = distributed(self.strategy, batches)
        _tell(callbacks, "on_train_begin", progress)
        while progress.epoch < epochs and not progress.stop:
            self._epoch(data, progress, callbacks)
            found = progress.logs
            if validation is not None:
                measured = evaluation.evaluate(self.strategy, self.model, validation, self.measures)
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
        with in_mode(self.model, training=True):
            for progress.batch, batch in enumerate(data):
                progress.means.add(*run_summed(self.strategy, self._step, batch))
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
        inputs, targets, count = pair(batch)
        self.optimizer.zero_grad()
        sums = zeros(self.measures)
        mirrored = isinstance(self.optimizer, MirroredOptimizer)
        synced = isinstance(self.model, Mirrored) and self.model.synced
        # Where gradients cross over in the backward pass, losses must be weighed before it; and
        # where an optimizer of torch steps for all, which knows no samples.
        share = 1.0 if mirrored and not synced else count / _total(count)
        if synced and not count:
            outputs = leaves(self.model(inputs))
            torch.autograd.backward([output.sum() for output in outputs])
        if count:
            predictions = self.model(inputs)
            loss = mean_of_samples(self.measures["loss"], predictions, targets, count)
            torch.autograd.backward(loss * share)
            with torch.no_grad():
                sums["loss"] = loss.detach().double() * count
                others = {name: one for name, one in self.measures.items() if name != "loss"}
                sums |= sums_of(others, predictions, targets, count)
        if isinstance(self.optimizer, MirroredOptimizer):
            self.optimizer.step(samples=None if synced else count)
        else:
            self.optimizer.step()
        return sums, count


def _check_model(strategy: Strategy, model: object) -> None:
    """Refuse a model that has no copy on each replica.

    Raises:
        TypeError: it is neither mirrored nor built in the strategy's scope.
        RuntimeError: it is another strategy's.
    """
    check_own(strategy, model)
    if not isinstance(model, Mirrored) and model not in strategy.built:
        raise TypeError(
            f"A {type(model).__name__} has no copy on each replica: build the model in "
            "`with strategy.scope():`, or give what strategy.mirror(model) returns."
        )


def _check_optimizer(strategy: Strategy, model: object, optimizer: object) -> None:
    """Refuse an optimizer that is not of a model's kind.

    Raises:
        TypeError: it is not.
        RuntimeError: it is another strategy's.
    """
    check_own(strategy, optimizer)
    mirrored = isinstance(model, Mirrored)
    wanted = MirroredOptimizer if mirrored else torch.optim.Optimizer
    if isinstance(optimizer, wanted):
        return
    given = repr(optimizer) if isinstance(optimizer, str) else f"a {type(optimizer).__name__}"
    needed = (
        "strategy.optimizer(model, lambda copy: torch.optim.SGD(copy.parameters(), lr=0.1)), which "
        "has one for each replica"
        if mirrored
        else "an optimizer of torch, such as torch.optim.SGD(model.parameters(), lr=0.1)"
    )
    raise TypeError(f"The optimizer is {given}; this model needs {needed}.")


def _checked(epochs: object, callbacks: object) -> tuple[Callback, ...]:
    """Return callbacks, which any object with their methods is; refuse epochs that are none.

    Raises:
        ValueError: the epochs are not a whole number.
        TypeError: the callbacks are not a list of them.
    """
    count = whole(epochs)
    if count is None or count < 0:
        raise ValueError(f"epochs is {epochs!r}: give a whole number, 0 or more.")
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        given = type(callbacks).__name__
        raise TypeError(f"callbacks is a {given}: give a list, as callbacks=[callback].")
    found = tuple(callbacks)
    for one in found:
        has_all = all(callable(getattr(one, name, None)) for name in _CALLED)
        if isinstance(one, type) or not has_all:
            raise TypeError(
                f"{one!r} is not a callback: write a subclass of hpckit.parallel.mirrored.Callback,"
                " and give an object of it."
            )
    return found


def _tell(callbacks: Sequence[Callback], what: str, progress: Progress) -> None:
    for callback in callbacks:
        getattr(callback, what)(progress)


def _total(count: int) -> int:
    """Return the samples of all replicas.

    Raises:
        ValueError: there is none.
    """
    total = int(get_replica_context().all_reduce("sum", count))
    if not total:
        raise ValueError("No replica has a sample, so there is no mean: give a batch with samples.")
    return total
