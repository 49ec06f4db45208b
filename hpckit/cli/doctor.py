"""`hpckit doctor [mpi|gpu]`: what a submission needs, and what to do where it is missing."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hpckit.api.prepare import prepare
from hpckit.cli.arguments import (
    AccountOption,
    JsonOption,
    NodesOption,
    PartitionOption,
    RunsOption,
    say_note,
)
from hpckit.cli.output import print_json, say
from hpckit.collections import survey
from hpckit.detect import login_node
from hpckit.detect.answers import Detected, read_answers
from hpckit.doctor import JOBS, Check, Level, all_good, attempt, unknown
from hpckit.doctor.environments import environment_checks
from hpckit.doctor.installation import collection_checks, folder_checks, own_checks
from hpckit.doctor.site import more_questions, scheduler_checks, script_checks, site_checks
from hpckit.errors import RequestError
from hpckit.find import index_path
from hpckit.runs import runs_root
from hpckit.sites import Site, find_site, list_sites
from hpckit.slurm.client import sbatch_answers
from hpckit.spec import JobSpec, option_values
from hpckit.submission.model import Submission
from hpckit.text import parse_minutes

_TIME_MIN = 5
commands = typer.Typer(
    help="Check what a submission needs; say what to do.", invoke_without_command=True
)
SiteOption = Annotated[str | None, typer.Option("--site", help="Site file (else detected).")]
EnvOption = Annotated[str | None, typer.Option("--env", help="Environment, as for submit.")]
WithinOption = Annotated[
    str, typer.Option("--within", help="How long to wait for the jobs: minutes, 1h30m.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="doctor")


@commands.callback()
def doctor(
    context: typer.Context,
    site: SiteOption = None,
    runs: RunsOption = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0.1, metavar="S", help="Seconds each program may take."),
    ] = 10.0,
    json: JsonOption = False,
) -> None:
    """Check what a submission needs; submit nothing. Exit status 1 when something is bad."""
    if context.invoked_subcommand:
        return
    checks = attempt("hpckit's own packages", own_checks)
    user = login_node.user_name()
    answers = login_node.ask_slurm(timeout_s, more_questions(user))
    now = time.time()
    found = None
    if all(row.text is None for row in answers.values()):
        checks.append(unknown("Slurm", f"{answers['sbatch'].why} hpckit runs jobs here instead"))
    else:
        found = read_answers(answers, login_node.describe_machine())
        checks += scheduler_checks(answers, found, now)
    checks += attempt("collections", collection_checks)
    executor = "slurm" if answers["sbatch"].text is not None else "local"
    checks += attempt("the site's file", lambda: _of_site(site, runs, found, executor, timeout_s))
    _end(checks, json=json)


def _of_site(
    name: str | None, runs: Path | None, found: Detected | None, executor: str, timeout_s: float
) -> list[Check]:
    collections = survey().collections
    site = find_site(name, collections)
    path = str(list_sites(collections)[site.name].path)
    root = runs_root(runs, site.runs, os.environ)
    checks = list(site_checks(site, path, found))
    checks += environment_checks(site, timeout_s, collections)
    checks += folder_checks(root, index_path().parent, on_cluster=found is not None)
    spec = JobSpec(
        target="serial", program=str(JOBS / "gpu_hello.py"), site=site.name, gpus=0,
        executor=executor, time_min=_TIME_MIN, sample_interval_s=0,
    )  # fmt: skip
    checks += attempt("a small job", lambda: script_checks(prepare(spec, root, tell=say_note)))
    return checks


@commands.command("mpi")
def mpi(
    site: SiteOption = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    env: EnvOption = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", min=1, max=2, help="Nodes for two ranks.")
    ] = None,
    runs: RunsOption = None,
    within: WithinOption = "10m",
    json: JsonOption = False,
) -> None:
    """Submit two-rank jobs by each launcher that can start MPI ranks, and each kind of MPI.

    Exit status 1 when the one that `hpckit submit` uses does not work.
    """
    from hpckit.doctor import trials  # noqa: PLC0415  # all of submission/, which --help needs not

    here = find_site(site, survey().collections)
    found = None
    if sbatch_answers():
        found = read_answers(login_node.ask_slurm(10.0), login_node.describe_machine())
    many, per_node = trials.shape(found, partition or here.partition) if found else (1, 2)
    if nodes is not None:
        many, per_node = nodes, trials.RANKS // nodes
    spec = JobSpec(
        target="mpi", program=str(JOBS / "mpi_hello.py"), args=(str(many * per_node),),
        nodes=many, tasks_per_node=per_node, site=site, partition=partition,
        account=account, env=env, time_min=_TIME_MIN, sample_interval_s=0,
    )  # fmt: skip
    jobs, used = trials.by_every_launcher(lambda word: _named(spec, runs, word), here, found)
    ended = trials.run_trials(jobs, parse_minutes(within) * 60)
    checks = list(trials.mpi_checks(ended, used, _path(here)))
    if found and found.mpi.kinds is None:
        checks.append(unknown("srun's kinds of MPI", "srun --mpi=list did not answer"))
    _end(checks, json=json)


def _named(spec: JobSpec, runs: Path | None, word: str) -> Submission:
    return prepare(replace(spec, name=f"doctor-{word}"), runs, tell=say_note)


def _path(site: Site) -> str:
    return str(list_sites(survey().collections)[site.name].path)


@commands.command("gpu")
def gpu(
    gpus: Annotated[
        str, typer.Option("--gpus", "--gpus-per-node", metavar="[TYPE:]N", help="GPUs per node.")
    ] = "1",
    nodes: NodesOption = None,
    site: SiteOption = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    env: EnvOption = None,
    runs: RunsOption = None,
    within: WithinOption = "10m",
    json: JsonOption = False,
) -> None:
    """Submit a short job that touches each GPU it gets: name, memory, a product by torch."""
    from hpckit.doctor import trials  # noqa: PLC0415  # see mpi

    asked = option_values({"gpus": gpus})
    if not asked["gpus"]:
        raise RequestError(f"--gpus {gpus}: this check needs at least one GPU.")
    spec = JobSpec(
        target="ddp", program=str(JOBS / "gpu_hello.py"), **asked,
        nodes=nodes, site=site, partition=partition, account=account, env=env,
        time_min=_TIME_MIN, sample_interval_s=0,
    )  # fmt: skip
    submission = _named(spec, runs, "gpu")
    [trial] = trials.run_trials({"gpu": submission}, parse_minutes(within) * 60)
    _end(list(trials.gpu_checks(trial, submission.job.ranks)), json=json)


def _end(checks: Sequence[Check], *, json: bool) -> None:
    if json:
        rows = [{"level": _WORDS[row.level], "what": row.what, "todo": row.todo,
                 "counts": row.counts} for row in checks]  # fmt: skip
        print_json({"good": all_good(checks), "checks": rows})
    else:
        say("\n".join(str(row) for row in checks))
    if not all_good(checks):
        raise typer.Exit(1)


_WORDS = {Level.GOOD: "ok", Level.BAD: "bad", Level.UNKNOWN: "unknown"}
