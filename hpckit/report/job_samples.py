"""Which attempt of a job its samples files are of: told by time and host, not by number. Pure.

Numbers differ where accounting lost a row, or counts anew: after a requeue a file says `r1` beside
the only row there is, and would be taken for an attempt of its own, or for another.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Span, by, seen_span
from hpckit.stats.summary.figures import SourceNote

# Nodes' clocks differ, by less than Slurm's authentication allows (munge(7): 300 s).
_APART_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """Files by the attempts they are of, each with that attempt's number."""

    files: tuple[Columns, ...]
    spans: tuple[Span, ...]
    notes: tuple[SourceNote, ...] = ()


def match(
    files: Sequence[Columns],
    spans: Sequence[Span],
    *,
    job_ids: Collection[str] = (),
    running: bool = False,
) -> Matched:
    """Give each file its attempt; what fits none is an attempt of its own, or left out.

    Args:
        files: of all attempts.
        spans: the attempts that Slurm, or the ranks, know of; without any, files' numbers count.
        job_ids: what the job is called; a file that is of none and fits no attempt is left out.
        running: the newest attempt may not be over.
    """
    if not spans or not files:
        return Matched(files=tuple(files), spans=tuple(spans))
    found: dict[int, list[Columns]] = {}
    strays: list[Columns] = []
    left_out: list[Columns] = []
    for file in files:
        place = _place(file, spans)
        if place is not None:
            found.setdefault(place, []).append(file)
        elif _is_elsewhere(file, spans, job_ids):
            left_out.append(file)
        else:
            strays.append(file)
    rows = [(span, found.get(place, [])) for place, span in enumerate(spans)]
    rows += [_own(group, spans, running) for group in by(strays, lambda file: file.restart)]
    numbered = list(_numbered(sorted(rows, key=lambda row: row[0].start)))
    return Matched(
        files=tuple(
            replace(file, restart=span.restart) for span, group in numbered for file in group
        ),
        spans=tuple(span for span, _ in numbered),
        notes=tuple(_notes(numbered, strays, left_out)),
    )


def _place(file: Columns, spans: Sequence[Span]) -> int | None:
    """Return the attempt that a file was written in: the one it shares most time with."""
    near = [
        (_shared(file, span), span.restart == file.restart, place)
        for place, span in enumerate(spans)
        if _is_its_host(file, span) and _shared(file, span) >= -_APART_S
    ]
    return max(near)[-1] if near else None


def _shared(file: Columns, span: Span) -> float:
    """Return for how many seconds a file and an attempt lasted together; what parts them if < 0."""
    return min(file.last_epoch, span.end) - max(file.first_epoch, span.start)


def _is_its_host(file: Columns, span: Span) -> bool:
    hosts = {host.partition(".")[0] for host in span.hosts}
    return not hosts or file.header.host.partition(".")[0] in hosts


def _is_elsewhere(file: Columns, spans: Sequence[Span], job_ids: Collection[str]) -> bool:
    """Say whether a file is of another job: that says so, or of a node it had not at the time."""
    said = file.header.ids.get("job_id")
    other = bool(said and job_ids and said not in job_ids)
    return other or any(_shared(file, span) > 0 for span in spans)


def _own(files: list[Columns], spans: Sequence[Span], running: bool) -> tuple[Span, list[Columns]]:
    span = seen_span(files, files[0].restart)
    newest = span.start >= max(other.start for other in spans)
    return replace(span, over=not (running and newest)), files


def _numbered(
    rows: Sequence[tuple[Span, list[Columns]]],
) -> Iterator[tuple[Span, list[Columns]]]:
    """Number attempts in order; files know their own number, accounting may have lost some."""
    last = -1
    for span, files in rows:
        said = {file.restart for file in files}
        number = max(last + 1, said.pop() if len(said) == 1 else span.restart)
        last = number
        yield replace(span, restart=number), files


def _notes(
    rows: Sequence[tuple[Span, list[Columns]]],
    strays: Sequence[Columns],
    left_out: Sequence[Columns],
) -> Iterator[SourceNote]:
    alone = {id(file) for file in strays}
    own = [str(span.restart) for span, files in rows if any(id(file) in alone for file in files)]
    if own:
        text = f"Attempt {', '.join(own)} is known only from its samples: no other source has it."
        yield SourceNote(code="unmatched", text=text)
    for file in left_out:
        yield SourceNote(
            code="unmatched",
            text=f"{file.path.name} is left out: the job did not have this node at that time.",
            host=file.header.host,
        )
