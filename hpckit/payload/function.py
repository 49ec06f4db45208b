"""Runs a pickled function in a job: `python function.py PICKLE [--item N]`; knows no hpckit.

The environment's own Python runs this file, from 3.7 on, and hpckit may not be there; on the other
side hpckit imports it for the rules of the files, which are the same on both.

PICKLE is a header, one line of JSON, and after it the function with its arguments, then the
arguments of each item of a map. A result is a header and the pickled value, or exception.
"""

from __future__ import annotations

import json
import os
import pickle
import shlex
import stat
import sys
import traceback
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import NoReturn

FOLDER, PICKLE = "call", "function.pkl"
VERSION = ".".join(map(str, sys.version_info[:2]))
_MOST_HEADER = 1 << 26
# What a site's own umask would give away: results and arguments are their owner's alone.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class NotAloneError(Exception):
    """A file from which nothing may be loaded, since others could have written it."""


def open_own(path: Path) -> IO[bytes]:
    """Open a file in a folder that is the user's alone, in a run's folder that others cannot write.

    Raises:
        NotAloneError: it is not so. OSError: it cannot be opened.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _refuse_shared(path.parent, os.fstat(folder), 0o077)
        _refuse_shared(path.parent.parent, os.stat("..", dir_fd=folder), 0o022)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would wait for its other end
        opened = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    file = os.fdopen(opened, "rb")
    status = os.fstat(opened)
    if status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode):
        file.close()
        raise NotAloneError(f"{path} is not a file of yours: nothing is loaded from it.")
    return file


def _refuse_shared(path: Path, status: os.stat_result, bits: int) -> None:
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & bits:
        mode = "700" if bits & 0o055 else "go-w"
        raise NotAloneError(
            f"{path} is open to others, so nothing is loaded from it. Make it yours alone: "
            f"chmod {mode} {shlex.quote(str(path))}"
        )


def write_own(path: Path, header: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Write a header and what follows it, whole or not at all, for nobody else to read."""
    path.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    header = dict(header, sizes=[len(part) for part in parts])
    try:
        with os.fdopen(os.open(str(beside), flags, _FILE_MODE), "wb") as file:
            file.write(json.dumps(header).encode() + b"\n")
            for part in parts:
                file.write(part)
        beside.replace(path)
    except BaseException:
        if beside.exists():
            beside.unlink()
        raise


def read_header(file: IO[bytes]) -> dict[str, Any]:
    """Return what the first line says."""
    header: dict[str, Any] = json.loads(file.readline(_MOST_HEADER).decode())
    return header


def result_name(rank: int) -> str:
    """Return the name of a rank's result in the folder `call` of its run."""
    return f"result-{rank}.pkl"


def _main() -> None:
    path, item = Path(sys.argv[1]), int(sys.argv[3]) if sys.argv[2:] else None
    _no_folder_of_ours()
    rank = int(os.environ.get("RANK", "0"))
    result = Path(os.environ.get("HPCKIT_RUN_DIR") or path.parent.parent) / FOLDER
    result = result / result_name(rank)
    function = _loaded(path, item, result)
    try:
        value = function()
    except BaseException as error:  # it is told, and ends the job all the same
        _tell_error(result, error)
        if isinstance(error, SystemExit):
            raise
        trace = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(_of_theirs(trace)), _of_theirs(trace))
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)
    try:
        told = _dumps(value)
    except Exception as error:  # noqa: BLE001  # whatever a pickle's own code raises
        what = f"its result, of type {_name(type(value))}, cannot be pickled: {error!r}"
        _refuse(result, f"The function returned, but {what}")
    write_own(result, {"python": VERSION, "outcome": "value"}, [told])


def _no_folder_of_ours() -> None:
    """Take this file's folder off the path: a user's `import task` does not mean hpckit's."""
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [word for word in sys.path if not word or str(Path(word).resolve()) != here]


def _loaded(path: Path, item: int | None, result: Path) -> Callable[[], object]:
    """Return the function with its arguments, ready to be called."""
    try:
        with open_own(path) as file:
            header = read_header(file)
            _check_python(header, result)
            sys.path[:0] = [word for word in header["path"] if word not in sys.path]
            _have_cloudpickle(header["cloudpickle"])
            function, args, kwargs = pickle.loads(file.read(header["sizes"][0]))  # noqa: S301
            if item is not None:
                file.seek(sum(header["sizes"][1 : item + 1]), os.SEEK_CUR)
                args = (*pickle.loads(file.read(header["sizes"][item + 1])), *args)  # noqa: S301
    except NotAloneError as error:
        _refuse(result, str(error))
    except OSError as error:
        _refuse(result, f"The pickled function cannot be read: {error}")
    except Exception as error:  # noqa: BLE001  # whatever a module's own code raises
        print(traceback.format_exc(), file=sys.stderr)  # noqa: T201
        _refuse(
            result,
            f"The function cannot be loaded by {sys.executable} of the job: "
            f"{type(error).__name__}: {error}. What it needs must be installed in the job's "
            "environment, or be importable from where you submit.",
        )
    return lambda: function(*args, **kwargs)


def _check_python(header: dict[str, Any], result: Path) -> None:
    if header["python"] != VERSION:
        _refuse(
            result,
            f"The function was pickled by Python {header['python']}, but the job's environment has "
            f"Python {VERSION} ({sys.executable}): a function travels between equal versions only. "
            f"Start your program or notebook with a Python {VERSION}, or give env= another "
            "environment.",
        )


def _have_cloudpickle(folder: str) -> None:
    """Make sure of cloudpickle: the environment's own, else the one that pickled the function."""
    if PathFinder.find_spec("cloudpickle") is None:
        spec = PathFinder.find_spec("cloudpickle", [folder])
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            sys.modules["cloudpickle"] = module
            spec.loader.exec_module(module)


def _refuse(result: Path, message: str) -> NoReturn:
    write_own(result, {"python": VERSION, "outcome": "refused", "message": message}, [])
    sys.exit(message)


def _tell_error(result: Path, error: BaseException) -> None:
    trace = error.__traceback__ and _of_theirs(error.__traceback__.tb_next)
    lines = traceback.format_exception(type(error), error, trace)
    header = {
        "python": VERSION,
        "outcome": "error",
        "type": _name(type(error)),
        "message": _text(error),
        "traceback": "".join(lines),
    }
    write_own(result, header, _pickled_error(error))


def _of_theirs(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a class's own __str__
        return "(its text cannot be told)"


def _pickled_error(error: BaseException) -> list[bytes]:
    """Return the exception as a pickle that can be loaded again; else its parts; else nothing.

    The usual fault is a class whose __init__ takes other arguments than those it passes on: then
    the parts make it, without __init__.
    """
    try:
        whole = _dumps(error)
        again = pickle.loads(whole)  # noqa: S301  # made in the line above
        if type(again) is type(error) and again.args == error.args and str(again) == str(error):
            return [whole]
    except Exception:  # noqa: BLE001, S110  # whatever its own code raises
        pass
    state = {key: value for key, value in vars(error).items() if _can(value)}
    args = tuple(value if _can(value) else repr(value) for value in error.args)
    parts = (type(error), args, state)
    return [_dumps(parts)] if _can(parts) and _can_be_made(parts) else []


def _can_be_made(parts: tuple[type, tuple[object, ...], dict[str, object]]) -> bool:
    try:
        error_of(parts)
    except Exception:  # noqa: BLE001  # whatever its own code raises
        return False
    return True


def error_of(found: Any) -> BaseException:  # noqa: ANN401  # what a pickle held
    """Return the exception that a pickle held, whole or in parts."""
    if isinstance(found, BaseException):
        return found
    kind, args, state = found
    try:
        error = kind.__new__(kind, *args)
    except TypeError:
        error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error  # type: ignore[no-any-return]


def _can(value: object) -> bool:
    try:
        pickle.loads(_dumps(value))  # noqa: S301  # made in this line
    except Exception:  # noqa: BLE001  # whatever its own code raises
        return False
    return True


def _dumps(value: object) -> bytes:
    try:
        from cloudpickle import dumps  # noqa: PLC0415  # where there is none, modules' functions run
    except ImportError:
        from pickle import dumps  # noqa: PLC0415
    pickled: bytes = dumps(value, protocol=4)
    return pickled


def _name(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


if __name__ == "__main__":
    _main()
