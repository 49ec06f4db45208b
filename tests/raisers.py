"""Functions that end in twenty ways, for the tests of `hpckit.call` here and on Slurm."""

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from hpckit.errors import JobError


class SeveralArgumentsError(Exception):
    """Its __init__ takes other arguments than those it passes on: pickle alone cannot make it."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} does not answer")
        self.host, self.port = host, port


class KeywordsError(ValueError):
    def __init__(self, *, code: int, why: str = "no reason") -> None:
        super().__init__(why)
        self.code = code


class OwnTextError(RuntimeError):
    def __str__(self) -> str:
        return f"told {len(self.args)} things"


class LockedError(Exception):
    """It holds what cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock, self.kept = threading.Lock(), "kept"


def deep(number: int = 0) -> int:
    return deep(number + 1)


def from_another() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise RuntimeError("no such setting") from error


def while_another() -> None:
    try:
        raise ValueError("the first")
    except ValueError:
        raise TypeError("the second")  # noqa: B904


def with_note() -> None:
    error = ValueError("bad step")
    error.add_note("it was step 7")
    raise error


def local_class() -> None:
    class InsideError(Exception):
        pass

    raise InsideError("made inside", 7)


def throw(error: BaseException) -> Callable[..., None]:
    def function(*_: object, **__: object) -> None:
        raise error

    return function


# What it does; the type's name; its text; a word of the traceback.
ENDS: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "value": (lambda: int("x"), "ValueError", "invalid literal", "int("),
    "key": (lambda: {}["k"], "KeyError", "'k'", "KeyError"),
    "zero": (lambda: 1 / 0, "ZeroDivisionError", "division by zero", "1 / 0"),
    "file": (lambda: open("/no/such"), "FileNotFoundError", "[Errno 2]", "/no/such"),  # noqa: SIM115
    "unicode": (lambda: b"\xff".decode(), "UnicodeDecodeError", "0xff", "decode"),
    "stop": (lambda: next(iter(())), "StopIteration", "", "StopIteration"),
    "attribute": (lambda: object().nothing, "AttributeError", "nothing", "nothing"),  # type: ignore[attr-defined]
    "import": (lambda: __import__("no_such_module"), "ModuleNotFoundError", "no_such", "no_such"),
    "deep": (deep, "RecursionError", "maximum recursion", "deep"),
    "memory": (throw(MemoryError("4 TB")), "MemoryError", "4 TB", "MemoryError"),
    "program": (
        lambda: subprocess.run(["false"], check=True), "CalledProcessError", "status 1", "false",
    ),
    "group": (
        throw(ExceptionGroup("two", [ValueError(1), KeyError(2)])), "ExceptionGroup", "two",
        "KeyErr",
    ),
    "several": (
        lambda: (_ for _ in ()).throw(SeveralArgumentsError("c1", 80)), "SeveralArgumentsError",
        "c1:80 does not answer", "SeveralArguments",
    ),
    "keywords": (
        lambda: (_ for _ in ()).throw(KeywordsError(code=7)), "KeywordsError", "no reason", "7",
    ),
    "own text": (throw(OwnTextError(1, 2)), "OwnTextError", "told 2 things", "told 2"),
    "locked": (
        lambda: (_ for _ in ()).throw(LockedError("shut")), "LockedError", "shut", "LockedError",
    ),
    "unpicklable": (
        lambda: (_ for _ in ()).throw(ValueError(threading.Lock())), "ValueError", "_thread.lock",
        "ValueError",
    ),
    "from another": (from_another, "RuntimeError", "no such setting", "KeyError: 'missing'"),
    "while another": (while_another, "TypeError", "the second", "During handling"),
    "note": (with_note, "ValueError", "bad step", "it was step 7"),
    "inside": (local_class, "InsideError", "('made inside', 7)", "InsideError"),
    "exit": (lambda: sys.exit(3), "SystemExit", "3", "sys.exit(3)"),
    "exit words": (lambda: sys.exit("no data"), "SystemExit", "no data", "sys.exit"),
    "ctrl-c": (throw(KeyboardInterrupt()), "KeyboardInterrupt", "", "KeyboardInterrupt"),
}  # fmt: skip


def end(name: str) -> Any:
    """End in one of these ways."""
    return ENDS[name][0]()


def raised_by_result(error: BaseException) -> type[BaseException]:
    """Return what `result` raises: never what would end the program that asks, as SystemExit."""
    return type(error) if isinstance(error, Exception) else JobError


def check(name: str, error: BaseException | None) -> None:
    """Check that an exception is what was raised, with the traceback of where."""
    _, kind, text, trace = ENDS[name]
    assert error is not None, name
    assert type(error).__name__ == kind, (name, error)
    assert text in str(error), (name, str(error))
    told = str(error.__cause__)
    assert "Traceback (most recent call last)" in told, (name, told)
    assert trace in told, (name, told)
    assert "payload/function.py" not in told, (name, told)
    assert "raisers.py" in told, (name, told)
