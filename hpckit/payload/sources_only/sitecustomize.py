"""Python imports this before the script of a collection: bytecode there is neither read nor made.

A `.pyc` in `__pycache__` says itself which source it stands for, so whoever can write one runs what
no check of the sources sees. Only files below `HPCKIT_SOURCES_ONLY` are concerned; other packages
load as ever. Any Python from 3.4 on can run this: the job's is not hpckit's.
"""

import os
import sys
from importlib import machinery, util

TYPE_CHECKING = False  # without the cost of importing typing
if TYPE_CHECKING:
    from importlib.abc import PathEntryFinder


class _Source(machinery.SourceFileLoader):
    def path_stats(self, path: str) -> "dict[str, object]":
        raise OSError("no bytecode here")  # at which importlib compiles, and keeps nothing


def _install(folder: str) -> None:
    find = machinery.FileFinder.path_hook(
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (_Source, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )

    def hook(path: str) -> "PathEntryFinder":
        real = os.path.realpath(path or ".")
        if real != folder and not real.startswith(folder + os.sep):
            raise ImportError(path)
        return find(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def _go_on() -> None:
    """Run the sitecustomize that this one stands before: a distribution's, or the user's own."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120
    others = [path for path in sys.path if os.path.realpath(path or ".") != here]
    spec = machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        module = util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("HPCKIT_SOURCES_ONLY"):
    _install(os.path.realpath(os.environ["HPCKIT_SOURCES_ONLY"]))
_go_on()
