"""Where everything of one box lies: its paths, ports, hosts and exports.

All of it follows from the folder, so that two boxes with two folders never meet; ports and job ids
from a number that `up` chooses and writes into the folder.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEFAULT_DIR = Path("/tmp/hpckit-slurm")
NODES = ("c1", "c2")
GPUS_PER_NODE = 4
CPUS_PER_NODE = 8
NODE_MEMORY_MB = 20000
HEAD = "head"

# A unix socket's path has at most 107 characters; the longest one here adds 21.
_MAX_DIR_CHARS = 80


class BoxError(Exception):
    """The box cannot do what was asked; the message says what to do next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The paths and ports of one box."""

    dir: Path

    def __post_init__(self) -> None:
        """Refuse a folder whose name the daemons or the mount table could not carry.

        Raises:
            BoxError: The path is relative, too long, or has odd characters.
        """
        text = str(self.dir)
        if len(text) > _MAX_DIR_CHARS or not re.fullmatch(r"(/[\w.+-]+)+", text, re.ASCII):
            raise BoxError(
                f"'{text}' cannot be a box's folder: choose an absolute path of at most "
                f"{_MAX_DIR_CHARS} plain characters, such as {DEFAULT_DIR}."
            )

    @property
    def stamp(self) -> Path:
        """The file that says that this folder is a box, and may be removed; it has its number."""
        return self.dir / ".hpckit-slurmbox"

    @property
    def conf(self) -> Path:
        """slurm.conf; slurmdbd.conf and gres.conf must stand beside it."""
        return self.dir / "etc" / "slurm.conf"

    @property
    def hosts(self) -> Path:
        """What each daemon sees as /etc/hosts."""
        return self.dir / "etc" / "hosts"

    @property
    def mark(self) -> Path:
        """The folder on which each daemon's mount namespace carries the daemon's name."""
        return self.dir / "mark"

    @property
    def munge_socket(self) -> Path:
        """The socket of this box's munged."""
        return self.dir / "munge" / "socket"

    @property
    def munge_key(self) -> Path:
        """The secret of this box's munged."""
        return self.dir / "munge" / "key"

    @property
    def mysql_dir(self) -> Path:
        """MariaDB's data."""
        return self.dir / "mysql"

    @property
    def mysql_socket(self) -> Path:
        """The only door to this box's MariaDB: it has no port."""
        return self.dir / "mysql" / "socket"

    @property
    def accounts_stamp(self) -> Path:
        """The file that says that cluster, accounts and users are in the database."""
        return self.dir / ".accounts"

    @property
    def controller_port(self) -> int:
        """The port of slurmctld; the others follow it."""
        return ports_of(self._number)[0]

    @property
    def first_job_id(self) -> int:
        """The id of the first job: no two boxes that are up have a job of the same number.

        Ranks meet at ports that follow from it, and boxes share hosts.
        """
        return 10_000 * (self._number + 1)

    @property
    def _number(self) -> int:
        return int(self.stamp.read_text())

    @property
    def numbers(self) -> Iterator[int]:
        """All numbers that the box can have, of which the first differs from folder to folder."""
        first = zlib.crc32(str(self.dir).encode())
        return ((first + more) % 999 for more in range(999))

    @property
    def dbd_port(self) -> int:
        """The port of slurmdbd."""
        return ports_of(self._number)[1]

    def node_port(self, node: str) -> int:
        """Give the port of one node's slurmd; it listens on every address, so each has its own."""
        return ports_of(self._number)[2 + NODES.index(node)]

    def log(self, daemon: str) -> Path:
        """Give the file that takes all that one daemon says."""
        return self.dir / "log" / f"{daemon}.log"

    @property
    def exports(self) -> dict[str, str]:
        """The variables with which Slurm's programs, and our fixture, find this box."""
        return {"SLURM_CONF": str(self.conf), "HPCKIT_SLURMBOX": str(self.dir)}


def ports_of(number: int) -> list[int]:
    """Give the ports of the box that has a number: slurmctld's, slurmdbd's, and each node's."""
    return [20000 + 10 * number + more for more in range(2 + len(NODES))]


def node_address(node: str) -> str:
    """Give a node's own loopback address, so that nodes differ but need no network."""
    return f"127.0.0.1{NODES.index(node) + 1}"
