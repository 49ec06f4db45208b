"""How Slurm's programs are asked: one environment, so that what they print can be parsed.

And one patience: what a command asks shares a few seconds, so that it answers soon, with a caveat,
also when a daemon is down or hangs. Slurm's own programs give up after MessageTimeout, 10 s for
each, and sacct after 15 minutes: slurm.conf(5).
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace

from hpckit import shell
from hpckit.errors import CommandError, RequestError, TooSlowError
from hpckit.frozen import changeable

# A user's own defaults for these programs change columns, filters and sorting: squeue(1),
# "ENVIRONMENT VARIABLES", and the same section of sacct(1), sinfo(1) and scontrol(1).
_OWN_DEFAULTS = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_")
_FORCED = {
    "SLURM_TIME_FORMAT": "%s",  # epoch seconds: no time zone to guess
    "SLURM_BITSTR_LEN": "0",  # squeue cuts long array ranges to 64 characters otherwise
}
_ARGUMENT_BYTES = 100_000  # Linux refuses one argument above 128 KiB
# What a program says when no controller answers it, and when it knows of none.
NO_CONTROLLER, REFUSED = "Unable to contact slurm controller", "Connection refused"
NO_CLUSTER = "Could not establish a configuration source"
# Of a client without slurm.conf that found slurmctld, by DNS or SLURM_CONF_SERVER; seen with 22.05.
_NOT_FETCHED = "failed to fetch remote configs"
_HINTS = {
    NO_CONTROLLER: "Its controller is down or restarting: try again soon.",
    REFUSED: "The service is down or restarting: try again soon.",
    "accounting storage is disabled": "This cluster keeps no accounting: only squeue can answer.",
    NO_CLUSTER: "Set SLURM_CONF, or run this on a login node.",
}
_PATIENCE_S = 9.0
# So long an answer may take until people are told.
SLOW_S = 5.0
_PATIENCE = "HPCKIT_PATIENCE"
# A question may take this part of what is left, so that the next one has a chance, or this many
# seconds when they are the last.
_SHARE, _LAST_S = 2 / 3, 3.0
_VERSION_S = 10.0  # for `sbatch --version`, which asks a controller only for the configuration
UNKNOWN_JOB = "Invalid job id"
_COMPLAINT = r"(?i)\b(?:error|fatal|invalid)\b"
# What the dynamic linker says of a preload that is missing, in every program's stderr (ld.so(8)).
_LINKER = "ld.so: "
# What begins rows and parts columns, with the mark of one call (hpckit.slurm.rows): no words.
_MARK = r"[\x1e\x1f][0-9a-f]*"
_ID_CHARACTERS = frozenset("0123456789_+")


@changeable(kw_only=True)
class _Patience:
    """Until when questions may take, on the monotonic clock, and who kept silent so far."""

    until: float
    silent: dict[str, CommandError] = field(default_factory=dict)


@changeable(kw_only=True)
class _Slow:
    """Who is told of slow answers, and of which programs that has been."""

    tell: Callable[[str], None]
    said: set[str] = field(default_factory=set)


_patience: ContextVar[_Patience | None] = ContextVar("patience", default=None)
_slow: ContextVar[_Slow | None] = ContextVar("slow", default=None)


@contextlib.contextmanager
def patience(seconds: float | None = None, *, anew: bool = False) -> Iterator[None]:
    """Let all questions asked inside take so many seconds together; none is asked twice in vain.

    None leaves it to whoever has set a patience around this one, else to `own_patience_s`. Of two
    the shorter counts, unless this one begins `anew`.

    Raises:
        RequestError: $HPCKIT_PATIENCE is no number of seconds.
    """
    outer = None if anew else _patience.get()
    if outer is None:
        until = time.monotonic() + (own_patience_s() if seconds is None else seconds)
        mine = _Patience(until=until)
    elif seconds is None:
        mine = outer
    else:
        until = min(time.monotonic() + seconds, outer.until)
        mine = _Patience(until=until, silent=outer.silent)
    token = _patience.set(mine)
    try:
        yield
    finally:
        _patience.reset(token)


@contextlib.contextmanager
def slow_answers_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Say of each of Slurm's programs that is asked inside, once, that it takes long to answer."""
    token = _slow.set(_Slow(tell=tell))
    try:
        yield
    finally:
        _slow.reset(token)


@contextlib.contextmanager
def _told_if_slow(program: str, limit_s: float) -> Iterator[None]:
    slow = _slow.get()
    if slow is None or program in slow.said or limit_s <= SLOW_S:
        yield
        return

    def say() -> None:
        slow.said.add(program)
        slow.tell(
            f"{program} has not answered for {SLOW_S:g} s; hpckit waits up to {limit_s:.0f} s for "
            f"it ({_PATIENCE}=SECONDS sets how long)"
        )

    with told_after(SLOW_S, say):
        yield


@contextlib.contextmanager
def told_after(seconds: float, say: Callable[[], object]) -> Iterator[None]:
    """Call `say`, once and in a thread, if the block lasts longer."""
    import threading  # noqa: PLC0415  # few commands wait so long

    later = threading.Timer(seconds, say)
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()


def left_s() -> float:
    """Return how many seconds are left for questions; without a patience, as many as one has."""
    shared = _patience.get()
    return own_patience_s() if shared is None else shared.until - time.monotonic()


def own_patience_s() -> float:
    """Return how many seconds the user gives Slurm to answer a command.

    Raises:
        RequestError: $HPCKIT_PATIENCE is no number of seconds.
    """
    text = os.environ.get(_PATIENCE) or str(_PATIENCE_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise RequestError(f"{_PATIENCE}={text!r} is not a number of seconds; the default is 9.")
    return seconds


def ask(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout_s: float = 60,
) -> shell.Completed:
    """Run one of Slurm's programs; times it prints are epoch seconds.

    `env` is the environment to start from, None this process's. Within `patience` it may take less
    than `timeout_s`.

    Raises:
        CommandError: The program is missing, hangs, or (with `check`) fails.
    """
    limit_s = _limit_s(argv, timeout_s)
    try:
        with _told_if_slow(argv[0], limit_s):
            result = shell.run(
                argv,
                env=parsable(os.environ if env is None else env),
                check=False,
                timeout_s=limit_s,
                own_group=True,
            )
    except CommandError as error:
        told = _unmarked(error)
        if shared := _patience.get():
            shared.silent[argv[0]] = told
        raise told from error
    if check and result.returncode != 0:
        raise refusal(result)
    return result


def _limit_s(argv: Sequence[str], timeout_s: float) -> float:
    """Return how long a program may take.

    Raises:
        CommandError: It kept silent before, or no time is left.
    """
    shared = _patience.get()
    if shared is None:
        return timeout_s
    if before := shared.silent.get(argv[0]):
        raise CommandError(str(before), argv=argv, stderr=before.stderr)
    left_s = shared.until - time.monotonic()
    if left_s < 0.1:
        raise CommandError(
            f"'{argv[0]}' was not asked: others of Slurm's programs took the time for it "
            f"({_PATIENCE}=60 gives all of them 60 s).",
            argv=argv,
        )
    return min(timeout_s, max(left_s * _SHARE, min(left_s, _LAST_S)))


def parsable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Slurm prints all of what was asked and nothing cut."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OWN_DEFAULTS)}
    return kept | _FORCED


def is_answer(result: shell.Completed, *, rows: bool) -> bool:
    """Say whether what a program printed answers for jobs that are not among its `rows`.

    Exit status 0 does not say so: a site's wrapper may lose the real one, or print a text of its
    own. So words without a row are no answer, nor is an error, other than of an unknown job.
    """
    return not re.search(_COMPLAINT, _own_stderr(result)) and (rows or not result.stdout.strip())


def refusal(result: shell.Completed) -> CommandError:
    """Describe a failure in Slurm's words, and say what to do where that is known."""
    # Rows are no reason, and a name in them may hold any words: only what stands before them.
    before, *rows = re.split(_MARK, result.stdout, maxsplit=1)
    said = before.rpartition("\n")[0] if rows else before
    stderr = _own_stderr(result) or result.stderr
    result = replace(result, stdout=said, stderr=re.sub(_MARK, " ", stderr))
    error = shell.failed(result) if result.returncode else _not_answered(result)
    words = result.stderr + result.stdout
    hint = next((hint for text, hint in _HINTS.items() if text in words), None)
    if hint is None:
        return error
    return CommandError(
        f"{error}. {hint}", argv=result.argv, returncode=result.returncode, stderr=result.stderr
    )


def _own_stderr(result: shell.Completed) -> str:
    """Return stderr without what is said of jobs that Slurm does not know, and of libraries."""
    rows = result.stderr.splitlines()
    return "\n".join(row for row in rows if UNKNOWN_JOB not in row and _LINKER not in row)


def _not_answered(result: shell.Completed) -> CommandError:
    why = shell.first_meaningful_line(result.stderr) or shell.first_meaningful_line(result.stdout)
    return CommandError(
        f"'{result.argv[0]}' did not answer what it was asked; it said: {why}",
        argv=result.argv,
        returncode=result.returncode,
        stderr=result.stderr,
    )


def _unmarked(error: CommandError) -> CommandError:
    """Return the error of a program without marks: a wrapper may print its command line."""
    if not re.search(_MARK, str(error)):
        return error
    kind = TooSlowError if isinstance(error, TooSlowError) else CommandError
    return kind(re.sub(_MARK, " ", str(error)), argv=error.argv, stderr=error.stderr)


def id_lists(job_ids: Sequence[str]) -> Iterator[str]:
    """Join job ids with commas into as few arguments as the system's limit allows.

    Raises:
        RequestError: Something is not a job id; Slurm would refuse all of them for it.
    """
    chunk: list[str] = []
    size = 0
    for job_id in dict.fromkeys(job_ids):
        size += len(checked_id(job_id)) + 1
        if size > _ARGUMENT_BYTES:
            yield ",".join(chunk)
            chunk, size = [], len(job_id) + 1
        chunk.append(job_id)
    if chunk:
        yield ",".join(chunk)


def checked_id(job_id: str) -> str:
    """Return a job id as it is.

    Raises:
        RequestError: It is not `123`, `123_4` (array task) or `123+1` (heterogeneous job).
    """
    if job_id[:1].isdigit() and _ID_CHARACTERS.issuperset(job_id) and job_id[-1:].isdigit():
        return job_id
    raise RequestError(f"'{job_id}' is not a Slurm job id. Give it like 123, 123_4 or 123+1.")


def own_job_id() -> str | None:
    """Return what Slurm calls the job that this process is in, and no other; None: it is in none.

    One task of an array has the array's own number, by which scontrol and scancel mean all tasks.
    """
    job_id = os.environ.get("SLURM_JOB_ID")
    if job_id and job_id == os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{job_id}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return job_id


def why_silent() -> str:
    """Say why no sbatch answers here."""
    if shell.which("sbatch") is None:
        return "there is no sbatch here; log in to the cluster"
    return "the sbatch here finds no cluster; log in to one, or set SLURM_CONF"


def sbatch_answers() -> bool:
    """Say whether there is an sbatch that finds its cluster's configuration.

    Without one (a client installed on a workstation) even `--version` fails, and says so.

    Raises:
        CommandError: it fails for another reason, as where a controller that hands out the
            configuration is down: this is a login node then, and no machine to run jobs on.
    """
    if shell.which("sbatch") is None:
        return False
    try:
        done = shell.run(["sbatch", "--version"], timeout_s=_VERSION_S, check=False, own_group=True)
    except TooSlowError as error:  # Slurm 26.05 asks such a controller for longer than 22.05 did
        text = f"{error} Or run on this machine: --executor local"
        raise TooSlowError(text, argv=error.argv, stderr=error.stderr) from error
    if not done.returncode:
        return True
    silent = next((line for line in done.stderr.splitlines() if _NOT_FETCHED in line), "")
    if NO_CLUSTER in done.stderr and not silent:
        return False
    why = silent.strip() or shell.first_meaningful_line(done.stderr + done.stdout) or "no reason"
    raise CommandError(
        f"'sbatch --version' failed: {why.rstrip('.')}. Try again soon, or run on this machine: "
        "--executor local",
        argv=done.argv, returncode=done.returncode, stderr=done.stderr,
    )  # fmt: skip
