"""What is built in a strategy's scope: plain torch outside of `run`, in it a copy for each replica.

Torch tells when a module registers a parameter, so a scope knows its modules. They and their
optimizers hold all state. While replicas run, each has copies of the modules, with weights that
gradients are taken of; an attribute of a module, or a call of it, reaches the copy of the replica
that asks. When the run is over, gradients and buffers are in the modules again, and the copies are
gone. So whatever was done to a module outside (loaded, frozen, rescheduled) holds in the next run.
"""

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn
from torch.nn.modules import module as torch_modules

from hpckit.parallel.mirrored import context
from hpckit.parallel.mirrored.answering import answering, optimizers_of, watch_optimizers
from hpckit.parallel.mirrored.twins import Twins, keep, make_twins, refuse_hooks, set_aside

_running: ContextVar[Sequence[Twins] | None] = ContextVar("twins of a run", default=None)


@contextmanager
def _running_with(twins: Sequence[Twins]) -> Iterator[Sequence[Twins]]:
    token = _running.set(twins)
    try:
        yield twins
    finally:
        _running.reset(token)


class Built:
    """The modules that were built in one strategy's scope, and live."""

    def __init__(self, strategy: context.Strategy) -> None:
        self._strategy = strategy
        self._modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._classes: dict[type, type] = {}
        self._lock = threading.Lock()
        self._noting = threading.Lock()  # nothing may be added to the set while it is read

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what the caller builds meanwhile; in the end it is on the first device."""

        def note(module: nn.Module, _name: str, _value: object) -> None:
            copied = getattr(module, "_is_replica", False)  # torch's mark of DataParallel's copies
            if not copied and context.in_scope_of(self._strategy):
                with self._noting:
                    self._modules.add(module)

        watch_optimizers()
        handles = [
            torch_modules.register_module_parameter_registration_hook(note),
            torch_modules.register_module_buffer_registration_hook(note),
            torch_modules.register_module_module_registration_hook(note),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        self._settled()

    def forget(self, module: nn.Module) -> None:
        """Leave a module alone."""
        with self._noting:
            for one in module.modules():
                self._modules.discard(one)

    def _settled(self) -> list[nn.Module]:
        """Return the modules with all that is in them, on the first device."""
        with self._noting:
            roots = list(self._modules)
        modules = list(dict.fromkeys(one for root in roots for one in root.modules()))
        device = self._strategy.replicas[0].device
        for one in modules:
            tensors = (*one._parameters.values(), *one._buffers.values())
            if any(tensor is not None and tensor.device != device for tensor in tensors):
                one.to(device)
        return modules

    def __contains__(self, module: object) -> bool:
        return isinstance(module, nn.Module) and module in self._modules

    @contextmanager
    def mirrored(self) -> Iterator[Sequence[Twins]]:
        """Have a copy of each module for each replica, and calls of modules reach these.

        One run at a time: a second thread of the caller waits.
        """
        watch_optimizers()
        replicas, running = self._strategy.replicas, _running.get()
        if running is not None:  # a run in a merge: the replicas are the same
            yield running
            return
        with self._lock:
            modules = self._settled()
            if len(replicas) == 1:
                with _running_with([Twins()]) as twins:
                    yield twins
                return
            refuse_hooks(modules)
            twins = [make_twins(modules, replica) for replica in replicas]
            with (
                _running_with(twins),
                set_aside(modules, twins[0]),
                self._answering_by_replica(modules),
            ):
                yield twins
            keep(modules, twins)

    @contextmanager
    def _answering_by_replica(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Have modules and their optimizers answer each replica for itself."""
        weights = {id(one) for module in modules for one in module._parameters.values()}
        steppers = optimizers_of(weights)
        before = [(one, type(one)) for one in (*modules, *steppers)]
        try:
            for one, kind in before:
                if kind not in self._classes:
                    self._classes[kind] = answering(kind)
                object.__setattr__(one, "__class__", self._classes[kind])
            yield
        finally:
            for one, kind in before:
                object.__setattr__(one, "__class__", kind)
