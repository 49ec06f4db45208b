"""Which device an MPI rank works on."""

import os
from collections.abc import Sequence

import torch

from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks


def choose_device(ranks: Ranks, device_ids: Sequence[str] = ()) -> torch.device:
    """Return the device of this rank.

    Args:
        ranks: all of them.
        device_ids: such as `cuda:0 cuda:1`: one for each rank, or one for each rank of a host, or
            a single one for all. Without any: the GPU with the local rank's number, or the CPU;
            $HPCKIT_DEVICE, which is cuda or cpu, decides.

    Raises:
        SetupError: there are too few, or the device is not here.
    """
    ids = list(device_ids)
    if not ids:
        count = torch.cuda.device_count()
        wanted = os.environ.get("HPCKIT_DEVICE") or ("cuda" if count else "cpu")
        return checked_device(
            f"cuda:{ranks.local_rank % max(1, count)}" if wanted == "cuda" else wanted
        )
    if len(ids) == 1:
        chosen = ids[0]
    elif len(ids) >= ranks.size:
        chosen = ids[ranks.rank]
    elif len(ids) >= ranks.local_size:
        chosen = ids[ranks.local_rank]
    else:
        raise SetupError(
            f"{len(ids)} devices ({' '.join(ids)}) for {ranks.local_size} ranks on this host: "
            "give one device for each rank, or one device for all"
        )
    return checked_device(chosen)


def checked_device(word: str) -> torch.device:
    """Return a torch device, if it is here.

    Raises:
        SetupError: it is not, or `word` is no device.
    """
    try:
        device = torch.device(word)
    except RuntimeError as error:
        raise SetupError(f"{word!r} is not a device: write cpu, cuda or cuda:1") from error
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        has = f"{count} GPUs" if count else "no GPU"
        raise SetupError(
            f"{word} is asked for but torch sees {has}: ask Slurm for one, or give cpu"
        )
    return device
