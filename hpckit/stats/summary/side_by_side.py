"""Steps that ran side by side on a node, each with a sampler of its own. Pure.

The counters of a cgroup are the job's, whichever step reads them. Where there is none, each sampler
adds up over the processes of its own step (`Header.summed`).
"""

from collections.abc import Iterator, Sequence

from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.clock import Clock, file_times
from hpckit.stats.summary.coverage import enough, percent_of
from hpckit.stats.summary.over_time import highest, most

File = tuple[Columns, Clock]
Event = tuple[int, str | None, int]  # when, whose, how much from then on


def cores_of(files: Sequence[File]) -> tuple[int | None, bool]:
    """Return how many cores the job may use on a node; whether its CPU time there is known.

    It is not where the steps with samples had too few of the job's cores.
    """
    headers = [columns.header for columns, _ in files]
    given = next((header.job_cores for header in reversed(headers) if header.job_cores), None)
    if given is None:
        return headers[-1].cores, True
    if any(header.summed is None for header in headers):
        return given, True
    seen = _highest_sum(
        event
        for columns, clock in files
        for event in _while_sampled(columns, clock, columns.header.cores or 0)
    )
    return given, enough(percent_of(seen, given))


def memory_peak(files: Sequence[File]) -> int | None:
    """Return the highest memory that was in use on a node: of all steps at one time."""
    if len({columns.header.summed for columns, _ in files}) < 2:
        return most(highest(columns.node.get("memory_bytes")) for columns, _ in files)
    events = [event for columns, clock in files for event in _memory(columns, clock)]
    return _highest_sum(events) if events else None


def _while_sampled(columns: Columns, clock: Clock, value: int) -> Iterator[Event]:
    begin, end, _ = file_times(columns, clock)
    yield begin, columns.header.summed, value
    yield end, columns.header.summed, 0


def _memory(columns: Columns, clock: Clock) -> Iterator[Event]:
    """Yield each reading of a file, and that its processes are gone after its last sample."""
    column = columns.node.get("memory_bytes")
    if column is None:
        return
    for time, value in zip(columns.times, column.values, strict=True):
        if value != column.missing:
            yield time - clock.origin_us, columns.header.summed, value * column.scale
    yield file_times(columns, clock)[1], columns.header.summed, 0


def _highest_sum(events: "Iterator[Event] | Sequence[Event]") -> int:
    """Return the most that all have at one time; each has what was last said of it.

    Where one ends at the moment at which another begins, both count.
    """
    now: dict[str | None, int] = {}
    most_yet = total = 0
    for _, whose, value in sorted(events, key=lambda event: (event[0], event[2] == 0)):
        total += value - now.get(whose, 0)
        now[whose] = value
        most_yet = max(most_yet, total)
    return most_yet
