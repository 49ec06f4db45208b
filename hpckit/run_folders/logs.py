"""A run's logs: which files there are, and following them."""

import codecs
import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from hpckit.errors import NotFoundError
from hpckit.files import DamagedFileError, chunks, open_regular, reason
from hpckit.run_folders.run_files import JOB_LOG, patiently
from hpckit.run_folders.runs import Run
from hpckit.units import whole_number

_CHUNK = 1 << 16
_PAUSE_S = 0.3
_MOST_RANKS = 10_000_000


def log_files(run: Run, rank: int | None = None, *, every: bool = False) -> list[Path]:
    """Return the logs to show: one rank's, every rank's, or rank zero's, else the job script's.

    Raises:
        NotFoundError: that rank has no log.
    """
    folder = run.dir / "logs"
    if every:
        names = (whole_number(path.stem, _MOST_RANKS) for path in folder.glob("*.out"))
        ranks = sorted({rank for rank in names if rank is not None}) or [0]
        return [*_present(run.dir / JOB_LOG), *(p for r in ranks for p in _of_rank(folder, r))]
    if rank is not None:
        need_rank(run, rank)
        return _of_rank(folder, rank)
    return _of_rank(folder, 0) or _present(run.dir / JOB_LOG, or_empty=False)


def need_rank(run: Run, rank: int) -> None:
    """Raise NotFoundError if a run has no such rank."""
    if not 0 <= rank < run.ranks:
        raise NotFoundError(f"Rank {rank} does not exist: this run has ranks 0 to {run.ranks - 1}.")


def _of_rank(folder: Path, rank: int) -> list[Path]:
    return [
        path
        for end in ("out", "err")
        for path in _present(folder / f"{rank}.{end}", or_empty=False)
    ]


def _present(path: Path, *, or_empty: bool = True) -> list[Path]:
    """Return a log if it is there; what is no file of any size is for the reader to say.

    So is what cannot even be looked at, as of a colleague.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return []
    except OSError:
        return [path]
    return [path] if found.st_size or or_empty or not stat.S_ISREG(found.st_mode) else []


def read_all(files: Sequence[Path], damaged: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield every file's text, in pieces; `damaged` is told of what is none."""
    for path in files:
        decode = decoder()
        try:
            for chunk in chunks(path, _CHUNK, _hole):
                yield path, decode(chunk)
        except (OSError, DamagedFileError) as error:
            damaged.append(f"{path.name}: {reason(error)}")


def part_of(path: Path, begin: int, end: int) -> bytes:
    """Return the bytes of a file from one place up to another.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not a regular file.
    """
    return b"".join(chunks(path, _CHUNK, _hole, (begin, end)))


def decoder() -> Callable[[bytes], str]:
    """Return what makes text of the pieces of one file: a piece may end within a character."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode


def _hole(size: int) -> bytes:
    return b"\n[%d bytes that nobody wrote]\n" % size


def follow(
    files: Callable[[], Sequence[Path]], over: Callable[[], bool], damaged: list[str]
) -> Iterator[tuple[Path, str]]:
    """Yield what is written to the files, those that appear later too, until `over()` and quiet.

    A file that is shorter than before was emptied, to save space, or is another: it is read from
    its beginning. `damaged` is told of what is no file, or cannot be read in the end.
    """
    places: dict[Path, int] = {}
    decoders: defaultdict[Path, Callable[[bytes], str]] = defaultdict(decoder)
    bad: set[Path] = set()
    while True:
        last_round = over()
        wrote = False
        for path in files():
            if path in bad:
                continue
            read = partial(_piece, path, places.get(path, 0))
            try:
                start, chunk = patiently(read) if last_round else read()
            except (OSError, DamagedFileError) as error:
                # What a disk refuses now it may give in the next round, as NFS what it calls stale.
                if isinstance(error, OSError) and not last_round:
                    continue
                bad.add(path)
                damaged.append(f"{path.name}: {reason(error)}")
                continue
            if start < places.get(path, 0):
                decoders.pop(path, None)
            places[path] = start + len(chunk)
            if chunk:
                wrote = True
                yield path, decoders[path](chunk)
        if last_round and not wrote:
            return
        if not wrote:
            time.sleep(_PAUSE_S)


def _piece(path: Path, start: int) -> tuple[int, bytes]:
    """Return where a file's next piece begins, and the piece; it was emptied if it is shorter."""
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size < start:
            start = 0
        stream.seek(start)
        return start, stream.read(_CHUNK)
