"""MPI: which rank this process is, what ranks send each other, and how they all end together.

The only module that knows mpi4py. What travels are arrays, never pickles.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from hpckit.parallel.benchmark import synchronize
from hpckit.parallel.devices import device_of_rank
from hpckit.parallel.errors import SetupError
from hpckit.rank_variables import find_starter

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


@dataclass
class Spent:
    """What a rank has spent so far in messages that add up, waiting for the others included.

    Attributes:
        seconds: in all.
    """

    seconds: float = 0.0


# So long a rank leaves rank 0 time to say what is wrong, when it is the same for all.
_GRACE_S = 1.0
# Of one message: older MPIs count in 31 bits.
_MOST_BYTES = 2**30


class _AllEnd(SystemExit):
    """This rank has said why all end; blocks of `ending_together` around say no more."""


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks of an MPI job; alone without MPI.

    Attributes:
        rank: counted from 0.
        size: how many ranks there are.
        local_rank: counted from 0 on each host.
        local_size: how many ranks this host has.
        gpu_aware: hand MPI tensors on GPUs as they are. The MPI library must have been built for
            that; otherwise it ends the job or crashes.
        spent: seconds in `add`.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    comm: "Comm | None" = None
    gpu_aware: bool = False
    spent: Spent = field(default_factory=Spent, compare=False, repr=False)

    @property
    def leads(self) -> bool:
        """Whether this is the rank that prints and writes."""
        return self.rank == 0

    def choose_device(self, words: Sequence[str] = ()) -> torch.device:
        """Return this rank's device.

        Args:
            words: such as `cuda:0 cuda:1`: one for each rank, or one for each rank of a host, or
                a single one for all; without any, as `device_of_rank` has it.

        Raises:
            SetupError: there are too few, or the device is not here.
        """
        if not words:
            word = None
        elif len(words) == 1:
            word = words[0]
        elif len(words) >= self.size:
            word = words[self.rank]
        elif len(words) >= self.local_size:
            word = words[self.local_rank]
        else:
            raise SetupError(
                f"{len(words)} devices ({' '.join(words)}) for {self.local_size} ranks on this "
                "host: give one device for each rank, or one device for all"
            )
        return device_of_rank(self.local_rank, word)

    def add(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks: the very same bits on each.

        A plain all-reduce may round differently from rank to rank; ranks that decide by such a
        sum would some day disagree. So one rank adds up, and sends the sum to all.

        Args:
            values: of the same shape and type on all ranks, on any device.
        """
        if self.comm is None:
            return values
        from mpi4py import MPI  # noqa: PLC0415  # loads a library that a rank alone can do without

        synchronize([values.device])  # what a GPU still computes is no message
        began = time.perf_counter()
        buffer = self._buffer(values)
        total = torch.empty_like(buffer)
        self.comm.Reduce(_exposed(buffer), _exposed(total), op=MPI.SUM, root=0)
        self.comm.Bcast(_exposed(total), root=0)
        found = total.to(values.device)
        self.spent.seconds += time.perf_counter() - began
        return found

    def broadcast(self, values: torch.Tensor) -> torch.Tensor:
        """Return rank 0's values; `values` must have the same shape and type on all ranks."""
        if self.comm is None:
            return values
        buffer = self._buffer(values)
        self.comm.Bcast(_exposed(buffer), root=0)
        return buffer.to(values.device)

    def share(self, make: Callable[[], Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
        """Let rank 0 make arrays, or tensors, and give them to all ranks as arrays.

        Of numbers of any size, words, dates and structures of them, not of Python's objects.
        """
        with self.ending_together():
            arrays = _arrays(make()) if self.leads else []
        if self.comm is None:
            return arrays
        described = [[array.shape, np.lib.format.dtype_to_descr(array.dtype)] for array in arrays]
        header = json.dumps(described).encode()
        length = np.array([len(header)], dtype=np.int64)
        self.comm.Bcast(length, root=0)
        text = np.frombuffer(header, dtype=np.uint8).copy()
        text = text if self.leads else np.empty(int(length[0]), dtype=np.uint8)
        self.comm.Bcast(text, root=0)
        if not self.leads:
            told = json.loads(text.tobytes())
            arrays = [np.empty(shape, np.lib.format.descr_to_dtype(kind)) for shape, kind in told]
        for array in arrays:
            # As bytes, since MPI has no words or dates, nor float16.
            content = array.reshape(-1).view(np.uint8)
            for begin in range(0, len(content), _MOST_BYTES):
                self.comm.Bcast(content[begin : begin + _MOST_BYTES], root=0)
        return arrays

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Within this, an exception on one rank ends all of them: others would wait for it forever.

        What a user can mend (SetupError) is one line, as are Ctrl-C and `sys.exit` of a simulator;
        anything else is a traceback.
        """
        try:
            yield
        except _AllEnd:
            raise
        except SetupError as error:
            if self.comm is None:
                raise
            if not self.leads:
                time.sleep(_GRACE_S)
            self._end_all(f"error: rank {self.rank}: {error}\n", 2)
        except Exception:
            if self.comm is None:
                raise
            self._end_all(f"rank {self.rank} of {self.size}:\n{traceback.format_exc()}", 1)
        except BaseException as error:  # GeneratorExit and others of the kind, too
            if self.comm is None:
                raise
            self._end_all(f"rank {self.rank} of {self.size} ended alone: {error!r}\n", 1)

    def _end_all(self, words: str, status: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.write(words)
        sys.stderr.flush()
        # Where hpckit runs this script, it ends all ranks when one does not end well. Slurm's PMIx
        # would kill everything at MPI_Abort, the record of which rank failed too.
        if self.comm is not None and "HPCKIT_MPI_SCRIPT" not in os.environ:
            self.comm.Abort(status)  # MPICH's returns, and the signal comes a moment later
        raise _AllEnd(status)

    def _buffer(self, values: torch.Tensor) -> torch.Tensor:
        """Return a copy that MPI can read and write."""
        copy = values.detach().clone().contiguous()
        return copy if self.gpu_aware else copy.cpu()


def _arrays(made: object) -> list[NDArray[Any]]:
    """Return what rank 0 made to be shared, each contiguous in memory.

    Raises:
        SetupError: it is not a list of arrays.
    """
    wrong = "ranks.share needs a function that returns a list of arrays, as lambda: [array], but"
    if not isinstance(made, Iterable) or isinstance(made, str | bytes | Mapping):
        raise SetupError(f"{wrong} it returned a {type(made).__name__}")
    whole = [one.detach().cpu() if isinstance(one, torch.Tensor) else one for one in made]
    arrays = [np.ascontiguousarray(one) for one in whole]
    for number, array in enumerate(arrays):
        if array.dtype.hasobject:
            raise SetupError(f"{wrong} number {number} in the list contains objects of Python")
    return arrays


def find_ranks(*, gpu_aware: bool = False) -> Ranks:
    """Start MPI, and return this process's place.

    Without a launcher's variables, and where mpi4py or an MPI library is missing, a process is
    alone.

    Raises:
        SetupError: a launcher started several ranks, but MPI is missing, is another one than the
            launcher's, or sees another number of ranks.
    """
    launcher, wanted, rank = _launched(os.environ)
    try:
        ranks = _start(launcher, wanted, gpu_aware=gpu_aware)
    except SetupError:
        # Each process believes to be rank 0 of a world of its own: the launcher knows better.
        if rank:
            time.sleep(_GRACE_S)
        raise
    return ranks


def _launched(environ: Mapping[str, str]) -> tuple[str, int, int]:
    """Return which launcher started this process, how many ranks it started, and which this is."""
    words = find_starter(environ)
    if words is None:
        return "no launcher", 1, 0
    rank, size, _ = words.numbers(environ)
    return words.launcher, size, rank


def _start(launcher: str, wanted: int, *, gpu_aware: bool) -> Ranks:
    try:
        import mpi4py  # noqa: PLC0415  # a rank alone can do without

        mpi4py.rc.initialize = False  # so that a library of another MPI can be told beforehand
        mpi4py.rc.finalize = True
        from mpi4py import MPI  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        if wanted == 1:
            return Ranks()
        raise SetupError(
            f"{launcher} started {wanted} ranks, but MPI cannot be loaded here ({error}): "
            f"load the MPI module, or 'pip install mpi4py mpich' for {sys.executable}"
        ) from error
    library = " ".join(MPI.Get_library_version().split("\n")[0].split(",")[0].split())
    _check_library(launcher, wanted, library)
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_FUNNELED)
    comm = MPI.COMM_WORLD
    if comm.size != wanted:
        raise SetupError(
            f"{launcher} started {wanted} ranks, but MPI ({library}) sees {comm.size}: "
            f"the launcher must be that MPI's own mpirun{_srun_hint(launcher)}"
        )
    if comm.size == 1:
        return Ranks()
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    place = Ranks(comm.rank, comm.size, local.rank, local.size, comm, gpu_aware)
    local.Free()
    return place


def _check_library(launcher: str, wanted: int, library: str) -> None:
    """Refuse a library that would abort, without saying why, under this launcher.

    Raises:
        SetupError: it is another MPI's.
    """
    if wanted == 1:
        return
    of_mpich = any(word in library for word in ("MPICH", "Intel", "MVAPICH"))
    of_openmpi = "Open MPI" in library
    other = of_openmpi if launcher.startswith("mpiexec") else of_mpich
    if launcher.startswith("mp") and other:
        raise SetupError(
            f"{launcher} started this rank, but mpi4py of {sys.executable} loads {library}: "
            "two MPIs are mixed. Use the mpirun of the one that mpi4py loads"
        )


def _srun_hint(launcher: str) -> str:
    if launcher.startswith("mp"):
        return ""
    return (
        ", or srun must be told which MPI: see 'srun --mpi=list', and set 'launch: {mpi: pmix}' in "
        "the site's YAML"
    )


def _exposed(tensor: torch.Tensor) -> Any:  # noqa: ANN401  # a buffer, as mpi4py takes it
    return tensor.numpy() if tensor.device.type == "cpu" else tensor
