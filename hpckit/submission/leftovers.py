"""What killed commands left behind and no other command removes.

A folder is a leftover only if it says so itself: it is called like a run, has no `run.json`, and
all in it was written by a submission, nothing by a job or by anybody else.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpckit.frozen import frozen
from hpckit.paths import cache_folder, is_there
from hpckit.payload.function import FOLDER as CALL
from hpckit.run_folders.index import handed_over, index_path
from hpckit.run_folders.run_files import JOB_LOG
from hpckit.run_folders.runs import RECORD
from hpckit.submission.cleaning import measured, unsafe
from hpckit.submission.code_plan import LINK
from hpckit.submission.folders import REMOVED
from hpckit.submission.handover import ARRAY_RECORD, HANDOVER, SCRIPT
from hpckit.submission.lost_jobs import has_no_job
from hpckit.submission.needed_code import code_folder, unneeded

# A submission, and a file that is put in another's place, take seconds.
_YOUNG_S = 3600.0
_RUN_FOLDER = re.compile(r"(?P<base>[A-Za-z0-9._-]+-\d{8}-\d{6}-[0-9a-f]{6})(_\d+)?")
_BESIDE = re.compile(r"\..+\.[0-9a-f]{16}")  # `hpckit.files.replace_file`
_OF_JOBS = ("ranks", "logs", "samples", "checkpoints", "metrics.jsonl", "local.json")
# What a submission writes before `run.json`.
_OF_SUBMISSIONS = frozenset(
    {SCRIPT, JOB_LOG, HANDOVER, ARRAY_RECORD, LINK, CALL, "submitit", "controller.log"}
)
# What is kept in the cache is made again when it is missed.
_CACHE_S = 30 * 86400.0
_CACHES = ("made", "report")


@frozen(kw_only=True)
class Leftover:
    """A file or folder that only `hpckit clean` removes, why it is one, and its bytes.

    `of_code`: the copies of code in a folder of runs, of which what a run needs stays.
    """

    path: Path
    why: str
    size: int
    of_code: bool = False


def left_behind(root: Path, now: float) -> tuple[list[Leftover], list[Path]]:
    """Return what killed commands left in a folder of runs, and runs whose `run.json` is gone.

    Those may be all that is left of somebody's results, so that no command removes them.

    Args:
        root: the folder.
        now: epoch seconds.
    """
    left: list[Leftover] = []
    lost: list[Path] = []
    groups: defaultdict[str, list[Path]] = defaultdict(list)
    for path in _own(root):
        if re.fullmatch(REMOVED, path.name):
            left.append(_leftover(path, "the rest of a run that was being removed"))
        elif match := _RUN_FOLDER.fullmatch(path.name):
            groups[match["base"]].append(path)
    for base, paths in groups.items():
        bare = [path for path in paths if not is_there(path / RECORD)]
        lost += [path for path in bare if _is_lost(path, now)]
        if len(bare) == len(paths) and (why := _abandoned(root / base, paths, now)):
            left += [_leftover(path, why) for path in paths]
    return [] if unsafe(root) else left, lost


def unneeded_code(root: Path, going: Iterable[Path]) -> Iterator[Leftover]:
    """Yield the folder of kept code of which no run needs a part, once `going` are removed."""
    if unsafe(root):
        return
    size = unneeded(root, {path.name for path in going if path.parent == root})
    if size is not None:
        path = code_folder(root)
        yield Leftover(
            path=path, why="copies of code that no run needs any more", size=size, of_code=True
        )


def cached(now: float) -> Iterator[Leftover]:
    """Yield what is old in hpckit's caches, and what kills left there and beside the index."""
    for name in _CACHES:
        for path in _own(cache_folder() / name):
            if _age_s(path, now) > _CACHE_S and path.is_file():
                yield _leftover(path, "kept from earlier commands, and old")
    caches = (cache_folder() / name for name in _CACHES)
    for folder in (index_path().parent, handed_over(), *caches):
        for path in _own(folder):
            if _BESIDE.fullmatch(path.name) and _CACHE_S >= _age_s(path, now) > _YOUNG_S:
                yield _leftover(path, "half-written by a command that was killed")


def _is_lost(path: Path, now: float) -> bool:
    """Say whether a folder without `run.json` has what a job wrote, and nothing new."""
    if not path.is_dir() or any(is_there(path / name) for name in (HANDOVER, ARRAY_RECORD)):
        return False
    written = any(is_there(path / name) for name in _OF_JOBS) or _size(path / JOB_LOG)
    return bool(written) and now - measured(path)[1] > _YOUNG_S


def _abandoned(base: Path, paths: list[Path], now: float) -> str:
    """Say why folders of a submission without `run.json` are no run's; "" if they may be one's."""
    if any(is_there(path / name) for path in paths for name in _OF_JOBS):
        return ""
    if any(_size(path / JOB_LOG) or not _of_a_submission(path) for path in paths):
        return ""
    if any(now - measured(path)[1] < _YOUNG_S for path in paths):
        return ""
    if is_there(base / ARRAY_RECORD) and not is_there(base / HANDOVER):
        return "of an array whose tasks are removed"
    # Not every scheduler has a handover: what was given to one is not told from what was not.
    begun = any(_own(path) for path in _own(base) if path.name.startswith("submitit"))
    no_job = has_no_job(base) if is_there(base / HANDOVER) else not begun
    return "left by a submission that was killed" if no_job else ""


def _of_a_submission(folder: Path) -> bool:
    """Say whether all in a folder is what a submission, also a killed one, writes there."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  # names alone are looked at
    except OSError:
        return False
    return all(name in _OF_SUBMISSIONS or _BESIDE.fullmatch(name) for name in names)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _own(folder: Path) -> list[Path]:
    """Return what of a folder belongs to the user, links aside."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_symlink() and entry.stat().st_uid == os.getuid():
                    found.append(Path(entry.path))
    except OSError:
        return sorted(found)
    return sorted(found)


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except OSError:
        return 0.0


def _leftover(path: Path, why: str) -> Leftover:
    size = measured(path)[0] if path.is_dir() else _size(path)
    return Leftover(path=path, why=why, size=size)
