"""Writes the page of a job, or of several, as one file: whole, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpckit.errors import OutsideError, RequestError
from hpckit.files import DamagedFileError, reason, replace_file
from hpckit.pages.job import job_page
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
        RequestError: they are several. OutsideError: it cannot be written, or the samples can no
        longer be read.
    """
    if len(jobs) != 1:
        raise RequestError(f"--html shows one job, and these are {len(jobs)}. Give one of them.")
    job = jobs[0]
    text = job_page(job.found, job.advice, _curves(job.found, MOST_BINS))
    try:
        replace_file(path, text)
    except OSError as error:
        raise OutsideError(
            f"The page {str(path)!r} cannot be written: {error.strerror}."
        ) from error
    return path


def _curves(found: Gathered, most: int) -> Curves | None:
    try:
        return read_curves(found, most)
    except (OSError, DamagedFileError) as error:
        raise OutsideError(
            f"Samples of job {found.job.job_id!r} can no longer be read: {reason(error)}."
        ) from error
