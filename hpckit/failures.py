"""Why a run failed, from its folder: the cause, the words that go with it, and what to do."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.causes import (
    NEVER_BEGUN,
    Cause,
    Evidence,
    Kind,
    find_cause,
    lost_hosts,
    named,
    places,
)
from hpckit.files import DamagedFileError, no_room, open_regular, read_bytes, reason
from hpckit.frozen import frozen
from hpckit.joblog import job_facts
from hpckit.launchers import recorded_launcher
from hpckit.ranks import RankRecord, read_all_attempts
from hpckit.run_files import JOB_LOG
from hpckit.runs import Run
from hpckit.slurm.states import JobState
from hpckit.tracebacks import HANGS_AT_END, OUT_OF_MEMORY, error_line, last_error, says_why

# Slurm's words of one attempt; what users' own set-up prints may be more.
_LOG_BYTES = 1 << 20
# Of srun's last words alone, which may be asked of each of many runs.
_LAST_BYTES = 1 << 16
_TAIL_LINES = 20
_SCRIPT, _SUPERVISOR = "job.sh", b"hpckit.submission.in_job"
_TOLD = "its script ended after the signal that the time limit or a preemption was near"


def why(run: Run, ranks: Sequence[RankRecord], state: JobState) -> Cause | None:
    """Say why a run's last attempt, whose records `ranks` are, ended; None: not yet, or well."""
    return _cause(run, ranks, state, _attempt_log(run, ranks))


# How Slurm's own words for the end of an attempt read as a state; its own word comes too late.
_STATES = {
    "TIME LIMIT": JobState.TIMEOUT,
    "DEADLINE": JobState.DEADLINE,
    "PREEMPTION": JobState.PREEMPTED,
    "NODE FAILURE": JobState.NODE_FAIL,
}


def ended_as(run: Run, ranks: Sequence[RankRecord]) -> tuple[JobState, Cause | None]:
    """Return how an attempt ended, at its end and inside its job, by its log and its ranks."""
    log = _attempt_log(run, ranks)
    state = _STATES.get(job_facts(log).why or "", JobState.FAILED)
    return state, _cause(run, ranks, state, log)


def why_from_inside(run: Run, ranks: Sequence[RankRecord]) -> Cause | None:
    """Say why an attempt failed by itself, at its end and inside its job; None: it did not.

    A time limit, a preemption or a lost node is no failure of its own. `ranks` are its records.
    """
    _, cause = ended_as(run, ranks)
    facts = job_facts(_attempt_log(run, ranks))
    if cause is None or cause.kind in (Kind.TIME_LIMIT, Kind.PREEMPTED):
        return None
    # Ended by a signal, and Slurm did not say that somebody had sent it.
    silent = cause.kind is Kind.STOPPED and facts.why is None
    lost = cause.kind is Kind.LOST and (facts.lost_nodes or facts.why == "NODE FAILURE")
    return None if silent or lost else cause


def never_begun(folder: Path) -> str | None:
    """Say why the newest attempt of a run has no rank, by srun's last words in its log.

    For an attempt without a rank's record, since srun ends with 0 when it gives its step up. None:
    the log does not say so, or the job script is one that starts no rank of hpckit's.
    """
    if _starts_none(folder):
        return None
    before = read_all_attempts(folder, [])
    start = max((row.log_start for row in before), default=0)
    facts = job_facts(attempt_log(folder, start, most=_LAST_BYTES))
    words = facts.never_begun(again=bool(before))
    return NEVER_BEGUN.format(words) if words else None


def _starts_none(folder: Path) -> bool:
    try:
        return _SUPERVISOR not in read_bytes(folder / _SCRIPT)
    except (OSError, DamagedFileError):
        return False  # of an array's task it lies elsewhere


def cause_rows(run: Run, ranks: Sequence[RankRecord], state: JobState) -> list[tuple[str, str]]:
    """Return the cause in rows of a word (`why`, `rank 1`, `lost`, `stopped`) and a text."""
    cause = why(run, ranks, state)
    return list(_rows(cause)) if cause else []


def _rows(cause: Cause) -> Iterator[tuple[str, str]]:
    if cause.rank is None or cause.kind is not Kind.RANK:
        yield "why", cause.text
    for rank in (*([cause.rank] if cause.rank else []), *cause.also):
        error = f": {error_line(rank.error)}" if rank.error else ""
        yield f"rank {rank.rank}", f"{rank.host}, exit status {rank.exit_code}{error}"
    if cause.lost and cause.kind not in (Kind.LOST, Kind.CANCELLED):
        yield "lost", f"{places(cause.lost)} recorded no end"
    if cause.stopped:
        yield "stopped", f"{named('rank', [row.rank for row in cause.stopped])}, after that"


def error_report(run: Run, ranks: Sequence[RankRecord], state: JobState) -> str:
    """Return the cause, with the first traceback or the end of the job's own log; else nothing."""
    log = _attempt_log(run, ranks)
    cause = _cause(run, ranks, state, log)
    if cause is None:
        return ""
    said = list(_report(run, cause, log))
    return "\n".join([*said, *hints("\n".join(said), _terms(run))])


def _terms(run: Run) -> dict[str, str]:
    """Return what hints say of a run, in its own words."""
    plan, command = run.record["plan"], run.record["command"]
    # See `ProgramKind`: another program starts the Python that it finds. Older runs had no others.
    kind = (run.record.get("program") or {}).get("kind", "python")
    by_python = kind in ("python", "module")
    return {
        "job_id": run.job_id,
        "cwd": str(run.record["cwd"]),
        "environment": str(plan.get("environment") or "none"),
        "python": str(command[0]) if command and by_python else "the first python on PATH",
    }


def lost_nodes(run: Run, ranks: Sequence[RankRecord], state: JobState) -> tuple[str, ...]:
    """Return the nodes that a run's last attempt, whose records `ranks` are, lost; see `causes`."""
    return lost_hosts(_known(run, ranks, state, _attempt_log(run, ranks)))


def _cause(run: Run, ranks: Sequence[RankRecord], state: JobState, log: str) -> Cause | None:
    cause = find_cause(_known(run, ranks, state, log))
    return cause and as_told(run, ranks, cause)


def _known(run: Run, ranks: Sequence[RankRecord], state: JobState, log: str) -> Evidence:
    if run.scheduler.one_machine and state is JobState.NODE_FAIL:
        state = JobState.FAILED  # this machine is there; the run's controller is not
    return Evidence(
        ranks=tuple(ranks),
        planned=run.ranks,
        state=state,
        facts=job_facts(log),
        srun=ranks_are_tasks(run),
        full=no_room(run.dir) is not None,
        was_full=_was_full(run, ranks),
        again=not ranks and bool(read_all_attempts(run.dir, [])),
    )


def _was_full(run: Run, ranks: Sequence[RankRecord]) -> bool:
    if all(row.ended is not None for row in ranks):
        return False
    from hpckit.stop_marks import was_full  # noqa: PLC0415  # few end so

    return was_full(run.dir, ranks[0].restart)


def as_told(run: Run, ranks: Sequence[RankRecord], cause: Cause) -> Cause:
    """Return the cause of an attempt; that its ranks ended well because they were told to."""
    if cause.kind is not Kind.JOB_SCRIPT or not ranks:
        return cause
    from hpckit.stop_marks import SENT, STOPPED, marks, marks_of  # noqa: PLC0415  # few end so

    told = marks(marks_of(run.dir, 0), ranks[0].restart)
    return cause if told.isdisjoint({STOPPED, SENT}) else replace(cause, text=_TOLD)


def ranks_are_tasks(run: Run) -> bool:
    """Say whether the tasks that srun names in a run's log are its ranks."""
    launcher = recorded_launcher(run.record["plan"]["launcher"])
    return not run.scheduler.one_machine and launcher is not None and launcher.ranks_are_tasks


def _attempt_log(run: Run, ranks: Sequence[RankRecord]) -> str:
    """Return what the job's log has of this attempt's ranks: an earlier one may stand before."""
    return attempt_log(run.dir, min((row.log_start for row in ranks), default=0))


def attempt_log(
    folder: Path, start: int, until: int | None = None, *, most: int = _LOG_BYTES
) -> str:
    """Return what the job's log has from one attempt's start, until another's, if there is one.

    Of a longer part it is the last `most` bytes.
    """
    try:
        with open_regular(folder / JOB_LOG) as stream:
            end = stream.seek(0, 2)
            end = end if until is None else min(until, end)
            stream.seek(max(start if start <= end else 0, end - most))
            return stream.read(max(end - stream.tell(), 0)).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except (OSError, DamagedFileError) as error:
        return f"damaged: {JOB_LOG}: {reason(error)}"


def _report(run: Run, cause: Cause, log: str) -> Iterator[str]:
    if cause.rank:
        yield f"{cause.text}:"
        yield from _rank_words(run, cause.rank)
    else:
        yield cause.text
        yield from _last_words(run, cause.lost)
    if cause.also:
        also = [f"{row.rank} ({row.host}, {row.exit_code})" for row in cause.also]
        yield f"{'also' if cause.rank else 'after that'} failed: {named('rank', also)}"
    if cause.stopped:
        numbers = [row.rank for row in cause.stopped]
        yield f"{'stopped after that' if cause.rank else 'stopped'}: {named('rank', numbers)}"
    if cause.lost and (cause.rank or cause.kind not in (Kind.LOST, Kind.CANCELLED)):
        yield f"{places(cause.lost)} recorded no end"
    if cause.rank is None:
        yield from log.rstrip().splitlines()[-_TAIL_LINES:] or [f"{run.dir / JOB_LOG} is empty"]
    if full := no_room(run.dir):
        yield f"{full}: the last output is lost"


def _rank_words(run: Run, row: RankRecord) -> Iterator[str]:
    """Yield a rank's error, or the signal that ended it, and its last lines."""
    killed = row.error and row.error.startswith("killed by ")
    error = f"rank {row.rank} on {row.host}: {row.error}" if killed else row.error
    yield error or f"the rank printed no error; see {run.dir}/logs/{row.rank}.out"
    if row.last_words:
        yield row.last_words


def _last_words(run: Run, lost: Sequence[RankRecord]) -> Iterator[str]:
    """Yield the traceback of a rank without an end: MPI_Abort ends a rank and its supervisor."""
    for row in lost:
        words = last_error(run.dir / "logs" / f"{row.rank}.err")
        if words and says_why(words):
            yield f"rank {row.rank} on {row.host} wrote:\n{words}"
            return


@frozen(kw_only=True)
class Hint:
    """One usual end: the words it is known by, and the advice."""

    name: str
    words: re.Pattern[str]
    advice: str


def _hint(name: str, words: str, advice: str) -> Hint:
    return Hint(name=name, words=re.compile(words, re.MULTILINE), advice=advice)


# docs/frameworks.md, "The end of a script".
_LET_GO = (
    "Import torch.distributed.nn at the script's top, and deepspeed.comm where DeepSpeed is "
    "installed (accelerate and the Trainer import it late). Delete the model first: del model; "
    "gc.collect(). Example: examples/user_script/train.py"
)

HINTS = (
    _hint(
        "syntax",
        r"^(?:SyntaxError|IndentationError|TabError): ",
        "Python could not read the script. The file and the line are above. Check it before the "
        "next job: python -m py_compile SCRIPT",
    ),
    _hint(
        "missing package",
        r"^ModuleNotFoundError: No module named '([\w.]+)'",
        "the job's Python is {python} (environment {environment}), and it has no {0}. Install it "
        "there, or choose another environment with --env PATH, --env conda:NAME or "
        "--env module:NAME",
    ),
    _hint(
        "shadowed module",
        r"^(?:AttributeError|ImportError): .*partially initialized module '?([\w.]+)'? .*"
        r"\(most likely due to a circular import\)",
        "a file beside the script may have the name of a library, so that the library imports it. "
        "The traceback names the file: rename it",
    ),
    _hint(
        "no GPU",
        r"^(?:AssertionError: Torch not compiled with CUDA enabled"
        r"|RuntimeError: (?:No CUDA GPUs are available|Found no NVIDIA driver on your system"
        r"|Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is"
        r"|Distributed package doesn't have NCCL built in)"
        r"|ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found"
        r"|.*CUDA error: no CUDA-capable device is detected)",
        "the script uses a GPU, but this rank has no GPU, or its torch has no CUDA. Read the "
        'device from os.environ["HPCKIT_DEVICE"] (cuda or cpu), and use nccl with cuda and gloo '
        "with cpu. Or ask for GPUs with --gpus, and choose a torch with CUDA with --env",
    ),
    _hint(
        "wrong GPU",
        r"CUDA error: invalid device ordinal",
        "the script uses a GPU number that this node does not have. The number of a rank's GPU is "
        'its LOCAL_RANK: torch.device("cuda", int(os.environ["LOCAL_RANK"]))',
    ),
    _hint(
        "GPU memory",
        r"OutOfMemoryError: CUDA out of memory\.|RuntimeError: CUDA out of memory\.",
        "the GPU's memory is full. Make the batch of each rank smaller, accumulate gradients, use "
        "bf16, or ask for GPUs with more memory. `hpckit stats` shows how much each rank used",
    ),
    _hint(
        "NCCL timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL",
        "the ranks waited for a rank that did not answer. That rank may have failed, may run other "
        "code, or may have much more work. Compare the last lines of all ranks: "
        "hpckit logs {job_id} --all",
    ),
    _hint(
        "port in use",
        r"EADDRINUSE|^OSError: \[Errno 98\] (?:error while|Address already in use)",
        "another process on the node uses this port. hpckit chooses a free port for each job: "
        "do not set a port in the script, and read MASTER_ADDR and MASTER_PORT",
    ),
    _hint(
        "no launch",
        r"^no rank had started: srun gave up ",
        "Slurm could not start the ranks; most often a node is at fault. Submit the job again: "
        "hpckit resubmit {job_id}. If it ends so again, send srun's lines to the cluster's support",
    ),
    _hint(
        "host memory",
        rf"{re.escape(OUT_OF_MEMORY)}|^the job ran out of memory$"
        r"|^rank \d+ on \S+ failed first, exit status \d+ \(out of memory\)"
        r"|^(?:\S+\.)?_?(?:Array)?MemoryError(?::|$)",
        "the memory of the node was not enough (not the GPU's memory). Ask for more with --mem-gb, "
        "or use fewer data loader workers and smaller pieces of data. `hpckit stats` shows the "
        "peak",
    ),
    _hint(
        "Open MPI as root",
        r"^mpirun has detected an attempt to run as root\.",
        "Open MPI does not start as root. Run as another user. In your own container, you can "
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 before hpckit submit",
    ),
    _hint(
        "arguments",
        r"^\S+: error: (?:unrecognized arguments|the following arguments are required): ",
        "write the script's arguments after two dashes: hpckit submit STRATEGY SCRIPT [OPTIONS] "
        "-- --name value",
    ),
    _hint(
        "shared library",
        r"error while loading shared libraries: ([\w.+-]+): cannot open shared object file",
        "the program needs {0}, which is not on this node. Load the modules that the program was "
        "compiled with: --env module:NAME, or environments: in the site's YAML",
    ),
    _hint(
        "newer C library",
        r"version `(GLIBC(?:XX)?_[\d.]+)' not found",
        "the program was compiled on a newer system than this node's ({0}). Compile it on a node "
        "of this partition, or with the compiler of a module that you load in the job, too",
    ),
    _hint(
        "other processor",
        r"killed by SIGILL\b|Illegal instruction",
        "the program was compiled for a newer processor than this node has. Compile it on such a "
        "node, or without -march=native; or choose nodes with --constraint",
    ),
    _hint(
        "missing file",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?!/)([^'\n]+)'",
        "the job runs in {cwd}, where you submitted it, and '{0}' is not there. Give the whole "
        "path, or submit from another folder",
    ),
    _hint(
        "copy of the code",
        r"^(?:PermissionError: \[Errno 13\] Permission denied"
        r"|OSError: \[Errno 30\] Read-only file system): '\S*/(?:code|\.code/trees)/\S*'",
        "the script writes beside itself, and runs from a read-only copy of the code "
        "(docs/code.md). Write to the working directory, or to the folder "
        'os.environ["HPCKIT_RUN_DIR"]; or submit with --no-code',
    ),
    _hint(
        "gloo at the end",
        rf"terminate called without an active exception|^{HANGS_AT_END}",
        "this is a known fault of torch with gloo. The work is done, but the process group still "
        f"exists after destroy_process_group(). {_LET_GO}",
    ),
    _hint(
        "hang at the end",
        r"ranks have ended, ranks? .* (?:has|have) not, and did nothing for .*: hpckit has ended",
        "if the last rank had done its work, its process group may still have existed after "
        f"destroy_process_group() (seen with torch and gloo). {_LET_GO}",
    ),
)


def hints(words: str, run: Mapping[str, str]) -> Iterator[str]:
    """Yield the advice that goes with an error; `run` has what the rows name."""
    said = "\n".join(_said(words))
    for hint in HINTS:
        if found := hint.words.search(said):
            yield "hint: " + hint.advice.format(*found.groups(), **run)


def _said(words: str) -> Iterator[str]:
    """Yield an error's lines but for the source lines of a traceback, which may quote anything."""
    for line in words.splitlines():
        plain = re.sub(r"^\[rank\d+\]: ?", "", line)
        if not plain.startswith("  ") or plain.startswith("  what():"):
            yield plain
