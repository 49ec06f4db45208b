"""Finding runs by job id, run id, folder or `latest`.

The index (job id -> folder, for runs anywhere) is only a cache: append-only, and a lost line costs
a scan of the runs folder.
"""

import json
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from hpckit.errors import NotFoundError, OutsideError, RequestError
from hpckit.paths import is_folder, is_there, typed_path
from hpckit.runs import RECORD, Run, list_runs, open_to_write, read_run


def index_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's index file."""
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "hpckit" / "runs.jsonl"


def add_to_index(runs: list[Run]) -> None:
    """Remember where runs are. A home directory that cannot be written costs only the shortcut."""
    lines = [
        json.dumps({"job_id": run.job_id, "run_id": run.run_id, "dir": str(run.dir)})
        for run in runs
    ]
    path = index_path()
    try:
        # Its owner's alone: a line in it says which folder a job id means.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_to_write(path, "ab") as stream:
            stream.write(("\n".join(lines) + "\n").encode())
    except OSError:
        return


def _indexed() -> list[dict[str, str]]:
    """Return the index's entries, newest first."""
    try:
        lines = index_path().read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    entries = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # a torn line
        if isinstance(entry, dict) and "dir" in entry:
            entries.append(entry)
    return entries


def find_runs(word: str, root: Path) -> list[Run]:
    """Return the run called `word`, or every task of the array called so.

    `word` is a job id, a run id, a run's folder, or `latest`: the user's own newest.

    Raises:
        NotFoundError: there is none.
    """
    if "/" in word and is_folder(typed_path(word)):
        return [read_run(typed_path(word))]
    if word == "latest":
        return [_latest(root)]
    if "/" not in word and is_there(root / word / RECORD):
        return [read_run(root / word)]
    if matches := _unique(_from_index(word)) or [
        run for run in list_runs(root) if _names(run, word)
    ]:
        # In a group's folder somebody else's record may claim the id.
        matches = [run for run in matches if run.mine] or matches
        newest = max(run.submitted_at for run in matches)
        # Slurm reuses ids after a while: tasks of one array were submitted together.
        return sorted(
            (run for run in matches if run.submitted_at == newest), key=lambda run: run.task
        )
    raise NotFoundError(
        f"No run is called {word!r}, here in {root} or in your index. "
        "See `hpckit jobs`, or name the folder with --runs DIR."
    )


def _names(run: Run, word: str) -> bool:
    base = run.run_id.rpartition("_")[0] if run.array_job_id else None
    return word in (run.job_id, run.run_id, run.array_job_id, base)


def _from_index(word: str) -> list[Run]:
    entries = [
        entry
        for entry in _indexed()
        if word in (entry.get("job_id"), entry.get("run_id"))
        or word in (_parent(entry.get("job_id")), _parent(entry.get("run_id")))
    ]
    return [run for entry in entries if (run := _still_there(entry)) and _names(run, word)]


def _parent(identifier: str | None) -> str:
    return (identifier or "").rpartition("_")[0]


def _unique(runs: list[Run]) -> list[Run]:
    return list({run.dir: run for run in runs}.values())


def _still_there(entry: dict[str, str]) -> Run | None:
    try:
        return read_run(Path(entry["dir"]))
    except (OutsideError, RequestError):
        return None


def _latest(root: Path) -> Run:
    here = next((run for run in list_runs(root) if run.mine), None)
    candidates = [run for run in (here, _newest_indexed()) if run]
    if not candidates:
        raise NotFoundError(f"There is no run yet in {root}. Start one: hpckit submit ddp")
    return max(candidates, key=lambda run: run.submitted_at)


def _newest_indexed() -> Run | None:
    for entry in _indexed():
        if run := _still_there(entry):
            return run
    return None


def newest_runs(root: Path, limit: int | None) -> list[Run]:
    """Return the user's newest runs, below `root` and in the index; all of them without a limit."""
    indexed = (run for run in map(_still_there, _indexed()) if run)
    candidates = [*islice(list_runs(root), limit), *islice(indexed, limit)]
    runs = {run.dir: run for run in candidates}.values()
    return sorted(runs, key=lambda run: run.submitted_at, reverse=True)[:limit]
