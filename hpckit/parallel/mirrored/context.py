"""Where code runs: outside of any strategy, in a strategy's scope, or in one of its replicas."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from hpckit.parallel.devices import Replica
from hpckit.parallel.mirrored import collectives
from hpckit.parallel.mirrored.per_replica import Tree, parts_of, regroup
from hpckit.parallel.mirrored.replica_threads import Meeting

if TYPE_CHECKING:  # the strategy is made of what is here
    from hpckit.parallel.mirrored.strategy import MirroredStrategy
    from hpckit.parallel.mirrored.twins import Twins


@dataclass(frozen=True, eq=False)
class ReplicaContext:
    """What one replica knows during a run, and how it talks to the others.

    What replicas do together, all must call, in the same order, also those without samples.
    """

    strategy: "MirroredStrategy"
    replica: Replica
    meeting: Meeting
    # Of what was built in scope(), this replica's copies; who has stepped which optimizer.
    twins: "Twins | None" = None
    steppers: dict[torch.optim.Optimizer, int] = field(default_factory=dict)

    @property
    def replica_id_in_sync_group(self) -> int:
        """The number of this replica, from 0."""
        return self.replica.number

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self.strategy.num_replicas_in_sync

    @property
    def device(self) -> torch.device:
        """The device of this replica; the replica makes its tensors there."""
        return self.replica.device

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices of this replica: one, as TensorFlow has it."""
        return (self.replica.device,)

    def all_reduce(self, op: str, value: Tree) -> Tree:
        """Return the sum or mean over replicas of each tensor or number in `value`.

        Every replica gets the same, on its own device. Gradients go through it.

        Raises:
            ValueError: `op` is neither, or the shapes or structures differ.
        """
        return collectives.all_reduce(self, collectives.checked(op), value)

    def all_gather(self, value: Tree, axis: int = 0) -> Tree:
        """Return each tensor of `value` with those of all replicas joined along an axis.

        Lengths along that axis may differ. Gradients do not go through it.

        Raises:
            ValueError: the tensors cannot be joined, or have no axis.
        """
        return self.meet(f"all_gather(axis={axis})", value, collectives.gathering(axis))

    def merge_call(
        self, fn: Callable[..., Tree], args: tuple[Tree, ...] = (), kwargs: Tree = None
    ) -> Tree:
        """Call `fn(strategy, ...)` once for all replicas, in cross-replica context.

        It gets the arguments of all replicas as PerReplica; each replica gets its own of what it
        returns.
        """

        def merge(values: list[Tree]) -> list[Tree]:
            together, named = regroup(values)
            with entered(Place(self.strategy)):
                result = fn(self.strategy, *together, **named)
            return parts_of(result, len(values))

        return self.meet("merge_call", (args, dict(kwargs or {})), merge)

    def meet(self, what: str, value: Tree, merge: Callable[[list[Tree]], list[Tree]]) -> Tree:
        """Wait for all replicas; return this replica's own of what `merge` makes of the values."""
        return self.meeting.meet(self.replica.number, what, value, merge)


@dataclass(frozen=True, slots=True)
class Place:
    """A strategy, and one of its replicas or, in cross-replica context, None."""

    strategy: "MirroredStrategy"
    replica: ReplicaContext | None = None


_place: ContextVar[Place | None] = ContextVar("mirrored place", default=None)


def get_replica_context() -> ReplicaContext:
    """Return the context of the replica that calls.

    Raises:
        RuntimeError: no replica calls.
    """
    place = _place.get()
    if place is None or place.replica is None:
        raise RuntimeError(
            "get_replica_context() was called outside of a replica: call it in a function that "
            "strategy.run(fn) runs."
        )
    return place.replica


def in_cross_replica_context() -> bool:
    """Return whether this is in a strategy's scope, and not in one of its replicas."""
    place = _place.get()
    return place is not None and place.replica is None


def get_strategy() -> "MirroredStrategy | None":
    """Return the strategy whose scope or replica this is in; None outside of any."""
    place = _place.get()
    return None if place is None else place.strategy


def has_strategy() -> bool:
    """Return whether this is in a strategy's scope or in one of its replicas."""
    return _place.get() is not None


def replica_here() -> ReplicaContext | None:
    """Return the context of the replica that calls; None where none does."""
    place = _place.get()
    return None if place is None else place.replica


def in_scope_of(strategy: "MirroredStrategy") -> bool:
    """Return whether this is in a strategy's scope, and not in one of its replicas."""
    place = _place.get()
    return place is not None and place.strategy is strategy and place.replica is None


@contextmanager
def entered(place: Place) -> Iterator[None]:
    """Be at a place."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def replica_of(strategy: "MirroredStrategy", what: str) -> ReplicaContext | None:
    """Return the replica of a strategy that calls, or None where none does.

    Raises:
        RuntimeError: this is in another strategy's scope or replica.
    """
    place = _place.get()
    if place is None:
        return None
    if place.strategy is not strategy:
        raise RuntimeError(
            f"Two strategies are mixed: {what} of {strategy} is used inside {place.strategy}. "
            "Use one strategy throughout, or leave the scope of the other first."
        )
    return place.replica


def refuse_replica(strategy: "MirroredStrategy", what: str) -> None:
    """Refuse what only the caller of replicas can do.

    Raises:
        RuntimeError: a replica calls, or this is in another strategy's scope.
    """
    if replica_of(strategy, what) is not None:
        raise RuntimeError(
            f"{what} is called in a replica: call it outside of strategy.run(), or through "
            "get_replica_context().merge_call(fn)."
        )
