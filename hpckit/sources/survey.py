"""What a site's Prometheus has at a moment: whose names, how many GPUs, how often they are read."""

from collections.abc import Iterator
from dataclasses import dataclass

from hpckit.sources.client import Client
from hpckit.sources.questions import matcher, named
from hpckit.sources.schemes import CGROUP_JOB, CGROUP_PROBE, GPU_SCHEMES, NAME, OWNER, Scheme

_WINDOW_S = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Series of one kind of names.

    Attributes:
        series: how many there are: GPUs; of cgroups, nodes.
        with_job: how many of them name a job now; None: such names know of no jobs.
        label: the label that names it.
        every_s: how often they are read; None: not twice in ten minutes.
    """

    says: str
    series: int
    with_job: int | None
    label: str | None
    every_s: float | None


def survey_series(client: Client, now: float) -> tuple[list[Kind], Kind | None]:
    """Return what there is of GPUs, by scheme, and of nodes' cgroups.

    Raises:
        OutsideError: why there is no answer, in half a sentence.
    """
    schemes = [row for row in GPU_SCHEMES if client.settings.scheme in (None, row.name)]
    terms = [term for scheme in schemes for term in _scheme_terms(client, scheme)]
    terms += _cgroup_terms(client)
    found = {
        series.labels.get(NAME, ""): value
        for series in client.instant(" or ".join(terms), now)
        for _, value in series.points
    }
    gpus = [kind for scheme in schemes if (kind := _kind(client, scheme, found)) is not None]
    nodes = found.get(CGROUP_PROBE)
    if not nodes:
        return gpus, None
    cgroups = Kind(
        says="cgroup_*",
        series=round(nodes),
        with_job=round(found.get(f"{CGROUP_PROBE} job", 0)),
        label=client.settings.job_label or CGROUP_JOB,
        every_s=_every(found.get(f"{CGROUP_PROBE} reads")),
    )
    return gpus, cgroups


def _kind(client: Client, scheme: Scheme, found: dict[str, float]) -> Kind | None:
    if not found.get(scheme.name):
        return None
    jobs = None
    label = None
    if scheme.job:
        jobs, label = found.get(f"{scheme.name} job", 0.0), client.settings.job_label or scheme.job
        if not jobs and found.get(OWNER):
            jobs, label = found[OWNER], OWNER
    return Kind(
        says=scheme.says,
        series=round(found[scheme.name]),
        with_job=None if jobs is None else round(jobs),
        label=label,
        every_s=_every(found.get(f"{scheme.name} reads")),
    )


def _every(reads: float | None) -> float | None:
    return _WINDOW_S / reads if reads and reads > 1 else None


def _scheme_terms(client: Client, scheme: Scheme) -> Iterator[str]:
    settings = client.settings
    yield from _terms(scheme.name, scheme.probe, matcher(settings))
    if scheme.job:
        label = settings.job_label or scheme.job
        some = matcher(settings, f'{label}!=""')
        yield named(f"count({scheme.probe}{some})", f"{scheme.name} job")
    if scheme is GPU_SCHEMES[0]:
        yield named(f"count({OWNER}{matcher(settings)} > 0)", OWNER)


def _cgroup_terms(client: Client) -> Iterator[str]:
    settings = client.settings
    label = settings.job_label or CGROUP_JOB
    some = matcher(settings, f'{label}!=""', 'step=""', 'task=""')
    by_path = matcher(settings, 'cgroup=~".*/job_.*"')
    nodes = settings.host_label or "instance"
    yield named(f"count(count by ({nodes}) ({CGROUP_PROBE}{matcher(settings)}))", CGROUP_PROBE)
    reads = f"max(count_over_time({CGROUP_PROBE}{matcher(settings)}[{_WINDOW_S}s]))"
    yield named(reads, f"{CGROUP_PROBE} reads")
    jobs = f"count(count by ({nodes}) ({CGROUP_PROBE}{some} or {CGROUP_PROBE}{by_path}))"
    yield named(jobs, f"{CGROUP_PROBE} job")


def _terms(name: str, probe: str, selector: str) -> Iterator[str]:
    yield named(f"count({probe}{selector})", name)
    yield named(f"max(count_over_time({probe}{selector}[{_WINDOW_S}s]))", f"{name} reads")
