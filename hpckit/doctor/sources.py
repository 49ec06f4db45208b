"""Which sources of figures answer here: hpckit's samples, accounting, jobstats, Prometheus."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hpckit.doctor import Check, bad, good, unknown
from hpckit.errors import CommandError, OutsideError
from hpckit.group_report.allocations import ask_allocations
from hpckit.paths import is_folder
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.runs import DamagedRun, list_runs
from hpckit.sites import GENERIC, Site
from hpckit.sites.prometheus import Prometheus
from hpckit.sources.client import Client
from hpckit.sources.schemes import CGROUP_PROBE, GPU_SCHEMES
from hpckit.sources.survey import Kind, survey_series
from hpckit.stats.js1 import decode
from hpckit.stats.samples.records import has_samples
from hpckit.text import counted

_RUNS = 20
_DAYS = 7
_DOCS = "see docs/sources.md"


def samples_checks(root: Path) -> Iterator[Check]:
    """Look for samples in the newest runs of a folder; if it has none, in the user's own."""
    damaged: list[DamagedRun] = []
    runs = list(islice(list_runs(root, damaged), _RUNS)) if is_folder(root) else []
    where = f"in {root}" if runs else "of yours"
    runs = runs or newest_runs(root, _RUNS, damaged)
    if not runs:
        yield unknown("hpckit's samples", f"there is no run in {root}: hpckit submit makes one")
        return
    sampled = [run for run in runs if has_samples(run.dir / "samples")]
    what = f"hpckit's samples: {len(sampled)} of the newest {counted(len(runs), 'run')} {where} "
    what += "has some" if len(sampled) == 1 else "have some"
    if sampled:
        yield good(what)
    else:
        todo = "hpckit stats says of each why; --sample-interval 0 turns the sampler off"
        yield bad(what, todo, counts=False)


def accounting_checks(user: str, now: float) -> Iterator[Check]:
    """Ask accounting for the user's last jobs, and look for jobstats' records of them."""
    try:
        attempts = ask_allocations(now - _DAYS * 86400, now, users=(user,))
    except CommandError as error:
        yield bad("accounting (sacct) does not answer", str(error), counts=False)
        return
    jobs = {row.job_id for row in attempts}
    if not jobs:
        yield good(f"accounting (sacct) answers: no job of yours in {_DAYS} days")
        yield unknown("jobstats' records (JS1)", "they stand beside jobs in accounting")
        return
    yield good(f"accounting (sacct) answers: {len(jobs)} of your jobs in {_DAYS} days")
    kept = {row.job_id for row in attempts if decode(row.comment).record is not None}
    if kept:
        yield good(f"jobstats' records (JS1) of {len(kept)} of them")
    else:
        why = "none of these jobs has one: sites that run Princeton's jobstats keep them in "
        yield unknown("jobstats' records (JS1)", f"{why}AdminComment")


def prometheus_checks(site: Site, now: float) -> Iterator[Check]:
    """Ask the site's Prometheus what it has."""
    settings = site.prometheus
    if settings is None:
        where = f"into {site.path}"
        if site.name == GENERIC:
            where = "into a site file of your own, which hpckit init makes"
        todo = f"site {site.name!r} names none: ask the cluster's support whether there is one, "
        yield unknown("Prometheus", f"{todo}and write 'prometheus:' {where} ({_DOCS})")
        return
    client = Client(settings=settings)
    where = f"Prometheus {settings.url}"
    try:
        yield good(f"{where} answers (version {client.version()})")
    except OutsideError as error:
        if client.trouble:
            yield bad(f"{where}: {error}", f"correct 'prometheus:' in {site.path}, {_DOCS}")
            return
        # Not each server that speaks as Prometheus does says its version.
    yield from _in_clear(settings)
    try:
        gpus, cgroups = survey_series(client, now)
    except OutsideError as error:
        yield bad(f"{where}: {error}", f"correct 'prometheus:' in {site.path}, {_DOCS}")
        return
    for kind in gpus:
        yield from _gpu_checks(kind)
    if not gpus:
        names = ", ".join(scheme.probe for scheme in GPU_SCHEMES)
        own = f" with {dict(settings.match)}" if settings.match else ""
        todo = f"hpckit looks for {names}{own}: correct 'match' or 'scheme', {_DOCS}"
        yield bad(f"{where} has no series of GPUs now that hpckit knows", todo)
    if cgroups:
        yield good(f"{cgroups.says}: {_often(cgroups, 'nodes')}")
    else:
        why = f"there is no {CGROUP_PROBE}: Slurm's accounting tells them"
        yield unknown("cores and memory by Prometheus", why)


def _in_clear(settings: Prometheus) -> Iterator[Check]:
    if settings.url.startswith("http:") and (settings.token_env or settings.token_file):
        yield bad(
            "the token is sent in clear, because the address begins with http:",
            "use https:, if the server has it",
            counts=False,
        )


def _gpu_checks(kind: Kind) -> Iterator[Check]:
    yield good(f"{kind.says}: {_often(kind, 'GPUs')}")
    if kind.with_job is None:
        why = "these series name no job: hpckit takes nodes that a job had whole, and GPUs whose "
        yield unknown("which GPUs are a job's", f"{why}UUIDs its samples name")
    elif not kind.with_job:
        why = f"no GPU has one now: if jobs run on GPUs, set 'job_label' ({_DOCS})"
        yield unknown(f"whether the label {kind.label!r} names the job", why)


def _often(kind: Kind, what: str) -> str:
    every = f", read every {kind.every_s:.0f} s" if kind.every_s else ""
    jobs = f", {kind.with_job} of them with a job now ({kind.label})" if kind.with_job else ""
    return f"{kind.series} {what}{jobs}{every}"
