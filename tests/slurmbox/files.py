"""Writes a box's folder, and removes it."""

import os
import secrets
import shutil
import socket
import stat
import subprocess
from pathlib import Path

from tests.slurmbox import config
from tests.slurmbox.layout import GPUS_PER_NODE, NODES, BoxError, Layout, ports_of


def write(layout: Layout) -> None:
    """Write everything that the daemons read, keeping secrets that exist.

    Raises:
        BoxError: The folder is not a box, or cannot be one.
    """
    _refuse_foreign(layout)
    umask = os.umask(0o022)
    try:
        layout.dir.mkdir(parents=True, exist_ok=True)
        _refuse_private(layout)
        _write(layout)
    finally:
        os.umask(umask)


def _write(layout: Layout) -> None:
    layout.stamp.touch()
    if not layout.stamp.read_text():
        layout.stamp.write_text(str(_free_number(layout)))
    for name in ("etc", "log", "mark", "run", "state", *NODES):
        (layout.dir / name).mkdir(exist_ok=True)
    layout.conf.write_text(config.slurm_conf(layout))
    layout.conf.with_name("gres.conf").write_text(config.gres_conf(layout))
    layout.conf.with_name("mpi.conf").write_text(config.MPI_CONF)
    layout.hosts.write_text(config.hosts(socket.gethostname()))
    _write_private(layout.conf.with_name("slurmdbd.conf"), config.slurmdbd_conf(layout).encode())
    for index in range(GPUS_PER_NODE):
        _make_gpu(layout.dir / f"nvidia{index}")
    if not layout.munge_key.exists():
        _write_key(layout)


def _free_number(layout: Layout) -> int:
    """Choose ports that nobody listens at: one may be another box's, or that of a job's rank.

    A box of which a daemon is down still holds its other ports; who comes up holds box.up's lock.
    """
    free = (number for number in layout.numbers if all(map(_is_free, ports_of(number))))
    if (number := next(free, None)) is None:
        raise BoxError("No box's ports are free: see `ss -ltnp`.")
    return number


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def _write_key(layout: Layout) -> None:
    home = layout.munge_key.parent
    home.mkdir(exist_ok=True)
    _write_private(layout.munge_key, secrets.token_bytes(128))
    for path in (home, layout.munge_key):
        shutil.chown(path, "munge", "munge")


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _make_gpu(path: Path) -> None:
    """Make a device that opens: an alias of /dev/null is enough for Slurm to count it."""
    if not path.exists():
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.chmod(0o666)


def create_database(layout: Layout) -> None:
    """Create an empty MariaDB.

    Raises:
        BoxError: MariaDB could not.
    """
    done = subprocess.run(
        [
            *("mariadb-install-db", "--no-defaults", "--user=mysql", "--skip-test-db"),
            *("--auth-root-authentication-method=normal", f"--datadir={layout.mysql_dir}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    layout.log("mariadb-install-db").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise BoxError(f"No database: see {layout.log('mariadb-install-db')}.")


def remove(layout: Layout) -> None:
    """Remove the folder, if it is there.

    Raises:
        BoxError: The folder is not a box.
    """
    _refuse_foreign(layout)
    if layout.dir.exists():
        shutil.rmtree(layout.dir)


def _refuse_foreign(layout: Layout) -> None:
    """Never write into, nor remove, a folder that `up` did not make."""
    if layout.dir.exists() and not layout.stamp.exists() and any(layout.dir.iterdir()):
        raise BoxError(f"'{layout.dir}' is not a Slurm box: choose another --dir, or remove it.")


def _refuse_private(layout: Layout) -> None:
    """The users munge and mysql, and those of jobs, must get through to the folder."""
    for folder in (layout.dir, *layout.dir.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise BoxError(
                f"'{folder}' is closed to others, so munge cannot reach its socket there: "
                f"`chmod o+x {folder}`, or choose another --dir."
            )
