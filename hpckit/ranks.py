"""What each rank did: `ranks/<rank>.json`, one file per rank, one entry per restart."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpckit.runs import write_json


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRecord:
    """One rank in one attempt of the job. Times are epoch seconds; None means not yet.

    `exit_code` is the script's, or 128 + signal. `error` is the end of its traceback, else the last
    line it wrote to stderr. `consequence` is true for a rank stopped because another one failed.
    """

    rank: int
    restart: int
    host: str
    device: str
    pid: int
    started: float
    ended: float | None = None
    exit_code: int | None = None
    error: str | None = None
    consequence: bool = False


def rank_file(run_dir: Path, rank: int) -> Path:
    """Return a rank's record."""
    return run_dir / "ranks" / f"{rank}.json"


def write_rank(run_dir: Path, record: RankRecord) -> None:
    """Add or replace this attempt in the rank's file."""
    path = rank_file(run_dir, record.rank)
    attempts = [row for row in read_attempts(path) if row["restart"] != record.restart]
    write_json(path, {"rank": record.rank, "attempts": [*attempts, asdict(record)]})


def read_attempts(path: Path) -> list[dict[str, Any]]:
    """Return a rank file's attempts; none when it is absent or damaged."""
    try:
        attempts = json.loads(path.read_text(encoding="utf-8"))["attempts"]
        return [row for row in attempts if isinstance(row, dict) and "restart" in row]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def read_ranks(run_dir: Path) -> list[RankRecord]:
    """Return the newest attempt of every rank that has begun, by rank."""
    attempts = [
        _record(row) for path in (run_dir / "ranks").glob("*.json") for row in read_attempts(path)
    ]
    known = [record for record in attempts if record]
    newest = max((record.restart for record in known), default=0)
    return sorted(
        (record for record in known if record.restart == newest), key=lambda record: record.rank
    )


def _record(row: Mapping[str, Any]) -> RankRecord | None:
    try:
        return RankRecord(**row)
    except TypeError:
        return None  # written by another version


def first_failure(records: list[RankRecord]) -> RankRecord | None:
    """Return the rank that failed first, not one that was stopped because of it."""
    failed = [row for row in records if row.exit_code and row.ended is not None]
    own = [row for row in failed if not row.consequence]
    return min(own or failed, key=lambda row: row.ended or 0.0, default=None)
