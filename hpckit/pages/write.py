"""Writes the page of a job, or of several, as one file: whole, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, reason, replace_file
from hpckit.pages.job import job_page
from hpckit.pages.jobs import bins_each, jobs_page
from hpckit.pages.pictures import read_curves
from hpckit.report.gather import Gathered
from hpckit.stats.advice.engine import Advice
from hpckit.stats.summary.curves import MOST_BINS, Curves


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A job as it is shown: what was gathered, and the advice on it."""

    found: Gathered
    advice: Sequence[Advice] = ()


def write_page(jobs: Sequence[Shown], path: Path) -> Path:
    """Write the page of a job, or one of several; return its path.

    Raises:
        OutsideError: it cannot be written, or the samples can no longer be read.
    """
    text = _one(jobs[0]) if len(jobs) == 1 else _several(jobs)
    try:
        replace_file(path, text)
    except OSError as error:
        raise OutsideError(
            f"The page {str(path)!r} cannot be written: {error.strerror}."
        ) from error
    return path


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
