"""The only door to subprocess: every program hpckit starts, starts here.

Programs are asked in the C locale, because their words are parsed, and never through a shell,
because job names and paths are users' own text.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from hpckit.errors import CommandError, TooSlowError
from hpckit.frozen import frozen

Stream = IO[bytes] | int | None
_C_LOCALE = {"LC_ALL": "C"}
# What `run` waits for, and whether it has a process group of its own.
_running: "dict[subprocess.Popen[str], bool]" = {}


@frozen(kw_only=True)
class Completed:
    """What a finished program said."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


def run(
    argv: Sequence[str],
    *,
    timeout_s: float = 60,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    input: str | None = None,
    own_locale: bool = False,
    own_group: bool = False,
    prepare: Callable[[], None] | None = None,
) -> Completed:
    """Run a program to its end and return what it said.

    `env` is the whole environment, None this process's; LC_ALL is set to C either way, unless
    `own_locale` says that the program hands its environment on, as sbatch does. `input` is text
    for its standard input, None an empty one, so that nothing waits for a user. `check` makes a
    non-zero exit status an error. `own_group` gives the program a process group of its own, which
    ends with it when its time is up: sites wrap Slurm's programs in scripts, of which the first
    process is not the one that hangs. Such a program can ask nothing of a terminal. `prepare` runs
    in the child before the program.

    Raises:
        CommandError: The program is missing or cannot be started, runs longer than `timeout_s`,
            or (with `check`) exits non-zero.
    """
    try:
        child = subprocess.Popen(
            argv,
            env={**(os.environ if env is None else env), **({} if own_locale else _C_LOCALE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            process_group=0 if own_group else None,
            preexec_fn=prepare,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error
    _running[child] = own_group
    with child:
        try:
            stdout, stderr = child.communicate(input or "", timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _kill(child, own_group=own_group)
            raise _too_slow(argv, timeout_s, error) from error
        except BaseException:  # Ctrl-C: nothing that was started stays behind
            _kill(child, own_group=own_group)
            raise
        finally:
            _running.pop(child, None)
    result = Completed(argv=tuple(argv), returncode=child.returncode, stdout=stdout, stderr=stderr)
    if check and child.returncode != 0:
        raise failed(result)
    return result


def stop_all() -> None:
    """End the programs that `run` has started in any thread: nobody waits for them any more."""
    for child, own_group in list(_running.items()):
        _kill(child, own_group=own_group)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    new_session: bool = False,
    close_fds: bool = True,
    pass_fds: Sequence[int] = (),
    prepare: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program and return at once; the caller waits for it and ends it.

    `env` is the whole environment, locale included, None this process's. The streams are files or
    descriptors as for subprocess, and None inherits ours. `new_session` gives the child a session
    of its own, so that our Ctrl-C does not reach it; `pass_fds` are open in it under the same
    numbers. `prepare` runs in the child before the program.

    Raises:
        CommandError: The program is missing or cannot be started.
    """
    try:
        return subprocess.Popen(
            argv,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=new_session,
            close_fds=close_fds,
            pass_fds=pass_fds,
            preexec_fn=prepare,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error


def which(name: str) -> str | None:
    """Return the path of a program on PATH, or None."""
    import shutil  # noqa: PLC0415  # a rank's start needs none of it

    return shutil.which(name)


def failed(result: Completed) -> CommandError:
    """Describe a program that exited non-zero, with the line in which it says why."""
    ending = f"exited with status {result.returncode}"
    if result.returncode < 0:
        ending = f"was ended by signal {-result.returncode}"
    why = first_meaningful_line(result.stderr) or first_meaningful_line(result.stdout)
    return CommandError(
        f"'{result.argv[0]}' {ending}: {why or 'it gave no reason'}",
        argv=result.argv,
        returncode=result.returncode,
        stderr=result.stderr,
    )


def first_meaningful_line(text: str) -> str:
    """Return the line that says most about a failure: a fatal one, an error, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for word in ("fatal", "error", ""):
        for line in lines:
            if word in line.lower():
                return line
    return ""


def _kill(child: "subprocess.Popen[str]", *, own_group: bool) -> None:
    if not own_group:
        child.kill()
        return
    with contextlib.suppress(ProcessLookupError):  # all of them have ended just now
        os.killpg(child.pid, signal.SIGKILL)


def _cannot_start(argv: Sequence[str], error: OSError) -> CommandError:
    missing = isinstance(error, FileNotFoundError) or _is_nowhere(argv[0], error)
    if missing and error.filename in (argv[0], None):
        message = (
            f"Program '{argv[0]}' was not found on PATH. Install it, load the module that "
            "provides it, or run this where it exists."
        )
    else:
        message = f"'{argv[0]}' cannot be started: {error.strerror or error} ({error.filename})."
    return CommandError(message, argv=argv)


def _is_nowhere(name: str, error: OSError) -> bool:
    """Say whether no folder of PATH has a program; one that is closed says "denied" then, too."""
    if not isinstance(error, PermissionError) or "/" in name:
        return False
    places = (os.path.join(folder, name) for folder in os.get_exec_path())  # noqa: PTH118
    return not any(os.path.isfile(place) for place in places)  # noqa: PTH113


def _too_slow(
    argv: Sequence[str], timeout_s: float, error: subprocess.TimeoutExpired
) -> TooSlowError:
    said: bytes = error.stderr or b""  # bytes even in text mode: subprocess's manual
    stderr = said.decode("utf-8", "replace")
    words = first_meaningful_line(stderr)
    return TooSlowError(
        f"'{argv[0]}' gave no answer within {round(timeout_s, 1):g} s and was stopped. "
        + (f"It said: {words.rstrip('.')}. " if words else "")
        + "The service behind it may be busy: try again in a minute.",
        argv=argv,
        stderr=stderr,
    )
