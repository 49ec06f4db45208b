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
from hpckit.job.job import Machine, Plan
from hpckit.job.resolve import make_plan
from hpckit.job.script import RunPlace
from hpckit.job.spec import Request
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
def prepare(request: Request, runs: Path | None, *, preview: bool = False) -> Submission:
    """Work a request out to the point of submitting. `preview` needs no Slurm.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm was asked for and is not here.
    """
    around = survey()
    collections = around.collections
    refuse_unusable(around.unusable, _asked_for(request), request)
    site = find_site(request.site, collections)
    refuse_unusable(around.unusable, frozenset({f"templates/sites/{site.name}.yaml"}), request)
    say_left_out(around.unusable)
    workload = _workload(request, collections)
    executor = choose_executor(request.executor, preview=preview)
    machine = _this_machine() if executor == "local" else None
    site, notes = _with_mpi(request, site, workload, executor)
    python = own_python()[0]
    plan = make_plan(request, site, workload, python=python, machine=machine, notes=notes)
    plan = replace(plan, notes=(*plan.notes, *account_note(plan, request)))
    root = runs_root(runs, site.runs, os.environ)
    run_id = new_run_id(plan.name)
    if not preview and "after" not in request.skip_checks:
        refuse_hopeless(request.after, root)
    dependencies = [dependency(word, executor, root) for word in request.after]
    site_file = list_sites(collections).get(site.name)
    return Submission(
        request=request,
        plan=plan,
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


def _asked_for(request: Request) -> frozenset[str]:
    """Return the files that a request names, by their paths in a collection."""
    template = request.template
    names = {f"templates/{template}", f"templates/slurm/{template}.sh.j2"}
    if request.script is None:
        spellings = (request.target.replace("_", "-"), request.target.replace("-", "_"))
        names |= {f"workloads/{name}/workload.yaml" for name in (request.target, *spellings)}
    if request.site:
        names.add(f"templates/sites/{request.site}.yaml")
    return frozenset(names)


def _this_machine() -> Machine:
    # With it comes all that runs a job here, which submitting to Slurm does not need.
    from hpckit.submission.local import this_machine  # noqa: PLC0415

    return this_machine()


def _with_mpi(
    request: Request, site: Site, workload: Workload | None, executor: str
) -> tuple[Site, tuple[str, ...]]:
    """Find out how srun starts MPI ranks where the site does not say so."""
    strategy = find_strategy(workload.strategy if workload else request.target)
    launcher = request.launcher or (workload and workload.launcher) or strategy.default_launcher
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


def _workload(request: Request, collections: tuple[Collection, ...]) -> Workload | None:
    if request.script is None:
        known = {name.replace("-", "_") for name in list_workloads(collections)}
        key = request.target.replace("-", "_")
        if key not in known and request.target in STRATEGIES:
            raise RequestError(
                f"{request.target!r} is a strategy, and no workload has that name: give "
                f"your script, as in `hpckit submit {request.target} train.py`."
            )
        return load_workload(request.target, collections)
    if request.target not in STRATEGIES and Path(request.script).name in STRATEGIES:
        line = shlex.join([Path(request.script).name, request.target])
        raise RequestError(f"The strategy comes first, then the script: hpckit submit {line}")
    if request.target not in STRATEGIES:
        raise RequestError(
            f"{request.target!r} is not a strategy; a script needs one of {', '.join(STRATEGIES)}: "
            f"hpckit submit ddp {request.script}. A workload's arguments go after `--`."
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


def say_plan(submission: Submission) -> None:
    """Say on stderr what a submission comes to."""
    plan = submission.plan
    count = f"{len(plan.tasks)} x " if plan.is_array else ""
    shape = f"{plan.nodes} node(s) x {plan.gpus_per_node} GPU(s) = {plan.total_gpus} GPU(s)"
    if not plan.gpus_per_node:
        shape = f"{plan.nodes} node(s), no GPU"
    where = "this machine" if plan.executor == "local" else f"Slurm, site {plan.site.name}"
    note(
        f"{plan.name}: {count}{shape}, {plan.ranks} rank(s){launched_by(plan)}, "
        f"limit {format_minutes(plan.time_min)}, on {where}"
    )
    found = plan.workload.found if plan.workload else None
    if found and found.collection.origin != "built-in":
        at = found.collection.revision and f" at {found.collection.revision}"
        note(f"workload {found.path.parent} of collection {found.collection.label()}{at}")
    for row in submission.collections:
        if row.changed:
            note(f"note: {row.name} has changed since it was pinned: hpckit collections verify")
    for line in plan.notes:
        note(f"note: {line}")


def say_which_script(submission: Submission) -> None:
    """Say on stderr whose script a dry run prints, where a submission would not use it."""
    if submission.request.executor == "auto" and not sbatch_answers():
        note(
            "note: this is the script for Slurm. No Slurm answers here, so without --dry-run it "
            "would run on this machine: --executor local prints that script"
        )


def launched_by(plan: Plan) -> str:
    """Name the launcher, unless it is the local stand-in for srun."""
    local = plan.executor == "local" and plan.launcher.name == "srun"
    return "" if local else f" by {plan.launcher.name}"
