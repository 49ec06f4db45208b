"""DataParallel on any devices: torch's own on GPUs, logical replicas elsewhere.

One line around a model, and its forward pass is split over devices. So that the same script runs
on machines without a GPU too, where torch's own does not split at all.
"""

from collections.abc import Sequence

import torch
from torch import nn

from hpckit.parallel.devices import Replica, Spec, replicas_of
from hpckit.parallel.given import check_module
from hpckit.parallel.mirrored.per_replica import Tree
from hpckit.parallel.mirrored.replica_threads import run_together
from hpckit.parallel.models.networks import number_replica
from hpckit.parallel.spans import cut, join, lengths, samples, spans


def data_parallel(model: nn.Module, devices: Spec | Sequence[Replica] = None) -> nn.Module:
    """Return a module that computes what `model` does, with the batch split over devices.

    `model` is moved to the first device and keeps its parameters, so that an optimizer may be made
    before or after. The result's parameters are named `module.…`, as torch's DataParallel does.

    Args:
        model: its inputs and outputs have samples along axis 0.
        devices: words of `find_replicas`, replicas, or devices, one replica each. None: all GPUs,
            else the CPU.

    Raises:
        SetupError: a word means nothing here.
        TypeError: the model is not a module.
    """
    check_module("The model", model)
    replicas = replicas_of(devices, default="all")
    model = model.to(replicas[0].device)
    places = [replica.device for replica in replicas]
    if all(place.type == "cuda" for place in places) and len(set(places)) == len(places):
        return nn.DataParallel(model, device_ids=places)
    return LogicalDataParallel(model, replicas)


class LogicalDataParallel(nn.Module):
    """`torch.nn.DataParallel` for replicas on the CPU, or that share a device.

    The first replica is the model itself, so that what it writes into its buffers is kept; the
    others are made in each forward pass from its parameters, and forgotten. Gradients of all go to
    the model. A batch of fewer samples than replicas runs on as many as it has samples.
    """

    def __init__(self, module: nn.Module, replicas: Sequence[Replica]) -> None:
        super().__init__()
        self.module = module
        self.replicas = tuple(replicas)
        number_replica(module, 0)

    def forward(self, *inputs: Tree, **options: Tree) -> Tree:
        """Call the module on parts of the batch at once; return the outputs in order.

        All tensors in the arguments are split along axis 0; what is no tensor, and numbers, go to
        all replicas. Outputs are joined by `hpckit.parallel.spans.join`.

        Raises:
            ValueError: the tensors have not all as many samples.
            TypeError: the module returns what cannot be joined.
        """
        batch = (inputs, options)
        shares = self._shares(batch)
        used = self.replicas[: len(shares)]
        parts = [cut(batch, span, one.device) for span, one in zip(shares, used, strict=True)]
        if len(self.replicas) == 1:
            return _call(self.module, parts[0])
        twins = [self.module, *(_twin(self.module, replica) for replica in used[1:])]

        def run(replica: Replica, _: object) -> Tree:
            return _call(twins[replica.number], parts[replica.number])

        outputs = run_together(used, run)
        return join(outputs, self.replicas[0].device)

    def _shares(self, batch: Tree) -> list[tuple[int, int]]:
        """Return the samples of each replica that has some; of no sample, the first's."""
        total = samples(batch, "a batch") if lengths(batch) else 0
        if not total:
            return [(0, 0)]
        (shares,) = spans(total, None, len(self.replicas))
        return [(begin, end) for begin, end in shares if begin < end]


def _call(module: nn.Module, batch: Tree) -> Tree:
    inputs, options = batch
    return module(*inputs, **options)


def _twin(root: nn.Module, replica: Replica) -> nn.Module:
    """Return a copy on a device whose gradients go to the original; tied tensors stay tied.

    Torch's modules say themselves, in the method that its DataParallel calls, what a copy needs.
    """
    copies: dict[torch.Tensor, torch.Tensor] = {}

    def copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is not None and tensor not in copies:
            copies[tensor] = tensor.to(replica.device, copy=True)
        return None if tensor is None else copies[tensor]

    twins: dict[nn.Module, nn.Module] = {
        module: module._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        for module in root.modules()
    }
    for module, twin in twins.items():
        for name, child in module._modules.items():
            twin._modules[name] = None if child is None else twins[child]
        for name, parameter in module._parameters.items():
            # No parameter, which would be a leaf: gradients would end there.
            setattr(twin, name, copy(parameter))
        for name, buffer in module._buffers.items():
            twin._buffers[name] = copy(buffer)
    number_replica(twins[root], replica.number)
    return twins[root]
