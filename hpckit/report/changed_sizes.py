"""A job that changed its size while it ran: its samples, by the parts of its attempt.

The sampler of a node that the job kept writes one file over the change.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hpckit.report.job_samples import is_its_host, read_file
from hpckit.slurm.resized import changes_at
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.pieces import piece
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.figures import SourceNote


def cut_at_changes(
    files: Sequence[Columns],
    spans: Sequence[Span],
    notes: list[SourceNote],
    *,
    drawn: bool = False,
) -> list[Columns]:
    """Return files, those that go on over a change in pieces; `notes` gets what cannot be read.

    A counter's value at the change is needed: such files are read again, with every value.
    """
    changes = [
        pair for pair in pairwise(spans) if changes_at(pair[0].state, pair[0].end, pair[1].start)
    ]
    return [part for file in files for part in _parts(file, changes, notes, drawn=drawn)]


def _parts(
    file: Columns,
    changes: Sequence[tuple[Span, Span]],
    notes: list[SourceNote],
    *,
    drawn: bool,
) -> Iterator[Columns]:
    cuts = [
        file.header.mono_us + round((after.start - file.first_epoch) * 1e6)
        for before, after in changes
        if is_its_host(file, before)
        and is_its_host(file, after)
        and file.first_epoch < after.start < file.last_epoch
    ]
    if not cuts:
        yield file
        return
    host, restart = file.header.host, file.restart
    whole = read_file(file.path, host, restart, notes, every_energy=True, drawn=drawn)
    if whole:
        for since_us, until_us in pairwise([None, *cuts, None]):
            yield piece(whole, since_us, until_us)
