"""Attempts that accounting gave before, kept so that the next report asks for what is new only.

Kept is what ended a day before it was asked for: what ended later may still change, as slurmdbd
lags, and epilogs write their records late. Everything that is not like that is asked again. A few
kept attempts are asked for each time: a database that was purged, or another one, says otherwise.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from hpckit.errors import CommandError, ConfigError
from hpckit.files import DamagedFileError, parse_json, read_bytes, replace_file
from hpckit.group_report.allocations import Allocation, ask_allocations, ask_jobs
from hpckit.group_report.ledgers import Asked
from hpckit.group_report.rights import rights
from hpckit.owners import is_mine_alone
from hpckit.paths import CACHE, cache_folder, make_folder, refuse_foreign
from hpckit.slurm.states import JobState
from hpckit.text import by_number

SETTLED_S = 86400.0
# Slurm's moments are whole seconds, and a period's edges belong to it.
_EDGE_S = 60.0
_PROBES = 8
# A file is written again when it is to reach so much further.
_WORTH_S = 3600.0
_MOST_BYTES, _MOST_FILES = 256 << 20, 20
_NAMES = tuple(row.name for row in fields(Allocation))
_VALUES = attrgetter(*_NAMES)
_VERSION = [2, *_NAMES]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What a cache file holds: all attempts that overlap a time and ended in it.

    Attributes:
        since, until: the time, in epoch seconds.
        running: job and start of attempts that went on when this was asked.
    """

    since: float
    until: float
    rows: Sequence[Allocation]
    running: frozenset[tuple[str, float]]


def allocations(
    asked: Asked, cluster: str | None, now: float
) -> tuple[list[Allocation], list[str]]:
    """Return every attempt that held nodes, from the cache as far as it goes; and what to say.

    They are in one order, wherever they come from: by job. So names are numbered, equally
    wasteful jobs listed and sums rounded alike.

    Args:
        asked: whose, and of which time.
        cluster: whose accounting answers; None: not known, so nothing is kept.
        now: epoch seconds.

    Raises:
        RequestError, CommandError: as `ask_allocations`.
    """
    path, notes = _path(asked, cluster) if cluster else (None, [])
    kept = _load(path, notes) if path else None
    if kept and not kept.since <= asked.since <= kept.until:
        kept = None
    rows = _added(kept, asked, notes) if kept else None
    if rows is None:
        kept = None
        rows = ask_allocations(asked.since, asked.until, asked.users, asked.accounts)
    # Slurm's moments are whole seconds: what ends later in the same one is not there yet.
    settled = float(math.floor(min(asked.until, now - SETTLED_S)))
    if path and settled > (kept.until + _WORTH_S if kept else asked.since):
        _save(path, kept, rows, asked.since, settled)
    return sorted(rows, key=lambda row: (by_number(row.job_id), row.start)), notes


def _added(kept: Kept, asked: Asked, notes: list[str]) -> list[Allocation] | None:
    """Return the kept attempts of a time, and those that ended since; None: they do not match."""
    first = min(kept.until, asked.until)
    old = [
        row for row in kept.rows
        if row.end is not None and row.end < first and row.overlaps(asked.since, asked.until)
    ]  # fmt: skip
    probes = old[:: max(len(old) // _PROBES, 1)][:_PROBES] + old[-1:]
    new = ask_allocations(first - _EDGE_S, asked.until, asked.users, asked.accounts)
    seen = {(row.job_id, row.start) for row in new}
    gone = {row for row in kept.running if row[1] < asked.until} - seen
    if gone or (probes and not set(probes) <= set(ask_jobs(probes, asked.users, asked.accounts))):
        notes.append("what was kept of earlier reports differs from accounting now: all asked anew")
        return None
    newer = (row for row in new if row.end is None or row.end >= first)
    return old + [row for row in newer if row.overlaps(asked.since, asked.until)]


def _path(asked: Asked, cluster: str) -> tuple[Path | None, list[str]]:
    """Return the file for what is asked, and what to say of it and of jobs that are not shown.

    None where others could write it, or it may be of less.
    """
    folder, notes = cache_folder() / "report", list[str]()
    try:
        shown = rights(asked.users)
        if shown and (hidden := shown.hidden_note(asked.accounts)):
            notes.append(hidden)
        refuse_foreign(cache_folder(), CACHE)
        make_folder(folder, mode=0o700)
    except (CommandError, ConfigError) as error:
        return None, [*notes, f"nothing is kept for the next report: {str(error).rstrip('.')}"]
    except OSError as error:
        return None, [*notes, f"nothing is kept for the next report: {folder}: {error.strerror}"]
    lines = shown.lines if shown else ()
    key = json.dumps([cluster, sorted(asked.users), sorted(asked.accounts), *lines])
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json", notes


def _load(path: Path, notes: list[str]) -> Kept | None:
    """Read a file; one that is damaged or not the user's own is thrown away, which is said."""
    try:
        if not is_mine_alone(path, path.lstat()):
            raise DamagedFileError("others could have written it")
        head, _, body = read_bytes(path, most=_MOST_BYTES).partition(b"\n")
        said = parse_json(head)
        if not isinstance(said, dict) or said.get("version") != _VERSION:
            raise DamagedFileError("another version of hpckit wrote it")
        if said.get("sha256") != hashlib.sha256(body).hexdigest():
            raise DamagedFileError("it is not as it was written")
        return _kept(parse_json(body))
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError) as error:
        notes.append(f"what was kept of earlier reports is thrown away: {error}")
        path.unlink(missing_ok=True)
        return None


def _kept(found: dict[str, Any]) -> Kept:
    columns = found["rows"]
    columns["state"] = [JobState(word) for word in columns.get("state", ())]
    return Kept(
        since=found["since"],
        until=found["until"],
        rows=[
            Allocation(**dict(zip(_NAMES, values, strict=True)))
            for values in zip(*(columns.get(name, ()) for name in _NAMES), strict=True)
        ],
        running=frozenset((job_id, start) for job_id, start in found["running"]),
    )


def _save(
    path: Path, kept: Kept | None, rows: Sequence[Allocation], since: float, settled: float
) -> None:
    """Write what ended before a moment; of no use is a disk that is full, which costs no report."""
    first = kept.until if kept else since
    old = [row for row in kept.rows if row.end is not None and row.end < first] if kept else []
    ended = [row for row in rows if row.end is not None and row.end < settled]
    new = [row for row in ended if row.end is not None and (not kept or row.end >= first)]
    all_rows = sorted([*old, *new], key=lambda row: (row.end, row.start))
    document = {
        "since": kept.since if kept else since,
        "until": settled,
        "running": [(row.job_id, row.start) for row in rows if row.end is None],
        "rows": dict(zip(_NAMES, zip(*map(_VALUES, all_rows), strict=True), strict=False)),
    }
    body = json.dumps(document, separators=(",", ":")).encode()
    head = json.dumps({"version": _VERSION, "sha256": hashlib.sha256(body).hexdigest()}).encode()
    if len(body) > _MOST_BYTES:
        return
    try:
        replace_file(path, head + b"\n" + body, mode=0o600)
        for other in sorted(path.parent.iterdir(), key=_age)[:-_MOST_FILES]:
            other.unlink()
    except OSError:
        return


def _age(path: Path) -> float:
    return path.lstat().st_mtime
