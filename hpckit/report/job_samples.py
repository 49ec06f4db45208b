"""The samples files of a job: where they are, what is read of them, and of which attempt they are.

Attempts are told by time and host, not by number. Numbers differ where accounting lost a row, or
counts anew: after a requeue a file says `r1` beside the only row there is, and would be taken for
an attempt of its own, or for another.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.files import DamagedFileError, reason
from hpckit.frozen import frozen
from hpckit.report.attempt_spans import in_turn
from hpckit.report.known_job import KnownJob
from hpckit.slurm.states import JobState
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.pieces import piece_of
from hpckit.stats.samples.records import samples_files
from hpckit.stats.summary.attempts import Span, grouped, outliving, seen_span
from hpckit.stats.summary.figures import SourceNote
from hpckit.text import counted

# Nodes' clocks differ, by less than Slurm's authentication allows (munge(7): 300 s).
_APART_S = 300.0
# slurm.h, SLURM_INTERACTIVE_STEP and SLURM_BATCH_SCRIPT
_STEPS = {str(0xFFFFFFFA): "interactive", str(0xFFFFFFFB): "batch"}
_NAMED = 3  # other jobs, in a note
OWN_FOLDER = "hpckit-samples"  # where `hpckit sample` writes in a job that has no run


@frozen(kw_only=True)
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
        job_ids: what the job is called; a file that says it is of another is left out.
        running: the newest attempt may not be over.
    """
    mine: list[Columns] = []
    others: list[Columns] = []
    for file in files:
        (others if _is_of_another(file, job_ids) else mine).append(file)
    matched = _by_time(mine, spans, running=running)
    return replace(matched, notes=(*matched.notes, *_of_others(others)))


def _is_of_another(file: Columns, job_ids: Collection[str]) -> bool:
    """Say whether a file names its job, and not as any of these."""
    names = names_of(file.header.ids)
    return bool(names and job_ids) and not names & {*job_ids}


def names_of(ids: Mapping[str, str]) -> set[str]:
    """Return what a file calls its job; nothing if it names none."""
    said = {ids[name] for name in ("job_id", "het_job_id", "run_id") if name in ids}
    if said and "array_job_id" in ids:
        said.add(f"{ids['array_job_id']}_{ids.get('array_task_id')}")
    return said


def step_of(ids: Mapping[str, str]) -> str:
    """Return in which step a sampler ran, in accounting's words; a job script is told no number."""
    name = ids.get("step_id", "batch")
    return _STEPS.get(name, name)


def _of_others(files: Sequence[Columns]) -> Iterator[SourceNote]:
    """Say whose files are left out: in one folder `hpckit sample --dir` may have put many."""
    if files:
        jobs = dict.fromkeys(file.header.ids.get("job_id", "?") for file in files)
        named = ", ".join(list(jobs)[:_NAMED]) + (", ..." if len(jobs) > _NAMED else "")
        text = f"{counted(len(files), 'file')} of other jobs' samples left out: of job {named}."
        yield SourceNote(code="unmatched", text=text)


def _by_time(files: Sequence[Columns], spans: Sequence[Span], *, running: bool) -> Matched:
    """Give each file of a job the attempt whose time and node it has."""
    if not spans or not files:
        return Matched(files=tuple(files), spans=tuple(spans))
    found: dict[int, list[Columns]] = {}
    strays: list[Columns] = []
    left_out: list[Columns] = []
    for file in files:
        place = None if _is_unknown(file, spans) else _place(file, spans)
        if place is not None:
            found.setdefault(place, []).append(file)
        elif _is_elsewhere(file, spans) and not _is_unknown(file, spans):
            left_out.append(file)
        else:
            strays.append(file)
    rows = [(span, found.get(place, [])) for place, span in enumerate(spans)]
    rows += [_own(group, spans, running) for group in grouped(strays, lambda file: file.restart)]
    rows.sort(key=lambda row: row[0].start)
    if any(_is_unknown(file, spans) for file in strays):
        ended = in_turn([span for span, _ in rows])
        rows = [(span, group) for span, (_, group) in zip(ended, rows, strict=True)]
    numbered = list(_numbered(rows))
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
        if is_its_host(file, span) and _shared(file, span) >= -_APART_S
    ]
    return max(near)[-1] if near else None


def _is_unknown(file: Columns, spans: Sequence[Span]) -> bool:
    """Say whether a file is of an attempt that follows all that accounting knows of a resized job.

    If such a job is requeued, Slurm 22.05 writes over the row of its last size, and the next
    attempt has no row: that one goes on to the end, with the nodes that it had before.
    """
    changes = sum(span.state == JobState.RESIZING for span in spans)
    return bool(changes) and file.restart >= len(spans) - changes


def _shared(file: Columns, span: Span) -> float:
    """Return for how many seconds a file and an attempt lasted together; what parts them if < 0."""
    return min(file.last_epoch, span.end) - max(file.first_epoch, span.start)


def is_its_host(file: Columns, span: Span) -> bool:
    """Say whether a file is of a node that an attempt had."""
    hosts = {host.partition(".")[0] for host in span.hosts}
    return not hosts or file.header.host.partition(".")[0] in hosts


def _is_elsewhere(file: Columns, spans: Sequence[Span]) -> bool:
    """Say whether a file that fits no attempt is of a node that the job had not at the time."""
    return any(_shared(file, span) > 0 for span in spans)


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


def samples_folders(known: KnownJob, samples: Path | None) -> list[Path]:
    """Return where samples of a job may be."""
    if samples is not None:
        return [samples]
    if known.run:
        return [known.run.dir / "samples"]
    if known.sampled:
        return [known.sampled.folder]
    last = known.last
    said = (last.raw_id, last.job_id, leader_of(last.job_id)) if last else ()
    names = [name for name in said if name]
    work_dir = known.attempts[-1].work_dir if known.attempts else None
    places = [Path.cwd(), *([Path(work_dir)] if work_dir else [])]
    found = [place / OWN_FOLDER / name for place in places for name in names]
    there = [folder for folder in dict.fromkeys(found) if _is_folder(folder)]
    return [folder for folder in there if folder.parent == there[0].parent]


def leader_of(job_id: str) -> str | None:
    """Return the id of a heterogeneous job's first component, of any one's `123+1`."""
    whole, plus, _ = job_id.partition("+")
    return whole if plus else None


def _is_folder(path: Path) -> bool:
    """Say whether a folder is there; a work folder is its user's text, and may be no path."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_folders(
    folders: Sequence[Path], step: str | None, *, drawn: bool = False
) -> tuple[list[Columns], list[SourceNote]]:
    """Return the samples files of folders, all or those of one step, and notes on unusable ones.

    `drawn` reads what pictures over time need, too.
    """
    files: list[Columns] = []
    notes: list[SourceNote] = []
    for folder in folders:
        try:
            paths = samples_files(folder)
        except OSError as error:
            text = f"{folder} cannot be read: {reason(error)}."
            notes.append(SourceNote(code="unreadable", text=text))
            continue
        for path in paths:
            columns = read_file(path.path, path.host, path.restart, notes, drawn=drawn)
            if columns and step in (None, step_of(columns.header.ids)):
                files.append(columns)
    return files, notes


def read_file(
    path: Path,
    host: str,
    restart: int,
    notes: list[SourceNote],
    until_us: int | None = None,
    *,
    every_energy: bool = False,
    drawn: bool = False,
) -> Columns | None:
    """Read one file, or note why it cannot be used."""
    try:
        columns = read_columns(path, restart, until_us, every_energy=every_energy, drawn=drawn)
    except (OSError, DamagedFileError) as error:
        text = f"{path.name} cannot be read: {reason(error)}."
        notes.append(SourceNote(code="unreadable", text=text, host=host))
        return None
    if columns is None:
        text = f"{path.name} has no readable header: the file is not used."
        notes.append(SourceNote(code="headless", text=text, host=host))
    return columns


def cut_to_attempts(
    files: Sequence[Columns],
    held: Sequence[Span],
    notes: list[SourceNote],
    *,
    drawn: bool = False,
) -> tuple[Columns, ...]:
    """Return files with what is needed to tell a job's time from other time, read again for it.

    What a sampler that outlived its job wrote after an attempt's end is left out. Of an attempt
    that was suspended each energy is kept: else of counters only the ends of each block are.
    """
    ends = {(file.path, file.restart): until_us for file, until_us in outliving(files, held)}
    suspended = {span.restart for span in held if span.suspended_s}
    found = []
    for file in files:
        part: Columns | None = file
        until_us = ends.get((file.path, file.restart))
        every_energy = file.is_piece or file.restart in suspended
        if until_us is not None or (every_energy and not file.every_energy):
            part = read_file(
                file.path,
                file.header.host,
                file.restart,
                notes,
                until_us,
                every_energy=every_energy,
                drawn=drawn,
            )
        found.append(part and piece_of(part, file))
    return tuple(part for part in found if part)
