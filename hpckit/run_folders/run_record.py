"""The content of `run.json` as types, checked on reading: somebody else may have written it."""

import os
import re
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from hpckit.errors import OutsideError, RequestError
from hpckit.files import DamagedFileError
from hpckit.schedulers.base import SCHEDULERS, find_scheduler
from hpckit.text import plain
from hpckit.values import Count, Moment, Size, Word, rebuild

# Ten times what a process's arguments may take; a record has them three times.
MAX_BYTES = 4 * 2**20
# What a folder's name, and an id given to Slurm's programs, may be.
_RUN_ID = r"(?a)[\w][\w.-]{0,200}"
_SAFE_ID = r"(?a)[A-Za-z0-9][\w.+-]{0,60}"
# A word that can only be a job's id: hpckit gives no run such a name, though others might.
JOB_ID = r"(?a)\d{1,20}([_+]\d{1,10})?|local-[\w-]{1,40}"


class Shape(TypedDict):
    """The plan: what was asked of the scheduler."""

    nodes: Size
    tasks_per_node: Size
    ranks: Size
    total_gpus: Size
    time_min: Count
    strategy: Word
    launcher: Word
    gpus_per_node: NotRequired[Size]
    gpu_type: NotRequired[Word | None]
    cpus_per_task: NotRequired[Size | None]
    mem_gb: NotRequired[Size | None]
    partition: NotRequired[Word | None]
    account: NotRequired[Word | None]
    qos: NotRequired[Word | None]
    sample_interval_s: NotRequired[float]
    device: NotRequired[Word | None]


class ArrayTask(TypedDict):
    """Which task of which array a run is."""

    job_id: str
    index: Size
    whole: NotRequired[str]


class Used(TypedDict):
    """A template, workload or site: where it came from, and the hash of its content."""

    name: str
    collection: NotRequired[Word | None]
    revision: NotRequired[Word | None]
    hash: NotRequired[Word | None]


class Code(TypedDict):
    """The git version of the user's code, and the copy of it, or why there is no copy.

    `tree` is the copy's name in the folder `store` beside the runs; `project` is the folder in it
    that is a copy of `root`, and `script` is the program in that folder.
    """

    commit: NotRequired[Word | None]
    dirty: NotRequired[bool | None]
    tree: NotRequired[Word]
    store: NotRequired[Word]
    root: NotRequired[str]
    project: NotRequired[Word]
    script: NotRequired[str | None]
    not_kept: NotRequired[str]


class StudyPart(TypedDict):
    """Which run of which study of `hpckit scale` a run is.

    `sizes` and `repeats` are how many the study has; `repeat` is this run's, from 1. In weak
    scaling, `grow` names the arguments that grow. `in_turn`: it waited for the run before it.
    """

    id: Word
    sizes: Size
    repeats: Size
    repeat: Size
    weak: bool
    grow: tuple[Word, ...]
    in_turn: bool


class RetryOf(TypedDict):
    """Which run of which job a run tries again, after what kind of failure, and what changed.

    `number` counts the retries of one request, from 1. `text` is for people.
    """

    of: Word
    job_id: Word
    number: Size
    kind: Word
    changes: Mapping[str, Any]
    text: Word


class ResubmitOf(TypedDict):
    """Which run `hpckit resubmit` submitted again: its id, its job's, its folder."""

    of: Word
    job_id: Word
    dir: str


class LeftOut(TypedDict):
    """Nodes that a job leaves out because they looked bad: who asked for it, which, and why."""

    by: Word
    hosts: tuple[Word, ...]
    why: tuple[Word, ...]


class SessionPart(TypedDict):
    """What kind of session a run is (`shell`, `jupyter`), and how long it may be idle, in s."""

    kind: Word
    idle_s: float | None


class Started(TypedDict):
    """What ranks run: its kind, as in `hpckit.job.program`, and its path or name."""

    kind: Word
    word: str


class RunRecord(TypedDict):
    """A run's record: what commands read of it.

    `task_number`: of an array's task that is tried again, its number in the array that was asked
    for first.
    """

    run_id: str
    job_id: str
    executor: Word
    submitted_at: Moment
    name: Word
    cwd: str
    request: Mapping[str, Any]
    parameters: Mapping[str, Any]
    command: tuple[str, ...]
    hpckit_version: Word
    plan: Shape
    array: NotRequired[ArrayTask | None]
    chain: NotRequired[tuple[str, ...] | None]
    user: NotRequired[Word | None]
    site: NotRequired[Used | None]
    workload: NotRequired[Used | None]
    templates: NotRequired[tuple[Used, ...]]
    code: NotRequired[Code | None]
    script_hash: NotRequired[Word | None]
    program: NotRequired[Started]
    study: NotRequired[StudyPart]
    retry: NotRequired[RetryOf]
    resubmit: NotRequired[ResubmitOf]
    task_number: NotRequired[Size]
    bad_nodes: NotRequired[LeftOut]
    session: NotRequired[SessionPart]


def checked_record(found: object) -> Mapping[str, Any]:
    """Check the values of a record that commands read; return them with all else it contains.

    Raises:
        DamagedFileError: hpckit did not write it. OutsideError: this hpckit does not know its
            scheduler.
    """
    record: RunRecord = rebuild(RunRecord, found, newer=True)
    array = record.get("array")
    whole = array.get("whole") if array else None
    chain = record.get("chain") or ()
    for word in (record["job_id"], array["job_id"] if array else "0", whole or "0", *chain):
        if not re.fullmatch(_SAFE_ID, word):
            raise DamagedFileError(f"{word[:80]!r} cannot be a job's id")
    if not SCHEDULERS.knows(record["executor"]):
        raise OutsideError(
            f"Run {record['run_id'][:80]!r} was submitted with --executor {record['executor']!r}, "
            f"which this hpckit does not know; it knows {', '.join(SCHEDULERS)}. Install the "
            "package that adds it, or use the hpckit that submitted the run."
        )
    try:
        scheduler = find_scheduler(record["executor"])
    except RequestError as error:  # its package cannot be loaded
        raise OutsideError(f"Run {record['run_id'][:80]!r}: {error}") from error
    for word in (record["job_id"], *chain):
        if not scheduler.job_id.fullmatch(word):
            raise DamagedFileError(f"{word!r} is not a job id of {record['executor']}")
    if not re.fullmatch(_RUN_ID, record["run_id"]):
        raise DamagedFileError(f"{record['run_id'][:80]!r} cannot be a run's id")
    if "\0" in record["cwd"]:
        raise DamagedFileError("'cwd' contains a NUL")
    return record


def varied(record: Mapping[str, Any]) -> set[str]:
    """Return the parameters whose values an array's tasks do not share.

    What a workload calls `n-epochs` may have been asked for as `n_epochs`.
    """
    asked = record["request"].get("array") or ()
    names = {text.partition("=")[0] for text in asked if isinstance(text, str)}
    return names | {name.replace("_", "-") for name in names}


def task_parameters(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what a task of an array alone was given, as its program gets it; {} for other runs."""
    if not record.get("array"):
        return {}
    names = varied(record)
    return {key: plain(value) for key, value in record["parameters"].items() if key in names}


def is_slurm_id(word: str) -> bool:
    """Say whether a word is a job's id as Slurm gives it."""
    return word[:1].isdigit() and re.fullmatch(JOB_ID, word) is not None


def is_function_call(record: Mapping[str, Any]) -> bool:
    """Say whether a run is that of a Python function (`hpckit.call`), by its command."""
    return any(word.endswith("/hpckit/payload/function.py") for word in record["command"])


def work_of(record: Mapping[str, Any]) -> str:
    """Return what runs of one kind share: the workload's name, or the program's word in its place.

    An absolute word is the same in every folder.
    """
    if workload := record.get("workload"):
        return str(workload["name"])
    word = str((record.get("program") or {}).get("word") or "")
    return str(os.path.join(record["cwd"], word))  # noqa: PTH118  # a word of PATH is no path


def session_kind(record: Mapping[str, Any]) -> str | None:
    """Return what kind of session a run is; None: it is not a session."""
    part = record.get("session")
    return str(part["kind"]) if part else None


def once_more(record: Mapping[str, Any], job_id: str) -> str:
    """Return the command that does a run again: a session is not submitted again, but anew."""
    kind = session_kind(record)
    return f"hpckit {kind}" if kind else f"hpckit resubmit {job_id}"


def refuse_session(record: Mapping[str, Any]) -> None:
    """Refuse to submit a session again.

    Raises:
        RequestError: the run is one.
    """
    if kind := session_kind(record):
        raise RequestError(
            "This run is a session: resubmit is for jobs that run by themselves. "
            f"Start another: hpckit {kind}"
        )
