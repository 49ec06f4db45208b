"""Brings a whole box up, in order, and takes it down again."""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slurmbox import daemons, files
from tests.slurmbox.layout import NODES, BoxError, Layout

DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", *NODES)
PACKAGES = (
    "slurm-wlm slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins"
    " slurm-wlm-mysql-plugin munge mariadb-server lmod openmpi-bin libopenmpi-dev libpmix2"
    " libslurm-dev"
)
_PROGRAMS = (
    *("slurmctld", "slurmd", "slurmdbd", "sacct", "sacctmgr", "sinfo", "scontrol", "munged"),
    *("mariadbd", "mariadb-install-db", "unshare", "setsid", "setpriv", "hostname", "mount"),
)
# Of the machine, not of the box: the box's folder comes and goes.
_LOCK = Path("/run/hpckit-slurmbox.lock")
# In these states a node takes jobs or runs them; a `*` behind one means that it does not answer.
_GOOD_STATES = ("idle", "mixed", "allocated", "completing", "planned")
# A daemon that does not run this long after its start has failed; no daemon needs the limit.
_GRACE_S = 30
_LIMIT_S = 240


def obstacle() -> str | None:
    """Say why no box can run here, or None."""
    if os.geteuid() != 0:
        return "The Slurm box needs root, for namespaces and device files: run it as root."
    missing = [name for name in _PROGRAMS if not shutil.which(name, path=daemons.PATH)]
    if missing:
        return (
            f"The Slurm box lacks {', '.join(missing)}: "
            f"apt-get install --no-install-recommends {PACKAGES}"
        )
    if subprocess.run(["unshare", "--uts", "--mount", "true"], check=False).returncode != 0:
        return "The Slurm box needs namespaces: give the container CAP_SYS_ADMIN (--privileged)."
    return None


def up(layout: Layout) -> bool:
    """Bring the box up, whatever part of it runs already.

    Returns:
        Whether anything had to be started.

    Raises:
        BoxError: The machine cannot run it, or a daemon does not answer.
    """
    with _locked():
        if is_up(layout):
            return False
        files.write(layout)
        start_database(layout)
        start_dbd(layout)
        _add_accounts(layout)
        for node in NODES:
            daemons.start(layout, node)
        start_controller(layout)
        for node in NODES:
            start_node(layout, node)
        return True


def down(layout: Layout) -> bool:
    """Kill every process of the box and remove its folder.

    Returns:
        Whether there was anything to take down.

    Raises:
        BoxError: A process outlived it, or the folder is not a box.
    """
    with _locked():
        found = layout.dir.exists() or bool(daemons.processes(layout))
        daemons.kill(layout)
        files.remove(layout)
        return found


def is_up(layout: Layout) -> bool:
    """Say whether all daemons run and answer, and both nodes take jobs."""
    if not all(daemons.running(layout, daemon) for daemon in DAEMONS):
        return False
    return _dbd_answers(layout) and all(_node_is_good(layout, node) for node in NODES)


def start_database(layout: Layout) -> None:
    """Start munged and MariaDB."""
    daemons.start(layout, "munged")
    _wait(layout, "munged", layout.munge_socket.is_socket)
    if not (layout.mysql_dir / "mysql").is_dir():
        files.create_database(layout)
    daemons.start(layout, "mariadbd")
    _wait(layout, "mariadbd", lambda: _accepts(layout.mysql_socket))


def start_dbd(layout: Layout) -> None:
    """Start slurmdbd and wait until it answers."""
    daemons.start(layout, "slurmdbd")
    _wait(layout, "slurmdbd", lambda: _dbd_answers(layout))


def start_controller(layout: Layout) -> None:
    """Start slurmctld and wait until it answers."""
    daemons.start(layout, "slurmctld")
    _wait(layout, "slurmctld", lambda: ask(layout, "scontrol", "ping").returncode == 0)


def start_node(layout: Layout, node: str) -> None:
    """Start one node and wait until the controller gives it jobs."""
    daemons.start(layout, node)
    _wait(layout, node, lambda: _node_is_good(layout, node))


def ask(layout: Layout, *command: str) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's programs against this box."""
    environment = {"PATH": daemons.PATH, "LANG": "C.UTF-8", **layout.exports}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def _locked() -> Iterator[None]:
    """Keep one `up` or `down` from meeting another, as parallel test runs would."""
    if reason := obstacle():
        raise BoxError(reason)
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _add_accounts(layout: Layout) -> None:
    if layout.accounts_stamp.exists():
        return
    for words in (
        "cluster box",
        "account lab Description=lab Organization=lab",
        "account other Description=other Organization=other",
        "user root Account=lab DefaultAccount=lab AdminLevel=Admin",
        "user root Account=other",
    ):
        done = ask(layout, "sacctmgr", "-i", "add", *words.split())
        # An interrupted `up` may have added some of them.
        if done.returncode != 0 and "Nothing new added" not in done.stdout:
            raise BoxError(f"`sacctmgr add {words}` failed: {done.stdout}{done.stderr}")
    layout.accounts_stamp.touch()


def _dbd_answers(layout: Layout) -> bool:
    return ask(layout, "sacctmgr", "-n", "list", "cluster").returncode == 0


def _node_is_good(layout: Layout, node: str) -> bool:
    if ask(layout, "sinfo", "-h", "-n", node, "-o", "%T").stdout.split("\n")[0] not in _GOOD_STATES:
        return False
    # After a restart the controller recalls the old state before the node has registered again.
    return "SlurmdStartTime=None" not in ask(layout, "scontrol", "show", "node", node).stdout


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def _wait(layout: Layout, daemon: str, answers: Callable[[], bool]) -> None:
    begin = time.monotonic()
    while not answers():
        waited_s = time.monotonic() - begin
        dead = waited_s > _GRACE_S and not daemons.running(layout, daemon)
        if dead or waited_s > _LIMIT_S:
            raise BoxError(_failure(layout, daemon, "has ended" if dead else "does not answer"))
        time.sleep(0.05)


def _failure(layout: Layout, daemon: str, what: str) -> str:
    log = layout.log(daemon)
    last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
    return f"{daemon} {what}; the end of {log}:\n{last}"
