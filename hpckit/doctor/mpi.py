"""`doctor mpi`: two ranks through each launcher there is; pure but for the jobs of `trial`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpckit.detect.model import Detected
from hpckit.doctor.model import Check, bad, good, unknown
from hpckit.doctor.trial import Trial
from hpckit.launchers import find_launcher
from hpckit.sites import Site
from hpckit.submission.model import Submission

RANKS = 2
MPIRUN = "mpirun"


def srun_label(kind: str | None) -> str:
    """Return how a user would start it."""
    return f"srun --mpi={kind}" if kind else "srun"


def srun_kinds(site: Site, found: Detected) -> tuple[str, ...]:
    """Return the kinds of MPI to try, the site's own too; with `none` ranks never meet."""
    kinds = [*(found.mpi.kinds or ()), *([site.mpi] if site.mpi else [])]
    return tuple(dict.fromkeys(kind for kind in kinds if kind != "none"))


def used_label(site: Site, found: Detected) -> str:
    """Return what `hpckit submit` would start MPI ranks by."""
    return srun_label(site.mpi or found.mpi.default or found.mpi.chosen)


def shape(found: Detected, partition: str | None) -> tuple[int, int]:
    """Return nodes and ranks per node: two nodes where the partition is known to give them."""
    rows = {row.name: row for row in found.partitions or ()}
    row = rows.get(partition) if partition else found.default_partition
    several = row is not None and len(row.nodes) > 1 and row.max_nodes != 1
    return (RANKS, 1) if several else (1, RANKS)


def through_srun(submission: Submission, kind: str) -> Submission:
    """Return the same job, whose ranks srun starts with that kind of MPI."""
    site = replace(submission.job.site, mpi=kind)
    job = replace(submission.job, site=site, launcher=find_launcher("srun"))
    return replace(submission, job=job)


def mpi_checks(trials: Sequence[Trial], used: str, where: str) -> Iterator[Check]:
    """Read the trials; only a bad one that `hpckit submit` would use is the user's problem."""
    works = [row.label for row in trials if row.good]
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
            if row.label == used:
                todo += f". {_instead(works, where)}"
            if row.job_id:
                todo += f" (hpckit logs {row.job_id} --errors)"
            yield bad(f"{row.label}{mark}", todo, counts=row.label == used)
    tried = [row.label for row in trials]
    if not works and used not in tried and not any(row.late for row in trials):
        yield bad("no launcher works", _instead(works, where))


def _instead(works: Sequence[str], where: str) -> str:
    kinds = [label.partition("=")[2] for label in works if label.startswith("srun --mpi=")]
    if kinds:
        return f"Set 'launch: {{mpi: {kinds[0]}}}' in {where}"
    if MPIRUN in works:
        return "Use --launcher mpirun"
    return "mpi4py must be built with this cluster's MPI, and the module of this MPI must be loaded"
