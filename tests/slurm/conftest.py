"""Gives the tests of this folder a real Slurm, and a desk: a user with a home and a shell."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.patience import LONG_S
from tests.slurmbox.fixture import Slurm, slurm

__all__ = ["desk", "slurm"]

HPCKIT = Path(sys.executable).with_name("hpckit")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL")
# Of the developer's own shell, or of a job that the tests run in: no test may depend on them.
_NOT_OURS = ("HPCKIT_", "SLURM", "SBATCH", "SUBMITIT", "XDG_", "TORCH", "OMPI_", "PMI", "CUDA_")
Record = dict[str, Any]


def _project() -> Path:
    """Give the tests' scripts a git project of their own: from here, all of hpckit's would travel.

    A desk's first job then takes 1,400 files along, and a second of processor time.
    """
    project = Path(tempfile.mkdtemp(prefix="hpckit-scripts-"))
    atexit.register(shutil.rmtree, project, ignore_errors=True)
    project.chmod(0o755)
    subprocess.run(["git", "init", "-q", project], check=True)
    here = Path(__file__).parent.parent / "scripts"
    return shutil.copytree(here, project / "scripts", ignore=shutil.ignore_patterns("__pycache__"))


SCRIPTS = _project()


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Record:
        """The one JSON document on stdout."""
        document: Record = json.loads(self.out)
        return document


@dataclass(frozen=True)
class Desk:
    """A user of the box: home, working folder, runs and environment of their own."""

    slurm: Slurm
    home: Path
    work: Path
    env: dict[str, str]
    submitted: list[str] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        """Where this user's runs go."""
        return Path(self.env["HPCKIT_RUNS"])

    def call(
        self,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        expect: int | None = 0,
        timeout_s: float = LONG_S,
    ) -> Answer:
        """Run hpckit as this user does; `expect` is its exit status, None any."""
        done = subprocess.run(
            [HPCKIT, *argv],
            env={**self.env, **(env or {})},
            cwd=cwd or self.work,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
        said = f"hpckit {argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert expect is None or done.returncode == expect, said
        return Answer(done.returncode, done.stdout, done.stderr)

    def submit(self, *argv: str | Path, **options: Any) -> Record:
        """Submit, and give what `submit --json` says: of the job, or of all tasks as `jobs`."""
        head = (*argv[: argv.index("--")], "--json") if "--" in argv else (*argv, "--json")
        tail = argv[argv.index("--") :] if "--" in argv else ()
        answer = self.call("submit", *head, *tail, **options)
        record = answer.json
        self.submitted.extend(row["job_id"] for row in record.get("jobs", [record]))
        return record

    def status(self, job_id: str, **options: Any) -> Record:
        """Give `status --json`."""
        return self.call("status", job_id, "--json", **options).json

    def until(self, job_id: str, *states: str, within_s: float = LONG_S, **options: Any) -> Record:
        """Ask for the status until the job, or each task of an array, is in one of `states`."""
        found: Record = {}
        # First by squeue alone, which takes a fiftieth of what hpckit's own start does.
        ask = ("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T")
        eventually(
            lambda: set(self.slurm.run(*ask, check=False).stdout.split()) <= set(states),
            within_s,
            pause_s=0.05,
        )

        def there() -> bool:
            found.update(self.status(job_id, **options))
            return all(row["state"] in states for row in found.get("jobs", [found]))

        assert eventually(there, within_s, pause_s=0.3), f"{job_id} is {found}"
        return found

    def over(self, job_id: str, within_s: float = LONG_S) -> Record:
        """Wait until a job is over, and give its status."""
        return self.until(job_id, *OVER, within_s=within_s)

    def done(self, *argv: str | Path, within_s: float = LONG_S, **options: Any) -> Record:
        """Submit, and wait until the job has COMPLETED; give its status."""
        job_id = self.submit(*argv, **options)["job_id"]
        status = self.over(job_id, within_s)
        if status["state"] == "FAILED" and died_in_mpi_init(status["run_dir"]):
            job_id = self.submit(*argv, **options)["job_id"]
            status = self.over(job_id, within_s)
        if status["state"] != "COMPLETED":
            why = self.call("logs", job_id, "--all", expect=None).out
            raise AssertionError(f"{status}\n{why}")
        return status

    def scontrol(self, job_id: str) -> dict[str, str]:
        """Give the fields of `scontrol show job`; words after a space in a value are lost."""
        text = self.slurm.run("scontrol", "-o", "show", "job", job_id).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)


@pytest.fixture
def desk(slurm: Slurm, tmp_path: Path) -> Iterator[Desk]:
    """Give a user of the box; what is left of their jobs is cancelled in the end."""
    with desk_in(tmp_path, slurm) as one:
        yield one


@contextmanager
def desk_in(folder: Path, slurm: Slurm) -> Iterator[Desk]:
    """Give a user of the box whose files are in a folder; their jobs are cancelled in the end."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    env |= slurm.env | {
        "HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HPCKIT_RUNS": str(folder / "runs"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # What a rank starts may be many on few cores.
        "OMP_NUM_THREADS": "1",
    }
    for name in ("home", "work"):
        (folder / name).mkdir()
    # What hpckit made of templates and sites: a user pays for it once, not with each new home.
    made, kept = folder / "home" / ".cache" / "hpckit" / "made", slurm.dir / "kept"
    if kept.exists():
        shutil.copytree(kept, made)
    one = Desk(slurm=slurm, home=folder / "home", work=folder / "work", env=env)
    yield one
    if one.submitted:
        slurm.run("scancel", *one.submitted, check=False)
    kept.mkdir(exist_ok=True)
    for file in made.glob("*"):
        with suppress(FileNotFoundError):  # a job that still runs writes beside, and replaces
            shutil.copy(file, kept)


def eventually(check: Callable[[], bool], within_s: float = LONG_S, pause_s: float = 0.1) -> bool:
    """Say whether something comes true in time; no limit is one that a loaded machine can meet."""
    deadline = time.monotonic() + within_s
    while not (true := check()) and time.monotonic() < deadline:
        time.sleep(pause_s)
    return true


def accounted(slurm: Slurm, *job_ids: str, rows: int | None = None, moment: str = "End") -> None:
    """Wait until accounting has all of some jobs; of arrays, `rows` is the number of tasks.

    slurmctld tells slurmdbd of a start within 5 s. Before that a job's row is what its first step
    has told: it has an end, but no name, partition or time limit, and `sacct --starttime` does not
    find it. An attempt that starts again before that may lose its start for ever.

    Args:
        moment: `End`, or `Start` of jobs that run.
    """
    ask = ("sacct", "-X", "-a", "-n", "-P", "-o", f"Partition,{moment}", "-j", ",".join(job_ids))

    def whole() -> bool:
        said = [line.split("|") for line in slurm.run(*ask).stdout.splitlines()]
        known = [partition and at[:1].isdigit() for partition, at in said]
        return len(known) == (rows or len(job_ids)) and all(known)

    assert eventually(whole, LONG_S, pause_s=0.3), slurm.run(*ask).stdout


def died_in_mpi_init(run_dir: str | Path) -> bool:
    """Say whether Open MPI 4 called a handler that was not there yet: see `slurmbox.config`."""
    said = [path.read_text(errors="replace") for path in Path(run_dir).glob("logs/*.err")]
    return any("Failing at address: (nil)" in text and "[ 1]" not in text for text in said)


def rank_files(run_dir: str | Path, stem: str = "seen") -> dict[int, Record]:
    """Give what each rank wrote into the run's folder, by rank."""
    files = Path(run_dir).glob(f"{stem}-*.json")
    return dict(sorted((int(p.stem.split("-")[1]), json.loads(p.read_text())) for p in files))


def add_site(desk: Desk, text: str, name: str = "box") -> None:
    """Write a site file of the user's project."""
    folder = desk.work / "templates" / "sites"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(f"description: the box of the tests\n{text}")


def processes_of(run_dir: str | Path) -> list[str]:
    """Give the command lines of living processes that belong to a run, wherever they went."""
    mark, found = str(run_dir).encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            if words and (mark in words or mark in (entry / "environ").read_bytes()):
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended since
    return found


def stepd_of(job_id: str, node: str) -> int:
    """Give the process id of the slurmstepd that a job's first step has on a node."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if not (entry / "cmdline").read_text().startswith(f"slurmstepd: [{job_id}.0]"):
                continue
            children = (entry / "task" / entry.name / "children").read_text().split()
            environs = [Path("/proc", pid, "environ").read_text() for pid in children]
        except OSError:
            continue  # it has ended since
        if any(f"SLURMD_NODENAME={node}\0" in environ for environ in environs):
            return int(entry.name)
    raise AssertionError(f"job {job_id} has no slurmstepd of its own on {node}")


def is_open_mpi_5(desk: Desk) -> bool:
    """Say whether the machine's MPI is Open MPI 5, by which each rank may end a step of srun's."""
    words = ["mpirun", "--version"]
    said = subprocess.run(words, env=desk.env, capture_output=True, text=True, check=True)
    return "(Open MPI) 5." in said.stdout


def lacking(desk: Desk, folder: Path, **programs: str) -> dict[str, str]:
    """Give a PATH on which some of Slurm's programs answer in another way."""
    folder.mkdir(exist_ok=True)
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{desk.env['PATH']}"}
