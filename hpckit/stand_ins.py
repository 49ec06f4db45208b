"""Modules that a library imports for what no command of ours uses: it gets a stand-in for each.

For programs of our own alone, before they have threads: in another's, a thread could import such a
module in the same moment.
"""

import gc
import importlib
import os
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn

# What libraries import in front of every rank for what no supervisor does: half of its start.
UNUSED_IN_JOBS = (
    "argparse", "asyncio", "bz2", "importlib.metadata", "inspect", "ipaddress", "locale",
    "logging.config", "lzma", "tarfile", "typing_extensions", "urllib.parse",
)  # fmt: skip
# Of these the module itself comes as soon as anything in it is asked for: by dataclasses without
# a docstring, which Python gives one, and by newer Pythons for each.
_SELDOM = {"inspect", "locale", "typing_extensions"}
# Of these it comes when what was imported of it is used for the first time, which few commands do.
_USED_LATER = {
    *("difflib", "gettext", "jinja2.compiler", "jinja2.lexer", "jinja2.parser"),
    *("linecache", "random", "tempfile", "tokenize", "traceback", "uuid"),
    *("submitit.auto.auto", "submitit.helpers", "submitit.local.debug", "submitit.local.local"),
    "urllib.parse",
}
# Another module has nearly all that is asked for.
_ELSEWHERE = {"typing_extensions": typing}


class _Later:
    """A function or a class of a module that is imported when it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: typing.Any, **named: typing.Any) -> typing.Any:  # noqa: ANN401
        return self._own()(*args, **named)

    def __getattr__(self, name: str) -> typing.Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._own(), name)

    def __instancecheck__(self, found: object) -> bool:
        return isinstance(found, self._own())

    # What other versions of a library may do with it while they are imported.
    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (self._own(),)

    def __or__(self, other: typing.Any) -> typing.Any:  # noqa: ANN401
        return self._own() | other

    def __ror__(self, other: typing.Any) -> typing.Any:  # noqa: ANN401
        return other | self._own()

    def _own(self) -> typing.Any:  # noqa: ANN401
        if isinstance(sys.modules.get(self._module), _StandIn):
            del sys.modules[self._module]
        return getattr(importlib.import_module(self._module), self._name)


class _StandIn(ModuleType):
    """Has any name while the library is imported, for its annotations; later the module's own."""

    def __getattr__(self, name: str) -> typing.Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(elsewhere := _ELSEWHERE.get(self.__name__), name):
            return getattr(elsewhere, name)
        if sys.modules.get(self.__name__) is self:
            if self.__name__ in _USED_LATER:
                return _Later(self.__name__, name)
            if self.__name__ not in _SELDOM:
                return object
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def stand_ins(*names: str) -> Iterator[None]:
    """Let what is imported in the block have stand-ins for modules that are not loaded yet."""
    ours = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name, stand_in in ours.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


def run_program(module: str) -> NoReturn:
    """Be a program of ours and nothing else: import it, and end with what its `main` returns.

    At the top of a module that is run by its name, it runs the same module under that name; nothing
    that stands below comes twice.
    """
    # What is imported is no garbage: to look at it again and again takes time.
    gc.disable()
    with stand_ins(*UNUSED_IN_JOBS):
        program = importlib.import_module(module)
    gc.freeze()
    gc.enable()
    sys.exit(program.main())


@contextmanager
def no_log() -> Iterator[None]:
    """Let submitit, which is imported in the block, set up no log: nothing of it is to be seen.

    The variable is there for a while only: scripts inherit the environment.
    """
    name = "SUBMITIT_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ[name] = "NOCONFIG"  # with any other it asks `logging.config`
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
