"""Short jobs by hpckit's own way of submitting: sent together, waited for, read, cleared away.

Then what `doctor gpu` and `doctor mpi` make of them, pure.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpckit import shell
from hpckit.detect.answers import Detected
from hpckit.doctor import Check, bad, good, unknown
from hpckit.errors import OutsideError, RequestError
from hpckit.files import DamagedFileError, open_regular, parse_json
from hpckit.launchers import LAUNCHERS, Launcher, find_launcher
from hpckit.run_folders.run_files import JOB_LOG
from hpckit.run_folders.runs import Run
from hpckit.schedulers.slurm.ending import is_unheeded
from hpckit.sites import Site
from hpckit.submission.folders import remove_run
from hpckit.submission.model import Submission
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus
from hpckit.submission.submit import submit
from hpckit.submission.waiting import cancel, wait

# What the scripts of `jobs/` print before their line of JSON.
_MARK = "hpckit-doctor "
_MOST_BYTES = 1 << 20
# What MPI says over many lines, in one.
_KNOWN = {
    "OMPI was not built with SLURM's PMI support": "this Open MPI was not built for this kind",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What became of one job.

    Attributes:
        refused: why it was not submitted.
        late: it was not over in time, and hpckit asked for its end.
        goes_on: it was late, and still runs or waits.
        said: the line of JSON of each rank that printed one, by rank.
        why: what it says about its failure.
    """

    label: str
    refused: str = ""
    job_id: str = ""
    good: bool = False
    late: bool = False
    goes_on: bool = False
    said: dict[int, dict[str, Any]] = field(default_factory=dict)
    why: str = ""

    @property
    def lateness(self) -> str:
        """What became of a late one, as a part of a sentence."""
        end = "goes on although Slurm was asked to cancel it" if self.goes_on else "was cancelled"
        return f"job {self.job_id} did not end in time and {end} ({self.why})"


def run_trials(submissions: dict[str, Submission], within_s: float) -> list[Trial]:
    """Submit all jobs, by label, wait for them, and say what became of each."""
    runs: dict[str, Run] = {}
    refused: dict[str, str] = {}
    try:
        for label, submission in submissions.items():
            try:
                runs[label] = submit(submission)[0]
            except (OutsideError, RequestError) as error:
                refused[label] = str(error)
        found, going_on = _wait(list(runs.values()), within_s)
    except BaseException:
        if runs:
            cancel(list(runs.values()))
        raise
    ended = dict(zip(runs, found, strict=True))
    return [
        Trial(label=label, refused=refused[label])
        if label in refused
        else _trial(label, ended[label], going_on)
        for label in submissions
    ]


def _wait(runs: list[Run], within_s: float) -> tuple[list[RunStatus], frozenset[str]]:
    """Return what runs are when the time is up, and the jobs that go on although cancelled."""
    if not runs:
        return [], frozenset()
    try:
        return wait(runs, timeout_s=within_s), frozenset()
    except OutsideError:  # some are not over: that is a finding
        found = statuses(runs)
        left = cancel([row.run for row in found if not row.finished])
        return found, frozenset(row.run.job_id for row in left if is_unheeded(row.state))


def _trial(label: str, status: RunStatus, going_on: frozenset[str]) -> Trial:
    run = status.run
    found = {rank: said for rank in range(run.ranks) if (said := _said(run, rank))}
    trial = Trial(
        label=label,
        job_id=run.job_id,
        good=status.good,
        late=not status.finished,
        goes_on=run.job_id in going_on,
        said=found,
        why="" if status.good else _why(run, status),
    )
    if status.good and not any(said.get("fault") for said in found.values()):
        remove_run(run.dir)
    return trial


def _said(run: Run, rank: int) -> dict[str, Any]:
    """Return a rank's line of JSON."""
    for text in _text(run.dir / "logs" / f"{rank}.out").splitlines():
        if text.startswith(_MARK):
            try:
                said = parse_json(text.removeprefix(_MARK))
            except DamagedFileError:  # another's words in the middle of it: as good as not said
                return {}
            return said if isinstance(said, dict) else {}
    return {}


def _why(run: Run, status: RunStatus) -> str:
    """Return the line that says most about a failure: our script's, MPI's, then the job's."""
    if not status.finished:
        return status.reason_text or status.reason or str(status.state)
    logs: Sequence[Path] = sorted((run.dir / "logs").glob("*.err"))
    texts = [_text(path) for path in (*logs, run.dir / JOB_LOG)]
    own = [line for text in texts for line in text.splitlines() if line.startswith("error: ")]
    if own:
        return own[0].removeprefix("error: ")
    for text in texts:
        if known := next((short for words, short in _KNOWN.items() if words in text), None):
            return known
        said = shell.first_meaningful_line(text)
        if "error" in said.lower():
            return said
    return status.reason_text or f"it ended {status.state}"


def _text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            return stream.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, DamagedFileError):
        return ""


def gpu_checks(trial: Trial, ranks: int) -> Iterator[Check]:
    """Read a trial in which each rank touched one GPU."""
    if trial.refused:
        yield bad("a job with GPUs", trial.refused)
        return
    if trial.late:
        yield unknown("the GPUs", f"{trial.lateness}: try again, or --within 1h", counts=True)
        return
    for rank in range(ranks):
        said = trial.said.get(rank)
        if said is None:
            todo = f"{trial.why} (hpckit logs {trial.job_id} --rank {rank})"
            yield bad(f"GPU of rank {rank} was not reached", todo)
            continue
        where = f"{said.get('host')} GPU {said.get('index')}"
        if said.get("fault") or not said.get("name"):
            local = trial.job_id.startswith("local-")
            todo = "tell the cluster's support, and use other nodes with --exclude"
            todo = "ranks run on the CPU here" if local else todo
            yield bad(f"{where}: {said.get('fault')}", todo)
        else:
            yield good(f"{where}: {_about(said)}")


def _about(said: dict[str, object]) -> str:
    memory = said.get("memory_bytes")
    size = f", {memory / 2**30:.0f} GiB" if isinstance(memory, int) else ""
    by = str(said.get("by"))
    tested = "computes correctly" if by.startswith("torch") else "found, but not tested: no torch"
    return f"{said['name']}{size}, {tested} ({by})"


RANKS = 2


def _label(launcher: Launcher, kind: str | None) -> str:
    """Return how a user would start it."""
    return f"{launcher.name} --mpi={kind}" if kind else launcher.name


def srun_kinds(site: Site, found: Detected) -> tuple[str, ...]:
    """Return the kinds of MPI to try, the site's own too; with `none` ranks never meet."""
    kinds = [*(found.mpi.kinds or ()), *([site.mpi] if site.mpi else [])]
    return tuple(dict.fromkeys(kind for kind in kinds if kind != "none"))


def used_label(launcher: Launcher, site: Site, found: Detected | None) -> str:
    """Return what `hpckit submit`, which takes this launcher, would start MPI ranks by."""
    if found is None or not launcher.takes_mpi_kind:
        return launcher.name
    return _label(launcher, site.mpi or found.mpi.default or found.mpi.chosen)


def shape(found: Detected, partition: str | None) -> tuple[int, int]:
    """Return nodes and ranks per node: two nodes where the partition is known to give them."""
    rows = {row.name: row for row in found.partitions or ()}
    row = rows.get(partition) if partition else found.default_partition
    several = row is not None and len(row.nodes) > 1 and row.max_nodes != 1
    return (RANKS, 1) if several else (1, RANKS)


def by_every_launcher(
    prepared: Callable[[str], Submission], site: Site, found: Detected | None
) -> tuple[dict[str, Submission], str]:
    """Return a job by each launcher that can start it, and by each kind of MPI, by their labels.

    And the label of what `hpckit submit` uses. `prepared` makes the job, whatever starts it, under
    a name that ends in a word. Kinds of MPI are tried where Slurm's answers name them.
    """
    jobs: dict[str, Submission] = {}
    plain = prepared("mpi")
    kinds = srun_kinds(site, found) if found else ()
    for launcher in map(find_launcher, LAUNCHERS.known()):
        if launcher.takes_mpi_kind:
            for kind in kinds:
                jobs[_label(launcher, kind)] = _started_by(launcher, prepared(kind), kind)
        elif launcher.refusal(replace(plain.job, launcher=launcher)) is None:
            jobs[launcher.name] = _started_by(launcher, prepared(launcher.name))
    return jobs, used_label(plain.job.launcher, site, found)


def _started_by(launcher: Launcher, submission: Submission, kind: str | None = None) -> Submission:
    """Return the same job, whose ranks that launcher starts, with that kind of MPI."""
    job = replace(submission.job, launcher=launcher)
    job = replace(job, site=replace(job.site, mpi=kind)) if kind else job
    spec = replace(submission.spec, launcher=launcher.name)
    return replace(submission, job=job, spec=spec)


def mpi_checks(trials: Sequence[Trial], used: str, where: str) -> Iterator[Check]:
    """Read the trials; only a bad one that `hpckit submit` would use is the user's problem."""
    works = [row.label for row in trials if row.good]
    told: dict[str, str] = {}
    for row in trials:
        mark = " <- hpckit submit uses this" if row.label == used else ""
        if row.good:
            hosts = ", ".join(dict.fromkeys(str(one.get("host")) for one in row.said.values()))
            library = next((str(one.get("library")) for one in row.said.values()), "")
            yield good(f"{row.label}: {RANKS} ranks on {hosts}, {library}{mark}")
        elif row.late:
            todo = f"{row.lateness}: try again, or --within 1h"
            yield unknown(f"{row.label}{mark}", todo, counts=row.label == used)
        else:
            todo = row.refused or row.why
            first = told.setdefault(todo, row.label)
            if row.label not in (first, used):
                todo = f"the same as with {first}"
            if row.label == used:
                todo += f". {_instead(works, where)}"
            if row.job_id:
                todo += f" (hpckit logs {row.job_id} --errors)"
            yield bad(f"{row.label}{mark}", todo, counts=row.label == used)
    tried = [row.label for row in trials]
    if not works and used not in tried and not any(row.late for row in trials):
        yield bad("no launcher works", _instead(works, where))


def _instead(works: Sequence[str], where: str) -> str:
    kinds = [kind for label in works if (kind := label.partition(" --mpi=")[2])]
    if kinds:
        return f"Set 'launch: {{mpi: {kinds[0]}}}' in {where}"
    if works:
        return f"Use --launcher {works[0]}"
    return (
        "mpi4py must be built with this cluster's MPI, and the module of this MPI must be loaded: "
        "--env NAME chooses an environment of the site's that does so"
    )
