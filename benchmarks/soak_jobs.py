"""The kinds of jobs of benchmarks/soak.py, how each is submitted, and what must come of it."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
HPCKIT = Path(sys.executable).with_name("hpckit")
RANK, SHELL, CALLS = (
    HERE / "scripts" / f"soak_{name}" for name in ("rank.py", "rank.sh", "calls.py")
)
ARRAY = 4
# How a job ends by itself: Slurm's state, and its exit status (None: any).
Outcome = tuple[str, int | None]
GOOD: Outcome = ("COMPLETED", 0)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One row of the table.

    Attributes:
        weight: how often it is chosen.
        words: of `hpckit submit`, before the program; none: a function, by soak_calls.py.
        ranks: how many print lines.
        then: how the script ends: see soak_rank.py.
        ends: how the job must end; of an array the last task alone, the others COMPLETED.
        jobs: how many it makes.
        program: what is run.
        meet: as what the ranks meet.
        kills: what may be done to it: names in soak_kills.py.
    """

    name: str
    weight: int
    words: Sequence[str] = ()
    ranks: int = 1
    then: str = "good"
    ends: Outcome = GOOD
    jobs: int = 1
    program: Path = RANK
    meet: str = ""
    kills: Sequence[str] = ()

    @property
    def local(self) -> bool:
        """Whether it runs without Slurm."""
        return "local" in self.words


_ONE, _PAIR, _BOTH = ("serial",), ("ddp", "--tasks-per-node", "2"), ("ddp", "--nodes", "2")
_MPI, _ALONE = ("mpi", "--tasks-per-node", "2"), ("--executor", "local")
_BY_SIGNAL: Outcome = ("FAILED", 137)
_ANY = ("scancel", "cancel", "rank")
_ALL = (*_ANY, "supervisor", "sampler", "stepd", "requeue")
KINDS = (
    Kind(name="serial", weight=16, words=_ONE, kills=_ALL),
    Kind(name="serial, exit 1-120", weight=6, words=_ONE, then="exit", ends=("FAILED", None)),
    Kind(name="serial, raises", weight=4, words=_ONE, then="raise", ends=("FAILED", 1)),
    Kind(name="serial, kills itself", weight=3, words=_ONE, then="kill", ends=_BY_SIGNAL),
    Kind(name="program", weight=5, words=_ONE, program=SHELL, kills=_ANY),
    Kind(name="program, fails", weight=3, words=_ONE, program=SHELL, then="exit",
         ends=("FAILED", None)),
    Kind(name="ddp 1x2", weight=6, words=_PAIR, ranks=2, kills=_ALL),
    Kind(name="ddp 2x1", weight=5, words=(*_BOTH, "--tasks-per-node", "1"), ranks=2, kills=_ALL),
    Kind(name="ddp 2x2, fails", weight=3, words=(*_BOTH, "--tasks-per-node", "2"), ranks=4,
         then="exit", ends=("FAILED", None)),
    Kind(name="ddp 1x2, meets", weight=2, words=_PAIR, ranks=2, meet="torch"),
    Kind(name="torchrun 2x1", weight=1, ranks=2, meet="torch",
         words=(*_BOTH, "--tasks-per-node", "1", "--launcher", "torchrun")),
    Kind(name="mpi 1x2", weight=4, words=_MPI, ranks=2, meet="mpi", kills=("scancel", "rank")),
    Kind(name="mpi 2x1", weight=2, words=("mpi", "--nodes", "2", "--tasks-per-node", "1"), ranks=2,
         meet="mpi", kills=("scancel", "cancel")),
    Kind(name="mpi, fails", weight=2, words=_MPI, ranks=2, meet="mpi", then="exit",
         ends=("FAILED", None)),
    Kind(name="array", weight=3, words=_ONE, jobs=ARRAY, kills=("scancel", "cancel", "rank")),
    Kind(name="array, last fails", weight=3, words=_ONE, jobs=ARRAY, then="exit",
         ends=("FAILED", None)),
    Kind(name="call", weight=3, program=CALLS, kills=("scancel",)),
    Kind(name="call, raises", weight=2, program=CALLS, then="raise", ends=("FAILED", 1)),
    Kind(name="map", weight=2, program=CALLS, jobs=ARRAY),
    Kind(name="local", weight=4, words=(*_ONE, *_ALONE),
         kills=("cancel", "rank", "supervisor", "controller", "keeper", "sampler")),
    Kind(name="local, fails", weight=2, words=(*_ONE, *_ALONE), then="exit", ends=("FAILED", None)),
    Kind(name="local ddp 2x1", weight=2, words=(*_BOTH, "--tasks-per-node", "1", *_ALONE), ranks=2,
         kills=("cancel", "rank")),
)  # fmt: skip
TIMEOUT = Kind(name="time limit", weight=0, words=(*_ONE, "--time", "1"), ends=("TIMEOUT", None))


@dataclass(kw_only=True)
class Job:
    """One submitted job, and what must be true of it once it is over.

    Attributes:
        ends: how it must end. kill: what is done to it. done: what was, in words.
        restarts: attempts after the first.
        whole: whether each rank gets to its end; else its lines stop somewhere.
        caller: the process that waits for the results of calls, shared by a map's jobs.
    """

    kind: Kind
    job_id: str
    run_id: str
    run_dir: Path
    ends: Outcome
    lines: int
    whole: bool
    kill: str = ""
    done: str = ""
    restarts: int = 0
    caller: "subprocess.Popen[str] | None" = None
    wrong: list[str] = field(default_factory=list)


def submit(kind: Kind, kill: str, dice: random.Random, work: Path) -> list[Job]:
    """Submit one of a kind; `kill` is what will be done to the last of its jobs."""
    code = dice.randint(1, 120) if kind.then == "exit" else 0
    then = f"exit:{code}" if code else kind.then
    ends = ("FAILED", code) if code else kind.ends
    lines, seconds = dice.choice((1, 20, 200)), f"{dice.uniform(0.2, 3):.2f}"
    if kind is TIMEOUT:
        lines, seconds = 1, "hold"
    if kill:
        # It is there when it is killed; what must survive goes on long enough to be met.
        seconds = {"requeue": "hold-once", "sampler": "8"}.get(kill, "hold")
        lines = min(lines, 20)
    if kind.program == CALLS:
        found, caller = _call(kind, [str(lines), seconds, then], work)
    else:
        found, caller = _command(kind, kill, [str(lines), seconds, then, kind.meet], work), None
    whole = kind.then == "good" and not kill and kind is not TIMEOUT
    jobs = [
        Job(kind=kind, **row, ends=ends, lines=lines, whole=whole, caller=caller) for row in found
    ]
    if kind.jobs > 1:
        for job in jobs[:-1]:
            job.ends, job.whole = GOOD, True
    jobs[-1].kill = kill
    return jobs


def _command(kind: Kind, kill: str, args: list[str], work: Path) -> list[dict[str, object]]:
    """Submit by the command line; return job and run of each task."""
    words = [*kind.words, "--name", kind.name.partition(",")[0].replace(" ", "-")]
    words = [words[0], str(kind.program), *words[1:], "--gpus", "0", "--sample-interval", "1"]
    words += [] if "--time" in words else ["--time", "10"]
    words += ["--max-requeues", "1"] if kill == "requeue" else []
    if kind.jobs > 1:
        # The last task differs in what it does: the script's arguments are {seconds} and {then}.
        ordinary = [*["0.5"] * (kind.jobs - 1), args[1]]
        ends = [*["good"] * (kind.jobs - 1), args[2]]
        words += ["--zip", "--array", f"seconds={','.join(ordinary)}"]
        words += ["--array", f"then={','.join(ends)}"]
        args = [args[0], "{seconds}", "{then}", args[3]]
    done = subprocess.run(
        [HPCKIT, "submit", *words, "--json", "--", *filter(None, args)],
        cwd=work, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"hpckit submit {words}: {done.returncode}\n{done.stderr}")
    record = json.loads(done.stdout)
    return [_found(row) for row in record.get("jobs", [record])]


def _call(
    kind: Kind, args: list[str], work: Path
) -> tuple[list[dict[str, object]], "subprocess.Popen[str]"]:
    """Submit from Python; return the jobs, and the process that waits for their results."""
    caller = subprocess.Popen(
        [sys.executable, CALLS, "map" if kind.jobs > 1 else "call", *args],
        cwd=work, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )  # fmt: skip
    assert caller.stdout
    first = caller.stdout.readline()
    if not first:
        raise RuntimeError(f"soak_calls.py {args} said nothing: exit status {caller.wait()}")
    return [_found(row) for row in json.loads(first)], caller


def _found(row: dict[str, str]) -> dict[str, object]:
    return {"job_id": row["job_id"], "run_id": row["run_id"], "run_dir": Path(row["run_dir"])}


def results_of(job: Job) -> object:
    """Return what the program got that waits for a call's results."""
    assert job.caller
    out, _ = job.caller.communicate(timeout=120)
    return json.loads(out.splitlines()[-1])
