"""What benchmarks/soak.py does to some jobs: who is killed when, and what must come of it."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from soak_jobs import GOOD, HPCKIT, Job, Outcome

_CANCELLED: Outcome = ("CANCELLED", None)
_FAILED: Outcome = ("FAILED", None)
_LIMIT_S = 600.0


def processes(*marks: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (process, command line) of what has one of these in its words or variables."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            variables = (entry / "environ").read_bytes() if words else b""
        except OSError:
            continue  # it has ended since
        if words and any(mark in words or mark in variables for mark in marks):
            yield int(entry.name), words


def disturb(job: Job, dice: random.Random, work: Path) -> None:
    """Do to a job what is due, at a moment of chance, and write down what must come of it."""
    act, job.ends = _ACTS[job.kill]
    moment = dice.choice(("at once", "later")) if job.kill in ("scancel", "cancel") else "later"
    if moment == "later":
        _wait(lambda: _has_begun(job) if job.kill in _NEED_LINES else _is_there(job))
        # From the first moment on: launchers and imports are killed, too.
        time.sleep(dice.uniform(0, 2))
    job.done = f"{moment}: {act(job, dice, work)}"


def _wait(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError("the job did not begin")
        time.sleep(0.2)


def _is_there(job: Job) -> bool:
    """Say whether anything of a job runs, beside what waits for it."""
    return any(_kind_of(words) for _, words in processes(bytes(job.run_dir)))


def _has_begun(job: Job) -> bool:
    """Say whether all ranks have written a line."""
    logs = [job.run_dir / "logs" / f"{rank}.out" for rank in range(job.kind.ranks)]
    return all(path.exists() and path.stat().st_size for path in logs)


def _kind_of(words: bytes) -> str:
    """Return which of a job's processes this is."""
    first = words.partition(b"\0")[0].rpartition(b"/")[2]
    if first in (b"srun", b"mpirun", b"orted"):
        return "launcher"
    for mark, name in _MARKS:
        if mark in words:
            return name
    return ""


_MARKS = (
    (b"hpckit.stats.sampler", "sampler"),
    (b"hpckit.payload.keeper", "keeper"),
    (b"hpckit.schedulers.local.controller", "controller"),
    (b"hpckit.payload.spawn", "launcher"),
    (b"hpckit.submission.in_job", "supervisor"),
    (b"soak_rank.", "rank"),
)
Act = Callable[[Job, random.Random, Path], str]


def _command(*argv: str | Path) -> Act:
    def act(job: Job, dice: random.Random, work: Path) -> str:
        words = [*argv, job.job_id]
        done = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            job.wrong.append(f"{words}: {done.returncode} {done.stderr.strip()}")
        return " ".join(map(str, argv[-2:]))

    return act


def _kill(name: str) -> Act:
    def act(job: Job, dice: random.Random, work: Path) -> str:
        found: list[int] = []

        def there() -> bool:
            found[:] = sorted(_of(job, name))
            return bool(found)

        _wait(there)
        os.kill(dice.choice(found), signal.SIGKILL)
        return f"kill -9 of one of {len(found)}"

    return act


def _of(job: Job, name: str) -> Iterator[int]:
    if name == "stepd":
        mark = f"slurmstepd: [{job.job_id}.0]".encode()
        yield from (pid for pid, words in processes(mark) if mark in words)
        return
    marks = (bytes(job.run_dir), job.job_id.encode()) if job.kind.local else (bytes(job.run_dir),)
    yield from (pid for pid, words in processes(*marks) if _kind_of(words) == name)


_ACTS: dict[str, tuple[Act, Outcome]] = {
    "scancel": (_command("scancel"), _CANCELLED),
    "cancel": (_command(HPCKIT, "cancel"), _CANCELLED),
    "requeue": (_command("scontrol", "requeue"), GOOD),
    "rank": (_kill("rank"), ("FAILED", 137)),
    "supervisor": (_kill("supervisor"), _FAILED),
    "sampler": (_kill("sampler"), GOOD),
    "stepd": (_kill("stepd"), _FAILED),
    "controller": (_kill("controller"), _FAILED),
    "keeper": (_kill("keeper"), _FAILED),
}
# Before that a requeue would meet a job that has no rank, and a script that is not there yet.
_NEED_LINES = ("requeue", "rank")
