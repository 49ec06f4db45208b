"""An sshd for one connection, as a step of the job: `python -m hpckit.session.own_sshd KEY`.

It runs as the user, listens nowhere (standard input and output are the connection), lets in only
this user, and only by the keys that they have in their own `~/.ssh/authorized_keys`.
"""

import os
import pwd
import sys
import tty
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpckit import shell
from hpckit.errors import HpckitError, OutsideError
from hpckit.file_locks import held_alone
from hpckit.paths import config_folder, make_folder
from hpckit.payload.last_line import end_with

# Where systems put it; a user's PATH seldom has these.
_PLACES = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/lib/ssh/sshd", "/sbin/sshd")
# What a program in the job wants to know of it. sshd hands nothing on by itself.
_OF_JOB = (
    *("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "SLURM_CONF"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "TMPDIR"),
)


def host_key() -> Path:
    """Return the user's host key for such an sshd; it is made once.

    Raises:
        OutsideError: it cannot be made.
    """
    key = config_folder() / "ssh" / "host_ed25519"
    try:
        make_folder(key.parent, mode=0o700)
    except OSError as error:
        raise _unmade(key, error) from error
    if not key.exists():
        with held_alone(key.with_name("lock"), "the lock "):
            if not key.exists():  # another command may have made it meanwhile
                _make_key(key)
    return key


def _make_key(key: Path) -> None:
    """Write a key, whole or not at all; its public half first, so that who finds a key has both."""
    mine = key.with_name(f"{key.name}.{os.urandom(8).hex()}")
    keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hpckit", "-f")
    shell.run((*keygen, str(mine)))
    try:
        os.replace(f"{mine}.pub", f"{key}.pub")  # noqa: PTH105
        os.replace(mine, key)  # noqa: PTH105
    except OSError as error:
        raise _unmade(key, error) from error


def _unmade(key: Path, error: OSError) -> OutsideError:
    return OutsideError(f"The host key {str(key)!r} cannot be made: {error.strerror}.")


def sshd_argv(key: Path, user: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the argv of an sshd for one connection on standard input and output.

    Raises:
        OutsideError: the node has none.
    """
    program = next((place for place in _PLACES if os.access(place, os.X_OK)), shell.which("sshd"))
    if program is None:
        raise OutsideError("This node has no sshd (looked in /usr/sbin): ssh cannot reach it.")
    options = (f"-o{name}={value}" for name, value in _options(key, user, environ))
    return (program, "-i", "-e", "-f", "/dev/null", *options)


def _options(key: Path, user: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "HostKey", str(key)
    yield "AllowUsers", user
    yield "AuthenticationMethods", "publickey"
    yield "PasswordAuthentication", "no"
    yield "KbdInteractiveAuthentication", "no"
    yield "PermitRootLogin", "prohibit-password"
    yield "UsePAM", "no"  # which only root may ask
    yield "PidFile", "none"
    yield "LogLevel", "ERROR"
    yield "AcceptEnv", "LANG LC_*"
    yield "Subsystem", "sftp internal-sftp"
    if words := [f'"{name}={environ[name]}"' for name in _OF_JOB if _plain(environ.get(name, ""))]:
        yield "SetEnv", " ".join(words)


def _plain(text: str) -> bool:
    return bool(text) and text.isprintable() and not {'"', "\\", "%"} & set(text)


def main(key: str) -> None:
    """Become that sshd."""
    if os.isatty(1):  # `srun --unbuffered` gives a terminal, which would change bytes
        tty.setraw(1)
    try:
        argv = sshd_argv(Path(key), pwd.getpwuid(os.getuid()).pw_name, os.environ)
    except HpckitError as error:
        end_with(f"hpckit: {error}")
    os.execv(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1])
