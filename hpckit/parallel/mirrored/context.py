"""Which context code runs in: no strategy's, a strategy's scope, or one of its replicas."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch

from hpckit.parallel.devices import Replica
from hpckit.parallel.mirrored import collectives
from hpckit.parallel.mirrored.per_replica import Tree, leaves, parts_of, regroup
from hpckit.parallel.mirrored.replica_threads import Meeting
from hpckit.parallel.mirrored.twins import Twins
from hpckit.parallel.scratch import Reduce


class Strategy(ABC):
    """What the modules beside `strategy` know of it.

    Attributes:
        replicas: in order; the first one leads.
        cross_device_ops: replaces each of several flat tensors, one per replica, by their sum.
        built: the modules that were built in its scope.
    """

    replicas: tuple[Replica, ...]
    cross_device_ops: Reduce
    built: Container[object]

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return len(self.replicas)

    @abstractmethod
    def run(
        self, fn: Callable[..., Tree], args: tuple[Tree, ...] = (), kwargs: Tree = None
    ) -> Tree:
        """Call `fn` once on each replica, all at the same time."""

    @abstractmethod
    def reduce(self, op: str, value: Tree, axis: int | None = None) -> Tree:
        """Return the sum or mean over replicas of each PerReplica in `value`."""


class OfOneStrategy:
    """Base of what a strategy makes, which no other strategy can use."""

    strategy: Strategy


def check_own(strategy: Strategy, value: object) -> None:
    """Refuse a value that another strategy made.

    Raises:
        RuntimeError: another strategy made it.
    """
    if isinstance(value, OfOneStrategy) and value.strategy is not strategy:
        raise RuntimeError(
            f"Two strategies are mixed: a {type(value).__name__} of {value.strategy} is "
            f"given to {strategy}. Make it with the strategy that uses it."
        )


@dataclass(frozen=True, eq=False)
class ReplicaContext:
    """What one replica knows during a run, and how it communicates with the others.

    All replicas must make the same collective calls in the same order, even without samples.
    """

    strategy: Strategy
    replica: Replica
    meeting: Meeting
    # This replica's copies of what was built in scope(); which replica has stepped each optimizer.
    twins: Twins | None = None
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
        """The device of this replica, on which it creates its tensors."""
        return self.replica.device

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices of this replica, as in TensorFlow; there is only one."""
        return (self.replica.device,)

    def all_reduce(self, op: str, value: Tree) -> Tree:
        """Return the sum or mean over replicas of each tensor or number in `value`.

        Every replica gets the same values, on its own device. Gradients go through it.

        Raises:
            ValueError: `op` is not `sum` or `mean`, or the shapes or structures differ.
        """
        word = collectives.checked(op)
        if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves(value)):
            _refuse_shared_gpu(self)
        return collectives.all_reduce(
            self.meet, word, self.num_replicas_in_sync, value, self.device
        )

    def all_gather(self, value: Tree, axis: int = 0) -> Tree:
        """Return each tensor of `value` joined with those of all other replicas along an axis.

        Lengths along that axis may differ. Gradients do not go through it.

        Raises:
            ValueError: the tensors cannot be joined, or have no axis.
        """
        return self.meet(f"all_gather(axis={axis})", value, collectives.gathering(axis))

    def merge_call(
        self, fn: Callable[..., Tree], args: tuple[Tree, ...] = (), kwargs: Tree = None
    ) -> Tree:
        """Call `fn(strategy, ...)` once for all replicas, in cross-replica context.

        `fn` gets the arguments of all replicas as PerReplica, and each replica gets its own part
        of what `fn` returns.
        """

        def merge(values: list[Tree]) -> list[Tree]:
            together, named = regroup(values)
            with entered(self.strategy):
                result = fn(self.strategy, *together, **named)
            return parts_of(result, len(values))

        return self.meet("merge_call", (args, dict(kwargs or {})), merge)

    def meet(self, what: str, value: Tree, merge: Callable[[list[Tree]], list[Tree]]) -> Tree:
        """Wait for all replicas; return this replica's part of `merge(their values)`."""
        return self.meeting.meet(self.replica.number, what, value, merge)


def _refuse_shared_gpu(context: ReplicaContext) -> None:
    """Refuse gradients through a reduction if replicas share a GPU: they would wait for ever.

    Torch has one thread per GPU for all backward passes. There the first of two replicas would wait
    for the second one, which cannot begin.
    """
    devices = [replica.device for replica in context.strategy.replicas]
    if context.device.type == "cuda" and devices.count(context.device) > 1:
        raise RuntimeError(
            f"Gradients cannot go through all_reduce where replicas share {context.device}: give "
            "each replica a GPU of its own, or reduce value.detach()."
        )


@dataclass(frozen=True, slots=True)
class _Context:
    """A strategy, and one of its replicas; None in the cross-replica context."""

    strategy: Strategy
    replica: ReplicaContext | None = None


_context: ContextVar[_Context | None] = ContextVar("mirrored context", default=None)


def get_replica_context() -> ReplicaContext:
    """Return the context of the replica that calls this.

    Raises:
        RuntimeError: it is not called in a replica.
    """
    here = _context.get()
    if here is None or here.replica is None:
        raise RuntimeError(
            "get_replica_context() was called outside of a replica: call it in a function that "
            "strategy.run(fn) runs."
        )
    return here.replica


def in_cross_replica_context() -> bool:
    """Return whether the caller is in a strategy's scope, and not in one of its replicas."""
    here = _context.get()
    return here is not None and here.replica is None


def strategy_here() -> Strategy | None:
    """Return the strategy whose scope or replica the caller is in; None: it is in none."""
    here = _context.get()
    return None if here is None else here.strategy


def has_strategy() -> bool:
    """Return whether the caller is in a strategy's scope or in one of its replicas."""
    return _context.get() is not None


def replica_here() -> ReplicaContext | None:
    """Return the context of the replica that calls this; None outside of replicas."""
    here = _context.get()
    return None if here is None else here.replica


def in_scope_of(strategy: Strategy) -> bool:
    """Return whether the caller is in this strategy's scope, and not in one of its replicas."""
    here = _context.get()
    return here is not None and here.strategy is strategy and here.replica is None


@contextmanager
def entered(strategy: Strategy, replica: ReplicaContext | None = None) -> Iterator[None]:
    """Enter one of a strategy's replicas or, without one, its cross-replica context."""
    token = _context.set(_Context(strategy, replica))
    try:
        yield
    finally:
        _context.reset(token)


def replica_of(strategy: Strategy, what: str) -> ReplicaContext | None:
    """Return the replica of this strategy that calls, or None outside of its replicas.

    Raises:
        RuntimeError: the caller is in another strategy's scope or replica.
    """
    here = _context.get()
    if here is None:
        return None
    if here.strategy is not strategy:
        raise RuntimeError(
            f"Two strategies are mixed: {what} of {strategy} is used inside {here.strategy}. "
            "Use one strategy throughout, or leave the scope of the other first."
        )
    return here.replica


def refuse_replica(strategy: Strategy, what: str) -> None:
    """Refuse to be called in a replica, or in another strategy.

    Raises:
        RuntimeError: the caller is in a replica, or in another strategy's scope.
    """
    if replica_of(strategy, what) is not None:
        raise RuntimeError(
            f"{what} is called in a replica: call it outside of strategy.run(), or through "
            "get_replica_context().merge_call(fn)."
        )
