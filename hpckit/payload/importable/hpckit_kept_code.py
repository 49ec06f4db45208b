"""Modules of a project are imported from its copy, as it was submitted, wherever `sys.path` says.

The script's folder, the folder that `python -m` looks into, PYTHONPATH and what editable installs
add name the project itself; what is found there may have been edited since. What is not in the copy
is looked for in the project. Copies are read-only: no bytecode is read or made there, but kept
beside the copies, by the hash of its source. Rank 0 writes it, all read it.
"""

import os
import stat
import sys
from importlib import machinery

from hpckit_sources_only import find

TYPE_CHECKING = False  # without the cost of importing typing
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, ModuleType

# In a store of kept code, beside `trees`; it is this user's alone, or it is not believed.
BYTECODE = "bytecode"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class _Both:
    """Finds modules in a folder of a copy, and then in the project's own."""

    def __init__(self, rows: "list[machinery.FileFinder | _Project]") -> None:
        self.rows = rows

    def find_spec(
        self, name: str, target: "ModuleType | None" = None
    ) -> "machinery.ModuleSpec | None":
        namespace = None
        for row in self.rows:
            spec = row.find_spec(name, target)
            if spec is not None and spec.loader is not None:
                return spec
            namespace = namespace or spec
        return namespace

    def iter_modules(self, prefix: str = "") -> "Iterator[tuple[str, bool]]":
        """Yield names of modules and whether each is a package, as pkgutil asks."""
        import pkgutil  # noqa: PLC0415  # few programs ask

        seen = set()
        for row in self.rows:
            for name, is_package in pkgutil.iter_importer_modules(row, prefix):
                if name not in seen:
                    seen.add(name)
                    yield name, is_package

    def invalidate_caches(self) -> None:
        for row in self.rows:
            row.invalidate_caches()


class _Project:
    """Finds in the folder over a copy the copy alone: beside it stand links."""

    def __init__(self, kept: str) -> None:
        self.name = os.path.basename(kept)  # noqa: PTH119
        self.row = _find_kept(os.path.dirname(kept))  # noqa: PTH120

    def find_spec(
        self, name: str, target: "ModuleType | None" = None
    ) -> "machinery.ModuleSpec | None":
        mine = name.rpartition(".")[2] == self.name
        return self.row.find_spec(name, target) if mine else None

    def iter_modules(self, prefix: str = "") -> "Iterator[tuple[str, bool]]":
        import pkgutil  # noqa: PLC0415  # as above

        for name, is_package in pkgutil.iter_importer_modules(self.row, prefix):
            if name == prefix + self.name:
                yield name, is_package

    def invalidate_caches(self) -> None:
        self.row.invalidate_caches()


class _Kept(machinery.SourceFileLoader):
    """Loads a module of a copy; its bytecode has the hash of the source for its name."""

    def get_code(self, fullname: str) -> "CodeType | None":
        path = self.get_filename(fullname)
        folder = _folder_of(path)
        fix = getattr(sys.modules.get("_imp"), "_fix_co_filename", None)
        source = self.get_data(path)
        if fix is None or not _is_mine_alone(folder):
            return self.source_to_code(source, path)
        import hashlib  # noqa: PLC0415  # only where a project's module is imported
        import marshal  # noqa: PLC0415  # likewise

        digest = hashlib.sha256(source).hexdigest()
        place = os.path.join(folder, digest + "." + _flavour())  # noqa: PTH118
        try:
            code: CodeType = marshal.loads(self.get_data(place))  # noqa: S302  # this user's alone
            fix(code, path)
        except (OSError, EOFError, ValueError, TypeError):
            code = self.source_to_code(source, path)
            if os.environ.get("RANK", "0") == "0" and not sys.dont_write_bytecode:
                _write(place, marshal.dumps(code))
        return code


# The copies, and the folders of bytecode of the stores that they are in.
_folders: "dict[str, str]" = {}


def _folder_of(path: str) -> str:
    return next((at for kept, at in _folders.items() if path.startswith(kept + os.sep)), "")


def _flavour() -> str:
    """Return what else bytecode depends on: the Python, to its magic number, and its options."""
    # Not of importlib.util: that imports `types`, of which the script's folder may have one.
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    tag = sys.implementation.cache_tag or "none"
    return f"{tag}-{magic.hex()}-{sys.flags.optimize}"


def _is_mine_alone(folder: str) -> bool:
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    mine = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode)
    return mine and not status.st_mode & _OTHERS


def _write(place: str, data: bytes) -> None:
    """Write it whole or not at all; where that cannot be, the next one compiles again."""
    beside = f"{place}.{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.rename(beside, place)  # noqa: PTH104
    except OSError:
        return


_find_kept = machinery.FileFinder.path_hook(
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (_Kept, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


def _bytecode_of(kept: str) -> str:
    """Return a store's folder of bytecode; a copy in it is STORE/trees/NAME/..."""
    at = kept
    while at != os.path.dirname(at):  # noqa: PTH120
        at = os.path.dirname(at)  # noqa: PTH120
        folder = os.path.join(os.path.dirname(at), BYTECODE)  # noqa: PTH118, PTH120
        if os.path.basename(at) == "trees" and os.path.isdir(folder):  # noqa: PTH112, PTH119
            return folder
    return ""


def install(text: str) -> None:
    """Install it; `text` has a line for each project: its folder, a tab, its copy.

    Lines of folders over a project follow it. In what stands for them in a copy are links alone.
    """
    pairs = [tuple(line.split("\t")) for line in text.split("\n")]
    every = [(os.path.realpath(own), os.path.realpath(kept)) for own, kept in pairs]
    over = [row for row in every if any(kept.startswith(row[1] + os.sep) for _, kept in every)]
    places = [row for row in every if row not in over]
    for _, kept in places:
        _folders[kept] = _bytecode_of(kept)

    def hook(path: str) -> "_Both":
        real = os.path.realpath(path or ".")
        for own, kept in (*places, *over):  # runs, and so copies, may lie in the project
            if _is_in(real, kept):
                inside = real[len(kept) :]
                if (own, kept) in over:
                    return _over(own + inside)
                return _pair(kept + inside, own + inside)
        for own, kept in places:
            if _is_in(real, own):
                return _pair(kept + real[len(own) :], real)
            if real == os.path.dirname(own) and over:  # noqa: PTH120
                return _over(real)
        raise ImportError(path)

    def _over(own: str) -> "_Both":
        """Find in a folder over a project what lies there now, but the project in its copy."""
        if not os.path.isdir(own) or _is_installed(own):  # noqa: PTH112
            raise ImportError(own)
        mine = [_Project(kept) for root, kept in places if os.path.dirname(root) == own]  # noqa: PTH120
        return _Both([*mine, find(own)])

    def _pair(kept: str, own: str) -> "_Both":
        folders = [path for path in (kept, own) if os.path.isdir(path)]  # noqa: PTH112
        if not folders or _is_installed(own):
            raise ImportError(own)
        return _Both([_find_kept(path) if path == kept else find(path) for path in folders])

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
    _turn_editable(places)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _is_installed(path: str) -> bool:
    """Say whether a folder is of an environment in the project: installed, and not its code."""
    parts = path.split(os.sep)  # noqa: PTH206
    return "site-packages" in parts or "dist-packages" in parts


def _turn_editable(places: "list[tuple[str, str]]") -> None:
    """Turn what setuptools' editable installs say of top-level packages to the copies."""
    for name, module in list(sys.modules.items()):
        known = getattr(module, "MAPPING", None)
        if not name.startswith("__editable__") or not isinstance(known, dict):
            continue
        for package, path in list(known.items()):
            real = os.path.realpath(str(path))
            for own, kept in places:
                if real.startswith(own + os.sep):
                    copy = kept + real[len(own) :]
                    if os.path.exists(copy) or os.path.exists(copy + ".py"):  # noqa: PTH110
                        known[package] = copy
