"""The index of the user's runs: a line for each, which says where the run of a job's id is.

It is only a cache: lines are added, and a lost one costs a scan of the runs folder.
`hpckit.run_folders.reindex` makes it anew from the folders.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

from hpckit.errors import DamagedRunError
from hpckit.files import DamagedFileError, parse_json, read_tail, reason
from hpckit.frozen import frozen
from hpckit.paths import state_folder
from hpckit.run_folders.runs import DamagedRun, Run
from hpckit.values import rebuild

# Some 80,000 runs.
_INDEX_BYTES = 16 * 2**20
REPAIR = "hpckit jobs --rebuild"


def index_path() -> Path:
    """Return the user's index file."""
    return state_folder() / "runs.jsonl"


def add_to_index(runs: list[Run]) -> str:
    """Remember where runs are; return why not, or nothing.

    A home directory that cannot be written, or is full, costs only the shortcut.
    """
    from hpckit.file_locks import append_lines, held_to_append  # noqa: PLC0415  # most only read

    lines = "".join(index_line(entry_of(run)) for run in runs)
    path = index_path()
    try:
        # Its owner's alone: a line in it says which folder a job id means.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held_to_append(path) as (descriptor, _):
            append_lines(descriptor, lines.encode())
    except (OSError, DamagedFileError) as error:
        return f"your index {path} cannot be written: {reason(error)}"
    return ""


def handed_over() -> Path:
    """Return where the user's submissions stand that are on their way to Slurm, a file each."""
    return index_path().with_name("handed-over")


def any_handed_over() -> bool:
    """Say whether there are such submissions; where it may not be read, none is the user's."""
    try:
        with os.scandir(handed_over()) as entries:
            return any(not entry.name.startswith(".") for entry in entries)
    except OSError:
        return False


@frozen(kw_only=True)
class IndexEntry:
    """One line of the index."""

    job_id: str
    run_id: str
    dir: str
    whole: str | None = None
    chain: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str | None, ...]:
        """What may mean this run, or all tasks of its array."""
        task = f"{self.whole}_{self.run_id.rpartition('_')[2]}"
        parents = (array_of(self.job_id), array_of(self.run_id))
        return (self.job_id, self.run_id, *parents, self.whole, task, *self.chain)


def entry_of(run: Run) -> IndexEntry:
    """Return what the index says of a run."""
    return IndexEntry(
        job_id=run.job_id,
        run_id=run.run_id,
        dir=str(run.dir),
        whole=run.whole if run.whole != run.array_job_id else None,
        chain=run.jobs if len(run.jobs) > 1 else (),
    )


def index_line(row: IndexEntry) -> str:
    """Return a line of the index."""
    return json.dumps({name: value for name, value in asdict(row).items() if value}) + "\n"


def read_index(word: str | None = None) -> tuple[list[IndexEntry], list[str], str]:
    """Return the index's entries, newest first; damaged lines; and what is wrong with it, or "".

    Of a `word` only lines that may mean it: hundreds of words would read each line as often.
    """
    try:
        content = read_tail(index_path(), _INDEX_BYTES)
    except FileNotFoundError:
        return [], [], ""
    except (OSError, DamagedFileError) as error:
        return [], [], f"your index {index_path()} cannot be read: {reason(error)}"
    parts = [b""] if word is None else _parts_of(word)
    lines = content.split(b"\n")
    entries, torn = [], []
    for line in reversed(lines[len(content) == _INDEX_BYTES :]):
        try:
            if line and any(part in line for part in parts):
                entries.append(rebuild(IndexEntry, parse_json(line), newer=True))
        except DamagedFileError:
            torn.append(line.decode(errors="replace"))
    many = "a line is" if len(torn) == 1 else f"{len(torn)} lines are"
    return entries, torn, f"{many} damaged in your index {index_path()}" if torn else ""


def _parts_of(word: str) -> list[bytes]:
    """Return texts of which each line that means a word has one, as JSON has them."""
    return [json.dumps(text)[1:-1].encode() for text in (word, array_of(word)) if text]


def index_trouble() -> DamagedRun | None:
    """Return what is wrong with the index, and what to do; None: nothing is."""
    why = read_index()[2]
    if not why:
        return None
    text = f"{why}. Runs in other folders may be missing here; find them again: {REPAIR}"
    return DamagedRun(dir=index_path(), error=DamagedRunError(text))


def array_of(identifier: str) -> str:
    """Return an array's id, of one of its tasks'; empty for what is no task."""
    return identifier.rpartition("_")[0]
