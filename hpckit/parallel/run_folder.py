"""What a training run writes: metrics.jsonl and checkpoints/."""

import atexit
import json
import os
import pickle
import time
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import say
from hpckit.parallel.torch_versions import load_tensors

LAST, PREVIOUS = "last.pt", "previous.pt"
# How many lines wait while the disk is full; of more, the oldest are dropped.
_MOST_WAITING = 10_000
_Figures = Mapping[str, float | str]
# What torch and zipfile raise for a file that is torn, empty, full of zeros, or something else.
_DAMAGED = (
    OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class Lines:
    """One JSON object per line, readable as soon as it is written; and events for TensorBoard.

    While the file cannot be written, as on a full disk, training goes on and the lines wait.
    Without a path, as in all ranks but the first, nothing is written.
    """

    def __init__(self, path: Path | None, events: "SummaryWriter | None" = None) -> None:
        self._path, self._events = path, events
        self._waiting: deque[str] = deque(maxlen=_MOST_WAITING)
        self._failed = 0

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line, with the time."""
        if self._path is None:
            return
        self._waiting.append(json.dumps({**record, "time": time.time()}) + "\n")
        try:
            append_whole(self._path, "".join(self._waiting).encode())
        except OSError as error:
            if not self._failed:
                atexit.register(self._try_at_last)
                say(
                    f"hpckit: {self._path} cannot be written: {error.strerror}. The training goes "
                    "on, and the lines wait"
                )
            self._failed += 1
            return
        if self._failed:
            atexit.unregister(self._try_at_last)
            say(f"hpckit: {self._path} is written again, with {len(self._waiting)} lines")
            self._failed = 0
        self._waiting.clear()

    def _try_at_last(self) -> None:
        try:
            append_whole(self._path or Path(), "".join(self._waiting).encode())
        except OSError as error:
            say(f"hpckit: {self._path}: {self._failed} lines are lost: {error.strerror}")

    def show(self, step: int, figures: _Figures) -> None:
        """Write an event for each number, after the devices' name if `figures` have it."""
        if self._events is None:
            return
        where = f"{figures['devices']}/" if "devices" in figures else ""
        try:
            for name, value in figures.items():
                if not isinstance(value, str):
                    self._events.add_scalar(where + name, value, step)
            self._events.flush()
        except OSError as error:
            self._events = None
            say(f"hpckit: no more events for TensorBoard are written: {error.strerror}")

    def close(self) -> None:
        """Write no more events."""
        if self._events:
            self._events.close()
            self._events = None


class Metrics:
    """The file metrics.jsonl of a training, which may go on from a checkpoint."""

    def __init__(
        self,
        folder: Path | None,
        step: int,
        constants: Mapping[str, float],
        *,
        tensorboard: bool = False,
    ) -> None:
        """Begin the file, or continue it after `step`, from which training goes on.

        What an earlier attempt logged stays, even of steps that are taken again: a line says after
        which step this attempt goes on (see `hpckit.run_folders.metrics`). Without a folder nothing
        is written.

        Raises:
            SetupError: events for TensorBoard are asked for, and it is not installed.
        """
        events = event_writer(folder / "tensorboard", step + 1) if folder and tensorboard else None
        path = folder / "metrics.jsonl" if folder else None
        self._lines = Lines(path, events)
        self._constants = {**constants, "restart": restart_number()}
        self._after: int | None = None
        if path and not step and not restart_number():
            path.unlink(missing_ok=True)  # a new training in an old folder
        elif path and whole_lines(path):
            self._after = step

    def write(self, step: int, epoch: int, **figures: float | str) -> None:
        """Append one line, and an event for each number."""
        self._lines.show(step, figures)
        if self._after is not None:
            self._append({"step": self._after, "resumed": True})
            self._after = None
        self._append({"step": step, "epoch": epoch, **figures})

    def _append(self, record: Mapping[str, Any]) -> None:
        self._lines.append({**record, **self._constants})


def append_whole(path: Path, content: bytes) -> None:
    """Append to a file, all or nothing.

    Raises:
        OSError: it cannot be written; it is as it was.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    size = os.fstat(file).st_size
    try:
        try:
            while content:
                content = content[os.write(file, content) :]
        finally:
            os.close(file)  # a file server may report only now that its disk is full
    except OSError:
        with suppress(OSError):
            os.truncate(path, size)
        raise


def restart_number() -> int:
    """Return which attempt of its job this is, from 0; 0 also outside of a job."""
    word = os.environ.get("HPCKIT_RESTART", "")
    return int(word) if word.isdecimal() else 0


def whole_lines(path: Path) -> bool:
    """Remove a last line that was cut off when its job was killed; say whether a line is left."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
    return b"\n" in content


def event_writer(folder: Path | str | None, purge_step: int) -> "SummaryWriter":
    """Return a writer of events; TensorBoard then hides earlier events from `purge_step` on.

    Raises:
        SetupError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # a package of its own
    except ImportError as error:
        raise SetupError(
            "TensorBoard is not installed: install it with 'pip install tensorboard'"
        ) from error
    return SummaryWriter(folder, purge_step=purge_step)


def make_folder(folder: Path, *, inside: str = "checkpoints", writes: bool = True) -> Path:
    """Create the run's folder, and return it.

    Args:
        folder: the run's.
        inside: a folder in it; "" for none.
        writes: this process will write there; of several ranks often one alone does.

    Raises:
        SetupError: it cannot be created, or this process may not write there.
    """
    try:
        (folder / inside).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the run folder {folder} cannot be created: {error.strerror}; give another --out"
        ) from error
    for one in dict.fromkeys((folder, folder / inside)) if writes else ():
        if not os.access(one, os.W_OK | os.X_OK):
            raise SetupError(f"you may not write in the run folder {one}: give another --out")
    return folder


def save_checkpoint(folder: Path, checkpoint: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write a checkpoint under each name; the last.pt before it becomes previous.pt."""
    for name in names:
        save_whole(folder / "checkpoints" / name, checkpoint, keep=name == LAST)


def save_whole(path: Path, state: Mapping[str, Any], *, keep: bool = False) -> None:
    """Write tensors and numbers, whole or not at all, even if the machine dies meanwhile.

    Args:
        path: the file.
        state: what `torch.load(weights_only=True)` can read.
        keep: keep the file that was there as previous.pt.

    Raises:
        SetupError: it cannot be written, as on a full disk; the file that was there stays.
    """
    beside = path.with_suffix(".part")
    try:
        _replace(path, beside, state, keep=keep)
    except (OSError, RuntimeError) as error:
        fault = _fault_of_disk(error)
        if fault is None:
            raise
        with suppress(OSError):
            beside.unlink()  # on a full disk, the job's last lines need the room
        raise SetupError(f"the checkpoint {path} cannot be written: {fault.strerror}") from error


def _fault_of_disk(error: BaseException | None) -> OSError | None:
    """Return the disk's error, which torch follows with a RuntimeError of its own."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def _replace(path: Path, beside: Path, state: Mapping[str, Any], *, keep: bool) -> None:
    with beside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    if keep and path.exists():
        path.replace(path.with_name(PREVIOUS))
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # otherwise the new name may be lost, though the data are not
    finally:
        os.close(folder)


def load_checkpoint(folder: Path, workload: str | None = None) -> dict[str, Any] | None:
    """Return the newest checkpoint that can be read, or None if there is none.

    It is checkpoints/last.pt, or else previous.pt; a message says so.

    Args:
        folder: the run's.
        workload: who will go on; a checkpoint that names another one, as its "workload", is
            refused, and so is what has no "settings".

    Raises:
        SetupError: there are checkpoints, but none of them can be read; or it is another
            workload's, or another program's.
    """
    faults = []
    for name in (LAST, PREVIOUS):
        path = folder / "checkpoints" / name
        if not path.exists():
            continue
        try:
            checkpoint: Any = _load(path)  # a file may hold anything
        except _DAMAGED as error:
            # Torch's messages have many lines.
            faults.append(f"{path} cannot be read: {str(error).partition(chr(10))[0][:200]}")
            continue
        for fault in faults:
            say(f"{fault}: going on from {name}, the one before")
        if not isinstance(checkpoint, dict) or (workload and "settings" not in checkpoint):
            raise SetupError(
                f"{path} is not a checkpoint of {workload or 'hpckit'}, but another program's: "
                "give another --out, or --resume never to start anew there"
            )
        _refuse_other_workload(path, checkpoint.get("workload"), workload)
        return checkpoint
    if faults:
        which = "it" if len(faults) == 1 else "them"
        raise SetupError(
            f"{'; '.join(faults)}. To start anew, give --resume never, or move {which} away"
        )
    return None


@contextmanager
def restoring() -> Iterator[None]:
    """Within this a checkpoint's state is loaded: what does not fit is one line.

    Raises:
        SetupError: it is the state of another network or optimizer.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, KeyError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[-1].rstrip(".") if lines else type(error).__name__
        raise SetupError(
            f"checkpoints/last.pt is of another network or optimizer ({why}): give --resume never "
            "to start anew, or another --out"
        ) from error


def _refuse_other_workload(path: Path, before: object, now: str | None) -> None:
    """Refuse a checkpoint of another workload; older ones do not tell.

    Raises:
        SetupError: it is.
    """
    if None not in (before, now) and before != now:
        raise SetupError(
            f"{path} was made by the workload {before}, not by {now}: give another --out, or "
            "--resume never to start anew there"
        )


def _load(path: Path) -> dict[str, Any]:
    """Read a checkpoint, and check its checksums, which torch itself does not."""
    with zipfile.ZipFile(path) as archive:
        if bad := archive.testzip():
            raise zipfile.BadZipFile(f"{bad} is not what was written")
    return load_tensors(path)
