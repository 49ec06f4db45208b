"""A module with a copy for each replica: equal parameters, and buffers of their own.

BatchNorm may take the statistics of the global batch, not of each replica's part.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from hpckit.parallel.compiling import allow_traces, load_compiler
from hpckit.parallel.mirrored.alike import Versions
from hpckit.parallel.mirrored.collectives import one_buffer
from hpckit.parallel.mirrored.context import (
    OfOneStrategy,
    ReplicaContext,
    Strategy,
    get_replica_context,
    replica_of,
)
from hpckit.parallel.mirrored.per_replica import Tree


class SyncBatchNorm(_BatchNorm):
    """BatchNorm of one, two or three dimensions that adds up over replicas in training.

    Exact for parts of unequal size. Every replica must run it, forward and backward, also with no
    sample. Its state is a plain BatchNorm's.
    """

    @classmethod
    def like(cls, plain: _BatchNorm) -> "SyncBatchNorm":
        """Return one with the settings of a plain BatchNorm, and its very parameters and buffers.

        So a weight that several modules share stays shared.
        """
        made = cls.__new__(cls)
        made.__dict__.update(plain.__dict__)
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize (samples, channels, ...) by the mean and variance over all replicas."""
        self._check_input_dim(input)
        if not self.training:
            return super().forward(input)
        context = get_replica_context()
        axes = [axis for axis in range(input.dim()) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(input.dim())]
        # Of half precision, sums over a batch would be far off.
        wide = input.float() if input.dtype in (torch.half, torch.bfloat16) else input
        count = self._count(context, wide)
        mean = context.all_reduce("sum", wide.sum(axes)) / count
        centered = wide - mean.view(shape)
        variance = context.all_reduce("sum", centered.square().sum(axes)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1))
        normal: torch.Tensor = centered * torch.rsqrt(variance + self.eps).view(shape)
        # Either may be None: without affine, or with it and without a bias.
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        if weight is not None:
            normal = normal * weight.view(shape)
        if bias is not None:
            normal = normal + bias.view(shape)
        return normal.to(input.dtype)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"BatchNorm takes (samples, channels, ...), not shape {tuple(input.shape)}."
            )

    def _count(self, context: ReplicaContext, values: torch.Tensor) -> int:
        """Return the number of values per channel, over all replicas.

        Raises:
            ValueError: there is one, which has no variance.
        """
        count = int(context.all_reduce("sum", values.numel() // values.shape[1]))
        if count < 2:
            raise ValueError(
                f"BatchNorm cannot train on {count} value per channel in the global batch: "
                "make the batch larger, or use drop_last."
            )
        return count

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        momentum = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            if momentum is None:  # torch's word for a plain average over all batches
                momentum = 1 / float(self.num_batches_tracked)
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum or 0.0)
            self.running_var.lerp_(variance.to(self.running_var.dtype), momentum or 0.0)


def with_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Return a copy of a module in which every BatchNorm adds up over replicas."""
    copied = copy.deepcopy(module)
    synced: dict[nn.Module | None, nn.Module] = {
        one: SyncBatchNorm.like(one) for one in copied.modules() if isinstance(one, _BatchNorm)
    }
    for parent in list(copied.modules()):
        for name, child in parent._modules.items():  # one that stands in several places, in each
            if child in synced:
                parent._modules[name] = synced[child]
    return synced.get(copied, copied)


def is_synced(modules: Sequence[nn.Module]) -> bool:
    """Return whether replicas meet in the forward pass of a module."""
    return any(isinstance(one, SyncBatchNorm) for module in modules for one in module.modules())


class Mirrored(OfOneStrategy):
    """Copies of a module, one per replica; they never share memory, also on one device.

    Called in a replica, its own copy is called; called outside, the first. Parameters stay equal as
    long as every replica applies the same update. Buffers, such as the running statistics of
    BatchNorm, are each replica's own; where one value is wanted (`state_dict`, `sync_buffers`), it
    is their mean over the replicas that changed it since it was one, or of whole numbers the first
    replica's.
    """

    def __init__(
        self, strategy: Strategy, module: nn.Module, compiling: Mapping[str, Any] | None = None
    ) -> None:
        """Make the copies.

        Raises:
            ValueError: several replicas would initialize parameters, each by itself.
        """
        self.strategy = strategy
        if len(strategy.replicas) > 1 and any(map(is_lazy, module.parameters())):
            raise ValueError(
                f"The {type(module).__name__} has uninitialized parameters, to which each replica "
                "would give random values of its own: call it once on some samples before mirror()."
            )
        self.copies = tuple(
            copy.deepcopy(module).to(replica.device) for replica in strategy.replicas
        )
        self.versions = tuple(Versions(one.parameters()) for one in self.copies)
        self._note_buffers()
        # What a call of each calls. (Module.compile, which needs nothing beside the module, leaves
        # out torch's own, such as Sequential: seen in torch 2.13.)
        self._calls: Sequence[Callable[..., Tree]] = self.copies
        if compiling is not None:
            allow_traces(len(self.copies))
            if compiling.get("backend", "inductor") == "inductor":
                load_compiler()
            self._calls = [torch.compile(module, **compiling) for module in self.copies]

    @property
    def local(self) -> nn.Module:
        """The copy of the replica that calls; outside of replicas, the first."""
        return self.copies[self._number()]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # only of what is not there
        """Say where a method of Keras's models is, or of one copy."""
        if name in ("compile", "fit", "evaluate", "predict"):
            raise AttributeError(
                f"A mirrored model has no {name}(): "
                "strategy.fit(model, batches, loss, optimizer, epochs), strategy.evaluate and "
                "strategy.predict do that, and take loss and metrics themselves."
            )
        raise AttributeError(f"A mirrored model has no {name!r}; model.local is one copy of it.")

    @property
    def synced(self) -> bool:
        """Whether replicas meet in the forward pass, so that those without samples must run it."""
        return self.training and is_synced(self.copies[:1])

    def __call__(self, *args: Tree, **kwargs: Tree) -> Tree:
        """Call the local copy, or what was compiled of it."""
        return self._calls[self._number()](*args, **kwargs)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the local copy."""
        return self.local.parameters()

    @property
    def training(self) -> bool:
        """Whether the copies are in training mode."""
        return self.copies[0].training

    def train(self, mode: bool = True) -> None:
        """Set training mode: in a replica of its copy, outside of all."""
        inside = replica_of(self.strategy, "a model") is not None
        for module in (self.local,) if inside else self.copies:
            module.train(mode)

    def eval(self) -> None:
        """Set evaluation mode: in a replica of its copy, outside of all."""
        self.train(False)

    @torch.no_grad()
    def sync_buffers(self) -> None:
        """Give all copies the same buffers, outside of replicas."""
        for values, one in self._buffers():
            for value in values:
                value.copy_(one)
        self._note_buffers()

    def state_dict(self) -> dict[str, Any]:
        """Return one copy for all: a plain module can load it, and any number of replicas."""
        state: dict[str, Any] = self.copies[0].state_dict()
        one_of = {id(values[0]): one for values, one in self._buffers()}
        # A module that stands in several places has as many names.
        for name, buffer in self.copies[0].named_buffers(remove_duplicate=False):
            if name in state:
                state[name] = one_of[id(buffer)]
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load one state into all copies, outside of replicas."""
        for module in self.copies:
            module.load_state_dict(state, strict=strict)
        self._note_buffers()

    def _number(self) -> int:
        context = replica_of(self.strategy, "a model")
        return context.replica.number if context else 0

    def _note_buffers(self) -> None:
        """Keep the buffers that all copies have now: who changes them later has seen samples."""
        self._noted = {
            name: buffer.detach().clone()
            for name, buffer in self.copies[0].named_buffers()
            if len(self.copies) > 1 and (buffer.is_floating_point() or buffer.is_complex())
        }

    def _buffers(self) -> Iterator[tuple[tuple[torch.Tensor, ...], torch.Tensor]]:
        """Yield each buffer's values on all replicas, and the one for all."""
        first, *others = self.copies
        rest = [module.buffers() for module in others]
        for (name, buffer), *more in zip(first.named_buffers(), *rest, strict=True):
            values = (buffer, *more)
            yield values, one_buffer(values, self._noted.get(name))
