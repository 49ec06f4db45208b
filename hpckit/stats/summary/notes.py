"""What the reader should know about samples: the sampler's own notes, damage, and its end."""

from collections.abc import Iterable, Iterator, Sequence

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.records import SHARED
from hpckit.stats.summary.gpus import GpuTally
from hpckit.stats.summary.values import GpuUse, SourceNote


def file_notes(file: Columns, *, over: bool) -> Iterator[SourceNote]:
    """Yield the notes on one file; `over`: the attempt has ended, so its sampler should have."""
    host = file.header.host
    for note in file.notes:
        yield SourceNote(code=note.code, text=note.text, host=host, gpu=note.gpu)
    if over and file.end is None:
        yield SourceNote(
            code="sampler_stopped",
            text="The sampler was killed from outside; all samples it wrote before that are here.",
            host=host,
        )
    damage = file.damage
    if damage.bad_lines or damage.holes or damage.unknown or damage.astray:
        yield SourceNote(
            code="damage",
            text=f"{damage.bad_lines} damaged records, {damage.holes} holes, {damage.unknown} "
            f"records of a newer version and {damage.astray} records with impossible times "
            f"were left out of {file.path.name}.",
            host=host,
        )


def gpu_notes(tallies: Iterable[GpuTally], per_gpu: Sequence[GpuUse]) -> Iterator[SourceNote]:
    """Yield what limits the figures of GPUs."""
    tallies = list(tallies)
    if any(tally.confidence == SHARED for tally in tallies):
        yield SourceNote(
            code="shared_gpu", text="Processes of other jobs used these GPUs too.", host=None
        )
    errors = [gpu.utilization_error_percent for gpu in per_gpu]
    known = [error for error in errors if error is not None]
    if known:
        yield SourceNote(
            code="spot",
            text="The driver keeps no history here: utilization is the mean of single readings, "
            f"with an error of ± {max(known):.2g} %.",
        )
