"""From command-line words to a submission: site, workload, executor, plan. It sends nothing."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

from hpckit import shell
from hpckit.cli.account import account_note
from hpckit.cli.arguments import find_site, say_left_out
from hpckit.cli.output import note
from hpckit.collections import Collection, survey
from hpckit.detect.mpi import choose_mpi, own_default
from hpckit.errors import OutsideError, RequestError
from hpckit.interpreter import own_python
from hpckit.job.job import Job, Machine
from hpckit.job.resolve import resolve
from hpckit.job.script import RunPlace
from hpckit.job.spec import JobSpec
from hpckit.runs import new_run_id, runs_root
from hpckit.sites import Site, list_sites
from hpckit.slurm.client import patience
from hpckit.slurm.cluster import config, mpi_types
from hpckit.strategies import STRATEGIES, find_strategy
from hpckit.submission.after import dependency, refuse_hopeless
from hpckit.submission.model import Submission, refuse_unusable
from hpckit.units import format_minutes
from hpckit.workloads import Workload, list_workloads, load_workload

EXECUTORS = ("auto", "slurm", "local")


@patience()
def prepare(spec: JobSpec, runs: Path | None, *, preview: bool = False) -> Submission:
    """Work a request out to the point of submitting. `preview` needs no Slurm.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm was asked for and is not here.
    """
    around = survey()
    collections = around.collections
    refuse_unusable(around.unusable, _asked_for(spec), spec)
    site = find_site(spec.site, collections)
    refuse_unusable(around.unusable, frozenset({f"templates/sites/{site.name}.yaml"}), spec)
    say_left_out(around.unusable)
    workload = _workload(spec, collections)
    executor = choose_executor(spec.executor, preview=preview)
    machine = _this_machine() if executor == "local" else None
    site, notes = _with_mpi(spec, site, workload, executor)
    python = own_python()[0]
    job = resolve(spec, site, workload, python=python, machine=machine, notes=notes)
    job = replace(job, notes=(*job.notes, *account_note(job, spec)))
    root = runs_root(runs, site.runs, os.environ)
    run_id = new_run_id(job.name)
    if not preview and "after" not in spec.skip_checks:
        refuse_hopeless(spec.after, root)
    dependencies = [dependency(word, executor, root) for word in spec.after]
    site_file = list_sites(collections).get(site.name)
    return Submission(
        spec=spec,
        job=job,
        place=RunPlace(
            run_id=run_id,
            dir=root / run_id,
            cwd=str(Path.cwd()),
            after=tuple(word for word, _ in dependencies),
        ),
        collections=collections,
        unusable=around.unusable,
        site=site_file,
        after_dirs=tuple(row for _, folders in dependencies for row in folders),
    )


def _asked_for(spec: JobSpec) -> frozenset[str]:
    """Return the files that a request names, by their paths in a collection."""
    template = spec.template
    names = {f"templates/{template}", f"templates/slurm/{template}.sh.j2"}
    if spec.script is None:
        spellings = (spec.target.replace("_", "-"), spec.target.replace("-", "_"))
        names |= {f"workloads/{name}/workload.yaml" for name in (spec.target, *spellings)}
    if spec.site:
        names.add(f"templates/sites/{spec.site}.yaml")
    return frozenset(names)


def _this_machine() -> Machine:
    # With it comes all that runs a job here, which submitting to Slurm does not need.
    from hpckit.submission.local import this_machine  # noqa: PLC0415

    return this_machine()


def _with_mpi(
    spec: JobSpec, site: Site, workload: Workload | None, executor: str
) -> tuple[Site, tuple[str, ...]]:
    """Find out how srun starts MPI ranks where the site does not say so."""
    strategy = find_strategy(workload.strategy if workload else spec.target)
    launcher = spec.launcher or (workload and workload.launcher) or strategy.default_launcher
    asks = strategy.mpi and launcher == "srun" and site.mpi is None and executor == "slurm"
    if not asks or not sbatch_answers():
        return site, ()
    if default := own_default(config().get("MpiDefault", "")):
        return site, (f"MPI: srun's own default, {default}",)
    kinds = mpi_types()
    chosen = choose_mpi(kinds)
    if chosen is None:
        raise RequestError(
            f"srun can start no MPI ranks that hpckit knows (it lists {', '.join(kinds)}): "
            "give --launcher mpirun, or 'launch: {mpi: NAME}' in the site's YAML."
        )
    why = f"of {', '.join(kinds)}; 'launch: {{mpi: NAME}}' in the site's YAML chooses"
    return replace(site, mpi=chosen), (f"MPI: srun --mpi={chosen} ({why})",)


def _workload(spec: JobSpec, collections: tuple[Collection, ...]) -> Workload | None:
    if spec.script is None:
        known = {name.replace("-", "_") for name in list_workloads(collections)}
        key = spec.target.replace("-", "_")
        if key not in known and spec.target in STRATEGIES:
            raise RequestError(
                f"{spec.target!r} is a strategy, and no workload has that name: give "
                f"your script, as in `hpckit submit {spec.target} train.py`."
            )
        return load_workload(spec.target, collections)
    if spec.target not in STRATEGIES and Path(spec.script).name in STRATEGIES:
        line = shlex.join([Path(spec.script).name, spec.target])
        raise RequestError(f"The strategy comes first, then the script: hpckit submit {line}")
    if spec.target not in STRATEGIES:
        raise RequestError(
            f"{spec.target!r} is not a strategy; a script needs one of {', '.join(STRATEGIES)}: "
            f"hpckit submit ddp {spec.script}. A workload's arguments go after `--`."
        )
    return None


def choose_executor(word: str, *, preview: bool) -> str:
    """Return slurm or local. `auto` means Slurm where sbatch answers, else this machine.

    Raises:
        RequestError: unknown word. OutsideError: Slurm was asked for, and sbatch does not answer.
    """
    if word not in EXECUTORS:
        raise RequestError(f"--executor {word!r} must be one of {', '.join(EXECUTORS)}.")
    if preview:
        return "local" if word == "local" else "slurm"
    if word == "auto":
        return "slurm" if sbatch_answers() else "local"
    if word == "slurm" and not sbatch_answers():
        raise OutsideError(
            "No sbatch here can reach a cluster. "
            "Log in to the cluster, or use --executor local for this machine."
        )
    return word


def sbatch_answers() -> bool:
    """Say whether there is an sbatch that finds its cluster's configuration.

    Without one (a client installed on a workstation) even `--version` fails.
    """
    if shell.which("sbatch") is None:
        return False
    return (
        shell.run(["sbatch", "--version"], timeout_s=10, check=False, own_group=True).returncode
        == 0
    )


def say_job(submission: Submission) -> None:
    """Say on stderr what a submission comes to."""
    job = submission.job
    count = f"{len(job.tasks)} x " if job.is_array else ""
    shape = f"{job.nodes} node(s) x {job.gpus_per_node} GPU(s) = {job.total_gpus} GPU(s)"
    if not job.gpus_per_node:
        shape = f"{job.nodes} node(s), no GPU"
    where = "this machine" if job.executor == "local" else f"Slurm, site {job.site.name}"
    note(
        f"{job.name}: {count}{shape}, {job.ranks} rank(s){launched_by(job)}, "
        f"limit {format_minutes(job.time_min)}, on {where}"
    )
    found = job.workload.found if job.workload else None
    if found and found.collection.origin != "built-in":
        at = found.collection.revision and f" at {found.collection.revision}"
        note(f"workload {found.path.parent} of collection {found.collection.label()}{at}")
    for row in submission.collections:
        if row.changed:
            note(f"note: {row.name} has changed since it was pinned: hpckit collections verify")
    for line in job.notes:
        note(f"note: {line}")


def say_which_script(submission: Submission) -> None:
    """Say on stderr whose script a dry run prints, where a submission would not use it."""
    if submission.spec.executor == "auto" and not sbatch_answers():
        note(
            "note: this is the script for Slurm. No Slurm answers here, so without --dry-run it "
            "would run on this machine: --executor local prints that script"
        )


def launched_by(job: Job) -> str:
    """Name the launcher, unless it is the local stand-in for srun."""
    local = job.executor == "local" and job.launcher.name == "srun"
    return "" if local else f" by {job.launcher.name}"
