"""A submission between "given to sbatch" and "its number is written down", on disk.

Whatever ends hpckit or cuts Slurm off in between, the records lie in the run's folder and lack only
the job's number. `lost_jobs` asks Slurm for it by what the job carries.
"""

import contextlib
import os
import shlex
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from hpckit.files import flush_to_disk, replace_file
from hpckit.frozen import frozen
from hpckit.job.place import ArrayPart
from hpckit.run_folders.index import add_to_index, handed_over
from hpckit.run_folders.run_files import json_members, write_json, write_members
from hpckit.run_folders.runs import RECORD, Run
from hpckit.schedulers.local.state import my_start_ticks

HANDOVER, ARRAY_RECORD, SCRIPT = "handover.json", "array.json", "job.sh"
# So long an array's records are made to survive a loss of power, as they are written. A machine
# writes the others to its disk by itself, most often within half a minute.
_FLUSHED_S = 2.0
Opener = Callable[[str], AbstractContextManager[Path]]


@frozen(kw_only=True)
class Handover:
    """What is written down once a job has its number.

    Attributes:
        root: the folder of runs.
        common: what the records of all tasks say.
        records: what each task's says besides, without its job's id.
        parts: the arrays, if there are several. chain: how many jobs follow the first one.
        since: epoch seconds before sbatch started.
        host, pid, pid_started: the process that submits, as in a `LocalState`.
    """

    run_id: str
    root: str
    array: bool
    records: tuple[dict[str, Any], ...]
    since: float
    host: str
    pid: int
    pid_started: int
    common: dict[str, Any] = field(default_factory=dict)
    parts: tuple[ArrayPart, ...] = ()
    chain: int = 0

    @property
    def jobs(self) -> int:
        """How many jobs, or arrays, are submitted."""
        return max(1, len(self.parts), self.chain + 1)

    @property
    def base(self) -> Path:
        """The run's folder, or the array's own."""
        return Path(self.root) / self.run_id


def new_handover(
    run_id: str,
    root: Path,
    records: list[dict[str, Any]],
    *,
    array: bool,
    parts: tuple[ArrayPart, ...] = (),
    chain: int = 0,
) -> Handover:
    """Return a handover that begins now, by this process."""
    common = {
        key: value
        for key, value in records[0].items()
        if all(row.get(key) is value for row in records)
    }
    own = [{key: row[key] for key in row.keys() - common.keys()} for row in records]
    return Handover(
        run_id=run_id,
        root=str(root),
        array=array,
        common=common,
        records=tuple(own),
        parts=parts,
        chain=chain,
        since=time.time(),
        host=os.uname().nodename,
        pid=os.getpid(),
        pid_started=my_start_ticks(),
    )


def begin(base: Path, handover: Handover) -> None:
    """Write down what is about to be given to Slurm.

    Raises:
        OSError: the run's folder cannot be written.
    """
    said = {row.name: getattr(handover, row.name) for row in fields(handover)}
    said["parts"] = [asdict(part) for part in handover.parts]
    write_json(base / HANDOVER, said, indent=None)
    flush_to_disk((base / HANDOVER, base, Path(handover.root)))


def remember(run_id: str, root: Path) -> None:
    """Put a submission on the user's list of those that are on their way."""
    with contextlib.suppress(OSError):  # without a home, its run id finds it again
        handed_over().mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(handed_over() / run_id, str(root / run_id))


def finish(
    opened: Opener,
    handover: Handover,
    job_ids: list[str],
    tell: Callable[[str], None] | None = None,
) -> list[Run]:
    """Write each task's record, now that the job has its number; the handover is over.

    An array in several has tasks of several ids; the first is the whole's. A chain's are its jobs.

    Raises:
        OSError: a folder cannot be written.
    """
    whole = job_ids[0].rpartition("_")[0] if handover.array else None
    if whole:
        run_ids = [{**handover.common, **row}["run_id"] for row in handover.records]
        with opened(handover.run_id) as base:
            write_json(base / ARRAY_RECORD, {"job_id": whole, "runs": run_ids})
    runs = []
    shared = json_members(handover.common)  # most of each record
    flush_until = time.monotonic() + _FLUSHED_S
    for index, (row, job_id) in enumerate(zip(handover.records, job_ids, strict=False)):
        array: dict[str, Any] | None = None
        if whole:
            array = {"job_id": job_id.rpartition("_")[0], "index": index}
        if array and handover.parts:
            array["whole"] = whole
        own = {**row, "job_id": job_id, "array": array}
        if handover.chain:
            own["chain"] = job_ids
        record = {**handover.common, **own}
        with opened(record["run_id"]) as folder:
            write_members(folder / RECORD, [*shared, *json_members(own)])
            if time.monotonic() < flush_until:
                flush_to_disk((folder / RECORD, folder))
        runs.append(Run(dir=Path(handover.root) / record["run_id"], record=record))
    # While the handover is there: if this process is killed, who finds the job writes them.
    if any("resubmit" in run.record for run in runs):
        from hpckit.submission.resubmitted import write_notes  # noqa: PLC0415  # by resubmit alone

        write_notes(runs, tell or (lambda _text: None))
    # All is written down: what cannot be removed now is no reason to cancel the job.
    with contextlib.suppress(OSError), opened(handover.run_id) as base:
        (base / HANDOVER).unlink()
    if (trouble := add_to_index(runs)) and tell:
        root = shlex.quote(str(handover.root))
        tell(f"note: {trouble}. Elsewhere this run is found only with --runs {root}")
    forget(handover.run_id)
    return runs


def forget(run_id: str) -> None:
    """Take a submission off the list of those on their way."""
    with contextlib.suppress(OSError):  # it was never on it, or home cannot be written
        (handed_over() / run_id).unlink()
