"""TensorFlow's names for how gradients are added up over devices, and for several machines."""

from collections.abc import Sequence

import torch

from hpckit.parallel.errors import SetupError
from hpckit.parallel.scratch import allreduce


class NcclAllReduce:
    """Adds up by NCCL, for which each replica must have a GPU of its own.

    Args:
        num_packs: TensorFlow's; sums here are of buckets of 32 MiB.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = num_packs

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all.

        Raises:
            SetupError: NCCL cannot.
        """
        devices = [tensor.device for tensor in tensors]
        own = len(set(devices)) == len(devices) and all(one.type == "cuda" for one in devices)
        if not own or not torch.cuda.nccl.is_available(tensors):  # type: ignore[no-untyped-call]
            raise SetupError(
                f"NcclAllReduce needs NCCL and a GPU for each replica, not "
                f"{', '.join(map(str, devices))}: leave cross_device_ops out, then NCCL is used "
                "where it works."
            )
        torch.cuda.nccl.all_reduce(tensors)  # type: ignore[no-untyped-call]


class HierarchicalCopyAllReduce:
    """Adds up by pairs, then pairs of pairs, and hands the sum out the same way back.

    Args:
        num_packs: TensorFlow's; sums here are of buckets of 32 MiB.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = num_packs

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all."""
        distances = [1 << level for level in range((len(tensors) - 1).bit_length())]
        for distance in distances:
            for at in range(0, len(tensors) - distance, 2 * distance):
                tensors[at].add_(tensors[at + distance].to(tensors[at].device))
        for distance in reversed(distances):
            for at in range(0, len(tensors) - distance, 2 * distance):
                tensors[at + distance].copy_(tensors[at])


class ReductionToOneDevice:
    """Adds up on one device, and copies the sum to the others.

    Args:
        reduce_to_device: such as `cuda:1`; None: the first replica's.
    """

    def __init__(self, reduce_to_device: str | torch.device | None = None) -> None:
        self.device = None if reduce_to_device is None else torch.device(reduce_to_device)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all."""
        if self.device is None:
            allreduce(tensors)
            return
        total = tensors[0].to(self.device, copy=True)
        for tensor in tensors[1:]:
            total += tensor.to(self.device)
        for tensor in tensors:
            tensor.copy_(total)


class MultiWorkerMirroredStrategy:
    """TensorFlow's strategy for several machines, which is `ddp` here."""

    def __init__(self, *_: object, **__: object) -> None:
        raise SetupError(
            "hpckit has no MultiWorkerMirroredStrategy. For several machines, use "
            "DistributedDataParallel, with one process per GPU: "
            "`hpckit submit ddp train.py --nodes 2 --gpus 4`. "
            "MirroredStrategy is one process on one machine."
        )
