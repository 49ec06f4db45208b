"""`hpckit doctor`: whether all is there that a submission needs; each finding says what to do.

Here is what a finding is: ok, bad or unknown.

- Checks: `installation` (hpckit's Python, folders, collections), `site` (Slurm, the site's file and
  script), `environments`, `sources` (which figures `hpckit stats` can have), `telling`.
- `trials` runs short jobs; `jobs/` are their scripts, which the environment's Python runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hpckit.errors import HpckitError, refused_by_disk
from hpckit.text import in_line

# Scripts of the jobs that doctor submits; the environment's Python runs them.
JOBS = Path(__file__).parent / "jobs"


class Level(StrEnum):
    """How it stands."""

    GOOD = "ok"
    BAD = "bad"
    UNKNOWN = "?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One finding. `todo` says what to do; `counts` whether one that is not good matters here."""

    level: Level
    what: str
    todo: str = ""
    counts: bool = True

    def __str__(self) -> str:
        todo = f": {self.todo}" if self.todo else ""
        return in_line(f"{self.level:<4} {self.what.rstrip('.')}{todo}")


def good(what: str) -> Check:
    """Return a finding that needs nothing."""
    return Check(level=Level.GOOD, what=what)


def bad(what: str, todo: str, *, counts: bool = True) -> Check:
    """Return a finding that stands in the way."""
    return Check(level=Level.BAD, what=what, todo=todo, counts=counts)


def unknown(what: str, why: str, *, counts: bool = False) -> Check:
    """Return what cannot be known here."""
    what = f"cannot be checked here: {what}"
    return Check(level=Level.UNKNOWN, what=what, todo=why, counts=counts)


def attempt(what: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """Make checks; an error is a finding: ours say what to do, and a disk's are the user's."""
    try:
        return list(check())
    except HpckitError as error:
        return [bad(what, str(error))]
    except OSError as error:
        return [bad(what, str(refused_by_disk(error)))]


def all_good(checks: Iterable[Check]) -> bool:
    """Say whether nothing that matters is bad, or was to be known and is not."""
    return not any(row.level is not Level.GOOD and row.counts for row in checks)
