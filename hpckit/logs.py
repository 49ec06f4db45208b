"""A run's logs: which files there are, following them, and the first error among ranks."""

import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hpckit.errors import NotFoundError
from hpckit.files import DamagedFileError, chunks, open_regular, read_tail, reason
from hpckit.ranks import RankRecord, first_failure, read_ranks
from hpckit.runs import Run
from hpckit.tracebacks import START, last_error
from hpckit.values import whole_number

JOB_LOG = "job.out"
_CHUNK = 1 << 16
_PAUSE_S = 0.3
_TAIL_LINES, _TAIL_BYTES = 20, 64_000
_MOST_RANKS = 10_000_000
# torch issues 179291 and 190489: gloo's threads outlive the script's work.
_GLOO_EXIT = "terminate called without an active exception"
_GLOO_HINT = (
    "hint: a known fault of torch with gloo, after the work is done: delete the model, then call "
    "torch.distributed.destroy_process_group() at the script's end"
)


def log_files(run: Run, rank: int | None = None, *, every: bool = False) -> list[Path]:
    """Return the logs to show: one rank's, every rank's, or rank zero's, else the job script's.

    Raises:
        NotFoundError: that rank has no log.
    """
    folder = run.dir / "logs"
    if every:
        names = (whole_number(path.stem, _MOST_RANKS) for path in folder.glob("*.out"))
        ranks = sorted({rank for rank in names if rank is not None})
        return [*_present(run.dir / JOB_LOG), *(p for r in ranks for p in _of_rank(folder, r))]
    if rank is not None:
        if not 0 <= rank < run.ranks:
            raise NotFoundError(f"Rank {rank} is none of this run's 0 to {run.ranks - 1}.")
        return _of_rank(folder, rank)
    return _of_rank(folder, 0) or _present(run.dir / JOB_LOG, or_empty=False)


def _of_rank(folder: Path, rank: int) -> list[Path]:
    return [
        path
        for end in ("out", "err")
        for path in _present(folder / f"{rank}.{end}", or_empty=False)
    ]


def _present(path: Path, *, or_empty: bool = True) -> list[Path]:
    """Return a log if it is there; what is no file of any size is for the reader to say."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [path] if found.st_size or or_empty or not stat.S_ISREG(found.st_mode) else []


def read_all(files: Sequence[Path], damaged: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield every file's text, in pieces; `damaged` is told of what is none."""
    for path in files:
        try:
            for chunk in chunks(path, _CHUNK, _hole):
                yield path, chunk.decode(errors="replace")
        except (OSError, DamagedFileError) as error:
            damaged.append(f"{path.name}: {reason(error)}")


def _hole(size: int) -> bytes:
    return b"\n[%d bytes that nobody wrote]\n" % size


def follow(
    files: Callable[[], Sequence[Path]], over: Callable[[], bool], damaged: list[str]
) -> Iterator[tuple[Path, str]]:
    """Yield what is written to the files, those that appear later too, until `over()` and quiet.

    `damaged` is told of what is no file.
    """
    places: dict[Path, int] = {}
    bad: set[Path] = set()
    while True:
        last_round = over()
        wrote = False
        for path in files():
            try:
                chunk = b"" if path in bad else _piece(path, places.get(path, 0))
            except (OSError, DamagedFileError) as error:
                bad.add(path)
                damaged.append(f"{path.name}: {reason(error)}")
                continue
            places[path] = places.get(path, 0) + len(chunk)
            if chunk:
                wrote = True
                yield path, chunk.decode(errors="replace")
        if last_round and not wrote:
            return
        if not wrote:
            time.sleep(_PAUSE_S)


def _piece(path: Path, start: int) -> bytes:
    with open_regular(path) as stream:
        stream.seek(start)
        return stream.read(_CHUNK)


def error_report(run: Run) -> str:
    """Return the first traceback with rank and host; else the end of the job script's own log.

    Empty when nothing has failed.
    """
    ranks = read_ranks(run.dir)
    failed = first_failure(ranks)
    if failed is None:
        parts = (_never_ended(ranks), _last_words(run, ranks), _job_log_end(run))
        return "\n".join(part for part in parts if part)
    lines = [
        f"rank {failed.rank} on {failed.host} failed first, exit status {failed.exit_code}, "
        f"{_after(failed)} after its start:",
        failed.error or f"it wrote no error; see {run.dir}/logs/{failed.rank}.out",
    ]
    others = [row for row in ranks if row.exit_code and row is not failed]
    stopped = [str(row.rank) for row in others if row.consequence]
    also = [f"{row.rank} ({row.host}, {row.exit_code})" for row in others if not row.consequence]
    if also:
        lines.append(f"also failed: rank(s) {', '.join(also)}")
    if stopped:
        lines.append(f"stopped after that: rank(s) {', '.join(stopped)}")
    if failed.error and _GLOO_EXIT in failed.error:
        lines.append(_GLOO_HINT)
    return "\n".join(lines)


def _never_ended(ranks: Sequence[RankRecord]) -> str:
    """Name the ranks that were killed with their supervisors: they wrote no end."""
    names = [f"{row.rank} ({row.host})" for row in ranks if row.ended is None]
    return f"no end on record: rank(s) {', '.join(names)}; killed from outside?" if names else ""


def _last_words(run: Run, ranks: Sequence[RankRecord]) -> str:
    """Return the end of a traceback of such a rank: MPI_Abort ends a rank and its supervisor."""
    for row in ranks:
        words = last_error(run.dir / "logs" / f"{row.rank}.err") if row.ended is None else None
        if words and START in words:
            return f"rank {row.rank} on {row.host} wrote:\n{words}"
    return ""


def _after(record: RankRecord) -> str:
    return f"{(record.ended or record.started) - record.started:.1f} s"


def _job_log_end(run: Run) -> str:
    try:
        text = read_tail(run.dir / JOB_LOG, _TAIL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except (OSError, DamagedFileError) as error:
        return f"damaged: {JOB_LOG}: {reason(error)}"
    return "\n".join(text.rstrip().splitlines()[-_TAIL_LINES:])
