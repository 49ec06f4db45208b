"""Which kept code runs still need: what none of them leads to is counted, and removed."""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from hpckit.paths import is_there
from hpckit.submission.code_plan import LINK
from hpckit.submission.handover import ARRAY_RECORD


def needed_trees(runs: Path, going: Collection[str] = ()) -> set[str]:
    """Return the names of the trees that runs in a folder lead to, but for those that are `going`.

    Raises:
        OSError: it cannot be read.
    """
    names = [entry for entry in os.listdir(runs) if not entry.startswith(".")]  # noqa: PTH208
    left = {*names} - {*going}
    found = set()
    for name in names:
        with contextlib.suppress(OSError):  # no run, or one without a copy of its code
            tree = Path(os.readlink(runs / name / LINK)).parent.name  # noqa: PTH115
            # The link of an array is in the folder of the whole.
            if name in left and (_is_alone(runs / name) or _has_task(name, left)):
                found.add(tree)
    return found


def _is_alone(folder: Path) -> bool:
    return not is_there(folder / ARRAY_RECORD)


def _has_task(name: str, names: Collection[str]) -> bool:
    return any(other.startswith(f"{name}_") for other in names)


def code_folder(runs: Path) -> Path:
    """Return where the code of runs in a folder is kept."""
    from hpckit.code.store import Store  # noqa: PLC0415  # most commands need none

    return Store(runs).path


def unneeded(runs: Path, going: Collection[str] = ()) -> int | None:
    """Return the bytes of kept code that no run needs; None: there is none, or it cannot be told.

    `going` are the names of runs that are about to be removed.
    """
    from hpckit.code.store import Store  # noqa: PLC0415  # as above

    store = Store(runs)
    with contextlib.suppress(OSError):
        if store.path.is_dir():
            found = store.unneeded(lambda: needed_trees(runs, going))
            return found.size if found and (found.trees or found.rest) else None
    return None


def drop_unneeded(runs: Path) -> int | None:
    """Remove kept code that no run needs, and return its bytes; None: somebody submits now.

    Raises:
        OSError: something cannot be removed.
    """
    from hpckit.code.store import Store  # noqa: PLC0415  # as above

    store = Store(runs)
    if not store.path.is_dir():
        return 0
    return store.remove(lambda: needed_trees(runs))
