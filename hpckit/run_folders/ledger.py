"""A group's ledger: one line per attempt of a job, in a shared folder that no server keeps.

Each user's jobs write files of that user alone, one for each month and node: `NFS has no atomic
append between clients <https://man7.org/linux/man-pages/man2/open.2.html>`_, but the jobs of one
node share a client, where one write with O_APPEND is whole. What a file says is believed of its
owner only: whoever may write to the folder may put anything into it.
"""

import errno
import json
import os
import pwd
import re
import socket
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from hpckit.errors import OutsideError
from hpckit.file_locks import append_lines
from hpckit.files import DamagedFileError, open_regular, parse_json, reason
from hpckit.frozen import frozen
from hpckit.text import counted
from hpckit.values import Moment, Within, Word, rebuild

_SCHEMA = 1
# A line has some hundred bytes; advice is a sentence, names are what Slurm takes.
_LONGEST_LINE, _LONGEST_TEXT = 4000, 300
# One user's ten thousand jobs a month are some megabytes.
_MOST_OF_FILE, _MOST_OF_USER, _MOST_IN_ALL = 16 << 20, 64 << 20, 256 << 20
_MOST_FILES = 100_000
_LONGEST_S, _LATE_S = 400 * 86400.0, 86400.0
# Far above any node and any GPU.
_MOST_GPUS_OF_NODE, _MOST_WATTS = 64, 5000.0
_JOB_ID = re.compile(r"\d{1,20}([_+]\d{1,10})?", re.ASCII)
_FILE = re.compile(r"(?P<user>.+)-(?P<month>\d{4}-\d{2})\.[\w.-]+\.jsonl", re.ASCII)
_ODD = re.compile(r"[^\w.-]", re.ASCII)


@frozen(kw_only=True)
class Entry:
    """One attempt of a job, as it saw itself at its end. Moments are epoch seconds.

    Attributes:
        job_id: `123`, `123_4` or `123+1`.
        restart: which attempt it was, from 0.
        state: COMPLETED, FAILED, or UNKNOWN where a signal ended it.
        end: some moments before Slurm's own end of the job.
        utilization_percent: the mean over its GPUs and its time; None: it was not measured.
        advice: the first advice on it, in a sentence.
    """

    user: Word
    job_id: str
    start: Moment
    end: Moment
    restart: Annotated[int, Within(0, 1_000_000)] = 0
    cluster: Word | None = None
    account: Word | None = None
    partition: Word | None = None
    name: Word | None = None
    state: Word = "UNKNOWN"
    submit: Moment | None = None
    nodes: Annotated[int, Within(1, 100_000)] | None = None
    gpus: Annotated[int, Within(0, 1_000_000)] | None = None
    gpu_type: Word | None = None
    limit_s: Annotated[int, Within(0, 10**9)] | None = None
    utilization_percent: Annotated[float, Within(0, 100)] | None = None
    energy_joules: Annotated[float, Within(0, 1e18)] | None = None
    workload: Word | None = None
    template: Word | None = None
    advice: Word | None = None


def append(folder: Path, entry: Entry) -> Path:
    """Write an attempt's line; return the file. No link is followed, nothing of others is touched.

    Raises:
        OSError: it cannot be written.
    """
    user = pwd.getpwuid(os.getuid()).pw_name
    line = _line(replace(entry, user=user))
    month = time.strftime("%Y-%m", time.gmtime(entry.end))
    node = _ODD.sub("_", socket.gethostname().partition(".")[0])[:64]
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = f"{user}-{month}.{node}.jsonl"
        try:
            descriptor = _opened(name, place)
        except OSError:
            # Somebody may have put something else in its place: a name that none can guess is free.
            name = f"{user}-{month}.{node}-{os.urandom(8).hex()}.jsonl"
            descriptor = _opened(name, place)
        try:
            append_lines(descriptor, line)
            os.fsync(descriptor)  # a file server may refuse only now
        finally:
            os.close(descriptor)
    finally:
        os.close(place)
    return folder / name


def _opened(name: str, place: int) -> int:
    """Open a user's own file for appending; make it, for those to read who may read its folder.

    Raises:
        OSError: it cannot be opened, or is not this user's own regular file of one name.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=place)
    try:
        found, around = os.fstat(descriptor), os.fstat(place)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_nlink != 1:
            raise OSError(errno.EEXIST, "it is not a regular file of yours", name)
        if found.st_size == 0:
            _show(descriptor, found, around)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _show(descriptor: int, found: os.stat_result, around: os.stat_result) -> None:
    """Give a new file to the folder's group, and let those read it who may read the folder."""
    try:
        if found.st_gid != around.st_gid:
            os.fchown(descriptor, -1, around.st_gid)
    except OSError:
        pass  # the writer is not in that group
    os.fchmod(descriptor, 0o600 | (around.st_mode & 0o044))


def _line(entry: Entry) -> bytes:
    values = {name: value for name, value in asdict(entry).items() if value is not None}
    values = {"schema": _SCHEMA, **values}
    cut = {
        name: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in values.items()
    }
    line = json.dumps(cut, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(line) > _LONGEST_LINE:  # of letters that JSON spells out
        short = {"name", "workload", "template", "advice"}
        cut = {name: value for name, value in cut.items() if name not in short}
        line = json.dumps(cut, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    return line


@dataclass
class Read:
    """What a ledger's files say, and what of them is left out.

    Attributes:
        entries: each attempt once, by what its newest line says.
        left_out: a file's name -> how many lines are left out, by why; None: all of it.
    """

    entries: list[Entry] = field(default_factory=list)
    left_out: dict[str, Mapping[str, int | None]] = field(default_factory=dict)

    def notes(self, *, hide_names: bool = False) -> Iterator[str]:
        """Yield a sentence for each file of which something is left out; of many, a few."""
        if hide_names:
            if self.left_out:
                counts = [count for why in self.left_out.values() for count in why.values()]
                lines, files = sum(count or 0 for count in counts), counts.count(None)
                parts = [counted(lines, "line")] if lines else []
                parts += [counted(files, "whole file")] if files else []
                are = "is" if lines + files == 1 else "are"
                yield f"of the ledger {' and '.join(parts)} {are} left out"
            return
        for name, why in list(self.left_out.items())[:_MOST_NOTES]:
            count = sum(number or 0 for number in why.values())
            what = f"{counted(count, 'line')} of {name}" if count else name
            yield f"ledger: {what} left out: {_reasons(why)}"
        if len(self.left_out) > _MOST_NOTES:
            more = len(self.left_out) - _MOST_NOTES
            yield f"ledger: {more} more files are left out in part or whole"


_MOST_NOTES, _MOST_REASONS = 5, 5


def _reasons(why: Mapping[str, int | None]) -> str:
    """Write reasons, each with its count where there are several; of many, the most frequent."""
    if len(why) == 1:
        return next(iter(why))
    often = sorted(why.items(), key=lambda row: -(row[1] or 0))
    named = [f"{text} ({count})" for text, count in often[:_MOST_REASONS]]
    rest = sum(count or 0 for _, count in often[_MOST_REASONS:])
    return "; ".join([*named, *([f"other reasons ({rest})"] if rest else [])])


def read_ledger(folder: Path, since: float, users: Collection[str] = ()) -> Read:
    """Read the attempts that ended after a moment; what is wrong is left out and counted.

    Args:
        folder: the ledger.
        since: epoch seconds.
        users: whose; none: everybody's.

    Raises:
        OutsideError: the folder cannot be read.
    """
    found, sizes = Read(), Counter[str]()
    newest: dict[tuple[str | None, str, int, str], Entry] = {}
    for name in _names(folder, time.strftime("%Y-%m", time.gmtime(since)), users):
        try:
            user, content = _content(folder / name)
            sizes[user] += len(content)
            if sizes[user] > _MOST_OF_USER or sizes.total() > _MOST_IN_ALL:
                raise DamagedFileError("there is too much of it")
        except (OSError, DamagedFileError) as error:
            found.left_out[name] = {reason(error): None}
            continue
        for entry in _entries(content, user, name, found):
            if entry.end >= since:
                key = (entry.cluster, entry.job_id, entry.restart, entry.user)
                if key not in newest or newest[key].end <= entry.end:
                    newest[key] = entry
    found.entries = list(newest.values())
    return found


def _names(folder: Path, first: str, users: Collection[str]) -> list[str]:
    """Return the names of a ledger's files of a month and later, of some users or all."""
    try:
        with os.scandir(folder) as rows:
            names = [row.name for row, _ in zip(rows, range(_MOST_FILES), strict=False)]
    except OSError as error:
        raise OutsideError(
            f"The ledger {str(folder)!r} cannot be read: {error.strerror}."
        ) from error
    known = [(name, match) for name in names if (match := _FILE.fullmatch(name))]
    return sorted(
        name
        for name, match in known
        if match["month"] >= first and (not users or match["user"] in users)
    )


def _content(path: Path) -> tuple[str, bytes]:
    """Return whose a file is, and what is in it.

    Raises:
        OSError: it cannot be read. DamagedFileError: its name says another, or it is too large.
    """
    with open_regular(path) as stream:
        found, named = os.fstat(stream.fileno()), path.lstat()
        if (found.st_dev, found.st_ino) != (named.st_dev, named.st_ino):
            raise DamagedFileError("it is a link")
        try:
            user = pwd.getpwuid(found.st_uid).pw_name
        except KeyError:
            raise DamagedFileError(f"its owner, user {found.st_uid}, is not known here") from None
        match = _FILE.fullmatch(path.name)
        if match is None or match["user"] != user:
            raise DamagedFileError(f"it belongs to {user}")
        if found.st_size > _MOST_OF_FILE:
            raise DamagedFileError(f"it has {found.st_size} bytes")
        return user, stream.read(_MOST_OF_FILE)


def _entries(content: bytes, user: str, name: str, found: Read) -> Iterator[Entry]:
    wrong: Counter[str] = Counter()
    for line in content.split(b"\n"):
        try:
            if not line.strip():
                continue
            if len(line) > _LONGEST_LINE:
                raise DamagedFileError(f"it has {len(line)} bytes")
            entry = rebuild(Entry, parse_json(line), newer=True)
            _refuse_impossible(entry, user)
        except DamagedFileError as error:
            wrong[str(error)] += 1
            continue
        yield entry
    if wrong:
        found.left_out[name] = wrong


def _refuse_impossible(entry: Entry, user: str) -> None:
    """Refuse what no job of the file's owner can have been.

    Raises:
        DamagedFileError: it is such a line.
    """
    seconds = entry.end - entry.start
    if entry.user != user:
        raise DamagedFileError("it names another user")
    if not _JOB_ID.fullmatch(entry.job_id):
        raise DamagedFileError(f"{entry.job_id[:40]!r} cannot be a job's id")
    if not 0 <= seconds <= _LONGEST_S or entry.end > time.time() + _LATE_S:
        raise DamagedFileError("its start and end cannot be")
    if (entry.gpus or 0) > (entry.nodes or 1) * _MOST_GPUS_OF_NODE:
        raise DamagedFileError(f"no job has {entry.gpus} GPUs on {entry.nodes or 1} nodes")
    if (entry.energy_joules or 0) > (entry.gpus or 0) * (seconds + 600) * _MOST_WATTS:
        raise DamagedFileError("its GPUs cannot have used that much energy")


def of_cluster(entries: Sequence[Entry], cluster: str | None) -> list[Entry]:
    """Return the attempts on a cluster, and those that do not say which; None: all."""
    return [row for row in entries if cluster in (None, row.cluster) or row.cluster is None]
