"""PromQL of our own making: what is asked about one attempt of a job. Pure.

A question has a term for each series' name, and a label in its answer says which term it was.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpckit.sites.prometheus import Prometheus
from hpckit.sources.schemes import (
    CGROUP,
    CGROUP_JOB,
    CGROUP_PROBE,
    GPU_SCHEMES,
    NAME,
    OWNER,
    Reading,
    Scheme,
    scheme_called,
)
from hpckit.sources.series import Grid
from hpckit.stats.summary.attempts import Span

# jobstats, of the time when the job's id was a series of its own.
OWNED = "owned"
LAST = "last"
USUAL_S = 30.0  # jobstats' own time between scrapes
# Before Prometheus 3 both ends of a window are in it.
_LESS_S = 0.001


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """What is asked a site's server about one attempt of a job.

    Attributes:
        job_ids: what the site's exporters may call the job.
    """

    settings: Prometheus
    job_ids: tuple[str, ...]
    span: Span

    def counts(self) -> str:
        """Ask how many values each kind of names has, a series for each GPU or node.

        And when those of nodes' cores and memory were read last: the series named LAST.
        """
        took = f"[{math.ceil(self.span.wall_s)}s"
        terms = []
        for word, series in self._probes():
            terms.append(named(f"count_over_time({series}{took}])", word))
            if word == CGROUP_PROBE:
                terms.append(named(f"timestamp({series})", LAST))
        if self.settings.scheme in (None, GPU_SCHEMES[0].name):
            spread = f"count_over_time(({self._owner()}){took}:{USUAL_S:.0f}s])"
            terms.append(named(spread, OWNED))
        return " or ".join(terms)

    def _probes(self) -> Iterator[tuple[str, str]]:
        for scheme in GPU_SCHEMES:
            if self.settings.scheme in (None, scheme.name):
                selector = self._selector(scheme)
                if selector is not None:
                    yield scheme.name, scheme.probe + selector
        for selector in _cgroup_selectors(self.settings, self.job_ids):
            yield CGROUP_PROBE, CGROUP_PROBE + selector

    def gpus(self, word: str, grid: Grid) -> str:
        """Ask for all readings of GPUs, by the names of a scheme, or OWNED."""
        scheme = scheme_of(word)
        terms = []
        for name, over in names_of(scheme.readings):
            if word == OWNED:
                series = f"({name}{matcher(self.settings)} and ({self._owner()}))"
                window = _window(grid, inner=True)
            else:
                series, window = f"{name}{self._selector(scheme)}", _window(grid)
            terms.append(named(f"{over}_over_time({series}{window})", name))
        return " or ".join(terms)

    def cgroups(self, grid: Grid) -> str:
        """Ask for cores and memory of the job's cgroups."""
        return " or ".join(
            named(f"{over}_over_time({name}{selector}{_window(grid)})", name)
            for name, over in names_of(CGROUP)
            for selector in _cgroup_selectors(self.settings, self.job_ids)
        )

    def _selector(self, scheme: Scheme) -> str | None:
        """Return the selector of the job's GPUs; None where nothing could tell them."""
        if scheme.job:
            label = self.settings.job_label or scheme.job
            return matcher(self.settings, _of_job(label, self.job_ids))
        if not self.span.hosts:
            return None
        label = self.settings.host_label or "instance"
        return matcher(self.settings, _of_hosts(label, self.span.hosts))

    def _owner(self) -> str:
        whole = [job_id for job_id in self.job_ids if job_id.isdecimal()]
        return f"{OWNER}{matcher(self.settings)} == {whole[0] if whole else -1}"


def scheme_of(word: str) -> Scheme:
    """Return whose names a word of `counts` means."""
    return GPU_SCHEMES[0] if word == OWNED else scheme_called(word)


def _window(grid: Grid, *, inner: bool = False) -> str:
    """Return the time since the moment before; `inner` also how finely it is looked at."""
    length = f"{round((grid.step_s - _LESS_S) * 1000)}ms"
    return f"[{length}:{max(round(grid.step_s * 500), 1)}ms]" if inner else f"[{length}]"


def matcher(settings: Prometheus, *more: str) -> str:
    """Return what stands in a selector's braces: the site's own labels, and more."""
    own = [f"{name}={_quoted(value)}" for name, value in settings.match.items()]
    return "{" + ",".join([*own, *more]) + "}"


def _of_job(label: str, job_ids: Sequence[str]) -> str:
    """Return the matcher of a job's series by a label; ids are digits, `_` and `+`."""
    return f"{label}=~{_quoted('|'.join(map(re.escape, job_ids)))}"


def _of_hosts(label: str, hosts: Sequence[str]) -> str:
    """Return the matcher of nodes' series, whose label may go on with a domain and a port."""
    names = "|".join(re.escape(host.partition(".")[0]) for host in hosts)
    return f"{label}=~{_quoted(f'({names})([.:].*)?')}"


def _cgroup_selectors(settings: Prometheus, job_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the selectors of a job's cgroup: by labels, and by the cgroup's own path."""
    label = settings.job_label or CGROUP_JOB
    paths = "|".join(re.escape(f"job_{job_id}") for job_id in job_ids)
    return (
        matcher(settings, _of_job(label, job_ids), 'step=""', 'task=""'),
        matcher(settings, f'{label}=""', f"cgroup=~{_quoted(f'.*/({paths})')}"),
    )


def named(expression: str, name: str) -> str:
    """Return an expression whose series say by a label which question they answer."""
    return f'label_replace({expression}, "{NAME}", "{name}", "", "")'


def names_of(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Yield each series' name once, and the function that makes one value of several."""
    seen: dict[str, str] = {}
    for reading in readings:
        for name in reading.names:
            if name not in seen:
                seen[name] = reading.over
                yield name, reading.over


def _quoted(text: str) -> str:
    """Write a text as PromQL does: in double quotes, as in Go."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
