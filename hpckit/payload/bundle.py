"""hpckit's modules in one file of a run, for jobs of many ranks.

To start, a supervisor imports some 200 modules, and Python asks the file system some 1,300
questions for them. A thousand ranks that begin in the same second would ask a shared one a
million. So the job script, which runs once, writes the code of these modules into one file, and
each supervisor reads that. What is not in the file is imported as ever, and so is everything where
there is no such file, or where another Python or hpckit has written it.

The file lies beside the pickle, in a folder that is the user's alone: that is checked here as it is
for the pickle, with the folder held open.
"""

import contextlib
import marshal
import os
import stat
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader

TYPE_CHECKING = False  # typing's own would cost more than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import CodeType, ModuleType

NAME = "modules"
_LENGTH = 8  # bytes of the first number: how long the index is
# In the environment of what a supervisor starts: the folder that the file is in.
VARIABLE = "HPCKIT_BUNDLE"
# What supervisors import, also inside functions, unless something goes wrong; with all that these
# import. Names, because some of them are of rooms above this one.
_NEEDED = (
    "hpckit.submission.in_job",
    "hpckit.submission.job_process",
    "hpckit.submission.warned",
    "hpckit.submission.checkpoints",
    "hpckit.submission.kept_signal",
    "hpckit.submission.container_step",
    "hpckit.notify.told",
    "hpckit.payload.supervisor",
    "hpckit.payload.rank",
    "hpckit.payload.mpi_script",
    "hpckit.launchers.srun",
    "hpckit.launchers.torchrun",
    "hpckit.launchers.mpirun",
    "hpckit.schedulers.slurm",
    "hpckit.stats.sampler.cgroup",
    "submitit.core.submission",
    "submitit.core.job_environment",
)

# Of each module: its file, whether it is a package, and where in the bundle its code begins and how
# long it is, in bytes; 0 of one written in C.
_Index = dict[str, tuple[str, bool, int, int]]


def write_bundle(folder: "Path") -> None:
    """Write the file; readers see all of it or none.

    Raises:
        OSError: it cannot be written.
    """
    from hpckit.files import replace_file  # noqa: PLC0415  # the job script's process alone

    index: _Index = {}
    codes, size = [], 0
    for name, (file, package, code) in _modules().items():
        index[name] = (file, package, size, len(code))
        codes.append(code)
        size += len(code)
    head = marshal.dumps((_writer(), index))
    content = b"".join((len(head).to_bytes(_LENGTH), head, *codes))
    replace_file(folder / NAME, content, mode=0o600)


def _writer() -> str:
    """Return what a reader must have in common with the writer."""
    return f"{sys.version} {os.path.dirname(__file__)}"  # noqa: PTH120  # pathlib is a module, too


def _modules() -> dict[str, tuple[str, bool, bytes]]:
    """Return file and code of what supervisors import, by importing it here."""
    from importlib import import_module  # noqa: PLC0415

    from hpckit.stand_ins import UNUSED_IN_JOBS, stand_ins  # noqa: PLC0415

    # As `hpckit.submission.job_process` does, in a process that does nothing else.
    os.environ["SUBMITIT_LOG_LEVEL"] = "NOCONFIG"
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]
    with stand_ins(*UNUSED_IN_JOBS):
        for name in _NEEDED:
            import_module(name)
    found = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or not spec.has_location or name != spec.name or not spec.origin:
            continue  # built into Python, or the main program
        package = spec.submodule_search_locations is not None
        if isinstance(spec.loader, ExtensionFileLoader):
            found[name] = (spec.origin, package, b"")
        elif code := _code(spec):
            found[name] = (spec.origin, package, marshal.dumps(code))
    return found


def _code(spec: ModuleSpec) -> "CodeType | None":
    get_code = getattr(spec.loader, "get_code", None)
    code: CodeType | None = get_code(spec.name) if get_code else None
    return code


def use_bundle(folder: str | None) -> None:
    """Import from the file in a folder from now on, if there is one, and nobody else's."""
    bundle = _open(folder) if folder else None
    if bundle is not None:
        sys.meta_path.insert(0, bundle)


def _open(folder: str) -> "_Bundle | None":
    """Return the bundle; None: there is none that this process may use."""
    opened = number = None
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        status = os.fstat(opened)
        if status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077:
            number = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
            length = int.from_bytes(os.pread(number, _LENGTH, 0))
            head = os.pread(number, length, _LENGTH)
            writer, index = marshal.loads(head)  # noqa: S302  # in a folder that is ours alone
            if writer == _writer():
                return _Bundle(number, _LENGTH + length, index)
    except (OSError, EOFError, ValueError, TypeError):
        pass  # there is none; or another Python has written it
    finally:
        if opened is not None:
            os.close(opened)
    if number is not None:
        os.close(number)
    return None


class _Bundle:
    """Finds and loads modules, as `importlib.abc.MetaPathFinder` and `Loader` say."""

    def __init__(self, number: int, start: int, index: _Index) -> None:
        """Take a file, open as `number`, whose codes begin at `start`."""
        self._number = number
        self._start = start
        self._index = index

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """Return where a module is; None: not here."""
        del path, target
        if name not in self._index:
            return None
        file, package, _, length = self._index[name]
        loader = self if length else ExtensionFileLoader(name, file)
        spec = ModuleSpec(name, loader, origin=file, is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [os.path.dirname(file)]  # noqa: PTH120
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave that to Python."""
        del spec

    def exec_module(self, module: "ModuleType") -> None:
        """Run a module's code."""
        code = self.get_code(module.__name__)
        exec(code, module.__dict__)  # noqa: S102

    def get_code(self, name: str) -> "CodeType":
        """Return a module's code, from its own file where the bundle cannot be read any more."""
        file, _, begin, length = self._index[name]
        code: CodeType | None = None
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            content = os.pread(self._number, length, self._start + begin)
            code = marshal.loads(content)  # noqa: S302
        found = code or SourceFileLoader(name, file).get_code(name)
        if found is None:
            raise ImportError(f"{file} has no code", name=name)
        return found
