"""Where ranks meet: host and port, chosen once per job start, on the node where rank 0 will be.

`python -m hpckit.payload.rendezvous` prints `HOST PORT`; the job script exports both, so every
rank has the same by construction. The port is probed there and then.

Of a job of many ranks it is also told a folder, and writes hpckit's modules there, in one file.

All ranks wait for this process, so it imports next to nothing.
"""

import _socket  # `socket` makes enums of all its constants, which takes longer than all else here
import binascii
import os
import sys
from collections.abc import Iterator, Mapping

_FIRST_PORT, _LAST_PORT = 10_000, 65_535
# Linux's default, should /proc not say; ports in it are handed to outgoing connections.
_EPHEMERAL = (32_768, 60_999)
_TRIES = 50


def main() -> None:
    """Print host and port for this job."""
    try:
        print(master_host(os.environ), free_port(job_salt(os.environ)), flush=True)  # noqa: T201
    except BrokenPipeError:  # the job script was killed
        os._exit(1)
    if folders := sys.argv[1:]:
        _write_modules(folders[0])


def _write_modules(folder: str) -> None:
    from pathlib import Path  # noqa: PLC0415

    from hpckit.payload.bundle import write_bundle  # noqa: PLC0415  # jobs of many ranks

    try:
        write_bundle(Path(folder))
    except OSError as error:
        sys.stderr.write(
            f"hpckit: hpckit's modules cannot be written to {folder} ({error.strerror}), so each "
            "rank reads them by itself\n"
        )


def master_host(environ: Mapping[str, str]) -> str:
    """Return the host of rank 0: the first node of the job, or this machine's loopback."""
    nodes = environ.get("SLURM_JOB_NODELIST")
    return first_host(nodes) if nodes else "127.0.0.1"


def first_host(nodes: str) -> str:
    """Return the first of what `hpckit.slurm.hostlist.expand` would make of Slurm's own list."""
    name, rest = "", nodes.strip()
    while True:
        plain, bracket, rest = rest.partition("[")
        if "," in plain or not bracket:
            return name + plain.partition(",")[0]
        numbers, _, rest = rest.partition("]")
        name += plain + numbers.partition(",")[0].partition("-")[0]


def job_salt(environ: Mapping[str, str]) -> str:
    """Return text that differs per job, array task and restart.

    An array task has a SLURM_JOB_ID of its own. Locally the pid of the job's controller serves.
    """
    if "SLURM_JOB_ID" in environ:
        return f"{environ['SLURM_JOB_ID']}.{environ.get('SLURM_RESTART_COUNT', '0')}"
    job = environ.get("SUBMITIT_LOCAL_JOB_ID", str(os.getpid()))
    return f"{job}.{environ.get('HPCKIT_RESTART', '0')}"


def free_port(salt: str) -> int:
    """Return the first free port of a sequence that starts at a place given by `salt`."""
    candidates = list(candidate_ports(salt))
    port = next(filter(_is_free, candidates), None)
    if port is None:
        from hpckit.payload.last_line import end_with  # noqa: PLC0415  # of hardly any job

        where, count = os.uname().nodename, len(candidates)
        end_with(f"hpckit: {where} has no free port: all {count} tried are in use.")
    return port


def candidate_ports(salt: str) -> Iterator[int]:
    """Yield ports outside the ephemeral range, spread by a hash, the same for the same salt."""
    allowed = _allowed_ports()
    for attempt in range(_TRIES):
        # hashlib would load OpenSSL, in front of every job.
        yield allowed[binascii.crc32(f"{salt}/{attempt}".encode()) % len(allowed)]


def _allowed_ports() -> list[int]:
    low, high = ephemeral_range()
    ports = [
        *range(_FIRST_PORT, min(low, _LAST_PORT + 1)),
        *range(max(high + 1, _FIRST_PORT), _LAST_PORT + 1),
    ]
    return ports or list(range(1024, _FIRST_PORT))


def ephemeral_range() -> tuple[int, int]:
    """Return the ports this kernel gives to outgoing connections (man 7 ip)."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", "rb") as file:  # noqa: PTH123
            numbers = file.read().split()
    except OSError:
        return _EPHEMERAL
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else _EPHEMERAL


def _is_free(port: int) -> bool:
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.bind(("", port))
    except OSError:
        return False
    finally:
        probe.close()
    return True


if __name__ == "__main__":
    main()
    # All has been said, and Python's own end takes a tenth of the time that all ranks wait here.
    os._exit(0)
