"""Writes the page of a job, or of several, or a picture: as one file, whole or not at all."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpckit.errors import OutsideError, RequestError
from hpckit.files import DamagedFileError, reason, write_shown
from hpckit.pages.job import job_page
from hpckit.pages.jobs import bins_each, jobs_page
from hpckit.pages.main_picture import POINTS, Drawing, main_picture
from hpckit.pages.pictures import pictures, read_curves, whole_span
from hpckit.pages.training import training
from hpckit.plotting import Kind, require_matplotlib
from hpckit.report.gather import Gathered
from hpckit.stats.advice.engine import Advice
from hpckit.stats.summary.curves import MOST_BINS, Curves


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A job as it is shown: what was gathered, and the advice on it."""

    found: Gathered
    advice: Sequence[Advice] = ()


def points_of(files: Collection[str], jobs: int) -> tuple[int, ...]:
    """Return how many points the pictures of each job have in `html`, `png` and `svg` files.

    Raises:
        OutsideError: pictures are asked for, and matplotlib is not installed.
    """
    if POINTS.keys() & set(files):
        require_matplotlib()
    page = MOST_BINS if jobs == 1 else bins_each(jobs)
    every = [("html", page), *(POINTS.items() if jobs == 1 else ())]
    return tuple(count for name, count in every if name in files)


def write_page(jobs: Sequence[Shown], path: Path) -> Path:
    """Write the page of a job, or one of several; return its path.

    Raises:
        OutsideError: it cannot be written, or the samples can no longer be read.
    """
    return write_shown(path, _one(jobs[0]) if len(jobs) == 1 else _several(jobs), "page")


def write_picture_of(found: Gathered, path: Path, kind: Kind) -> Path:
    """Write a job's main picture; return its path.

    Raises:
        RequestError: nothing of the job is known over time.
        OutsideError: it cannot be written, matplotlib is not installed, or the samples cannot be
            read.
    """
    curves = _curves(found, POINTS[kind])
    logged = training(found.known.run, found.job.attempts, found.known.ranks)
    shown, left_out = pictures(curves, logged.charts), tuple(logged.left_out())
    unread = next((row.text for row in found.job.notes if row.code == "unreadable"), None)
    if not shown and unread:
        raise OutsideError(f"Job {found.job.job_id}: {unread} So there is nothing to draw.")
    if not shown:
        what = "nothing that can be drawn" if left_out else "nothing"
        why = f"it has no samples and logged {what}, so there is nothing to draw over time."
        raise RequestError(" ".join((f"Job {found.job.job_id}: {why}", *left_out)))
    drawing = Drawing(
        job=found.job,
        shown=shown,
        moments={"job": curves.times if curves else (), "training": logged.times},
        breaks=logged.breaks,
        left_out=left_out,
        width_s=curves.width_s if curves else 0,
        span=whole_span(found.job, curves, logged.times),
    )
    return write_shown(path, main_picture(kind, drawing), "picture")


def _one(job: Shown) -> str:
    return job_page(job.found, job.advice, _curves(job.found, MOST_BINS))


def _several(jobs: Sequence[Shown]) -> str:
    most = bins_each(len(jobs))
    curves = [_curves(job.found, most) for job in jobs]
    return jobs_page([(job.found.job, job.advice) for job in jobs], curves)


def _curves(found: Gathered, most: int) -> Curves | None:
    try:
        return read_curves(found, most)
    except (OSError, DamagedFileError) as error:
        raise OutsideError(
            f"Samples of job {found.job.job_id!r} can no longer be read: {reason(error)}."
        ) from error
