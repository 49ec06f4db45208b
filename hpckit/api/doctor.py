"""`hpckit.doctor`: what a submission needs, and what to do where it is missing."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hpckit import owners
from hpckit.api import Tell, log
from hpckit.api.options import spec_values
from hpckit.api.prepare import Submission, prepare
from hpckit.collections import survey
from hpckit.detect import login_node
from hpckit.detect.answers import Detected, read_answers
from hpckit.doctor import JOBS, Check, Level, all_good, attempt, unknown
from hpckit.doctor.environments import environment_checks
from hpckit.doctor.installation import (
    collection_checks,
    folder_checks,
    ledger_checks,
    own_checks,
)
from hpckit.doctor.site import more_questions, scheduler_checks, script_checks, site_checks
from hpckit.errors import RequestError
from hpckit.job_spec.arguments import FUNCTION, PATH, TIME, checked, maybe, time_word
from hpckit.job_spec.spec import JobSpec
from hpckit.paths import typed_path
from hpckit.run_folders.index import index_path
from hpckit.run_folders.runs import runs_root
from hpckit.sites import find_site
from hpckit.slurm.client import patience, sbatch_answers
from hpckit.units import parse_minutes
from hpckit.values import Seconds, Within

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = [
    "Check", "Checks", "Level", "doctor", "doctor_gpu", "doctor_mpi", "doctor_notify",
    "doctor_stats",
]  # fmt: skip

_TIME_MIN = 5
_WORDS = {Level.GOOD: "ok", Level.BAD: "bad", Level.UNKNOWN: "unknown"}


class Checks(list[Check]):
    """Findings, in the order they were made; each has a level, what it is about, what to do."""

    @property
    def good(self) -> bool:
        """Whether nothing that matters is bad, or was to be known and is not."""
        return all_good(self)

    def document(self) -> dict[str, Any]:
        """Return what `hpckit doctor --json` prints."""
        rows = [
            {"level": _WORDS[row.level], "what": row.what, "todo": row.todo, "counts": row.counts}
            for row in self
        ]
        return {"good": self.good, "checks": rows}

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@checked(site=str | None, runs=maybe(PATH), timeout=Seconds, tell=FUNCTION)
def doctor(
    *,
    site: str | None = None,
    runs: Path | str | None = None,
    timeout: float = 10.0,
    tell: Tell = log,
) -> Checks:
    """Check what a submission needs; submit nothing.

    Args:
        site: a site's name (else the one detected here).
        runs: the folder of runs.
        timeout: seconds each program of Slurm may take.
        tell: hears which collections are left out.
    """
    checks = Checks(attempt("hpckit's own packages", own_checks))
    answers = login_node.ask_slurm(timeout, more_questions(owners.user_name()))
    found = None
    if all(row.text is None for row in answers.values()):
        checks.append(unknown("Slurm", f"{answers['sbatch'].why} hpckit runs jobs here instead"))
    else:
        now = time.time()
        found = read_answers(answers, login_node.describe_machine())
        checks += scheduler_checks(answers, found, now)
    checks += attempt("collections", collection_checks)
    executor = "slurm" if answers["sbatch"].text is not None else "local"
    root = None if runs is None else typed_path(runs)
    checks += attempt(
        "the site's file", lambda: _of_site(site, root, found, executor, timeout, tell)
    )
    return checks


def _of_site(
    name: str | None,
    runs: Path | None,
    found: Detected | None,
    executor: str,
    timeout: float,
    tell: Tell,
) -> Iterator[Check]:
    collections = survey().collections
    site = find_site(name, collections)
    root = runs_root(runs, site.runs, os.environ)
    yield from site_checks(site, str(site.path), found)
    yield from environment_checks(site, timeout, collections)
    yield from folder_checks(root, index_path().parent, on_cluster=found is not None)
    yield from ledger_checks(map(Path, site.ledgers(collections)))
    spec = JobSpec(
        target="serial", program=str(JOBS / "gpu_hello.py"), site=site.name, gpus=0,
        executor=executor, time_min=_TIME_MIN, sample_interval_s=0,
    )  # fmt: skip
    yield from attempt("a small job", lambda: script_checks(prepare(spec, root, tell=tell)))


@checked(site=str | None, runs=maybe(PATH), timeout=Seconds)
def doctor_stats(
    *, site: str | None = None, runs: Path | str | None = None, timeout: float = 10.0
) -> Checks:
    """Check which sources of figures answer here: hpckit's samples, accounting, JS1, Prometheus.

    Args:
        site: a site's name (else the one detected here).
        runs: the folder of runs.
        timeout: seconds that Slurm's programs may take.
    """
    from hpckit.doctor import sources  # noqa: PLC0415  # see doctor_mpi

    here = find_site(site, survey().collections)
    root = runs_root(None if runs is None else typed_path(runs), here.runs, os.environ)
    now, user = time.time(), owners.user_name()
    checks = Checks(attempt("hpckit's samples", lambda: sources.samples_checks(root)))
    with patience(timeout):
        checks += attempt("accounting", lambda: sources.accounting_checks(user, now))
    checks += attempt("Prometheus", lambda: sources.prometheus_checks(here, now))
    return checks


@checked(site=str | None)
def doctor_notify(*, site: str | None = None) -> Checks:
    """Send a test event to each sink of `notify:`: webhooks, commands, mail by the program `mail`.

    Args:
        site: a site's name (else the one detected here).
    """
    from hpckit.doctor.telling import telling_checks  # noqa: PLC0415  # see doctor_mpi
    from hpckit.sinks import find_notify  # noqa: PLC0415

    here = find_site(site, survey().collections)
    with patience():
        return Checks(telling_checks(find_notify(here.notify)))


@checked(
    site=str | None,
    partition=str | None,
    account=str | None,
    env=str | None,
    nodes=Annotated[int, Within(1, 2)] | None,
    runs=maybe(PATH),
    within=TIME,
    tell=FUNCTION,
)
def doctor_mpi(
    *,
    site: str | None = None,
    partition: str | None = None,
    account: str | None = None,
    env: str | None = None,
    nodes: int | None = None,
    runs: Path | str | None = None,
    within: "int | str | timedelta" = "10m",
    tell: Tell = log,
) -> Checks:
    """Submit two-rank jobs by each launcher that can start MPI ranks, and each kind of MPI.

    Args:
        site: a site's name (else the one detected here).
        partition: Slurm's partition.
        account: Slurm's account.
        env: the environment, as for `submit`.
        nodes: for the two ranks, 1 or 2 (else 2 where the partition has them).
        runs: the folder of runs.
        within: how long to wait for the jobs: minutes, "1h30m", or a timedelta.
        tell: hears which collections are left out.
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
    jobs, used = trials.by_every_launcher(lambda word: _named(spec, runs, word, tell), here, found)
    ended = trials.run_trials(jobs, _seconds(within))
    checks = Checks(trials.mpi_checks(ended, used, str(here.path)))
    if found and found.mpi.kinds is None:
        checks.append(unknown("srun's kinds of MPI", "srun --mpi=list did not answer"))
    return checks


@checked(
    nodes=int | None,
    site=str | None,
    partition=str | None,
    account=str | None,
    env=str | None,
    runs=maybe(PATH),
    within=TIME,
    tell=FUNCTION,
)
def doctor_gpu(
    *,
    gpus: int | str = 1,
    nodes: int | None = None,
    site: str | None = None,
    partition: str | None = None,
    account: str | None = None,
    env: str | None = None,
    runs: Path | str | None = None,
    within: "int | str | timedelta" = "10m",
    tell: Tell = log,
) -> Checks:
    """Submit a short job that touches each GPU it gets: name, memory, a product by torch.

    Args:
        gpus: per node, as for `submit`.
        nodes: how many nodes.
        site: a site's name (else the one detected here).
        partition: Slurm's partition.
        account: Slurm's account.
        env: the environment, as for `submit`.
        runs: the folder of runs.
        within: how long to wait for the job: minutes, "1h30m", or a timedelta.
        tell: hears which collections are left out.
    """
    from hpckit.doctor import trials  # noqa: PLC0415  # see doctor_mpi

    asked = spec_values({"gpus": gpus})
    if not asked.get("gpus"):
        raise RequestError(f"--gpus {gpus}: this check needs at least one GPU.")
    spec = JobSpec(
        target="ddp", program=str(JOBS / "gpu_hello.py"), **asked,
        nodes=nodes, site=site, partition=partition, account=account, env=env,
        time_min=_TIME_MIN, sample_interval_s=0,
    )  # fmt: skip
    submission = _named(spec, runs, "gpu", tell)
    [trial] = trials.run_trials({"gpu": submission}, _seconds(within))
    return Checks(trials.gpu_checks(trial, submission.job.ranks))


def _named(spec: JobSpec, runs: Path | str | None, word: str, tell: Tell) -> Submission:
    root = None if runs is None else typed_path(runs)
    return prepare(replace(spec, name=f"doctor-{word}", skip_checks=("notify",)), root, tell=tell)


def _seconds(within: "int | str | timedelta") -> int:
    return parse_minutes(time_word(within)) * 60
