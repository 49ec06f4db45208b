"""Variables with one value per replica: kept equal when written, or reduced when read."""

from collections.abc import Callable
from typing import TypeVar

import torch

from hpckit.parallel.mirrored import collectives
from hpckit.parallel.mirrored.context import OfOneStrategy, ReplicaContext, Strategy, replica_of
from hpckit.parallel.mirrored.per_replica import ReduceOp, Tree, values_of
from hpckit.parallel.older_python import StrEnum

Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Word = TypeVar("_Word", "Aggregation", "Sync")


class Aggregation(StrEnum):
    """How the values of replicas become one when a variable is written or read."""

    NONE = "none"
    SUM = "sum"
    MEAN = "mean"
    ONLY_FIRST_REPLICA = "only_first_replica"


class Sync(StrEnum):
    """When the values of replicas become one."""

    ON_WRITE = "on_write"
    ON_READ = "on_read"


class MirroredVariable(OfOneStrategy):
    """A tensor for each replica, with one initial value; they never share memory.

    On write: what replicas assign is aggregated, and all hold the result. With NONE each keeps what
    it assigned. On read: replicas assign to their own, and who reads outside of them gets these
    aggregated.
    """

    def __init__(
        self,
        strategy: Strategy,
        initial: Tree,
        *,
        aggregation: str = Aggregation.NONE,
        sync: str = Sync.ON_WRITE,
        trainable: bool | None = None,
    ) -> None:
        self.strategy = strategy
        self.aggregation = _word(Aggregation, "aggregation", aggregation)
        self.sync = _word(Sync, "sync", sync)
        if trainable is None:
            trainable = self.sync == Sync.ON_WRITE
        first = _tensor(initial() if callable(initial) else initial).detach()
        self.trainable = trainable and (first.is_floating_point() or first.is_complex())
        self.values = tuple(
            first.to(replica.device, copy=True).requires_grad_(self.trainable)
            for replica in strategy.replicas
        )

    def __repr__(self) -> str:
        values = ", ".join(str(value.tolist()) for value in self.values)
        return f"MirroredVariable({values}; {self.sync}, {self.aggregation})"

    def read(self) -> torch.Tensor:
        """Return this replica's tensor itself; outside of replicas, the first or the aggregate.

        Raises:
            ValueError: the variable is on read, and has no aggregation.
        """
        context = self._context()
        if context is not None:
            return self.values[context.replica.number]
        if self.sync == Sync.ON_WRITE or self.aggregation == Aggregation.ONLY_FIRST_REPLICA:
            return self.values[0]
        if self.aggregation == Aggregation.NONE:
            raise ValueError(
                "A variable synchronised on read without an aggregation has no value outside of "
                "replicas: create it with aggregation='sum', 'mean' or 'only_first_replica'."
            )
        with torch.no_grad():
            return collectives.total(
                ReduceOp(self.aggregation), self.values, self.values[0].device
            ).to(self.values[0].dtype)

    def assign(self, value: Tree) -> None:
        """Set the value. Outside of replicas: of all, from one value or a PerReplica.

        There, a variable that is summed on read is set to equal shares of the value.

        Raises:
            ValueError: it has another shape than the variable, and is not one number.
            TypeError: it is not a tensor, a number or a list of numbers.
        """
        self._write(value, lambda tensor, new: tensor.copy_(new))

    def assign_add(self, value: Tree) -> None:
        """Add to the value; what replicas add is aggregated first.

        Raises:
            ValueError: the variable is summed on read, and no replica calls.
        """
        self._refuse_sum("assign_add")
        self._write(value, lambda tensor, new: tensor.add_(new))

    def assign_sub(self, value: Tree) -> None:
        """Subtract from the value; what replicas subtract is aggregated first.

        Raises:
            ValueError: the variable is summed on read, and no replica calls.
        """
        self._refuse_sum("assign_sub")
        self._write(value, lambda tensor, new: tensor.sub_(new))

    def _write(self, value: Tree, change: Change) -> None:
        context = self._context()
        with torch.no_grad():
            if context is not None:
                mine = self.values[context.replica.number]
                change(mine, _like(mine, self._aggregated(context, value)))
                return
            if self._summed_on_read():
                value = _tensor(value) / len(self.values)
            given = values_of(value, len(self.values))
            for tensor, new in zip(self.values, given, strict=True):
                change(tensor, _like(tensor, _tensor(new, tensor.device)))

    def _aggregated(self, context: ReplicaContext, value: Tree) -> torch.Tensor:
        """Return what one replica writes: its own value, or that of all."""
        mine = _tensor(value, context.device)
        if self.sync == Sync.ON_READ or self.aggregation == Aggregation.NONE:
            return mine
        if self.aggregation == Aggregation.ONLY_FIRST_REPLICA:
            first: torch.Tensor = context.meet(
                "assign(only_first_replica)", mine, lambda all_: [all_[0]] * len(all_)
            )
            return first.to(context.device)
        reduced: torch.Tensor = context.all_reduce(self.aggregation, mine)
        return reduced

    def _refuse_sum(self, what: str) -> None:
        if self._context() is None and self._summed_on_read():
            raise ValueError(
                f"{what} outside of replicas is not defined for a variable that is summed on read: "
                f"it could add once, or once per replica. Call {what} in strategy.run(), or use "
                "assign()."
            )

    def _summed_on_read(self) -> bool:
        return self.sync == Sync.ON_READ and self.aggregation == Aggregation.SUM

    def _context(self) -> ReplicaContext | None:
        return replica_of(self.strategy, "a variable")


def _tensor(value: Tree, device: torch.device | None = None) -> torch.Tensor:
    try:
        return torch.as_tensor(value, device=device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"The value of a variable is {value!r}: give a tensor, a number or a list of numbers."
        ) from error


def _like(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a value of a variable's shape, or one number for all of it.

    Raises:
        ValueError: it has another shape, which torch might repeat.
    """
    if value.dim() and value.shape != tensor.shape:
        raise ValueError(
            f"A value of shape {tuple(value.shape)} was given to a variable of shape "
            f"{tuple(tensor.shape)}: give one of the same shape, or a number."
        )
    # The sum of True and True is 2, which torch does not add to True.
    return value.bool() if tensor.dtype == torch.bool and value.dtype == torch.long else value


def _word(kind: type[_Word], name: str, given: object) -> _Word:
    """Return what a word means, in any letter case.

    Raises:
        ValueError: it means nothing.
    """
    try:
        return kind(str(given).lower())
    except ValueError:
        words = ", ".join(map(repr, map(str, kind)))
        raise ValueError(f"{name} is {given!r}: write one of {words}.") from None
