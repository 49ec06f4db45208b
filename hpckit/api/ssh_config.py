"""Entries for ssh that reach a job's node, and what the lasting one asks for on the login node."""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from hpckit.api import log
from hpckit.api.login import login_node, own_words
from hpckit.api.lookup import settled_folder
from hpckit.api.run import Run, handle
from hpckit.api.run_list import RunList
from hpckit.errors import CommandError, NotFoundError, OutsideError, RequestError
from hpckit.files import DamagedFileError, read_text, reason, replace_file
from hpckit.frozen import frozen
from hpckit.paths import home, is_there, make_folder
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.run_record import session_kind
from hpckit.session.forward import SSH, STEP
from hpckit.session.own_sshd import host_key
from hpckit.session.ssh_config import LASTING, entry, known_host, lasting_entry
from hpckit.session.step import step_argv, step_environment
from hpckit.slurm.states import JobState

_MADE = "# Made by hpckit ssh-config."
_NEWEST = "latest"
# The newest job that runs is looked for among so many runs, an array counted as one.
_LATEST = 200


@frozen(kw_only=True)
class Entry:
    """An entry of ssh's configuration: its name, its text with comments, and its host key's line.

    `known_host` is a line of known_hosts; None: the node's own host key is as known as ever.
    """

    alias: str
    text: str
    known_host: str | None = None


def entry_of(
    run: Run,
    *,
    login: str | None = None,
    alias: str | None = None,
    direct: bool = False,
    way: str = SSH,
) -> Entry:
    """Return the entry of one job's node.

    Args:
        run: a job that runs.
        login: how this machine is reached from outside.
        alias: the entry's name.
        direct: for use on this machine itself.
        way: ssh, to the node's own sshd; srun, to one of the user's own in a step of the job.

    Raises:
        RequestError: it does not run, or is not the user's own.
    """
    node, alias = _node(run), f"{LASTING}-{run.job_id}" if alias is None else alias
    about = f"{_MADE} Job {run.job_id} on {node}; of no use after its end."
    place = login_node(login)
    if way == STEP:
        return _by_step(alias, about, run.job_id, login, direct=direct)
    return Entry(alias=alias, text=f"{about}\n{entry(alias, node, place, direct=direct)}")


def lasting(*, login: str | None = None, alias: str | None = None, direct: bool = False) -> Entry:
    """Return the entry that leads to the newest session each time, else to the newest job.

    Raises:
        RequestError: a name cannot stand there. OutsideError: no host key can be made.
    """
    about = f"{_MADE} Leads to your newest running session, else to your newest running job."
    return _by_step(LASTING if alias is None else alias, about, _NEWEST, login, direct=direct)


def _by_step(alias: str, about: str, word: str, login: str | None, *, direct: bool) -> Entry:
    key = known_host(alias, _read(Path(f"{host_key()}.pub")))
    proxy = own_words("ssh-config", "--proxy", word)
    text = lasting_entry(login_node(login), proxy, alias, direct=direct)
    about = f"{about}\n# Its host key, as a line of ~/.ssh/known_hosts:\n#   {key}"
    return Entry(alias=alias, text=f"{about}\n{text}", known_host=key)


def write_entry(found: Entry) -> tuple[Path, bool]:
    """Write an entry into a file of its own; say where, and whether ssh's own file includes it.

    Raises:
        OutsideError: it cannot be written, or somebody else's file is there.
    """
    own = home() / ".ssh"
    # Every name is one that `Include config.d/hpckit*` finds.
    name = found.alias if found.alias.startswith(LASTING) else f"{LASTING}-{found.alias}"
    path = own / "config.d" / name
    if is_there(path) and not _read(path).startswith(_MADE):
        raise OutsideError(f"{path} is there, and not of hpckit's making: it was left as it is.")
    try:
        make_folder(own, mode=0o700)
        make_folder(path.parent, mode=0o700)
        replace_file(path, found.text, mode=0o600)
    except OSError as error:
        raise OutsideError(f"{path} cannot be written: {reason(error)}.") from error
    return path, _includes(own / "config", path)


def _includes(main: Path, path: Path) -> bool:
    """Say whether ssh's own file includes another; a relative pattern starts beside it."""
    rows = [line.replace("=", " ", 1).split() for line in _lines(main)]
    patterns = [word for row in rows if row and row[0].lower() == "include" for word in row[1:]]
    wholes = [main.parent / os.path.expanduser(word.strip('"')) for word in patterns]  # noqa: PTH111
    return any(fnmatchcase(str(path), str(whole)) for whole in wholes)


def _lines(path: Path) -> list[str]:
    return _read(path).splitlines() if is_there(path) else []


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, DamagedFileError) as error:
        raise OutsideError(f"{path} cannot be read: {reason(error)}.") from error


def newest(runs: Path | None = None, tell: Callable[[str], None] = log) -> Run:
    """Return the user's newest session that runs, else the newest job that does.

    Raises:
        NotFoundError: none runs.
    """
    root = settled_folder(runs)
    found = newest_runs(root, _LATEST, arrays_as_one=True, here_only=runs is not None)
    may = RunList(handle(run) for run in found if run.mine and not run.scheduler.one_machine)
    running = [row.run for row in may.status() if row.state == JobState.RUNNING]
    if not running:
        where = "" if runs is None else f" in {root}"
        raise NotFoundError(f"No job of yours{where} runs on Slurm. Start one: hpckit shell")
    chosen = next((run for run in running if session_kind(run.record)), running[0])
    tell(f"job {chosen.job_id} ({chosen.record['name']})")
    return handle(chosen)


def connect(run: Run) -> NoReturn:
    """Become a step of a job that serves one ssh connection on standard input and output.

    Raises:
        RequestError: the job does not run, or not on Slurm. CommandError: there is no srun.
    """
    argv = step_argv(
        run.job_id, _node(run), "hpckit.session.own_sshd", (str(host_key()),), pty=False
    )
    try:
        os.execvpe(argv[0], argv, step_environment())  # noqa: S606
    except OSError as error:
        raise CommandError(f"srun cannot be started: {error.strerror}", argv=argv) from error


def _node(run: Run) -> str:
    if not run.mine:
        raise RequestError(f"{run.job_id} is not your own run: its node is not yours to enter.")
    if run._folder.scheduler.one_machine:
        raise RequestError(f"{run.job_id} runs on this machine: ssh has nowhere to go.")
    status = run.status()
    if status.finished or status.waiting or not status.nodes:
        raise RequestError(
            f"{run.job_id} is {status.state}: ssh reaches a job's node only while the job runs."
        )
    return status.nodes[0]
