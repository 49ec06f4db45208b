"""What a job's own files say: the first error of a rank, and how the attempt has ended."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hpckit.files import DamagedFileError, open_regular
from hpckit.frozen import frozen
from hpckit.job_ends.causes import TAKEN_AWAY
from hpckit.job_ends.tracebacks import START, error_line, last_error
from hpckit.notify.event import COMPLETED, FAILED, STOPPED, TIMEOUT
from hpckit.payload.children import REQUEUE_STATUS
from hpckit.payload.task import GOES_ON
from hpckit.run_folders.ranks import RankRecord, own_failures, read_all_attempts
from hpckit.stop_marks import look_every
from hpckit.units import format_minutes

# What is looked through at once; of a log that grows faster the rest is passed over.
_CHUNK_BYTES = 256 * 1024
_MARK = START.encode()
_SLACK_S = 10.0
# What a job script ends with where the next job of a chain, or the same job here, goes on.
_GO_ON = (GOES_ON, REQUEUE_STATUS)


@frozen(kw_only=True)
class Trouble:
    """An error of a rank: which, where, and its one line."""

    rank: int
    host: str | None
    line: str

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"rank {self.rank}{where}: {self.line}"


class Errors:
    """The errors of one attempt, which began when this was made: what was there before is not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = {(row.rank, row.restart) for row in read_all_attempts(folder)}
        self._starts = dict(self._sizes())
        self._seen = dict(self._starts)
        self._changed = 0
        self._look_at = 0.0

    def first(self) -> Trouble | None:
        """Return the first error since the last call; a rank's own end before a log's words.

        A look costs a question per rank: of many ranks not each call looks.
        """
        now = time.monotonic()
        if now < self._look_at:
            return None
        pause_s = look_every(0.0, len(self._seen))
        self._look_at = now + pause_s if pause_s > 1 else 0.0
        return self._of_ranks() or self._of_logs()

    def _of_ranks(self) -> Trouble | None:
        try:
            changed = (self._folder / "ranks").stat().st_mtime_ns
        except OSError:
            return None
        if changed == self._changed:
            return None
        self._changed = changed
        failed = own_failures(self.ranks())
        return _trouble(failed[0]) if failed else None

    def ranks(self) -> list[RankRecord]:
        """Return the ranks' records of this attempt."""
        rows = read_all_attempts(self._folder)
        return [row for row in rows if (row.rank, row.restart) not in self._before]

    def _of_logs(self) -> Trouble | None:
        for name, size in self._sizes():
            begin = max(self._seen.get(name, 0), size - _CHUNK_BYTES)
            self._seen[name] = size
            if begin >= size or not self._has_mark(name, begin, size):
                continue
            rank = int(name.partition(".")[0])
            words = last_error(self._folder / "logs" / name, self._starts.get(name, 0))
            if words and START in words:
                host = next((row.host for row in self.ranks() if row.rank == rank), None)
                return Trouble(rank=rank, host=host, line=error_line(words))
        return None

    def _sizes(self) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(self._folder / "logs") as rows:
                entries = sorted(rows, key=lambda row: row.name)
        except OSError:
            return
        for entry in entries:
            stem, _, end = entry.name.partition(".")
            if end == "err" and stem.isdecimal():
                try:
                    yield entry.name, entry.stat().st_size
                except OSError:
                    continue  # removed since

    def _has_mark(self, name: str, begin: int, size: int) -> bool:
        try:
            with open_regular(self._folder / "logs" / name) as stream:
                stream.seek(max(begin - len(_MARK), self._starts.get(name, 0)))
                return _MARK in stream.read(size - begin + len(_MARK))
        except (OSError, DamagedFileError):
            return False


def _trouble(row: RankRecord) -> Trouble:
    line = error_line(row.error or "") or f"exit status {row.exit_code}"
    return Trouble(rank=row.rank, host=row.host, line=line)


def _before(row: RankRecord, moment: float) -> bool:
    return row.ended is not None and row.ended < moment - _SLACK_S


@frozen(kw_only=True)
class Ending:
    """How an attempt has ended: a state and why; `goes_on`: another one follows."""

    state: str
    detail: str | None = None
    goes_on: bool = False


def ending(
    status: int | None,
    *,
    stopped_at: float | None,
    ranks: list[RankRecord],
    elapsed_s: float,
    limit_min: int,
    attempts_left: bool,
    preempted: bool,
    taken_away: Callable[[], bool],
    never_begun: Callable[[], str | None],
) -> Ending:
    """Judge an attempt by its script's exit status and its ranks' records.

    Args:
        status: of the job script; None: it is gone without a word.
        stopped_at: when this node got a signal that ends the job, in epoch seconds; None: it did
            not.
        ranks: of this attempt; those of other nodes may come late over NFS.
        elapsed_s: since it began.
        limit_min: its time limit.
        attempts_left: whether it may be started again.
        preempted: whether a grace time had begun; its signal goes to the ranks alone.
        taken_away: asks whether the scheduler is ending the job.
        never_begun: asks why there is no rank, though the script ended with 0; None: not known.
    """
    if status in _GO_ON:
        return Ending(state=STOPPED, goes_on=True)
    stopped = stopped_at is not None
    # A script may answer a signal with a status of its own.
    failed = [row for row in own_failures(ranks) if not stopped_at or _before(row, stopped_at)]
    if failed:
        more = f"; {len(failed)} ranks failed" if len(failed) > 1 else ""
        again = attempts_left and (stopped or taken_away())
        return Ending(state=FAILED, detail=f"{_trouble(failed[0])}{more}", goes_on=again)
    first = next((row for row in ranks if row.rank == 0), None)
    if status == 0 and not stopped and (first is None or first.exit_code == 0):
        why = None if ranks else never_begun()
        return Ending(state=FAILED if why else COMPLETED, detail=why)
    if stopped and elapsed_s >= limit_min * 60 - _SLACK_S:
        limit = f"the limit was {format_minutes(limit_min)}"
        return Ending(state=TIMEOUT, detail=limit, goes_on=attempts_left)
    if stopped or not status:
        return Ending(state=STOPPED, goes_on=attempts_left)
    if preempted:
        again = attempts_left and taken_away()
        return Ending(state=STOPPED, detail=TAKEN_AWAY, goes_on=again)
    where = "" if ranks else " before a rank began"
    detail = f"the job script ended with status {status}{where}"
    return Ending(state=FAILED, detail=detail, goes_on=attempts_left and taken_away())
