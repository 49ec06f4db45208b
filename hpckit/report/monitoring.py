"""The site's own monitoring, asked about a job where hpckit's samples leave something open."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpckit.errors import ConfigError
from hpckit.report.targets import Target
from hpckit.stats.advice.loading import site_called
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.summarise import Account

if TYPE_CHECKING:
    from hpckit.sources.ask import Told
    from hpckit.sources.client import Client

# What every job has; the first two, those with GPUs.
_GPU_FIGURES = ("gpu_utilization_percent", "gpu_memory_peak_bytes")
_NODE_FIGURES = ("cpu_efficiency_percent", "memory_peak_bytes")


@dataclass(kw_only=True, slots=True)
class Monitoring:
    """The servers that one command asks, each with one patience for all jobs."""

    _clients: "dict[str | None, Client | None]" = field(default_factory=dict)

    def ask(
        self,
        target: Target,
        site: str | None,
        account: Account | None,
        held: Sequence[Span],
        files: Sequence[Columns],
    ) -> "Told | None":
        """Ask about a job of Slurm's; None where nothing is to be asked, or nobody to ask."""
        names = _names(target)
        if not held or not names or target.step or not _wanted(account, held):
            return None
        client = self._client(site)
        if client is None:
            return None
        from hpckit.slurm.gpu_indices import gpu_indices  # noqa: PLC0415  # few sites have one
        from hpckit.sources.ask import Asked, ask_about  # noqa: PLC0415

        uuids = frozenset(gpu.uuid for file in files for gpu in file.header.gpus)
        asked = Asked(
            job_ids=names,
            spans=tuple(held),
            uuids=uuids,
            indices=lambda: gpu_indices(names[0]),
        )
        return ask_about(client, asked)

    def _client(self, name: str | None) -> "Client | None":
        if name not in self._clients:
            try:
                site = site_called(name)
            except ConfigError:  # the advice says it
                site = None
            self._clients[name] = None
            if site and site.prometheus:
                from hpckit.sources.client import Client  # noqa: PLC0415  # see above

                self._clients[name] = Client(settings=site.prometheus)
        return self._clients[name]


def _names(target: Target) -> tuple[str, ...]:
    """Return what exporters may call a job: its own number first, as jobs of an array have one."""
    known = target.known
    if known.sampled or (known.run and not known.run.scheduler.accounting):
        return ()
    last = known.last
    names = (last.raw_id, last.job_id) if last else (target.job_id,)
    return tuple(dict.fromkeys(name for name in names if name and name[:1].isdigit()))


def _wanted(account: Account | None, held: Sequence[Span]) -> bool:
    """Say whether a figure that matters is open, after hpckit's own samples."""
    if account is None:
        return True
    names = _NODE_FIGURES if held[-1].gpus == 0 else (*_GPU_FIGURES, *_NODE_FIGURES)
    return any(getattr(account.summary, name) is None for name in names)
