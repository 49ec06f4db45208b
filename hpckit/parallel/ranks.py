"""Which rank this process is, which device it uses, and how ranks add up numbers."""

import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from hpckit.parallel.devices import device_of_rank
from hpckit.parallel.errors import SetupError
from hpckit.parallel.torch_versions import init_process_group
from hpckit.rank_variables import SRUN, SRUN_STEP, TORCHRUN

# How long a rank itself waits for rank zero to listen, before it leaves that to torch.
_LOOKS_FOR_S = 10.0
_LOOK_S = (0.005, 0.25)  # the first pause between two looks, and the longest


@dataclass(frozen=True)
class Rank:
    """This process among all those that train together."""

    rank: int
    world_size: int
    device: torch.device
    host: str
    asked_backend: str | None = None

    @property
    def backend(self) -> str:
        """The library that carries tensors between ranks.

        NCCL refuses ranks that share a GPU; with $HPCKIT_BACKEND=gloo they can.
        """
        return self.asked_backend or ("nccl" if self.device.type == "cuda" else "gloo")

    @property
    def meets(self) -> bool:
        """Whether there is a process group: with several ranks, or if a backend was asked for.

        With one rank, a backend is asked for to check on one GPU that it works.
        """
        return self.world_size > 1 or self.asked_backend is not None


def find_rank() -> Rank:
    """Read from the environment which rank this process is, and choose its device.

    Raises:
        SetupError: a GPU is asked for but there is none, srun's ranks cannot find each other, or
            $HPCKIT_BACKEND is not possible.
    """
    rank, world_size, local_rank = _ranks()
    device = device_of_rank(local_rank)
    backend = _backend(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return Rank(
        rank=rank,
        world_size=world_size,
        device=device,
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        asked_backend=backend,
    )


def _backend(device: torch.device) -> str | None:
    """Return the value of $HPCKIT_BACKEND; None if it is not set."""
    word = os.environ.get("HPCKIT_BACKEND")
    if word and word not in ("gloo", "nccl"):
        raise SetupError(f"HPCKIT_BACKEND is {word!r}: it must be gloo or nccl")
    if word == "nccl" and device.type != "cuda":
        raise SetupError("HPCKIT_BACKEND is nccl, but ranks are on the CPU: only GPUs have it")
    return word or None


def _ranks() -> tuple[int, int, int]:
    """Return rank, world size and local rank as hpckit, torchrun or bare srun gave them."""
    env = os.environ
    numbers = SRUN.numbers(env)
    if TORCHRUN.rank not in env and SRUN.rank in env and numbers[1] > 1:
        if "MASTER_ADDR" in env and "MASTER_PORT" in env:
            # torch.distributed reads the first two itself when the group is made.
            names = (TORCHRUN.rank, TORCHRUN.world_size, TORCHRUN.local_rank)
            env.update(zip(names, map(str, numbers), strict=True))
        elif SRUN_STEP.numbers(env)[1] > 1:
            # Otherwise each task would train alone, and overwrite the files of the others.
            raise SetupError(
                "srun started several tasks, but they do not know where to meet: "
                "set MASTER_ADDR (host of the first task) and MASTER_PORT (a free port)"
            )
    return TORCHRUN.numbers(env)


def meet(place: Rank) -> None:
    """Create the process group of all ranks, at MASTER_ADDR:MASTER_PORT, if there are several.

    Raises:
        SetupError: ranks share a GPU, which NCCL refuses.
    """
    if not place.meets:
        return
    _await_rank_zero()
    # Bound to a device, NCCL connects at once, so its errors come here; gloo takes no device.
    device = place.device if place.backend == "nccl" else None
    if device:
        # But torch 2.6 to 2.7.0 would do that in the background, and may wait for ever
        # (pytorch/pytorch#153960); others do not by themselves.
        os.environ.setdefault("TORCH_NCCL_USE_COMM_NONBLOCKING", "0")
    try:
        init_process_group(place.backend, device)
    except dist.DistBackendError as error:
        if "Duplicate GPU" not in str(error):
            raise
        raise SetupError(
            f"several ranks use {place.device} of {place.host}, which NCCL refuses: start as many "
            "ranks as there are GPUs, or set HPCKIT_BACKEND=gloo, which is slower"
        ) from error


def _await_rank_zero() -> None:
    """Wait until rank zero listens at MASTER_ADDR:MASTER_PORT.

    Ranks of one job start within milliseconds of each other, so some are often too early for
    torch's store, which tries again only after 0.25 to 0.75 s (TCPStore's backoff). After some
    seconds torch itself goes on waiting, and reports what is wrong.
    """
    env = os.environ
    host, port = env.get("MASTER_ADDR"), env.get("MASTER_PORT", "")
    if env.get("RANK", "0") == "0" or not host or not port.isdecimal():
        return
    pause, until = _LOOK_S[0], time.monotonic() + _LOOKS_FOR_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError, OverflowError):
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        time.sleep(pause)
        pause = min(pause * 1.5, _LOOK_S[1])


def share_cores(place: Rank) -> int:
    """Divide the cores of a host among its ranks; return the number of hosts."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    here = (place.host, cores or list(range(os.cpu_count() or 1)))
    everywhere = [here]
    if place.meets:
        everywhere = [here] * place.world_size
        dist.all_gather_object(everywhere, here)
    divide_cores(place.device, len(here[1]), everywhere.count(here))
    return len({host for host, _ in everywhere})


def divide_cores(device: torch.device, cores: int, ranks: int) -> None:
    """Let a rank on the CPU use its part of the cores that so many ranks share.

    By default each process has a thread per core, so the ranks of a host would slow each other
    down. If OMP_NUM_THREADS is set, as torchrun does, it is left as it is.
    """
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, cores // ranks))


def add_over_ranks(place: Rank, *numbers: float | torch.Tensor) -> list[float]:
    """Return each number summed over all ranks, in double precision and one message."""
    return adding_over_ranks(place, *numbers)()


def adding_over_ranks(place: Rank, *numbers: float | torch.Tensor) -> Callable[[], list[float]]:
    """Begin to add up while other work goes on; the function returned waits for the sums."""
    # Of a rank alone, only what is there goes through the device: each kernel is a part of a step.
    sent = [row for row in numbers if place.meets or isinstance(row, torch.Tensor)]
    total = torch.stack([_double(row, place.device) for row in sent]) if sent else None
    work = dist.all_reduce(total, async_op=True) if place.meets else None

    def read() -> list[float]:
        if work:
            work.wait()
        sums = iter(() if total is None else total.tolist())
        return [
            float(next(sums) if place.meets or isinstance(row, torch.Tensor) else row)
            for row in numbers
        ]

    return read


def _double(number: float | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a number in double precision on a device, without waiting for the device.

    To copy a number from the host, torch would wait until the GPU has done all earlier work, so the
    backward pass could not be queued during the forward pass.
    """
    if isinstance(number, torch.Tensor):
        return number.detach().to(device, torch.float64)
    return torch.full((), float(number), dtype=torch.float64, device=device)


def order_gradients(parallel: nn.Module, inputs: torch.Tensor) -> None:
    """Let DDP build its final buckets of gradients before the first step.

    After its first backward pass DDP builds its buckets anew, in the order in which the gradients
    came (torch.nn.parallel.DistributedDataParallel, `bucket_cap_mb`). With three or more ranks, the
    last bits of a sum depend on its place in its bucket. So the first step after a checkpoint would
    differ from the same step of a run that was not interrupted.

    Args:
        parallel: the model in DistributedDataParallel; its weights and statistics do not change.
        inputs: a batch as the model takes it; it may have no samples.
    """
    parallel.eval()
    parallel(inputs).sum().backward()
    parallel.zero_grad()
    parallel.train()


def say(line: str) -> None:
    """Print a line in one write, so that lines of different ranks do not mix.

    If the disk with the job's log is full, work goes on, and the line waits in the stream.
    """
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


# Their names in 0.1, which groups' copies of its workloads still import.
Place, find_place = Rank, find_rank
