"""What the site's Prometheus says of one job, as an answer to merge with other sources."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from hpckit.errors import OutsideError
from hpckit.sources.client import Client, Series
from hpckit.sources.questions import LAST, OWNED, USUAL_S, Questions, scheme_of
from hpckit.sources.schemes import CGROUP, CGROUP_PROBE, GPU_SCHEMES, NAME, Scheme
from hpckit.sources.series import (
    Grid,
    Part,
    full_uuid,
    gpu_samples,
    gpus_in,
    host_of,
    index_of,
    node_samples,
    nodes_in,
)
from hpckit.stats.merge import Answer
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.figures import PROMETHEUS, Attempt, SourceNote, Summary
from hpckit.stats.summary.summarise import Account, summarise
from hpckit.stats.summary.timeline import Timeline

# How many values one question may bring: 12 MB of JSON, a second of a server's time.
_MOST_VALUES = 400_000
_MOST_POINTS, _LEAST_POINTS = 10_000, 60  # Prometheus gives 11,000 of a series at most
# Sites scrape every 10 s to some minutes; jobstats every 30 s.
_SHORTEST_S, _LONGEST_S = 1.0, 600.0
# Of an attempt as short as this, scrapes may have missed some GPUs or nodes.
_SHORT_S = 60.0
_CODE, SILENT = "prometheus", "no_prometheus"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked about.

    Attributes:
        job_ids: what the site's exporters may call the job.
        spans: its attempts.
        uuids: the job's GPUs, where something else knows them.
        indices: asks which GPUs of each node were the job's, where nothing else tells.
    """

    job_ids: tuple[str, ...]
    spans: tuple[Span, ...]
    uuids: frozenset[str] = frozenset()
    indices: Callable[[], Mapping[str, frozenset[int]]] = dict


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What there was to learn: nothing but notes, where the site does not know the job.

    `files` are samples, for pictures over time.
    """

    answer: Answer | None = None
    attempts: tuple[Attempt, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    files: tuple[Columns, ...] = ()
    notes: tuple[SourceNote, ...] = ()


def ask_about(client: Client, asked: Asked) -> Told:
    """Ask a site's Prometheus about a job; what goes wrong is a note, and nothing more."""
    notes: list[SourceNote] = []
    try:
        files = [file for span in asked.spans for file in _attempt(client, asked, span, notes)]
    except OutsideError as error:
        text = f"The site's Prometheus does not tell: {error}."
        return Told(notes=(SourceNote(code=SILENT, text=text),))
    if not files:
        if not notes:
            text = "The site's Prometheus has no series of this job (see hpckit doctor stats)."
            notes.append(SourceNote(code=SILENT, text=text))
        return Told(notes=tuple(notes))
    account = summarise(files, asked.spans)
    told = _figures(account, asked, files, notes)
    notes += _readings_notes(account)
    return Told(
        answer=Answer(
            source=PROMETHEUS, summary=told, per_node=account.per_node, per_gpu=account.per_gpu
        ),
        attempts=account.attempts,
        timelines=account.timelines,
        files=tuple(files),
        notes=tuple(dict.fromkeys(notes)),
    )


def _attempt(
    client: Client, asked: Asked, span: Span, notes: list[SourceNote]
) -> Iterator[Columns]:
    """Yield samples of each node in one attempt: of its GPUs, and of its cores and memory.

    They are two exporters, and may be scraped at other times.
    """
    if span.wall_s < _SHORTEST_S:
        return
    questions = Questions(settings=client.settings, job_ids=asked.job_ids, span=span)
    counts, last = _counts(client, questions)
    word = _whose_names(client, counts)
    if word:
        yield from _of_gpus(client, questions, word, counts[word], asked, notes)
    if scrapes := counts.get(CGROUP_PROBE):
        grid = _grid(span, scrapes, len(CGROUP))
        found = _over(client, questions.cgroups(grid), grid)
        nodes = nodes_in(found, grid, span.hosts, client.settings.host_label)
        for host, part in nodes.items():
            # Its counter began with the job: the first value is of less than a step.
            late_s = max(grid.end - last.get(host, grid.end), 0.0) % grid.step_s
            yield node_samples(part, CGROUP, replace(grid, late_s=late_s), span.restart)


def _of_gpus(
    client: Client,
    questions: Questions,
    word: str,
    scrapes: Sequence[float],
    asked: Asked,
    notes: list[SourceNote],
) -> Iterator[Columns]:
    span, scheme = questions.span, scheme_of(word)
    grid = _grid(span, scrapes, len(scheme.readings))
    found = _over(client, questions.gpus(word, grid), grid)
    gpus = gpus_in(scheme, found, grid, span.hosts, client.settings.host_label)
    if scheme.job is None:
        gpus = dict(_own_gpus(gpus, scheme, span, asked, notes))
    notes += _gone(gpus, grid, scheme.probe)
    for host in dict.fromkeys(host for host, _ in gpus):
        yield gpu_samples(host, gpus, scheme, grid, span.restart)


def _counts(
    client: Client, questions: Questions
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return how often each series was read, by whose names it has; and when a node's last was."""
    span = questions.span
    counts: dict[str, list[float]] = {}
    last: dict[str, float] = {}
    for series in client.instant(questions.counts(), span.end):
        word = series.labels.get(NAME, "")
        for _, value in series.points:
            if word == LAST:
                last[host_of(series.labels, span.hosts, client.settings.host_label)] = value
            elif word == OWNED:  # the question itself made many of one
                counts.setdefault(word, []).append(min(value, span.wall_s / USUAL_S))
            else:
                counts.setdefault(word, []).append(value)
    return counts, last


def _whose_names(client: Client, counts: Mapping[str, object]) -> str | None:
    """Return whose names the GPUs have; None if there are none.

    Names with the job's id come first. What one job's were, those of the next will be.
    """
    words = [*(scheme.name for scheme in GPU_SCHEMES if scheme.job), OWNED]
    words += [scheme.name for scheme in GPU_SCHEMES if not scheme.job]
    there = [word for word in words if word in counts]
    if there and client.names not in there:
        client.names = there[0]
    return client.names if there else None


def _grid(span: Span, scrapes: Sequence[float], readings: int) -> Grid:
    """Return the moments to ask for: as far apart as scrapes, or farther, if these are many.

    `scrapes` are how many each series has.
    """
    interval = min(max(span.wall_s / max(*scrapes, 1.0), _SHORTEST_S), _LONGEST_S)
    most = min(_MOST_POINTS, max(_MOST_VALUES // (readings * len(scrapes)), _LEAST_POINTS))
    count = max(min(int(span.wall_s / interval + 0.5), most), 1)
    return Grid(start=span.start, step_s=span.wall_s / count, count=count)


def _over(client: Client, query: str, grid: Grid) -> list[Series]:
    return client.over_time(query, grid.start + grid.step_s, grid.end, grid.step_s)


def _own_gpus(
    gpus: Mapping[tuple[str, str], Part],
    scheme: Scheme,
    span: Span,
    asked: Asked,
    notes: list[SourceNote],
) -> Iterator[tuple[tuple[str, str], Part]]:
    """Yield the GPUs of nodes that are the job's, where no label says so.

    By their UUIDs, if these are known; all of a node of which the job had all; else by what Slurm
    says of a job that it still knows.
    """
    wanted = {full_uuid(uuid).lower() for uuid in asked.uuids}
    nodes = span.nodes or len(span.hosts)
    each = span.gpus // nodes if span.gpus and nodes and span.gpus % nodes == 0 else None
    said: Mapping[str, frozenset[int]] | None = None
    for host in dict.fromkeys(host for host, _ in gpus):
        here = {key: part for key, part in gpus.items() if key[0] == host}
        mine = {key: part for key, part in here.items() if key[1].lower() in wanted}
        if not mine and each == len(here):
            mine = here
        if not mine:
            said = asked.indices() if said is None else said
            own = said.get(host, frozenset())
            mine = {key: part for key, part in here.items() if index_of(part, scheme) in own}
        if not mine and span.gpus != 0:
            text = "The site's Prometheus does not say which of this node's GPUs were the job's."
            notes.append(SourceNote(code=_CODE, text=text, host=host))
        yield from mine.items()


def _gone(gpus: Mapping[tuple[str, str], Part], grid: Grid, probe: str) -> Iterator[SourceNote]:
    """Say which GPUs were no longer read while others were."""
    last = {
        key: max((at for at, value in enumerate(part.values.get(probe, ())) if value is not None),
                 default=-1)
        for key, part in gpus.items()
    }  # fmt: skip
    newest = max(last.values(), default=0)
    for (host, uuid), at in last.items():
        if newest - at > max(3, grid.count // 50):
            minutes = (at + 1) * grid.step_s / 60
            yield SourceNote(
                code=_CODE,
                text=f"The site's Prometheus has no readings of this GPU after {minutes:.0f} min.",
                host=host,
                gpu=uuid,
            )


# Figures of a job that are of all its GPUs, or of all its nodes.
_OF_GPUS = frozenset(
    {row.in_summary for row in GPU if row.in_summary}
    | {row.name for row in fields(Summary) if row.name.startswith("gpu_")}
    | {"power_watts_mean", "energy_joules"}
)
_OF_NODES = frozenset(
    {row.in_summary for row in NODE if row.in_summary}
    | {"cpu_s", "cpu_efficiency_percent", "memory_efficiency_percent"}
    | {"memory_peak_bytes", "memory_limit_bytes", "node_imbalance_percent"}
)
# They say themselves of how much they are.
_ALWAYS = frozenset({"gpu_coverage_percent", "gpu_coverage_lowest_percent", "gpu_hours"})


def _figures(
    account: Account, asked: Asked, files: Sequence[Columns], notes: list[SourceNote]
) -> dict[str, object]:
    """Return the job's figures; of some of its GPUs or nodes only, none is the job's."""
    known = {row.name: getattr(account.summary, row.name) for row in fields(Summary)}
    known["samples"] = None  # these are hpckit's own
    for span in asked.spans:
        if span.wall_s < _SHORT_S:
            continue
        own = [file for file in files if file.restart == span.restart]
        gpus, nodes = sum(len(file.gpus) for file in own), sum(bool(file.node) for file in own)
        for what, names, there, due in (
            ("GPUs", _OF_GPUS, gpus, span.gpus),
            ("nodes", _OF_NODES, nodes, span.nodes),
        ):
            if due and there < due:
                known |= dict.fromkeys(names - _ALWAYS)
                if there:
                    text = f"The site's Prometheus has {there} of the job's {due} {what}"
                    text += ": figures of all of them are unknown."
                    notes.append(SourceNote(code=_CODE, text=text))
    return known


def _readings_notes(account: Account) -> Iterator[SourceNote]:
    """Say what limits the figures; of samples' files there is nothing to say."""
    errors = [gpu.utilization_error_percent for gpu in account.per_gpu]
    known = [error for error in errors if error is not None]
    if known:
        text = (
            "The site's Prometheus has single readings: their mean utilization has an error of "
            f"± {max(known):.2g} % at most."
        )
        yield SourceNote(code="spot", text=text)
