"""Starts, finds and kills the box's processes.

Each daemon runs in a mount namespace of its own, in which one empty tmpfs bears the daemon's
name. Whatever the daemon starts (a slurmstepd, a job, what a job left behind) stays in that
namespace, so /proc/PID/mountinfo names the owner of each process. Pid files, parents and
environments would not do: steps leave their parent and overwrite their environment.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.slurmbox.layout import HEAD, NODES, BoxError, Layout

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

_DETACH = ("setsid", "--fork", "unshare", "--uts", "--mount")
# Programs that wait for the box from outside, and would wait on when it is gone.
_CLIENTS = ("srun", "salloc", "sbatch", "sattach", "scrontab")

# $1 host name, $2 hosts file, $3 mark's name, $4 mark's folder, then the program. Slurm's own crash
# (slurmd 22.05.8 was once seen to segfault in malloc) must not look like one of ours:
# slurmd is then started again, as systemd may do it. Its steps live on.
_ENTER = """\
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs -o size=4k "$3" "$4"
shift 4
[ "$1" = slurmd ] || exec "$@"
while :; do
    "$@" && exit 0 || status=$?
    [ "$status" = 139 ] || exit "$status"
    echo "slurmbox: slurmd crashed by SIGSEGV, and is started again"
done
"""


def command(layout: Layout, daemon: str) -> list[str]:
    """Give one daemon's command line, in the foreground so that its words reach our log."""
    match daemon:
        case "munged":
            return _munged(layout)
        case "mariadbd":
            return _mariadbd(layout)
        case "slurmdbd" | "slurmctld":
            return [daemon, "-D"]
        case _:
            return ["slurmd", "-D", "-N", daemon]


def _munged(layout: Layout) -> list[str]:
    home = layout.munge_key.parent
    return [
        *("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"),
        *("munged", "--foreground"),
        f"--key-file={layout.munge_key}",
        f"--socket={layout.munge_socket}",
        f"--pid-file={home}/pid",
        f"--log-file={home}/log",
        f"--seed-file={home}/seed",
    ]


def _mariadbd(layout: Layout) -> list[str]:
    return [
        "mariadbd",
        *("--no-defaults", "--user=mysql", "--skip-networking"),
        f"--datadir={layout.mysql_dir}",
        f"--socket={layout.mysql_socket}",
        # slurmdbd warns below these; a lost test database is no loss, so do not wait for disks.
        *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
        *("--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"),
    ]


def start(layout: Layout, daemon: str) -> None:
    """Start one daemon, unless it runs, detached from this process."""
    if running(layout, daemon):
        return
    host = daemon if daemon in NODES else HEAD
    enter = [host, str(layout.hosts), _mark(layout, daemon), str(layout.mark)]
    environment = {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(layout.conf),
        "MYSQL_UNIX_PORT": str(layout.mysql_socket),
    }
    with layout.log(daemon).open("ab") as log:
        subprocess.run(
            [*_DETACH, "bash", "-c", _ENTER, "enter", *enter, *command(layout, daemon)],
            check=True,
            cwd="/",
            umask=0o022,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def running(layout: Layout, daemon: str) -> bool:
    """Say whether the daemon itself runs; what it left behind does not count."""
    return bool(without_jobs(layout, daemon))


def without_jobs(layout: Layout, daemon: str) -> list[int]:
    """List the daemon's own processes, which live on when a job ends."""
    program = "slurmd" if daemon in NODES else daemon
    return [pid for pid in processes(layout, daemon) if _file(pid) == program]


def kill(layout: Layout, daemon: str | None = None, *, within_s: float = 120) -> None:
    """Kill one daemon, or the whole box, and all that it started, and wait until it is gone.

    As a machine's power is cut: none sees another end, or srun would have the other nodes' ranks
    killed in its last milliseconds. So all stand still first, and children go before their parents:
    the kernel wakes a stopped group whose parent has ended, by SIGHUP and SIGCONT.

    Raises:
        BoxError: Some process outlived SIGKILL.
    """
    deadline = time.monotonic() + within_s
    while pids := processes(layout, daemon):
        if time.monotonic() > deadline:
            raise BoxError(f"Processes {pids} of {layout.dir} outlive SIGKILL: see `ps`.")
        still: set[int] = set()
        while new := set(pids) - still:  # what one started before it stood still
            send(new, signal.SIGSTOP)
            still |= new
            pids = processes(layout, daemon)
        send(_children_first(pids), signal.SIGKILL)
        time.sleep(0.02)


def stop(layout: Layout, daemon: str, *, within_s: float = 120) -> None:
    """Let one daemon end by itself, so that it saves what it knows, then kill what is left."""
    deadline = time.monotonic() + within_s
    send(processes(layout, daemon), signal.SIGTERM)
    while running(layout, daemon) and time.monotonic() < deadline:
        time.sleep(0.02)
    kill(layout, daemon)


def _children_first(pids: Sequence[int]) -> list[int]:
    parents = {pid: _parent(pid) for pid in pids}

    def depth(pid: int) -> int:
        return 1 + depth(parents[pid]) if pid in parents else 0

    return sorted(pids, key=depth, reverse=True)


def _parent(pid: int) -> int:
    words = _read(pid, "stat").rpartition(")")[2].split()
    return int(words[1]) if words else 0


def send(pids: Iterable[int], signal_number: signal.Signals) -> None:
    """Signal those that are still there."""
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            continue


def processes(layout: Layout, daemon: str | None = None) -> list[int]:
    """List the living processes of one daemon, or of the whole box with waiting clients."""
    names = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    pids = [int(name) for name in names if int(name) != os.getpid()]
    if daemon:
        return [pid for pid in pids if _is_below(pid, _mark(layout, f"{daemon} "))]
    mark = _mark(layout, "")
    return [pid for pid in pids if _is_below(pid, mark) or _is_client(pid, layout)]


def _is_below(pid: int, mark: str) -> bool:
    return f" - tmpfs {mark}" in _read(pid, "mountinfo")


def _is_client(pid: int, layout: Layout) -> bool:
    environment = f"\0{_read(pid, 'environ')}"
    return _program(pid) in _CLIENTS and f"\0SLURM_CONF={layout.conf}\0" in environment


def _mark(layout: Layout, daemon: str) -> str:
    return f"hpckit-slurmbox:{layout.dir}:{daemon}"


def _program(pid: int) -> str:
    return _read(pid, "comm").strip()


def _file(pid: int) -> str:
    """Give a process's program, whatever it calls itself: a reconfigured slurmctld starts anew.

    Debian's files are slurmctld-wlm and slurmd-wlm.
    """
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.removesuffix("-wlm")
    except OSError:
        return ""


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:  # It ended since we listed it, or it is a zombie.
        return ""
