"""Runs workloads as users run them: real processes, real images, gloo on this machine."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hpckit.payload import rendezvous
from hpckit.run_folders.metrics import METRICS, all_rows, counted_rows
from tests.workloads.nursery import Forked

WORKLOADS = Path(__file__).parents[2] / "workloads"
Curve = list[tuple[float, float]]
Process = subprocess.Popen[str] | Forked
_UNWANTED = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM", "HPCKIT_", "OMP_", "TORCHELASTIC")


def environment(**changes: object) -> dict[str, str]:
    """This environment without traces of a job, and with some variables set."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}
    return clean | {"HPCKIT_DEVICE": "cpu"} | {k: str(v) for k, v in changes.items()}


def start(workload: str, *arguments: object, fresh: bool = False, **changes: object) -> Process:
    """Start a workload's script on the digits (unless told otherwise), every warning an error.

    `fresh` starts an interpreter of its own, as users do; else it is forked from one that has
    torch. Each has one thread: two of each process, on two cores that have other work, mostly wait.
    """
    changes = {"OMP_NUM_THREADS": 1} | changes
    words = [*map(str, arguments)]
    if workload != "wave_inversion" and not {"--data", "--model"} & set(words):
        words += ["--data", "digits"]
    script = WORKLOADS / workload / "train.py"
    if not fresh:
        return Forked(script, words, environment(**changes))
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(script), *words],
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_ranks(
    world: int,
    *arguments: object,
    workload: str = "ddp",
    of_each: Callable[[int], Sequence[object]] = lambda rank: (),
) -> list[Process]:
    """Start a workload once per rank, with the variables hpckit sets, and each rank's own words."""
    meeting = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [
        start(workload, *arguments, *of_each(r), RANK=r, LOCAL_RANK=r, **meeting)
        for r in range(world)
    ]


def finish(*processes: Process) -> str:
    """Wait for processes that must succeed in silence on stderr; return all they printed."""
    ends = [process.communicate(timeout=280) for process in processes]
    assert [error for _, error in ends] == [""] * len(processes)
    assert [process.returncode for process in processes] == [0] * len(processes)
    return "".join(out for out, _ in ends)


def complaint(process: Process) -> str:
    """Wait for a process that must fail with one line; return it without its newline."""
    _, said = process.communicate(timeout=280)
    assert process.returncode != 0
    assert said.count("\n") == 1, said
    return said.rstrip("\n")


_meetings = itertools.count()
_held: deque[int] = deque()  # descriptors: nobody is warned of these at the end


def free_port() -> int:
    """Give a port that is free, and that nobody else can take meanwhile.

    No outgoing connection has one of these. The socket that is bound here does not listen: torch's
    store, which allows the address to be in use (SO_REUSEADDR), gets it, and no job that looks for
    a free one, as those of other tests do on this machine.
    """
    port = rendezvous.free_port(f"tests {os.getpid()} {next(_meetings)}")
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", port))
    _held.append(holder.detach())
    if len(_held) > 50:
        os.close(_held.popleft())
    return port


def records(out: Path, key: str) -> list[dict[str, float]]:
    """The lines of metrics.jsonl that count and have this key."""
    return [row for row in counted_rows(all_rows(out / METRICS)) if key in row]


def losses(out: Path) -> Curve:
    return [(record["step"], record["loss"]) for record in records(out, "loss")]


def close(one: Curve, other: Curve) -> bool:
    """Whether two curves have the same steps and losses equal to 1 in 10,000."""
    return [step for step, _ in one] == [step for step, _ in other] and [
        loss for _, loss in one
    ] == pytest.approx([loss for _, loss in other], rel=1e-4)


def wait_for_steps(out: Path, steps: int) -> None:
    deadline = time.monotonic() + 280
    while len(records(out, "loss")) < steps:
        assert time.monotonic() < deadline, f"no {steps} steps in time"
        time.sleep(0.01)


def cut(begin: Callable[[], list[Process]], out: Path, signum: int, *, after: int, of: int) -> str:
    """Start a run, signal its last process after so many steps; return all that was printed.

    All must end in silence on stderr, but for a kill.
    Where the run had taken all its steps by then, it is started anew: on a machine that stands
    still now and then, this process may look too late.
    """
    for _ in range(5):
        processes = begin()
        wait_for_steps(out, after)
        with contextlib.suppress(ProcessLookupError):
            processes[-1].send_signal(signum)
        ends = [process.communicate(timeout=280) for process in processes]
        if losses(out)[-1][0] < of:
            codes = [process.returncode for process in processes]
            assert signum == signal.SIGKILL or (set(codes), {e for _, e in ends}) == ({0}, {""})
            return "".join(said for said, _ in ends)
        shutil.rmtree(out)
        out.mkdir()
    raise AssertionError(f"five times all {of} steps were taken before the signal came")


def write_idx(folder: Path, training: int, held_out: int) -> Path:
    """Write the digits as IDX files."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    for part, first, count in [("train", 0, training), ("t10k", training, held_out)]:
        header = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (count, 8, 8))
        images = (pixels[first : first + count] * 15).astype("uint8").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images)
        header = b"\0\0\x08\x01" + count.to_bytes(4, "big")
        targets = labels[first : first + count].astype("uint8").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + targets)
    return folder


def words(arguments: Sequence[object]) -> list[str]:
    return [str(argument) for argument in arguments]
