"""What each rank did: `ranks/<rank>.json`, one file per rank, with one entry per attempt.

Whether a rank met the others is told by `payload/importable/hpckit_meeting.py`, in its script.
"""

import contextlib
import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from hpckit.files import DamagedFileError, read_json, reason
from hpckit.frozen import frozen
from hpckit.run_folders.run_files import FOLDER_MODE, patiently, write_json
from hpckit.units import whole_number
from hpckit.values import Count, Moment, Pid, Size, Within, Word, rebuild

# A file has the end of one traceback per attempt. Together they must not burden a login node.
_MAX_BYTES, _MAX_TOGETHER, _MAX_FILES = 4 * 2**20, 256 * 2**20, 100_000
_NAMED = 16
# A script may remove files of its run's folder, even while a record is being written.
_REMOVALS = 5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

# What gloo, NCCL, torch's store, Python or UCX say in a rank when another rank is gone.
_PEER_GONE = (
    r"connection (?:was )?(?:closed|reset|aborted)|closed by (?:remote )?peer|reset by peer"
    r"|broken ?pipe|connection refused|remote process exited|socket timeout|timed out waiting"
    r"|ncclRemoteError|ncclSystemError|watchdog|DistStoreError|no route to host"
    r"|endpoint (?:timeout|is not connected)"
)
# Open MPI 5 ends a rank so when the connection to another one closes: MPI_ERR_UNKNOWN. Its words go
# to the job's log.
_ABORTED = 14
_MEETING = {
    "ddp": "no rank joined a process group of torch.distributed",
    "mpi": "no rank joined the others by MPI (is mpi4py of the MPI that starts the job?)",
}
# An attempt's number, its first rank's start, and its last rank's end if it is known.
AttemptTimes = tuple[int, float, float | None]


@frozen(kw_only=True)
class Fault:
    """A fault of a rank's node in a few words, and the line of the log that tells of it.

    `sure`: no program can cause it. See `hpckit.bad_nodes.faults`.
    """

    what: Word
    words: str
    sure: bool = True


@frozen(kw_only=True)
class RankRecord:
    """One rank in one attempt of the job. Times are epoch seconds; None means not yet.

    `exit_code` is the script's, or 128 + signal. `error` is the end of its traceback, or else the
    last line it wrote to stderr. `consequence` is true for a rank that was told to stop, because
    another one had failed or the job was to end. `met`: whether its script joined other ranks, by
    torch.distributed or MPI; None: not known. `log_start`: the size of the job's log in bytes when
    this rank began; `out_start`, `err_start`: those of its own logs. `last_words`: the last lines
    of a rank that failed without a traceback, below a line that names the stream. `cluster`,
    `node`: Slurm's names of where it ran; None: not known.
    `fault`: what a rank that did not end well wrote of its node's hardware.
    """

    rank: Size
    restart: Size
    host: Word
    device: Word
    pid: Pid
    started: Moment
    ended: Moment | None = None
    exit_code: Annotated[int, Within(-255, 255)] | None = None
    error: str | None = None
    consequence: bool = False
    met: bool | None = None
    log_start: Count = 0
    out_start: Count = 0
    err_start: Count = 0
    last_words: str | None = None
    cluster: Word | None = None
    node: Word | None = None
    fault: Fault | None = None


@frozen(kw_only=True)
class _RankFile:
    """The content of a rank's file."""

    attempts: tuple[RankRecord, ...]


def rank_file(run_dir: Path, rank: int) -> Path:
    """Return the path of a rank's record."""
    return run_dir / "ranks" / f"{rank}.json"


def write_rank(
    run_dir: Path, record: RankRecord, earlier: Iterable[RankRecord] | None = None
) -> list[RankRecord]:
    """Add or replace this attempt in the rank's file; a damaged or missing file is written anew.

    If the rank has failed by itself, that is marked first, where all ranks look.

    Args:
        run_dir: the run's folder.
        record: the rank in this attempt.
        earlier: its records of earlier attempts, as an earlier call returned them; None: they are
            read from the file.

    Returns:
        The records of earlier attempts.
    """
    path = rank_file(run_dir, record.rank)
    if own_failures([record]):
        from hpckit.stop_marks import mark_failed  # noqa: PLC0415  # readers need none

        by_peer = is_about_a_peer(record)
        mark_failed(run_dir, record.restart, record.exit_code or 1, by_peer=by_peer)
    if earlier is None:
        earlier = _earlier(path, record.restart)
    kept = list(earlier)
    rows = [asdict(row) for row in (*kept, record)]
    try:
        patiently(lambda: _write_beside(path, {"rank": record.rank, "attempts": rows}))
    except OSError as error:
        if error.errno in _NO_ROOM:
            from hpckit.stop_marks import mark_full  # noqa: PLC0415  # as above

            mark_full(run_dir, record.restart)
        raise
    return kept


def _write_beside(path: Path, content: object) -> None:
    """Write a file whose folder may not be there, or not any more."""
    for _ in range(_REMOVALS):
        with contextlib.suppress(FileNotFoundError):
            write_json(path, content)
            return
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=FOLDER_MODE)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _earlier(path: Path, restart: int) -> list[RankRecord]:
    try:
        rows = patiently(lambda: read_attempts(path))
    except (OSError, DamagedFileError):
        return []
    return [row for row in rows if row.restart != restart]


def read_attempts(path: Path) -> list[RankRecord]:
    """Return a rank file's attempts.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not what hpckit writes.
    """
    attempts = rebuild(_RankFile, read_json(path, most=_MAX_BYTES), newer=True).attempts
    if other := [row.rank for row in attempts if path.stem != str(row.rank)]:
        raise DamagedFileError(f"it speaks of rank {other[0]}")
    return list(attempts)


def began_once(run_dir: Path) -> bool:
    """Say whether rank 0 has begun in one attempt alone, as far as its file can be read."""
    try:
        return len(read_attempts(rank_file(run_dir, 0))) == 1
    except (OSError, DamagedFileError):
        return False


def read_all_attempts(run_dir: Path, damaged: list[str] | None = None) -> list[RankRecord]:
    """Return every attempt of every rank; `damaged` gets the files that cannot be read, and why."""
    records: list[RankRecord] = []
    for path in _rank_files(run_dir / "ranks", [] if damaged is None else damaged):
        try:
            records += read_attempts(path)
        except FileNotFoundError:
            continue  # removed since
        except (OSError, DamagedFileError) as error:
            if damaged is not None:
                damaged.append(f"ranks/{path.name}: {reason(error)}")
    return records


def attempt_times(run_dir: Path, seen: dict[int, float] | None = None) -> tuple[AttemptTimes, ...]:
    """Return the times of each attempt, in order.

    `seen` gets the latest end that is known of each attempt, where other ranks have none, too.
    """
    times: dict[int, list[tuple[float, float | None]]] = {}
    for row in read_all_attempts(run_dir):
        times.setdefault(row.restart, []).append((row.started, row.ended))
        if seen is not None and row.ended is not None:
            seen[row.restart] = max(row.ended, seen.get(row.restart, row.ended))
    return tuple(
        (restart, min(start for start, _ in rows), _last_end([end for _, end in rows]))
        for restart, rows in sorted(times.items())
    )


def _last_end(ends: list[float | None]) -> float | None:
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def read_ranks(run_dir: Path, damaged: list[str] | None = None) -> list[RankRecord]:
    """Return the newest attempt of every rank that has begun, by rank; `damaged` as above."""
    records = read_all_attempts(run_dir, damaged)
    newest = max((record.restart for record in records), default=0)
    return sorted(
        (record for record in records if record.restart == newest), key=lambda record: record.rank
    )


def _rank_files(folder: Path, damaged: list[str]) -> Iterator[Path]:
    """Yield the files of ranks, up to a limit that is far above any run's."""
    count = size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, end = entry.name.partition(".")
                if end != "json" or not dot or whole_number(stem) is None:
                    continue
                if count >= _MAX_FILES or size > _MAX_TOGETHER:
                    damaged.append(f"ranks: only the first files were read ({count}, {size} bytes)")
                    return
                count, size = count + 1, size + _bytes_to_read(entry)
                yield Path(entry.path)
    except FileNotFoundError:
        return
    except OSError as error:
        damaged.append(f"ranks: {error.strerror}")


def _bytes_to_read(entry: "os.DirEntry[str]") -> int:
    """Return how many bytes of a file will be read; one that is too large is not read."""
    try:
        size = entry.stat().st_size
    except OSError:
        return 0
    return size if size <= _MAX_BYTES else 0


def drop_ended(left: list[int], run_dir: Path, attempt: int) -> None:
    """Take ranks that have recorded their end in an attempt off a list, from its last one on.

    After one that has not ended, no other record is read.
    """
    while left and has_ended(run_dir, left[-1], attempt):
        left.pop()


def has_ended(run_dir: Path, rank: int, attempt: int) -> bool:
    """Say whether a rank has recorded its end in an attempt, as far as its file can be read."""
    row = read_attempt(run_dir, rank, attempt)
    return row is not None and row.ended is not None


def read_attempt(run_dir: Path, rank: int, attempt: int) -> RankRecord | None:
    """Return a rank's record of one attempt; None: there is none (yet), or it cannot be read."""
    try:
        rows = read_attempts(rank_file(run_dir, rank))
    except (OSError, DamagedFileError):
        return None
    return next((row for row in rows if row.restart == attempt), None)


def own_failures(records: Iterable[RankRecord]) -> list[RankRecord]:
    """Return the ranks that failed by themselves, the first one first.

    Ranks that only say that another one is gone come last, since the clocks of nodes differ.
    """
    failed = (row for row in records if row.exit_code and row.ended is not None)
    own = (row for row in failed if not row.consequence)
    return sorted(own, key=lambda row: (is_about_a_peer(row), row.ended or 0.0))


def is_about_a_peer(row: RankRecord) -> bool:
    """Say whether a rank's end only means that another rank is gone."""
    if not row.error:
        return row.exit_code == _ABORTED
    return re.search(_PEER_GONE, row.error, re.IGNORECASE) is not None


def first_failure(records: Iterable[RankRecord]) -> RankRecord | None:
    """Return the rank that failed first; if none failed by itself, the first that was stopped."""
    known = list(records)
    stopped = (row for row in known if row.exit_code and row.ended is not None)
    own = own_failures(known)
    return own[0] if own else min(stopped, key=lambda row: row.ended or 0.0, default=None)


def not_ended(records: Collection[RankRecord], planned: int) -> str | None:
    """Say which ranks go on although all others have ended well; None: there are none.

    "7 of 8 ranks have ended, rank 3 has not".
    """
    left = [row.rank for row in records if row.ended is None]
    ended = len(records) - len(left)
    failed = any(row.exit_code for row in records)
    if len(records) != planned or not left or not ended or failed:
        return None
    what = f"rank {_few(left)} has" if len(left) == 1 else f"ranks {_few(left)} have"
    return f"{ended} of {planned} ranks have ended, {what} not"


def _few(rows: Sequence[int | str]) -> str:
    return ", ".join(map(str, rows[:_NAMED])) + (", ..." if rows[_NAMED:] else "")


def never_met(strategy: str, planned: int, ranks: Sequence[RankRecord]) -> str | None:
    """Say that the ranks of a job never met; None: some did, or it is not known of all."""
    how = _MEETING.get(strategy)
    alone = [row for row in ranks if row.met is False and row.exit_code == 0]
    if how is None or planned < 2 or not len(alone) == len(ranks) == planned:
        return None
    return (
        f"the {planned} ranks never met: {how}. Each may have done the whole work by itself. What "
        "to set for Lightning, Transformers and others: docs/frameworks.md"
    )


def without_gpus(ranks: Iterable[RankRecord]) -> str | None:
    """Say on which nodes ranks that were to have GPUs had none; None: all had theirs.

    Of a job that asked for GPUs, and of which no rank was to run on the CPU by plan.
    """
    known = list(ranks)
    hosts = list(dict.fromkeys(row.node or row.host for row in known if row.device == "cpu"))
    if not hosts:
        return None
    whose = "its ranks run" if all(row.device == "cpu" for row in known) else "some ranks run"
    where = f"node {_few(hosts)} has" if len(hosts) == 1 else f"nodes {_few(hosts)} have"
    return f"{whose} on the CPU, and the job's GPUs idle: {where} no GPU driver"


def current(ranks: Sequence[RankRecord], restarts: int | None) -> tuple[RankRecord, ...]:
    """Return the records of the attempt after so many `restarts`; None: of the newest attempt.

    There are none if the attempt ended before its ranks began.
    """
    return tuple(row for row in ranks if restarts is None or row.restart >= restarts)
