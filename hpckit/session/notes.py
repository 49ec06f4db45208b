"""What people should know of a run because it is a session."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpckit.files import DamagedFileError
from hpckit.run_folders.run_record import session_kind
from hpckit.session.folder import END, read_private
from hpckit.units import format_seconds


def session_notes(
    record: Mapping[str, Any], run_dir: Path, *, over: bool, waiting: bool
) -> list[str]:
    """Return a line on how a session is reached, or why it was ended; nothing for other runs."""
    kind = session_kind(record)
    if kind is None or waiting:
        return []
    if not over:
        return [f"a session; go there: hpckit {kind} {record['job_id']}"]
    try:
        end = read_private(run_dir, END)
    except (OSError, DamagedFileError):  # another user's: what ended it is theirs to know
        return []
    if end is None or end.get("why") != "idle" or not isinstance(end.get("idle_s"), int | float):
        return []
    return [f"hpckit ended this session: idle for {format_seconds(end['idle_s'])} (--idle)"]
