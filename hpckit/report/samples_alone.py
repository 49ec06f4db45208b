"""Jobs of which nothing but their samples is known: no run, and Slurm is silent or has forgotten.

What samples say of themselves is all there is, so none is taken that does not name the job.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.errors import NotFoundError, RequestError
from hpckit.files import DamagedFileError, reason
from hpckit.frozen import frozen
from hpckit.owners import user_name
from hpckit.report.job_samples import OWN_FOLDER, names_of
from hpckit.report.known_job import SampledJob
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.reading import read_header
from hpckit.stats.samples.records import Header, has_samples, samples_files
from hpckit.stats.summary.attempts import Span, grouped, seen_span
from hpckit.stats.summary.figures import SourceNote
from hpckit.text import by_number, in_line, listed

# What `hpckit sample` calls a folder: Slurm's id, or that of its own process.
_FOLDER = r"(?a)(?:\d+(?:[_+]\d+)?|local-\d+)"
_NAMED = 3  # jobs, or folders, in an error


@frozen(kw_only=True)
class _Seen:
    """One file's header, its folder, and whose file it is."""

    header: Header
    folder: Path
    user: str


def check_folder(folder: Path) -> None:
    """Refuse a folder of samples that has none.

    Raises:
        RequestError: so it is, or it cannot be read.
    """
    try:
        if samples_files(folder):
            return
        there = folder.is_dir()
        folders = folder.iterdir() if there else ()
        inside = sorted(str(path) for path in folders if has_samples(path))
    except OSError as error:
        raise RequestError(
            f"samples {folder}: it cannot be read: {reason(error)}. Ask its owner, or give "
            "another folder."
        ) from error
    wrong = "this folder has no samples files" if there else "there is no such folder"
    todo = (
        f"Folders in it have some; give one: {listed(inside, _NAMED)}."
        if inside
        else f"`hpckit sample` writes them to {OWN_FOLDER}/JOBID where it runs, or to its --dir."
    )
    raise RequestError(f"samples {folder}: {wrong}. {todo}")


def find_sampled(job_id: str, step: str | None, samples: Path | None) -> dict[str, SampledJob]:
    """Return jobs that samples name so, by their ids: of an array's id, each task of it.

    `samples` is the folder of samples; None: where `hpckit sample` writes, in the current one.

    Raises:
        RequestError: samples are there, and none is of this job or can be read.
        NotFoundError: none is of this step.
    """
    if samples is None and not re.fullmatch(_FOLDER, job_id):
        return {}
    folder = Path.cwd() / OWN_FOLDER / job_id if samples is None else samples
    seen, unreadable = _look(folder)
    tasks = [] if samples else _tasks_seen(job_id, seen)
    if not seen and not unreadable and not tasks:
        return {}
    rows = [(name, row) for row in seen if (name := _called(row.header, job_id, folder))]
    rows = sorted([*rows, *tasks], key=lambda row: (len(row[0]), row[0]))  # 7_2 before 7_10
    if not rows:
        raise RequestError(_not_its(job_id, folder, [row.header for row in seen], unreadable))
    steps = {row.header.ids.get("step_id") for _, row in rows} - {None}
    if step is not None and step not in steps:
        named = f"they are of {in_line(listed(sorted(map(str, steps)), _NAMED))}"
        raise NotFoundError(
            f"The samples in {folder} are not of step {step!r} of job {job_id}; "
            + (f"{named}." if steps else "they name no step.")
        )
    jobs = grouped(rows, lambda row: row[0])
    return {group[0][0]: _job([row for _, row in group]) for group in jobs}


def _tasks_seen(job_id: str, seen: Sequence[_Seen]) -> list[tuple[str, _Seen]]:
    """Return what each task of an array wrote in its own folder, for an id of the array or a task.

    `hpckit sample` calls a folder by the number that Slurm gives each task, which is not less than
    the array's. `seen` is what the folder of this id has: of another job than an array, it is all.
    """
    first, _, task = job_id.partition("_")
    arrays = {row.header.ids.get("array_job_id") for row in seen}
    if not first.isdecimal() or "+" in job_id or (seen and (task or arrays != {job_id})):
        return []
    own = Path.cwd() / OWN_FOLDER
    try:
        names = [entry.name for entry in os.scandir(own) if entry.name != job_id]
    except OSError:
        return []
    numbers = sorted(int(name) for name in names if re.fullmatch(r"(?a)\d{1,18}", name))
    rows: list[tuple[str, _Seen]] = []
    for number in numbers:
        if number >= int(first):
            folder = own / str(number)
            rows += [
                (name, row)
                for row in _look(folder)[0]
                if row.header.ids.get("array_job_id") == first
                and (name := _called(row.header, job_id, folder))
            ]
    return rows


def _look(folder: Path) -> tuple[list[_Seen], list[str]]:
    """Return the headers of a folder's files, and why others have none."""
    seen, unreadable = [], []
    try:
        files = samples_files(folder)
    except OSError as error:
        return [], [f"it cannot be read: {reason(error)}"]
    for file in files:
        try:
            header = read_header(file.path)
            if header:
                user = user_name(file.path.stat().st_uid)
                seen.append(_Seen(header=header, folder=folder, user=user))
            else:
                unreadable.append(f"{file.path.name} has no readable header")
        except (OSError, DamagedFileError) as error:
            unreadable.append(f"{file.path.name}: {reason(error)}")
    return seen, unreadable


def _called(header: Header, job_id: str, folder: Path) -> str | None:
    """Return what a file's job is called, if a word means it; None: it is of another job.

    A file that names no job (of an earlier version, outside Slurm) is what its folder is called.
    """
    names, task = names_of(header.ids), header.ids.get("array_task_id", "")
    if job_id == header.ids.get("array_job_id") and task.isdecimal():
        return f"{job_id}_{task}"
    return job_id if job_id in (names or {folder.absolute().name}) else None


def _job(seen: Sequence[_Seen]) -> SampledJob:
    users = {row.user for row in seen}
    start = min(row.header.epoch_us for row in seen) / 1e6
    return SampledJob(
        folder=seen[0].folder, start=start, user=users.pop() if len(users) == 1 else None
    )


def _not_its(
    job_id: str, folder: Path, headers: Sequence[Header], unreadable: Sequence[str]
) -> str:
    """Say that samples are not of a job, and whose they are."""
    if not headers:
        return (
            f"The samples in {folder} cannot be used: {listed(unreadable, _NAMED)}. Copy them "
            "again from where the job ran."
        )
    named = dict.fromkeys(_whose(header.ids) for header in headers)
    # They are anybody's words, which are to be typed.
    jobs = [in_line(name) for name in named if name] or [folder.absolute().name]
    shown = shlex.join(["hpckit", "stats", jobs[0], "--samples", str(folder)])
    return (
        f"The samples in {folder} are not of job {job_id!r}, but of {listed(jobs, _NAMED)}. "
        f"Give that id: {shown}"
    )


def _whose(ids: Mapping[str, str]) -> str | None:
    """Return what a job is called whose samples these are."""
    if "array_job_id" in ids:
        return f"{ids['array_job_id']}_{ids.get('array_task_id')}"
    return ids.get("het_job_id") or ids.get("job_id") or ids.get("run_id")


def why_alone(job_id: str, *, asked: bool, silence: str | None) -> SourceNote:
    """Say why nothing but samples is known of a job.

    `asked`: Slurm was, since the word can be an id of its. `silence` says what did not answer;
    None: all did, and nothing has the job.
    """
    if not asked:
        why = f"Slurm was not asked, for {job_id!r} is not an id of its jobs"
    elif silence is None:
        why = "Slurm does not have this job (any more)"
    else:
        why = silence
    text = f"Only this job's samples are known, so its state is unknown: {why.rstrip('.')}."
    return SourceNote(code="samples_alone", text=text)


def open_spans(files: Sequence[Columns]) -> tuple[Span, ...]:
    """Return attempts as their samples tell them; nobody knows whether the newest is over."""
    groups = grouped(sorted(files, key=lambda file: file.restart), lambda file: file.restart)
    found = [
        replace(
            seen_span(group, group[0].restart),
            hosts=tuple(sorted({file.header.host for file in group}, key=by_number)),
        )
        for group in groups
    ]
    return (*found[:-1], *(replace(span, over=False) for span in found[-1:]))


def open_notes(files: Sequence[Columns], held: Sequence[Span]) -> Iterator[SourceNote]:
    """Say of which nodes nobody knows whether they are still sampled."""
    newest = held[-1].restart if held else None
    for file in files:
        if file.end is None and file.restart == newest:
            text = "The sampler has not written an end: it still runs, or was killed."
            yield SourceNote(code="sampler_open", text=text, host=file.header.host)
