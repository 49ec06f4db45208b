"""The GPUs of this machine, shared out among this user's local jobs: each job has its own.

A job has a GPU while a file that stands for the GPU is open and locked: in the job's controller,
and in its keeper, which outlives a killed controller until the job is ended. So the kernel gives
the GPU back, however they end. What other programs do on a GPU is not known here.
"""

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from hpckit.errors import OutsideError
from hpckit.file_locks import locked, open_locked
from hpckit.files import DamagedFileError, reason
from hpckit.frozen import frozen
from hpckit.paths import make_folder, state_folder
from hpckit.schedulers.base import Machine

# Set by the user: jobs share GPUs with one another.
SHARE = "HPCKIT_SHARE_GPUS"
# What a job has, for the jobs that are submitted from inside it: their GPUs are the job's own.
_HELD = "HPCKIT_HELD_GPUS"
_INSIDE = ".inside"
# How long to wait for others that look for free GPUs just now, and until one looks again.
_OTHERS_S, _AGAIN_S = 1.0, 0.5


@frozen(kw_only=True)
class GpuRequest:
    """What each job of a submission gets: `count` of the GPUs `names`, as CUDA has them.

    Attributes:
        ids: what each of the GPUs is, under whatever name: equal for the same GPU.
        folder: of the files that stand for GPUs, by their ids; None: nothing can be locked.
        shared: other jobs that say so too may have the same GPUs.
    """

    count: int = 0
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    folder: str | None = None
    shared: bool = False


@frozen(kw_only=True)
class GpuShare:
    """The GPUs that one job has; they are its own while `files` are open."""

    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    files: tuple[IO[bytes], ...] = ()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child must have open to keep them."""
        return tuple(file.fileno() for file in self.files)

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what the job is told of them, whose environment is `environ` otherwise."""
        told = {"HPCKIT_NODE_GPUS": ",".join(self.names)}
        return told | ({_HELD: ",".join((*_held(environ), *self.ids))} if self.ids else {})


def request_gpus(machine: Machine, count: int, environ: Mapping[str, str]) -> GpuRequest:
    """Return what jobs of `count` GPUs each ask of a machine."""
    gpus, held = zip(machine.gpus, machine.uuids, strict=True), _held(environ)
    ids = tuple(_id(name, uuid, held) for name, uuid in gpus)
    try:
        folder = str(state_folder(environ) / "gpus")
    except OutsideError:  # there is no home
        folder = None
    return GpuRequest(
        count=min(count, len(ids)),
        names=machine.gpus,
        ids=ids,
        folder=folder,
        # One GPU under two names is not two; CUDA says what it thinks of that.
        shared=bool(environ.get(SHARE)) or len(set(ids)) < count,
    )


def _held(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for word in environ.get(_HELD, "").split(",") if word)


def _id(name: str, uuid: str, held: tuple[str, ...]) -> str:
    """Return what a GPU is; inside a job that has it, it is another one, for the jobs there."""
    text = f"{os.uname().nodename}-{name}" if uuid == name and name.isdecimal() else uuid
    text = re.sub(r"[^\w.-]", "_", text)
    while text in held:
        text += _INSIDE
    return text


class GpuPool:
    """Gives the jobs of one controller their GPUs, and takes them back."""

    def __init__(self, request: GpuRequest) -> None:
        self.request = request
        self._folder = None if request.folder is None else Path(request.folder)
        self._jobs = Counter[str]()  # by id, of this controller
        self._due = 0.0

    def take(self) -> GpuShare | None:
        """Return free GPUs, as many as one job gets; None: too few are free now.

        All of them or none, so that no two jobs wait for each other. After a None, it is the same
        for some moments, unless `give_back` is called.
        """
        if not self.request.count:
            return GpuShare()
        now = time.monotonic()
        if now < self._due:
            return None
        share = self._take()
        if share is None:
            self._due = now + _AGAIN_S
        else:
            self._jobs.update(share.ids)
        return share

    def give_back(self, share: GpuShare) -> None:
        """Let others have a job's GPUs; nothing of the job runs any more."""
        for file in share.files:
            file.close()
        self._jobs.subtract(share.ids)
        self._due = 0.0

    def _take(self) -> GpuShare | None:
        if self._folder is None:
            return self._free()
        try:
            make_folder(self._folder, mode=0o700)
            with locked(self._folder / "lock", shared=False, patience_s=_OTHERS_S) as alone:
                return None if alone is False else self._free()
        except (OSError, DamagedFileError) as error:
            why = reason(error)
            sys.stderr.write(f"{self._folder}: GPUs are not kept from other submissions: {why}\n")
            self._folder = None
            return self._free()

    def _free(self) -> GpuShare | None:
        """Return GPUs that no job of this controller has, nor, by the files, another job."""
        files: list[IO[bytes]] = []
        taken: list[tuple[str, str]] = []
        with ExitStack() as if_too_few:
            for gpu in self._candidates():
                if self._folder is not None:
                    file = open_locked(self._folder / gpu[1], shared=self.request.shared)
                    if file is None:
                        continue
                    files.append(if_too_few.enter_context(file))
                taken.append(gpu)
                if len(taken) == self.request.count:
                    if_too_few.pop_all()
                    names, ids = zip(*taken, strict=True)
                    return GpuShare(names=names, ids=ids, files=tuple(files))
        return None

    def _candidates(self) -> Iterator[tuple[str, str]]:
        """Yield names and ids of the GPUs to look at: those that are shared by the fewest first."""
        pairs = zip(self.request.names, self.request.ids, strict=True)
        if self.request.shared:
            yield from sorted(pairs, key=lambda pair: self._jobs[pair[1]])
        else:
            yield from (pair for pair in pairs if not self._jobs[pair[1]])
