"""Batches made ready while the device works on the one before."""

import queue
import threading
from collections.abc import Iterable, Iterator

import torch

Batch = tuple[torch.Tensor, ...]
_Sent = tuple[Batch, "torch.cuda.Event | None"]
_END = None
_Ready = queue.Queue["_Sent | BaseException | None"]


def prefetch(batches: Iterable[Batch], device: torch.device, *, depth: int = 2) -> Iterator[Batch]:
    """Yield batches on a device; a thread makes up to `depth` of them beforehand.

    For a GPU they go through pinned memory and a stream of their own, so that copying, the work
    of the host and that of the GPU overlap. What the iterable raises is raised here.

    Raises:
        ValueError: depth is less than 1.
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}: at least one batch must be made beforehand.")
    ready: _Ready = queue.Queue(depth)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(batches, device, ready, stopped), name="prefetch", daemon=True
    )
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield _taken(item, device)
    finally:
        stopped.set()
        while thread.is_alive():  # it may wait for room in the queue
            _drain(ready)
            thread.join(timeout=0.01)


def _fill(
    batches: Iterable[Batch],
    device: torch.device,
    ready: _Ready,
    stopped: threading.Event,
) -> None:
    last: BaseException | None = _END
    try:
        stream = (
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            if device.type == "cuda"
            else None
        )
        for batch in batches:
            if stopped.is_set():
                return
            ready.put(_sent(batch, device, stream))
    except BaseException as error:  # noqa: BLE001  # raised again where the batches are used
        last = error
    ready.put(last)


def _sent(batch: Batch, device: torch.device, stream: "torch.cuda.Stream | None") -> _Sent:
    """Return a batch on its device, with the event that tells when it is there."""
    if stream is None:
        return tuple(tensor.to(device) for tensor in batch), None
    with torch.cuda.stream(stream):
        moved = tuple(_pinned(tensor).to(device, non_blocking=True) for tensor in batch)
        return moved, stream.record_event()


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_cuda else tensor.pin_memory()


def _taken(item: _Sent, device: torch.device) -> Batch:
    batch, event = item
    if event is not None:
        current = torch.cuda.current_stream(device)
        current.wait_event(event)
        for tensor in batch:
            # Else the memory could be given away while this stream still reads it.
            tensor.record_stream(current)
    return batch


def _drain(ready: _Ready) -> None:
    try:
        while True:
            ready.get_nowait()
    except queue.Empty:
        return
