"""`hpckit.call` and `hpckit.map`: a Python function as a job, and as an array of jobs.

The function travels as a pickle (cloudpickle's, which submitit brings) into the run's folder; a
script of hpckit's (`payload/function.py`) calls it there under the environment's Python, and writes
what it returned or raised beside it. For Slurm, and for all commands, it is a run as any other.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
import sysconfig
from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar, cast

from hpckit.api import log
from hpckit.api.call_result import Call, Calls, Result
from hpckit.api.options import Options, job_spec
from hpckit.api.prepare import prepare
from hpckit.api.submit import send
from hpckit.code.project import Source
from hpckit.documents import nearest
from hpckit.errors import RequestError
from hpckit.job_spec.arguments import PATH, argument, is_several
from hpckit.job_spec.sbatch_words import instead_of_word
from hpckit.paths import here
from hpckit.payload import function as in_job
from hpckit.strategies import STRATEGIES
from hpckit.submission.model import Submission
from hpckit.text import as_python

_SCRIPT = str(Path(in_job.__file__).resolve())
# What cloudpickle calls the file of all code.
_NO_FILE = "<dynamic-code>"
# The second flag of `gpus` is an option of `submit`, too.
_MORE = {"strategy", "runs", "gpus_per_node"}
_OURS = frozenset(Options.__annotations__) - {"args", "settings", "parallel"} | _MORE
_BESIDE = "The function's own arguments stand beside it: hpckit.call(function, 3, seed=1)"
# Words of `hpckit.submit` that calls of functions have in another way.
_ELSEWHERE = {
    "args": _BESIDE,
    "settings": _BESIDE,
    "array": "hpckit.map(function, items) calls it on each item, as an array",
    "parallel": "hpckit.map(function, items, parallel=2) has it",
    "wait": "What hpckit.call and hpckit.map return has a wait()",
}


def call(
    function: Callable[..., Result],
    /,
    *args: Any,  # noqa: ANN401  # the function's own
    **options: Any,  # noqa: ANN401  # likewise
) -> Call[Result]:
    """Run `function(*args, **kwargs)` as a job; return at once, with what `result()` waits for.

    Options of `hpckit.submit` (gpus=1, time="2h", env=...) are hpckit's, and all other keywords the
    function's. `strategy` (serial) starts it as one process or, with ddp, on each rank; `runs` is
    the folder of runs.

    Raises:
        RequestError: an option is wrong, or the function or its arguments cannot be pickled.
        OutsideError: Slurm refuses or does not answer.
    """
    asked, kwargs = _split(function, options)
    _refuse_unfit(function, args, kwargs)
    parts = [_pickled((function, args, kwargs))]
    return cast("Call[Result]", _submitted(function, parts, asked)[0])


def map(  # as builtins' and concurrent.futures'
    function: Callable[..., Result],
    iterable: Iterable[Any],
    /,
    *iterables: Iterable[Any],
    parallel: int | None = None,
    **options: Any,  # noqa: ANN401  # the function's own
) -> Calls[Result]:
    """Run a function on each item, as the tasks of one array; `parallel` run at the same time.

    Several iterables give the function an argument each, as the built-in map does. Other keywords
    are those of `hpckit.call`.

    Raises:
        RequestError, OutsideError: as `hpckit.call`.
    """
    asked, kwargs = _split(function, options)
    for given in (iterable, *iterables):
        if not is_several(given):
            raise RequestError(
                f"{as_python(given)} is not a list of items for {_name_of(function)}."
            )
    rows = list(zip(iterable, *iterables, strict=False))
    for row in rows[:1]:
        _refuse_unfit(function, row, kwargs)
    items = [_pickled(row) for row in rows]
    if not items:
        return Calls([])
    asked |= {"array": {"item": range(len(items))}, "parallel": parallel}
    parts = [_pickled((function, (), kwargs)), *items]
    return Calls(cast("Sequence[Call[Result]]", _submitted(function, parts, asked)))


def _split(
    function: Callable[..., object], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell hpckit's keywords from the function's own.

    Raises:
        RequestError: a name is both's, or it is not a function whose result can travel.
    """
    if not callable(function):
        raise RequestError(
            f"{as_python(function)} is not a function: give it first, then its arguments."
        )
    _refuse_lazy(function)
    asked = {name: value for name, value in options.items() if name in _OURS}
    names = {*_signature(function).parameters} - {*getattr(function, "keywords", ())}
    if both := [name for name in asked if name in names]:
        raise RequestError(
            f"{_name_of(function)} has a parameter {both[0]!r}, and hpckit an option of this name. "
            f"Give the function's own by functools.partial(function, {both[0]}=...)."
        )
    return asked, {name: value for name, value in options.items() if name not in _OURS}


def _signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


def _refuse_unfit(function: Callable[..., object], args: Any, kwargs: dict[str, Any]) -> None:  # noqa: ANN401
    """Refuse arguments that the function cannot take, before the job waits in a queue."""
    try:
        _signature(function).bind(*args, **kwargs)
    except TypeError as error:
        unknown = [name for name in kwargs if str(error).endswith(f"keyword argument {name!r}")]
        also = f" hpckit has no such option. {_instead(unknown[0], kwargs)}" if unknown else ""
        raise RequestError(f"{_name_of(function)}: {error}.{also}") from error


def _instead(word: str, kwargs: dict[str, Any]) -> str:
    """Say what to write for a keyword that neither the function nor hpckit takes."""
    if said := _ELSEWHERE.get(word):
        return f"{said}."
    return instead_of_word(word, kwargs[word]) or nearest(word, _OURS)


def _refuse_lazy(function: Callable[..., object]) -> None:
    """Refuse a function that does its work only while somebody goes through what it returns."""
    name = _name_of(function)
    if inspect.isgeneratorfunction(function):
        raise RequestError(
            f"{name} is a generator, which cannot be pickled, as results are. Call a function "
            f"that goes through it in the job, as lambda: list({name}(...))."
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise RequestError(
            f"{name} is asynchronous (async def): nothing in the job awaits it. Call a function "
            f"that runs it, as lambda: asyncio.run({name}(...))."
        )


def _submitted(
    function: Callable[..., object], parts: Sequence[bytes], asked: dict[str, Any]
) -> list[Call[Any]]:
    runs = asked.pop("runs", None)
    target = asked.pop("strategy", "serial")
    asked.setdefault("name", re.sub(r"\W+", "", _name_of(function)) or "function")
    if argument(str, target, "strategy") not in STRATEGIES:
        raise RequestError(f"strategy={target!r} must be one of {', '.join(STRATEGIES)}.")
    spec = job_spec(target, asked, program=_SCRIPT)
    root = None if runs is None else Path(argument(PATH, runs, "runs"))
    submission = _with_pickle(prepare(spec, root, tell=log, sources=_sources(function)))
    pickled = submission.place.dir / in_job.FOLDER / in_job.PICKLE
    sent = send(submission, ready=lambda: in_job.write_own(pickled, _header(), parts))
    return cast("list[Call[Any]]", sent)


def _with_pickle(submission: Submission) -> Submission:
    """Give the script its argument, which is known once the run has its folder."""
    path = str(submission.place.dir / in_job.FOLDER / in_job.PICKLE)
    spec, job = submission.spec, submission.job
    return replace(
        submission,
        spec=replace(spec, args=(path,)),
        job=replace(job, command=(*job.command, path)),
    )


def _sources(function: Callable[..., object]) -> list[Source]:
    """Return where the function's project may be: its module's file, the program's, or here."""
    standing = Source(here())  # before relative names of files are looked at
    inner = _inner(function)
    names = (getattr(inner, "__module__", None) or type(inner).__module__, "__main__")
    modules = (sys.modules.get(name) for name in names)
    return [*(_source(row) for row in modules if _has_file(row)), standing]


def _has_file(module: ModuleType | None) -> bool:
    """Say whether a module is of a file: Python gives a program that it reads of a pipe a name."""
    return getattr(module, "__file__", None) not in (None, "", "<stdin>")


def _source(module: ModuleType | None) -> Source:
    """Return a module's file, and the folder that it is imported from if it is in a package."""
    file = Path(str(getattr(module, "__file__", ""))).resolve()
    # The program has its own name only here, and only if `python -m` started it.
    name = getattr(getattr(module, "__spec__", None), "name", "")
    packages = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
    inside = bool(packages) and [*file.parent.parts[-len(packages) :]] == packages
    return Source(file, file.parents[len(packages)] if inside else None)


def _inner(function: Callable[..., object]) -> Callable[..., object]:
    """Return what a functools.partial, or one of one, calls."""
    while isinstance(function, partial):
        function = function.func
    return function


def _header() -> dict[str, Any]:
    import cloudpickle  # noqa: PLC0415  # of submitit's

    return {
        "python": in_job.VERSION,
        "path": _own_path(),
        "cloudpickle": str(Path(cloudpickle.__file__).parents[1]),
    }


def _own_path() -> list[str]:
    """Return the folders that the user imports from, as far as they are not the installation's."""
    installed = {str(Path(path).resolve()) for path in sysconfig.get_paths().values()}
    folders = [str(Path(word or ".").resolve()) for word in sys.path]
    # hpckit's own, unless somebody works in it.
    ours = {str(Path(__file__).resolve().parents[2])} - {*folders[:1]}
    return [
        folder
        for folder in dict.fromkeys(folders)
        if folder not in installed | ours
        and not {"site-packages", "dist-packages"} & {*Path(folder).parts}
        and not folder.endswith((".zip", "lib-dynload"))
    ]


def _pickled(value: object) -> bytes:
    import cloudpickle  # noqa: PLC0415  # of submitit's

    # What the program is called in a process that multiprocessing has spawned. The job has no
    # such module: its functions travel themselves, as those of `__main__` do.
    if program := sys.modules.get("__mp_main__"):
        cloudpickle.register_pickle_by_value(program)
    known = cloudpickle.Pickler.dispatch_table

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap({CodeType: partial(_with_file, known[CodeType])}, known)

    content = io.BytesIO()
    try:
        Pickler(content, protocol=4).dump(value)
    except Exception as error:
        raise RequestError(
            f"The function or its arguments cannot be pickled, which is how they travel into the "
            f"job: {type(error).__name__}: {error}. Open files, locks and connections are made in "
            "the function instead."
        ) from error
    return content.getvalue()


def _with_file(reduce: Callable[[CodeType], Any], code: CodeType) -> tuple[object, ...]:
    """Pickle code as cloudpickle does, but with its file, of which a traceback has its lines.

    From 3.1.3 on, cloudpickle gives all code one name instead.
    """
    make, words = reduce(code)
    return make, tuple(code.co_filename if word == _NO_FILE else word for word in words)


def _name_of(function: Callable[..., object]) -> str:
    inner = _inner(function)
    return str(getattr(inner, "__name__", type(inner).__name__))
