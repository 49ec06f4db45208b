"""Notebook sessions: submitted, waited for, found again, and reached from here or from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.api import log
from hpckit.api.login import login_node, own_command
from hpckit.api.lookup import believed, settled_folder
from hpckit.api.run import Run
from hpckit.api.sessions import prepare_session
from hpckit.environ import own_python
from hpckit.environments import EnvironmentKind
from hpckit.errors import JobError, NotFoundError, OutsideError, PlanError, RequestError
from hpckit.files import write_shown
from hpckit.frozen import frozen
from hpckit.job.checks import off_switch
from hpckit.job_spec.arguments import PATH, TIME, checked, maybe
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.run_record import session_kind
from hpckit.session.connection import Connection, read_connection
from hpckit.session.folder import session_folder
from hpckit.session.forward import AUTO, Target, forward
from hpckit.session.notebook import NO_JUPYTER, servers_of
from hpckit.session.ssh_config import Login, tunnel_words
from hpckit.slurm.states import JobState
from hpckit.submission.waiting import over_by_and_by

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Unpack

    from hpckit.api.options import Options
    from hpckit.api.prepare import Submission
    from hpckit.submission.status import RunStatus

KIND = "jupyter"
# A newest notebook is looked for among so many runs.
_LATEST = 200
_LOOK_S = 0.3
# Besides that of a server whose user ended it, or that was idle.
_USUAL_ENDS = (JobState.CANCELLED, JobState.TIMEOUT)
_PAGE = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}"><title>hpckit</title><a href="{url}">Jupyter</a>
"""


@frozen(kw_only=True)
class Notebook:
    """A notebook server that answers, and how it is reached. `login` is the way from outside."""

    run: Run
    connection: Connection
    login: Login
    here: bool

    def url(self, port: int | None = None) -> str:
        """Return the address of its page, token and all; `port`: the server's on this machine."""
        return self.connection.url(port)

    @property
    def tunnel(self) -> tuple[str, ...]:
        """The command that brings its port to another machine, where nodes let their users in."""
        found = self.connection
        if self.here:
            return ("ssh", "-N", "-L", f"{found.port}:127.0.0.1:{found.port}", str(self.login))
        return tunnel_words(found.port, found.port, found.node, self.login)

    @property
    def through_login(self) -> tuple[str, ...]:
        """The command that does so where they do not: from the login node on, Slurm carries it."""
        port = self.connection.port
        there = own_command("jupyter", self.run.job_id, "--open", "--port", str(port))
        return ("ssh", "-t", "-L", f"{port}:127.0.0.1:{port}", str(self.login), there)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it. It has the token."""
        return {
            "job_id": self.run.job_id,
            "run_id": self.run.run_id,
            "run_dir": str(self.run.dir),
            "node": self.connection.node,
            "port": self.connection.port,
            "url": self.url(),
            "tunnel": list(self.tunnel),
        }


@checked(idle=maybe(TIME), runs=maybe(PATH))
def start_jupyter(
    *,
    idle: str | int | timedelta | None = None,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> Run:
    """Submit a notebook server, and return its run at once; `hpckit jupyter JOBID` shows the way.

    Args:
        idle: end it after so long without use of it, of GPUs and of cores: "30m", or a timedelta.
        runs: where runs live (else $HPCKIT_RUNS, the site's, ./runs).
        **options: those of `hpckit.submit` that say where and how large; no GPU unless asked for.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    from hpckit.api.submit import send  # noqa: PLC0415  # a dry run needs none of it

    return send(prepare_notebook(dict(options), idle=idle, runs=runs))[0]


def prepare_notebook(
    words: Mapping[str, object],
    *,
    idle: str | int | timedelta | None = None,
    runs: Path | str | None = None,
    preview: bool = False,
    tell: Callable[[str], None] = log,
) -> Submission:
    """Work a notebook session out to the point of submitting, as `prepare_session`.

    Raises:
        RequestError: the request is wrong, or the environment has no Jupyter. OutsideError: Slurm
            was asked for and is not here.
    """
    if words.get("args"):
        raise RequestError("A notebook takes no arguments: configure Jupyter in your own files.")
    submission = prepare_session(
        KIND, words, program="python", idle=idle, runs=runs, preview=preview, tell=tell
    )
    if not preview and "program" not in submission.spec.skip_checks:
        _refuse_without_jupyter(submission)
    return submission


def _refuse_without_jupyter(submission: Submission) -> None:
    """Refuse an environment without Jupyter, where this machine can tell: nobody waits for that."""
    job = submission.job
    environment = job.environment
    if environment.kind not in (EnvironmentKind.VENV, EnvironmentKind.NONE) or environment.load:
        return  # its modules, conda or container are the node's
    python = environment.command(own_python()[0])
    if servers_of(python) == ():
        text = NO_JUPYTER.format(python=" ".join(python))
        raise PlanError(f"{text} {off_switch('program')}")


def find_notebook(word: str, runs: Path | None = None) -> Run:
    """Return the notebook that a word means; `latest` is the newest of the user's own.

    Raises:
        NotFoundError: there is none. RequestError: it is no notebook, or not the user's own.
    """
    root = settled_folder(runs, (word,))
    if word == "latest":
        found = newest_runs(root, _LATEST, here_only=runs is not None)
        mine = [run for run in found if run.mine and session_kind(run.record) == KIND]
        if not mine:
            raise NotFoundError("You have no notebook here. Start one: hpckit jupyter")
        return Run(mine[0])
    run = believed(word, root)
    if (kind := session_kind(run._folder.record)) != KIND:
        what = f"a session of kind {kind}" if kind else "not a session"
        raise RequestError(
            f"Job {run.job_id} is {what}: hpckit jupyter JOBID shows what hpckit jupyter started."
        )
    if not run.mine:
        raise RequestError(
            f"Job {run.job_id} belongs to {run.owner}: only its owner has its token."
        )
    return run


def notebook_when_up(
    run: Run,
    *,
    login: str | None = None,
    look: Callable[[list[RunStatus]], None] | None = None,
) -> Notebook:
    """Wait until a notebook's server answers; `look` sees meanwhile what Slurm says of the job.

    Raises:
        JobError: its job is over. OutsideError: it will never start, or nothing here can tell.
        RequestError: no login node has such a name.
    """
    folder = run._folder
    seen: list[RunStatus] = []

    def note(statuses: list[RunStatus]) -> None:
        seen[:] = statuses
        if look:
            look(statuses)

    over = over_by_and_by([folder], note)
    while not over():
        if found := read_connection(run.dir):
            here = folder.scheduler.one_machine
            return Notebook(run=run, connection=found, login=login_node(login), here=here)
        time.sleep(_LOOK_S)
    raise _why_not(run, seen[0])


def _why_not(run: Run, status: RunStatus) -> Exception:
    if status.never_starts or status.elsewhere:
        return OutsideError(f"{run.job_id} does not start: {status.reason_text or status.state}")
    if status.never_started:
        said = f"Notebook {run.job_id} is {status.state}: it never started."
        return JobError(f"{said} {status.reason_text or ''}".rstrip())
    why = "" if status.good else run.errors(status)
    return JobError(f"Notebook {run.job_id} is over ({status.state}). {why}".strip())


def carry(
    notebook: Notebook,
    *,
    ready: Callable[[int, str], None],
    way: str = AUTO,
    port: int | None = None,
) -> None:
    """Bring a notebook's port here, until its job is over or an interrupt comes.

    `ready` hears of the port on this machine's loopback, and by which way.

    Raises:
        OutsideError: no way leads to the node, or the port is taken. JobError: the job has not
            ended as notebooks do, but failed, or lost its node.
    """
    over = over_by_and_by([notebook.run._folder])
    if notebook.here:
        ready(notebook.connection.port, "here")
        while not over():
            time.sleep(_LOOK_S)
    else:
        target = Target(job_id=notebook.run.job_id, connection=notebook.connection, port=port)
        forward(target, way, ready=ready, over=over)
    status = notebook.run.status()
    if status.finished and not (status.good or status.state in _USUAL_ENDS):
        raise _why_not(notebook.run, status)


def open_browser(notebook: Notebook, port: int) -> bool:
    """Open the page in a browser, where there is one; say whether there is.

    The browser is given a file that only the user reads: its arguments are for all to see.
    """
    if not any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")):
        return False  # one for terminals would take this one
    import webbrowser  # noqa: PLC0415  # seldom

    page = session_folder(notebook.run.dir) / "open.html"
    text = _PAGE.format(url=notebook.url(port))
    try:
        write_shown(page, text, "page", mode=0o600)
        return webbrowser.open(page.absolute().as_uri())
    except (OutsideError, webbrowser.Error):
        return False
