"""What a job's account tells of bad nodes: its ranks' words, and what drivers counted of GPUs."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpckit.errors import OutsideError
from hpckit.report.known_job import KnownJob
from hpckit.run_folders.runs import Run
from hpckit.stats.summary.figures import JobUse, SourceNote

if TYPE_CHECKING:
    from hpckit.bad_nodes.node_memory import NodeEvent

ECC, GONE = "uncorrectable GPU memory errors, counted by the driver", "a GPU was lost"


def counted_events(run: Run, job: JobUse) -> "Iterator[NodeEvent]":
    """Yield events of GPUs with errors in their memory, and of those that their driver lost."""
    when = job.end or time.time()
    for gpu in job.per_gpu:
        name = f"GPU {gpu.index if gpu.index is not None else '?'}, UUID {gpu.uuid}"
        if gpu.ecc_uncorrected:
            yield from _by_counter(run, gpu.host, ECC, f"{gpu.ecc_uncorrected} on {name}", when)
        # NVML_ERROR_GPU_IS_LOST; a GPU may be unreadable for other reasons.
        if gpu.lost and gpu.back_at is None and "gpu is lost" in (gpu.lost_error or "").lower():
            yield from _by_counter(run, gpu.host, GONE, f"{name}: {gpu.lost_error}", when)


def _by_counter(run: Run, host: str, what: str, words: str, when: float) -> "Iterator[NodeEvent]":
    from hpckit.bad_nodes.node_events import by_counter  # noqa: PLC0415  # of few jobs

    return by_counter(run, host, what, words, when)


def node_notes(known: KnownJob) -> Iterator[SourceNote]:
    """Yield what people should know of a job's bad nodes."""
    for text in known.status.node_notes if known.status else ():
        yield SourceNote(code="bad_node", text=text)


def learn_at_end(run: Run, job: JobUse) -> None:
    """Write down what the newest attempt tells of its nodes, inside the job and at its end."""
    if not run.mine:
        return
    from hpckit.bad_nodes.node_events import events_at_end  # noqa: PLC0415  # `stats` needs neither
    from hpckit.bad_nodes.node_memory import remember  # noqa: PLC0415

    found = [*events_at_end(run), *counted_events(run, job)]
    try:
        remember(found, time.time())
    except OutsideError as error:  # hpckit's next look at the job from a login node may do it
        sys.stderr.write(f"Bad nodes: {error}\n")
