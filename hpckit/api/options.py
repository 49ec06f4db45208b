"""The options of `hpckit.submit`, typed, and the request that they make."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from hpckit.errors import RequestError
from hpckit.job_spec.arguments import (
    JOB,
    PATH,
    WORD,
    Kind,
    argument,
    each_of,
    is_several,
    maybe,
    own_number,
    shown,
)
from hpckit.job_spec.option_words import NO_LISTS, as_word
from hpckit.job_spec.sbatch_words import instead_of
from hpckit.job_spec.spec import OPTIONS, TYPES, JobSpec, Option, option_values

if TYPE_CHECKING:
    from datetime import timedelta

    from hpckit.api.run import Run

# What an empty one is, who reads it says.
_PROGRAM = Kind(PATH.what, WORD.fits)
_TARGET = Kind("the name of a workload or a strategy", lambda given: isinstance(given, str))

# Options of the command line, and of sbatch, that are functions of their own here.
_SCRIPT = "hpckit.script(), with all other words the same, returns the job script"
_DOCUMENT = "A run has it as attributes; run.status().document() is what status --json prints"
_CHECK = "hpckit.check(), with all other words the same, asks Slurm whether and when it would start"
_FUNCTIONS = {
    "dry_run": f"{_SCRIPT}; run.preview() returns what run.resubmit() would submit",
    "check": f"{_CHECK}; run.preview().check() does so for run.resubmit()",
    "test_only": _CHECK,
    "follow": "run.wait() ends when it is over; hpckit.wait(run, look=...) hears of it meanwhile",
    "json": _DOCUMENT,
    "parsable": _DOCUMENT,
    "wait": "What has been submitted waits by its wait(), as in hpckit.scale(...).wait()",
}

__all__ = ["OPTIONS", "TYPES", "JobSpec", "Option", "Options", "job_spec", "spec_values"]


class SizelessOptions(TypedDict, total=False):
    """The options of `hpckit submit` by their words, but those that say how large a job is."""

    args: Sequence[object]
    settings: Mapping[str, object] | Sequence[str]
    zip: bool
    parallel: int | None
    cpus_per_task: int | None
    mem_gb: int | None
    time: "int | str | timedelta | None"
    site: str | None
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    reservation: str | None
    exclude: str | None
    exclude_bad: bool
    sbatch: Mapping[str, object] | Sequence[str]
    template: str
    env: str | os.PathLike[str] | None
    launcher: str | None
    executor: str
    name: str | None
    after: "str | int | Run | Sequence[str | int | Run]"
    max_requeues: int
    chain: int
    retry: str | Sequence[str]
    retries: int
    checkpoint: str | None
    sample_interval: float
    no_code: bool
    skip_check: Sequence[str]


class Options(SizelessOptions, total=False):
    """The options of `hpckit submit` by their words; None means: not asked.

    `gpus` (per node) is a number, or "A100:4"; `time` minutes, "1h30m" or a timedelta; `settings`
    a workload's parameters by name (`--set`); `sbatch` other options of sbatch; `after` jobs' ids,
    or runs.
    """

    nodes: int | None
    gpus: int | str | None
    tasks_per_node: int | None


def check_names() -> tuple[str, ...]:
    """Return what `skip_check` takes: the names of what refuses a job."""
    from hpckit.job.checks import CHECKS  # noqa: PLC0415  # most commands need the table alone

    return CHECKS


def of_sbatch(option: str, value: str | None) -> str | None:
    """Say what to write for an option that sbatch has, and hpckit has not; None: nor has sbatch."""
    return instead_of(option, value)


def job_spec(
    target: str,
    words: Mapping[str, object],
    *,
    program: str | os.PathLike[str] | None = None,
    module: str | None = None,
) -> JobSpec:
    """Return the request that a call's options make.

    Raises:
        RequestError: there is no such option, or a value is not of its type.
    """
    for given in (target, program):
        if callable(given):
            raise RequestError(
                f"{shown(given, 'target' if given is target else 'program')} is a function: "
                "hpckit.call(function, ...) runs it as a job, hpckit.map(function, items) on each "
                "item."
            )
    argument(_TARGET, target, "target")
    argument(maybe(_PROGRAM), program, "program")
    argument(str | None, module, "module")
    from hpckit.job.program import typed_program  # noqa: PLC0415  # likewise

    return JobSpec(
        target=target,
        program=None if program is None else typed_program(os.fspath(program)),
        module=module,
        **spec_values(words),
    )


def spec_values(words: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of `JobSpec`'s fields that a call's options mean.

    Raises:
        RequestError: there is no such option, or a value is not of its type.
    """
    for word in (word for word in words if word in _FUNCTIONS):
        raise RequestError(f"There is no option {word!r}. {_FUNCTIONS[word]}.")
    given = {name: _plain(name, value) for name, value in words.items()}
    args = given.pop("args", None)
    own = {} if args is None else {"args": tuple(args)}
    return own | option_values(given)


def _word(value: object) -> str:
    """Return an argument of a program as its command line has it."""
    try:
        return str(value) if isinstance(value, bool) else as_word(value)
    except ValueError as error:
        raise RequestError(f"args: {error}.") from error


def _after(value: Any) -> list[str]:  # noqa: ANN401  # users' own
    """Return the ids of the jobs that `after` means: of ids, runs, and whatever has runs."""
    found = [own_number(getattr(row, "job_id", row)) for row in each_of(value)]
    if wrong := [row for row in found if not (isinstance(row, str) or JOB.fits(row))]:
        raise RequestError(f"{shown(wrong[0], 'after')} must be a run, or the id of a job.")
    return [str(row) for row in found]


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401  # users' own
    """Return an option's value as the command line could have it."""
    match name:
        case "args" if isinstance(value, NO_LISTS) or not (value is None or is_several(value)):
            raise RequestError(f"{shown(value, name)} must be a list, as in args=['--lr', 0.1].")
        case "args" if value is not None:
            return [_word(row) for row in value]
        case "after" if value is not None:
            return _after(value)
        case "time" if not isinstance(value, int | str | None):
            from datetime import timedelta  # noqa: PLC0415  # what is typed is never one

            # Rounded up; that the divisor is negative keeps timedelta.max within what Python has.
            return -(value // timedelta(minutes=-1)) if isinstance(value, timedelta) else value
        case "env" if isinstance(value, os.PathLike):
            return os.fspath(value)
    return own_number(value)
