"""A shell on a node: submitted, waited for, and a terminal connected to it, again and again."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hpckit import shell
from hpckit.api import log
from hpckit.api.lookup import believed, runs_folder
from hpckit.api.run import Run
from hpckit.api.sessions import prepare_session
from hpckit.errors import JobError, NotFoundError, OutsideError, RequestError
from hpckit.job_spec.arguments import PATH, TIME, checked, maybe
from hpckit.payload.children import prepare_client, wait_for
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.run_record import session_kind
from hpckit.session.shells import USUAL, users_shell
from hpckit.session.step import step_argv, step_environment
from hpckit.slurm.client import patience
from hpckit.slurm.states import JobState, is_finished

if TYPE_CHECKING:
    from datetime import timedelta

    from hpckit.api.options import Options
    from hpckit.api.prepare import Submission
    from hpckit.submission.status import RunStatus

SHELL = "shell"
# So many of the newest runs are looked at for the last shell.
_LATEST = 200
_TTY_MODULE = "hpckit.session.attach"
# How long Slurm may take to say how the job of a shell goes on that was left, or has ended; and
# srun to leave the terminal.
_SAYS_WITHIN_S, _LEAVES_WITHIN_S = 5.0, 5.0
_AGAIN_S = 0.5


@checked(idle=maybe(TIME), runs=maybe(PATH))
def start_shell(
    *,
    idle: str | int | timedelta | None = None,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> Run:
    """Submit a shell on a node, and return its run at once; `hpckit shell JOBID` goes there.

    Args:
        idle: end it after so long without a key, and without use of GPUs and cores: "30m", or a
            timedelta.
        runs: where runs live (else $HPCKIT_RUNS, the site's, ./runs).
        **options: those of `hpckit.submit` that say where and how large; no GPU unless asked for.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    from hpckit.api.submit import send  # noqa: PLC0415  # the command brings it when it needs it

    return send(prepare_shell(dict(options), idle=idle, runs=runs))[0]


def prepare_shell(
    words: Mapping[str, Any],
    *,
    idle: str | int | timedelta | None,
    runs: Path | str | None,
    preview: bool = False,
    tell: Callable[[str], None] = log,
) -> Submission:
    """Work a shell out to the point of submitting.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm was asked for and is not here.
    """
    if words.get("args"):
        raise RequestError("A shell takes no arguments: type there what it shall do.")
    return prepare_session(
        SHELL,
        words,
        program=users_shell(),
        in_container=USUAL,
        idle=idle,
        runs=runs,
        preview=preview,
        tell=tell,
    )


def find_shell(word: str, runs: Path | None) -> Run:
    """Return the shell that a word means; `latest` is the newest of the user's own.

    Raises:
        NotFoundError: there is none. RequestError: it is no shell, or another user's.
    """
    root = runs_folder(runs)
    if word == "latest":
        found = newest_runs(root, _LATEST, here_only=runs is not None)
        mine = [run for run in found if run.mine and session_kind(run.record) == SHELL]
        if not mine:
            raise NotFoundError("You have no shell here. Start one: hpckit shell")
        return Run(mine[0])
    run = believed(word, root)
    kind = session_kind(run._folder.record)
    if kind != SHELL:
        what = f"a session of kind {kind}" if kind else "not a session"
        raise RequestError(
            f"Job {run.job_id} is {what}: hpckit shell JOBID goes to what hpckit shell started."
        )
    if not run.mine:
        raise RequestError(f"Job {run.job_id} belongs to {run.owner}: only its owner can go there.")
    return run


def until_it_runs(run: Run, look: Callable[[list[RunStatus]], None] | None = None) -> RunStatus:
    """Wait until a job runs, is over, or will never start; return what it is.

    Raises:
        OutsideError: nothing here can tell what becomes of it.
    """
    from hpckit.submission.waiting import until_it_runs as wait  # noqa: PLC0415  # as in `run`

    return wait(run._folder, look)


def attach(run: Run, status: RunStatus) -> None:
    """Connect this process's terminal to a shell that runs, until its user leaves or it ends.

    Raises:
        OutsideError: there is no way there. JobError: the job was ended meanwhile.
    """
    if run._folder.scheduler.one_machine:
        from hpckit.session.attach import attach as attach_here  # noqa: PLC0415  # else on its node
        from hpckit.submission.waiting import over_by_and_by  # noqa: PLC0415  # likewise

        attach_here(run.dir, run.job_id, over_by_and_by([run._folder]))
        return
    node = next(iter(status.nodes), None)
    if node is None:
        raise OutsideError(f"Slurm does not say on which node job {run.job_id} runs: try again.")
    words = (str(run.dir), run.job_id)
    code = _in_terminal(step_argv(run.job_id, node, _TTY_MODULE, words, pty=True))
    ended = _after(run, code)
    state = ended.state
    if code == 0 and (ended.good or not ended.finished):
        return  # srun ends with 0 also where the node is lost
    if is_finished(state) or state is JobState.COMPLETING:
        raise JobError(
            f"Job {run.job_id} was ended: it is {state}. Why: hpckit logs {run.job_id} --all"
        )
    raise OutsideError(f"srun ended with status {code}. Job {run.job_id} is {state}.")


def _after(run: Run, code: int) -> RunStatus:
    """Return what a job is once srun has ended; where its session has, the job follows soon."""
    until = time.monotonic() + (_SAYS_WITHIN_S if code > 0 else 0)
    with patience(_SAYS_WITHIN_S if code == 0 else None):
        while (status := run.status()).state is JobState.RUNNING and time.monotonic() < until:
            time.sleep(_AGAIN_S)
        return status


def _in_terminal(argv: tuple[str, ...]) -> int:
    """Run a program that has this terminal; leave the terminal as before, return the status.

    Where a signal ends this, the program ends, too: two would read what is typed.
    """
    from hpckit.session.attach import terminal_as_it_is  # noqa: PLC0415  # as above

    here, environ = sys.stdin.fileno(), step_environment(os.environ)
    before = terminal_as_it_is(here)
    try:
        child = shell.spawn(argv, env=environ, stdin=here, prepare=prepare_client)
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            wait_for(child, _LEAVES_WITHIN_S)
            child.kill()
            raise
    finally:
        with contextlib.suppress(termios.error):  # it is gone
            termios.tcsetattr(here, termios.TCSANOW, before)


def has_terminal() -> bool:
    """Say whether a user sits here, who can type and see."""
    return sys.stdin.isatty() and sys.stdout.isatty()
