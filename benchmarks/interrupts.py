"""Ends `hpckit submit` at random moments, and counts what is left: jobs, records, and neither.

python benchmarks/interrupts.py [--number N] [--seed S] [--json]

It needs a Slurm to submit to (SLURM_CONF: `eval "$(make -s slurm-up)"`). Each submission, of one
job or of an array, is ended after a random time by SIGINT, once or twice, SIGTERM, SIGHUP, SIGKILL,
or by SIGKILL together with all that it started, as when a login node dies. Every second sbatch is
slow, before and after Slurm has its job. The jobs are held, so that none of them runs. Then `hpckit
jobs` is asked, and its answer compared with Slurm's: each live job must have a record, and each
record a job. Exit status 1 when one has not.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

HPCKIT = Path(sys.executable).with_name("hpckit")
# Each in turn; against SIGKILL hpckit can do nothing.
WAYS = ("KILL", "INT", "KILL all", "TERM", "KILL", "HUP", "KILL all", "INT INT")
TASKS = 3
SLOW_S, BETWEEN_S = 0.4, 0.15
# After so many submissions it is measured again how long one takes, for the machine may be busy.
MEASURED = 10
# Of a killed hpckit the sbatch may go on.
_LEFT_S = 180.0
_SLOW = """\
#!/bin/bash
# Every second one takes its time, before Slurm has the job and after.
read -r slow <"$INTERRUPTS_SLOW"
input=$(cat; echo .)
sleep "$slow"
printf %s "${{input%.}}" | {sbatch} "$@"
status=$?
sleep "$slow"
exit $status
"""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A folder with a home, runs and a slow sbatch; `env` is what commands are started with."""

    folder: Path
    env: Mapping[str, str]

    @property
    def runs(self) -> Path:
        """Where the runs are."""
        return self.folder / "runs"

    def hpckit(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of hpckit's."""
        return self._run(str(HPCKIT), *words)

    def slurm(self, *words: str) -> str:
        """Run one of Slurm's programs; return what it printed."""
        return self._run(*words).stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self.env, cwd=self.folder, capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL)  # fmt: skip


@dataclass(kw_only=True)
class Result:
    """What came of all submissions.

    Attributes:
        endings: exit statuses and signals, and how many.
        live: jobs in Slurm's queue; `cancelled`: those that hpckit took back.
        recorded: ids in records.
        lost: live jobs without a record. phantom: records without a job.
        cut: submissions that never reached Slurm, of which hpckit said so and kept the files.
        begun: folders of submissions that were killed before Slurm was asked for anything.
        unsettled: submissions of which hpckit still does not know.
    """

    seed: int
    number: int
    endings: dict[str, int] = field(default_factory=dict)
    live: int = 0
    cancelled: int = 0
    recorded: int = 0
    lost: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    cut: int = 0
    begun: int = 0
    unsettled: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is lost or made up."""
        faults = (self.lost, self.phantom, self.unsettled, self.tracebacks)
        return not any(faults)


def interrupt(desk: Desk, number: int, seed: int) -> Result:
    """Start `number` submissions one after the other, end each, and compare what is left."""
    # A shell's background job ignores it, and what is started here would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(seed)
    result = Result(seed=seed, number=number)
    endings: Counter[str] = Counter()
    quick_s, heard = 0.0, list[str]()
    for index in range(number):
        if index % MEASURED == 0:
            quick_s, said = _undisturbed(desk)
            heard.append(said)
        slow_s = SLOW_S * chance.randrange(2)
        (desk.folder / "slow").write_text(f"{slow_s}\n")
        array = ("--array", f"x={','.join(map(str, range(TASKS)))}") if chance.randrange(2) else ()
        way = WAYS[index % len(WAYS)]
        after_s = chance.uniform(0, quick_s + 2 * slow_s)
        status, said = _ended(desk, index, array, way, after_s)
        endings[f"{way} -> {status}"] += 1
        heard.append(said)
        if _is_fault(status, said):
            result.tracebacks.append(f"submission {index}: {said[-2000:]}")
    result.endings = dict(sorted(endings.items()))
    _wait_for_sbatch(desk)
    compare(desk, result, "".join(heard))
    return result


def _undisturbed(desk: Desk) -> tuple[float, str]:
    """Submit without an end; return how long it took, in seconds, and what was said."""
    (desk.folder / "slow").write_text("0\n")
    began = time.monotonic()
    answer = desk.hpckit("submit", "serial", "held.sh", "--gpus=0", "--name=cut0")
    assert answer.returncode == 0, answer.stderr
    return time.monotonic() - began, answer.stderr


def _is_fault(status: int, said: str) -> bool:
    """Say whether a command ended as none may; Python itself prints a traceback as it starts."""
    early = "KeyboardInterrupt" in said and "hpckit/cli" not in said
    return status == 2 or ("Traceback" in said and not early)


def _ended(
    desk: Desk, index: int, array: tuple[str, ...], way: str, after_s: float
) -> tuple[int, str]:
    """Submit, and end it; return its exit status, and what it said."""
    words = [HPCKIT, "submit", "serial", "held.sh", "--gpus=0", f"--name=cut{index}", *array]
    child = subprocess.Popen(words, env=desk.env, cwd=desk.folder, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)  # fmt: skip
    time.sleep(after_s)
    if way == "KILL all":
        _send(child.pid, signal.SIGSTOP)  # it sees nothing of this
        for pid in [*_below(child.pid)]:
            _send(pid, signal.SIGKILL)
    for word in way.removesuffix(" all").split():
        child.send_signal(getattr(signal, f"SIG{word}"))
        time.sleep(BETWEEN_S * (word == "INT"))
    said, _ = child.communicate()
    return child.returncode, said


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and those that they did."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return  # it has ended
    for word in words:
        yield int(word)
        yield from _below(int(word))


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _wait_for_sbatch(desk: Desk) -> None:
    """Wait until no sbatch is left that a killed hpckit had started."""
    until = time.monotonic() + _LEFT_S
    mark = f"INTERRUPTS_SLOW={desk.folder}/".encode()
    while any(_left_over(mark)) and time.monotonic() < until:
        time.sleep(0.1)


def _left_over(mark: bytes) -> Iterator[Path]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes():
                yield entry
        except OSError:
            continue  # it has ended since


def compare(desk: Desk, result: Result, heard: str) -> None:
    """Ask hpckit, then Slurm, and write down where they differ.

    `heard` is what all submissions said: they, too, ask for the jobs of those before.
    """
    asked = desk.hpckit("jobs", "--limit=0", "--json")
    again = desk.hpckit("jobs", "--limit=0", "--json")
    for answer in (asked, again):
        if "Traceback" in answer.stderr or answer.returncode:
            result.tracebacks.append(f"jobs: {answer.returncode} {answer.stderr[-2000:]}")
    heard += asked.stderr
    rows = json.loads(again.stdout)["jobs"]
    recorded = {row["job_id"] for row in rows}
    known = _in_slurm(desk)
    live = {job for job, state in known.items() if state != "CANCELLED"}
    result.live, result.recorded = len(live), len(recorded)
    result.cancelled = len({job.partition("_")[0] for job in known.keys() - live})
    result.lost = sorted(live - recorded)
    result.phantom = sorted(recorded - live)
    for folder in sorted(desk.runs.glob("cut*")):
        base = folder.with_name(folder.name.partition("_")[0])  # an array's own
        if (folder / "run.json").exists() or (base / "array.json").exists():
            continue
        if not (base / "handover.json").exists():
            result.begun += folder == base
        elif f"Slurm has no job of run {base.name}:" in heard:
            result.cut += folder == base
        else:
            result.unsettled.append(folder.name)
    left = desk.folder / "state" / "hpckit" / "handed-over"
    result.unsettled += [path.name for path in left.glob("*")]


def _in_slurm(desk: Desk) -> dict[str, str]:
    """Return the state of each job, an array's tasks each; a wholly cancelled array is one."""
    words = ("squeue", "-h", "-r", "--states=all", "--format=%i %T %j")
    found = {}
    for line in desk.slurm(*words).splitlines():
        # Others' names may hold anything, also several lines.
        if row := re.fullmatch(r"(\S+) ([A-Z_]+) cut\d+", line):
            found[row[1]] = row[2]
    return found


@contextmanager
def desk_in(folder: Path) -> Iterator[Desk]:
    """Give a desk in an empty folder; its jobs are cancelled in the end."""
    binaries = folder / "bin"
    for path in (binaries, folder / "home", folder / "templates" / "sites"):
        path.mkdir(parents=True)
    (folder / "templates" / "sites" / "held.yaml").write_text(
        'description: "every job is held"\nlaunch: {sbatch_args: [--hold]}\n'
    )
    (folder / "held.sh").write_text("#!/bin/sh\nexit 0\n")
    (folder / "held.sh").chmod(0o755)
    sbatch = binaries / "sbatch"
    sbatch.write_text(_SLOW.format(sbatch=shutil.which("sbatch")))
    sbatch.chmod(0o755)
    own = {
        "HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HPCKIT_RUNS": str(folder / "runs"),
        "HPCKIT_SITE": "held",
        "INTERRUPTS_SLOW": str(folder / "slow"),
        "PATH": f"{binaries}:{os.environ['PATH']}",
    }
    desk = Desk(folder=folder, env={**os.environ, **own})
    try:
        yield desk
    finally:
        if jobs := {job.partition("_")[0] for job in _in_slurm(desk)}:
            desk.slurm("scancel", *jobs)


def main() -> int:
    """Do it, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hpckit-interrupts-"))
    with desk_in(folder) as desk:
        result = interrupt(desk, options.number, options.seed)
    if not options.keep:
        shutil.rmtree(folder)
    rows = asdict(result)
    lines = (f"{name:<11} {value}" for name, value in rows.items())
    print(json.dumps(rows, indent=2) if options.json else "\n".join(lines))
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
