"""Slurm's warning before the end of a job's time: has it come, and do all ranks know of it?

Importing this module installs a handler of SIGUSR2, which hpckit sends to scripts that have one,
some time before the job's end (docs/should-stop.md). A warning from before the import is not lost.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from hpckit.stop_marks import (
    ALL_SIGNALLED,
    HEARD,
    OVER,
    STOPPED,
    VARIABLE,
    WARNED,
    add_mark,
    look_every,
    marks,
)

# How often the file is looked at that tells of a warning whose signal did not come here; less often
# where ranks are many.
_LOOK_S = 1.0


class _Warning:
    """What this process knows of the warning, and has said of it."""

    def __init__(self) -> None:
        self.came = False
        self.agreed = False
        self.asked = 0
        self._before: Callable[[int, FrameType | None], Any] | None = None
        world = os.environ.get("WORLD_SIZE", "")
        self._look_s = look_every(_LOOK_S, int(world) if world.isdecimal() else 1)
        self._looked = -self._look_s

    def listen(self) -> None:
        """Handle SIGUSR2; a handler that is there already is called, too."""
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGUSR2, self._handle)
            self._before = before if callable(before) else None
            atexit.register(self._end)
            self._shield()
        self.look()

    def _shield(self) -> None:
        """Leave it to the supervisor what Slurm's SIGTERM means, where Slurm sends it here, too.

        A script that handles the signal by itself keeps its handler.
        """
        path, untouched = os.environ.get(VARIABLE), signal.getsignal(signal.SIGTERM)
        if path and untouched == signal.SIG_DFL and ALL_SIGNALLED in marks(Path(path), _attempt()):
            signal.signal(signal.SIGTERM, _end_if_over)

    def _end(self) -> None:
        """Let no late signal end a script that ends: Python gives its handler back before."""
        if signal.getsignal(signal.SIGUSR2) == self._handle:
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._hear()
        if self._before is not None:
            self._before(signum, frame)

    def look(self) -> bool:
        """Say whether the warning has come to this process, or to its rank's supervisor."""
        if not self.came and time.monotonic() - self._looked >= self._look_s:
            self._looked = time.monotonic()
            path = os.environ.get(VARIABLE)
            if path and WARNED in marks(Path(path), _attempt()):
                self._hear()
        return self.came

    def _hear(self) -> None:
        # A script with a handler of its own may stop without a word.
        alone = self._before is None and signal.getsignal(signal.SIGUSR2) == self._handle
        if alone and not self.came:
            _tell(HEARD)
        self.came = True

    def agree(self) -> None:
        """Note that all ranks stop now."""
        if not self.agreed:
            _tell(STOPPED)
        self.agreed = True


def _end_if_over(signum: int, _frame: FrameType | None) -> None:
    """End as by SIGTERM if the job ends; on a preemption, SIGUSR2 follows."""
    path = os.environ.get(VARIABLE)
    if not path or OVER in marks(Path(path), _attempt()):
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)


def stop_requested() -> bool:
    """Say whether the warning has come to this rank; other ranks may hear of it a moment later.

    For a script that adds the answer to a message which its ranks exchange anyway, and calls
    `stopping_now` when they stop. Everybody else wants `should_stop`.
    """
    return _warning.look()


def stopping_now() -> None:
    """Tell hpckit that this script ends before its work is done, to go on in the next attempt."""
    _warning.agree()


def should_stop(group: object = None, *, every: int = 1) -> bool:
    """Say whether to save a checkpoint and end now: the same answer on all ranks.

    All ranks must call this equally often: after each step, say, or each epoch. Before it says yes
    on one, the ranks exchange one number, so that none goes on alone and waits for the others for
    ever. Once it has said yes it always does. hpckit then knows that the script ends early.

    Args:
        group: a process group of torch.distributed, or a communicator of mpi4py. By default all
            ranks of torch.distributed if it is initialized, else all of MPI if mpi4py is in use,
            else this process alone.
        every: exchange the number in every n-th call only; the others say no at once. A warning
            comes 90 s before the time limit, and at least the save must be over by then.

    Raises:
        ValueError: `every` is not at least 1.
    """
    if every < 1:
        raise ValueError(f"every is {every}; it must be at least 1.")
    if _warning.agreed:
        return True
    _warning.asked += 1
    if (_warning.asked - 1) % every:
        return False
    if _any_rank(_warning.look(), group):
        _warning.agree()
    return _warning.agreed


def _any_rank(mine: bool, group: object) -> bool:
    """Say whether any rank says yes."""
    if group is not None and hasattr(group, "Allreduce"):
        return _any_by_mpi(mine, group)
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return _any_by_torch(mine, group)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        return _any_by_mpi(mine, mpi.COMM_WORLD)
    return mine


def _any_by_torch(mine: bool, group: Any) -> bool:  # noqa: ANN401
    import torch  # noqa: PLC0415  # it is loaded: this module alone needs none
    import torch.distributed as dist  # noqa: PLC0415

    if dist.get_world_size(group) == 1:
        return mine
    # NCCL carries what is on a GPU; gloo and MPI what is in memory.
    backend = str(dist.get_backend(group))
    on_gpu = "nccl" in backend and "gloo" not in backend
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    said = torch.tensor([int(mine)], dtype=torch.int32, device=device)
    dist.all_reduce(said, dist.ReduceOp.MAX, group=group)
    return bool(said.item())


def _any_by_mpi(mine: bool, comm: Any) -> bool:  # noqa: ANN401
    if comm.Get_size() == 1:
        return mine
    from mpi4py import MPI  # noqa: PLC0415  # it is loaded

    said = bytearray([int(mine)])
    comm.Allreduce(MPI.IN_PLACE, [said, MPI.BYTE], op=MPI.BOR)
    return bool(said[0])


def _attempt() -> int:
    return int(os.environ.get("HPCKIT_RESTART") or 0)


def _tell(word: str) -> None:
    if path := os.environ.get(VARIABLE):
        add_mark(Path(path), _attempt(), word)


_warning = _Warning()
_warning.listen()
