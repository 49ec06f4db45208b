"""`MirroredStrategy`: data parallelism in one process, over the devices of one machine."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hpckit.parallel.devices import Replica, Spec, find_replicas
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import check_arguments, check_module
from hpckit.parallel.mirrored import collectives, context, data
from hpckit.parallel.mirrored.built import Built
from hpckit.parallel.mirrored.fitting import KerasMethods
from hpckit.parallel.mirrored.gradients import Make, MirroredOptimizer, reduce_gradients
from hpckit.parallel.mirrored.mirrored_model import Mirrored, with_sync_batchnorm
from hpckit.parallel.mirrored.per_replica import (
    PerReplica,
    Tree,
    local_results,
    map_tree,
    parts_of,
    regroup,
    values_of,
)
from hpckit.parallel.mirrored.replica_threads import Meeting, run_together
from hpckit.parallel.mirrored.variables import Aggregation, MirroredVariable, Sync
from hpckit.parallel.scratch import Reduce


class MirroredStrategy(KerasMethods):
    """Keeps identical copies of a model on the devices of one machine, in one process.

    Args:
        devices: as for `find_replicas`: `GPU:*`, `cuda:0`, a list of such, or `cpu:2` for two
            logical replicas. None: all GPUs, or the CPU if there is none.
        cross_device_ops: replaces each of several flat tensors, one per replica, by their sum.
            None: NCCL where possible, else plain copies.

    Raises:
        ValueError: there is no such device.
    """

    built: Built

    def __init__(self, devices: Spec = None, *, cross_device_ops: Reduce | None = None) -> None:
        self.replicas = find_replicas(devices, default="all")
        self.cross_device_ops: Reduce = cross_device_ops or collectives.sum_in_place
        self.built = Built(self)

    def __repr__(self) -> str:
        devices = ", ".join(str(replica.device) for replica in self.replicas)
        return f"MirroredStrategy({devices}) at {id(self):#x}"

    @contextmanager
    def scope(self) -> Iterator["MirroredStrategy"]:
        """Enter the cross-replica context, in which no other strategy can be used.

        Modules that are built in it, and their optimizers, can be used in `run` unchanged: there
        each replica has a copy of its own, and `optimizer.step()` takes one step with the sum of
        all replicas' gradients. Outside of `run` they are plain modules and optimizers of torch.

        Raises:
            RuntimeError: it is called in another strategy's scope, or in a replica.
        """
        context.refuse_replica(self, "scope()")
        with context.entered(self), self.built.noting():
            yield self

    def variable(
        self,
        initial: Tree,
        *,
        aggregation: str = Aggregation.NONE,
        sync: str = Sync.ON_WRITE,
        trainable: bool | None = None,
    ) -> MirroredVariable:
        """Return a variable with a value per replica.

        Args:
            initial: a tensor, number or list, or a function that returns one, called once.
            aggregation: `none`, `sum`, `mean` or `only_first_replica`.
            sync: `on_write`: all replicas have the same value after each assignment; `on_read`:
                each has its own.
            trainable: whether it gets gradients; None: if `sync` is `on_write`.
        """
        context.refuse_replica(self, "variable()")
        return MirroredVariable(
            self, initial, aggregation=aggregation, sync=sync, trainable=trainable
        )

    def mirror(
        self,
        module: nn.Module,
        *,
        sync_batch_norm: bool = False,
        compile: bool | Mapping[str, Any] | None = False,  # torch's word for it
    ) -> Mirrored:
        """Return copies of a module, one per replica; the module itself does not change.

        Args:
            module: its parameters are the copies' initial values.
            sync_batch_norm: whether BatchNorm uses the statistics of the global batch, and not
                those of each replica's part.
            compile: whether `torch.compile` compiles the copies, in their first batches, which
                needs a compiler; a mapping gives its arguments: `{"mode": "max-autotune"}`.

        Raises:
            TypeError: the module is not one, or is mirrored.
        """
        context.refuse_replica(self, "mirror()")
        _check_plain(module)
        if not isinstance(compile, bool | Mapping | None):
            raise TypeError(
                f"compile is {compile!r}: give True, False or arguments of torch.compile, as "
                "{'mode': 'max-autotune'}."
            )
        self.built.forget(module)
        compiling = {} if compile is True else compile or None
        return Mirrored(self, with_sync_batchnorm(module) if sync_batch_norm else module, compiling)

    def optimizer(self, model: Mirrored, make: Make) -> MirroredOptimizer:
        """Return an optimizer that applies the same step on each replica.

        Args:
            model: what `mirror` returned.
            make: returns the optimizer of one copy, as does
                `lambda copy: torch.optim.SGD(copy.parameters(), lr=0.1)`.

        Raises:
            TypeError: the model is not mirrored, or `make` does not make an optimizer.
            ValueError: an optimizer has no weight of its copy, or is LBFGS.
        """
        context.refuse_replica(self, "optimizer()")
        context.check_own(self, model)
        if not isinstance(model, Mirrored):
            raise TypeError(
                f"optimizer() needs a model that mirror() returned, not a {type(model).__name__}. "
                "For a model built in scope(), use a torch optimizer: "
                "torch.optim.SGD(model.parameters(), lr=0.1)."
            )
        return MirroredOptimizer(self, model, make)

    def run(
        self, fn: Callable[..., Tree], args: tuple[Tree, ...] = (), kwargs: Tree = None
    ) -> Tree:
        """Call `fn` once on each replica, all at the same time.

        Of every PerReplica in the arguments, each replica gets its own value; all else is passed
        as it is. Results come back as PerReplica values, in the tuples, lists or dicts that `fn`
        returned; with one replica, as they are.

        Raises:
            RuntimeError: it is called in another strategy's scope, or in a replica.
            TypeError: the arguments are not a tuple and a dict.
            BaseException: what a replica raised, with a note that says which one. The others end
                where they wait for it, or when they return.
        """
        context.refuse_replica(self, "run()")
        check_arguments(args, kwargs)
        for value in (*args, *(kwargs or {}).values()):
            context.check_own(self, value)
        given = parts_of((tuple(args), dict(kwargs or {})), len(self.replicas))
        steppers: dict[torch.optim.Optimizer, int] = {}
        with self.built.mirrored() as twins:

            def body(replica: Replica, meeting: Meeting) -> Tree:
                mine = twins[replica.number]
                here = context.ReplicaContext(self, replica, meeting, mine, steppers)
                positional, named = given[replica.number]
                with context.entered(self, here):
                    return fn(*positional, **named)

            return regroup(run_together(self.replicas, body))

    def reduce(self, op: str, value: Tree, axis: int | None = None) -> Tree:
        """Return the sum or mean over replicas of each PerReplica in `value`.

        Args:
            op: `sum` or `mean`.
            value: what `run` returned.
            axis: reduce over this axis of each value, too. A mean is then that of all elements, so
                parts of unequal length are weighed by their lengths.

        Raises:
            ValueError: the sum of a plain value is asked for, or shapes differ.
        """
        context.refuse_replica(self, "reduce()")
        word, device = collectives.checked(op), self.replicas[0].device
        return map_tree(
            lambda leaf: collectives.reduce_leaf(word, self._wrapped(leaf), axis, device), value
        )

    def gather(self, value: Tree, axis: int = 0) -> Tree:
        """Return each PerReplica in `value` joined along an axis; lengths along it may differ.

        Raises:
            ValueError: tensors cannot be joined.
        """
        context.refuse_replica(self, "gather()")
        device = self.replicas[0].device
        return map_tree(
            lambda leaf: collectives.joined(local_results(self._wrapped(leaf)), axis, device), value
        )

    def local_results(self, value: Tree) -> tuple[Tree, ...]:
        """Return the values of this process's replicas, which are all replicas."""
        if isinstance(value, MirroredVariable):
            return value.values
        return local_results(value)

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return a replica's part of a global batch.

        Raises:
            ValueError: the parts would not be equal.
        """
        return data.per_replica_batch_size(global_batch_size, len(self.replicas))

    def distribute_dataset(self, batches: Iterable[Tree]) -> data.DistributedDataset:
        """Split global batches (of a DataLoader, say) into a part for each replica, in order.

        Each part has the batch size over the number of replicas, rounded up; the last parts have
        the rest, which may be no sample.
        """
        context.refuse_replica(self, "distribute_dataset()")
        return data.SplitDataset(batches, self.replicas)

    def distribute_datasets_from_function(
        self, make: Callable[[data.InputContext], Iterable[Tree]]
    ) -> data.DistributedDataset:
        """Give the batches of what `make` returns to the replicas in turn, one batch each.

        Replicas for which no batch is left get an empty one, of the same shape otherwise.
        """
        context.refuse_replica(self, "distribute_datasets_from_function()")
        made = make(data.InputContext(len(self.replicas)))
        return data.DistributedDataset(made, lambda one: data.by_replica(one, self.replicas))

    def distribute_values_from_function(self, make: Callable[[data.ValueContext], Tree]) -> Tree:
        """Return what `make` returns for each replica."""
        context.refuse_replica(self, "distribute_values_from_function()")
        count = len(self.replicas)
        made = [make(data.ValueContext(number, count)) for number in range(count)]
        return made[0] if count == 1 else PerReplica(tuple(made))

    def all_reduce_gradients(
        self,
        model: Mirrored | Iterable[torch.Tensor],
        samples: int | None = None,
    ) -> None:
        """Replace each replica's gradients by those of all replicas; call it in every replica.

        It is for loops with a torch optimizer per replica; `MirroredOptimizer.step` does it by
        itself.

        Args:
            model: what `mirror` returned, or this replica's parameters.
            samples: this replica's gradients are those of the mean loss of so many samples, maybe
                0, and are weighed by them; None: gradients are summed as they are.

        Raises:
            RuntimeError: it is not called in a replica.
            ValueError: no replica has a sample.
        """
        here = context.replica_of(self, "all_reduce_gradients()")
        if here is None:
            raise RuntimeError(
                "all_reduce_gradients() was called outside of a replica: call it in a function "
                "that strategy.run(fn) runs."
            )
        context.check_own(self, model)
        parameters = list(model.parameters() if isinstance(model, Mirrored) else model)
        built = {id(leaf) for leaf in here.twins.weights.values()} if here.twins else set()
        if built & set(map(id, parameters)):
            raise RuntimeError(
                "optimizer.step() sums the gradients of a model built in scope() by itself: leave "
                "all_reduce_gradients() out, or use strategy.mirror(model)."
            )
        reduce_gradients(here, parameters, samples)

    # TensorFlow's older names, which its guides and many scripts use.
    experimental_distribute_dataset = distribute_dataset
    experimental_distribute_values_from_function = distribute_values_from_function
    experimental_local_results = local_results

    def _wrapped(self, leaf: Tree) -> Tree:
        """Return a leaf as a PerReplica, if it is one, or if there is only one replica."""
        if isinstance(leaf, PerReplica) or len(self.replicas) == 1:
            return PerReplica(values_of(leaf, len(self.replicas)))
        return leaf


def _check_plain(module: object) -> None:
    """Refuse a model that cannot be mirrored.

    Raises:
        TypeError: it is not a module, or is mirrored.
    """
    if isinstance(module, Mirrored):
        raise TypeError("The model is mirrored already: use what mirror() returned.")
    check_module("The model", module)


class MultiWorkerMirroredStrategy:
    """TensorFlow's strategy for several machines, which is `ddp` here."""

    def __init__(self, *_: object, **__: object) -> None:
        raise SetupError(
            "hpckit has no MultiWorkerMirroredStrategy. For several machines, use "
            "DistributedDataParallel, with one process per GPU: "
            "`hpckit submit ddp train.py --nodes 2 --gpus 4`. "
            "MirroredStrategy is one process on one machine."
        )


def get_strategy() -> MirroredStrategy | None:
    """Return the strategy whose scope or replica the caller is in; None: it is in none."""
    here = context.strategy_here()
    return here if isinstance(here, MirroredStrategy) else None
