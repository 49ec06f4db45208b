"""An sshd of the tests' own on a loopback port, which plays the login node and all nodes."""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpckit.payload import rendezvous
from tests.slurm.conftest import eventually

SSHD = "/usr/sbin/sshd"
_SERVER = """\
ListenAddress 127.0.0.1
ListenAddress 127.0.0.11
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv {variables}
"""
_START = f'mount --bind "$1" /etc/hosts && exec {SSHD} -D -e -f "$2"'
_CLIENT = """\
Host login
    HostName 127.0.0.1
Host c1
    HostName 127.0.0.11
Host c1 hpckit-* login
    HostKeyAlias box
    Port {port}
Host *
    IdentityFile {folder}/user
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking yes
"""


@dataclass(frozen=True)
class Sshd:
    """`bin` is a folder for a PATH, whose `ssh` reaches `login` and `c1`."""

    folder: Path
    bin: Path
    port: int

    def add(self, *, entry: str = "", known_host: str = "") -> None:
        """Add an entry to the client's configuration, before all others; and a known host."""
        config = self.folder / "config"
        config.write_text(f"{entry}\n{config.read_text()}")
        with (self.folder / "known_hosts").open("a") as known:
            known.write(f"{known_host}\n")


def obstacle() -> str | None:
    """Say why no sshd can run here, or None."""
    if not (Path(SSHD).exists() and shutil.which("ssh")):
        return "NO SSHD: apt-get install openssh-server openssh-client"
    return None


@contextmanager
def running(folder: Path, hosts: Path, variables: Mapping[str, str]) -> Iterator[Sshd]:
    """Run one; what it starts has these variables, and knows the nodes by this file of hosts."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where root's gives up its rights
    for name in ("host", "user"):
        key = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
        subprocess.run(key, check=True)
    port = free_port()
    words = " ".join(f'"{name}={value}"' for name, value in variables.items())
    settings = _SERVER.format(port=port, folder=folder, variables=words)
    (folder / "sshd_config").write_text(settings)
    (folder / "config").write_text(_CLIENT.format(port=port, folder=folder))
    (folder / "known_hosts").write_text(f"box {(folder / 'host.pub').read_text()}")
    (folder / "bin").mkdir()
    ssh = folder / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    ssh.chmod(0o755)
    with (folder / "log").open("w") as log:
        argv = ["unshare", "--mount", "sh", "-c", _START, "-", hosts, folder / "sshd_config"]
        server = subprocess.Popen(argv, stderr=log, stdin=subprocess.DEVNULL)
    try:
        assert eventually(lambda: _listens(port)), (folder / "log").read_text()
        yield Sshd(folder=folder, bin=folder / "bin", port=port)
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    """Give a port that nobody has, and that no outgoing connection may have before it is used."""
    return rendezvous.free_port(secrets.token_hex(8))


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def mine(text: str) -> list[str]:
    """Give the command lines of living processes of this user that contain a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words and entry.name != str(os.getpid()):
            found.append(words)
    return found
