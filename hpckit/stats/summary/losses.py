"""When a GPU could no longer be read, and by which error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.records import GpuInfo, Note
from hpckit.stats.summary.clock import Clock
from hpckit.stats.summary.known import Interval

_LOST = ("gpu_lost", "gpu_hang")
# Files of 0.1 have no more than these where NVML's error was none that says "lost".
_HINTS = ("gpu_error", "not_supported")
_SAMPLES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A GPU that could not be read for a while; microseconds from the attempt's start.

    Attributes:
        at_us: when it was last read before.
        back_us: when it was read again; None if it was not.
        error: NVML's own words.
    """

    at_us: int
    back_us: int | None
    error: str | None


def find_loss(
    files: Sequence[tuple[Columns, Clock]], info: GpuInfo, read: Sequence[Interval]
) -> Loss | None:
    """Return the loss that a GPU did not come back from, else the first; None without any.

    `read` is when it was read in all files together.
    """
    said = sorted(_said(files, info, _LOST), key=lambda pair: pair[0])
    if not said:
        return _silent(files, info, read)
    losses = [loss for at, note in said if (loss := _loss(at, note, read))]
    return next((loss for loss in losses if loss.back_us is None), losses[0] if losses else None)


def _loss(at: int, note: Note, read: Sequence[Interval]) -> Loss | None:
    if any(begin < at < end for begin, end in read):
        return None  # another sampler went on reading it
    before = [end for _, end in read if end <= at]
    after = [begin for begin, _ in read if begin >= at]
    return Loss(
        at_us=before[-1] if before else at,
        back_us=after[0] if after else None,
        error=note.text,
    )


def _silent(
    files: Sequence[tuple[Columns, Clock]], info: GpuInfo, read: Sequence[Interval]
) -> Loss | None:
    """Return the loss of a GPU whose last samples have no values although errors were noted."""
    hints = list(_said(files, info, _HINTS))
    if not read:
        return None
    last = read[-1][1]
    after = [
        time
        for columns, clock in files
        for time in columns.times[-_SAMPLES:]
        if time - clock.origin_us > last
    ]
    if len(after) < _SAMPLES:
        return None
    # The same words are noted once, so perhaps before.
    later = [note for at, note in hints if at >= last or note.code == _HINTS[0]]
    return Loss(at_us=last, back_us=None, error=later[0].text) if later else None


def _said(
    files: Sequence[tuple[Columns, Clock]], info: GpuInfo, codes: Sequence[str]
) -> Iterator[tuple[int, Note]]:
    for columns, clock in files:
        for note in columns.notes:
            if note.gpu == info.uuid and note.code in codes:
                yield note.mono_us - clock.origin_us, note
