"""`hpckit ssh-config`: an entry for ssh, and so for VS Code, that reaches the node of a job."""

from typing import Annotated

import typer

from hpckit import Run
from hpckit.api.lookup import only
from hpckit.api.ssh_config import Entry, connect, entry_of, lasting, newest, write_entry
from hpckit.cli.arguments import RunsOption, settled_root
from hpckit.cli.jupyter import LoginOption, say_if_unknown
from hpckit.cli.output import note, say_note, show_text
from hpckit.errors import RequestError

RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOBID]", help="A job that runs; without it, the entry is for the newest, always."
    ),
]
ViaOption = Annotated[
    str | None,
    typer.Option(
        "--via", metavar="WAY",
        help="ssh: through the node's own sshd; srun: through a step of the job. [default: ssh "
        "with JOBID, srun without]",
    ),
]  # fmt: skip
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="The entry's name. [default: hpckit, hpckit-JOBID]"
    ),
]
DirectOption = Annotated[
    bool,
    typer.Option("--direct", help="For use on this very machine: no way through a login node."),
]
WriteOption = Annotated[
    bool,
    typer.Option("--write", help="Write a file of its own in ~/.ssh/config.d of this machine."),
]
ProxyOption = Annotated[
    bool, typer.Option("--proxy", help="What the entry calls: be the connection to the job.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ssh-config")(ssh_config)


def ssh_config(
    job_id: RunArgument = None,
    via: ViaOption = None,
    name: NameOption = None,
    login: LoginOption = None,
    direct: DirectOption = False,
    write: WriteOption = False,
    proxy: ProxyOption = False,
    runs: RunsOption = None,
) -> None:
    """Print an entry for ~/.ssh/config that reaches a job's node; VS Code reads the same file.

    Without JOBID one entry, `ssh hpckit`, always leads to your newest running session.
    """
    if via not in (None, "ssh", "srun"):
        raise RequestError(f"--via {via!r} is neither ssh nor srun.")
    if direct and login is not None:
        raise RequestError(
            "--direct is for use on this machine, --login says how others reach it: leave one of "
            "them out."
        )
    if proxy:
        if write or direct or (via, name, login) != (None, None, None):
            raise RequestError(
                "--proxy is what an entry calls: it takes a JOBID and --runs, and nothing else. "
                "Leave it out to have the entry."
            )
        connect(newest(runs, note) if job_id in (None, "latest") else _run(job_id, runs))
    if via == "ssh" and job_id is None:
        raise RequestError("--via ssh needs a JOBID: another job may be on another node.")
    direct = direct or (write and login is None)
    if job_id is None:
        found = lasting(login=login, alias=name, direct=direct)
    else:
        run = newest(runs, say_note) if job_id == "latest" else _run(job_id, runs)
        found = entry_of(run, login=login, alias=name, direct=direct, way=via or "ssh")
    if write:
        _say_written(found)
        return
    show_text(found.text)
    if not direct:
        say_if_unknown(login)
        note("Put this into ~/.ssh/config of your own computer. Then: ssh " + found.alias)
    note("It works where " + (_BY_STEP if found.known_host else _BY_SSH))


_BY_SSH = "the site lets you ssh to the nodes of your jobs; else: --via srun"
_BY_STEP = "nodes have /usr/sbin/sshd, and your key is in ~/.ssh/authorized_keys on the cluster"


def _run(word: str | None, runs: RunsOption) -> Run:
    return only(word or "", settled_root(runs, (word or "",)))


def _say_written(found: Entry) -> None:
    path, included = write_entry(found)
    note(f"Written: {path}")
    if not included:
        note(f"Make this the first line of {path.parent.parent}/config: Include config.d/hpckit*")
    note(f"Then: ssh {found.alias}")
