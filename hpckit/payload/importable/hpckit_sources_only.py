"""The script of a collection: bytecode below its folder is neither read nor made.

A `.pyc` in `__pycache__` says itself which source it stands for, so whoever can write one runs what
no check of the sources sees. Other packages load as ever.
"""

import os
import sys
from importlib import machinery

TYPE_CHECKING = False  # without the cost of importing typing
if TYPE_CHECKING:
    from importlib.abc import PathEntryFinder


class _Source(machinery.SourceFileLoader):
    def path_stats(self, path: str) -> "dict[str, object]":
        raise OSError("no bytecode here")  # at which importlib compiles, and keeps nothing


# The finder of a folder's modules that believes no bytecode beside a source.
find = machinery.FileFinder.path_hook(
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (_Source, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


def install(folder: str) -> None:
    """Read modules below `folder` from their sources alone."""

    def hook(path: str) -> "PathEntryFinder":
        real = os.path.realpath(path or ".")
        if real != folder and not real.startswith(folder + os.sep):
            raise ImportError(path)
        return find(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
