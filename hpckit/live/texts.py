"""The texts of a screen: cells, the line at the top, what is said of one job, a whole frame. Pure.

Every text is one line without control characters, whoever wrote the name in it.
"""

import time
from collections.abc import Sequence

from hpckit.frozen import frozen
from hpckit.live.model import JobNow, Line, counts
from hpckit.slurm.free import FreePart
from hpckit.slurm.states import JobState, is_waiting
from hpckit.text import BLOCKS, cut, in_line, padded, state_colour
from hpckit.text import cells as columns_of

HEADS = ("JOBID", "NAME", "STATE", "TIME", "GPU", "PROGRESS, OR WHY IT WAITS")
_PLAIN_BLOCKS = "._-=+*%#"
# Letters of each column but the last, which has the rest and at least so many: on a screen of 100
# columns, of a usual one, and of a small one.
_WIDTHS, _USUAL, _SMALL = (12, 16, 13, 10, 14), (10, 12, 10, 9, 10), (10, 7, 9, 8, 6)
_LEAST = 15
_GPU = HEADS.index("GPU")
# Of a name in a sentence.
_NAME = 24
# Slurm's own codes, where several states stand in a column.
_CODES = {
    JobState.PENDING: "PD",
    JobState.RUNNING: "R",
    JobState.COMPLETED: "CD",
    JobState.FAILED: "F",
    JobState.CANCELLED: "CA",
    JobState.TIMEOUT: "TO",
    JobState.COMPLETING: "CG",
    JobState.OUT_OF_MEMORY: "OOM",
    JobState.NODE_FAIL: "NF",
    JobState.PREEMPTED: "PR",
    JobState.SUSPENDED: "S",
}


@frozen(kw_only=True)
class Cell:
    """A text and its colour: red, green, yellow, dim, or none."""

    text: str
    colour: str = ""


def widths(columns: int) -> tuple[int, ...]:
    """Return the letters of each column on a screen of so many; one space parts them."""
    fitting = (row for row in (_USUAL, _SMALL) if columns - sum(row) - len(row) >= _LEAST)
    first = _WIDTHS if columns >= 100 else next(fitting, _SMALL)
    return (*first, max(columns - sum(first) - len(first), _LEAST))


def cells(line: Line, sizes: Sequence[int] = _WIDTHS, *, unicode: bool = True) -> tuple[Cell, ...]:
    """Return the cells of a line, in the order of HEADS, of any length.

    How busy its GPUs are fits into what `sizes`, the columns' letters, have for it.
    """
    job = line.first
    return (
        Cell(text=in_line(str(job.whole) if line.is_array else job.job_id)),
        Cell(text=in_line(job.name)),
        _state(line),
        Cell(text=_time(line)),
        Cell(text=_busy(line, sizes[_GPU] - 5, unicode=unicode), colour="green"),
        Cell(text=in_line(_what(line)), colour="" if job.state is JobState.RUNNING else "dim"),
    )


def _state(line: Line) -> Cell:
    colour = state_colour(" ".join(job.state for job in line.jobs)) or ""
    if not line.is_array:
        return Cell(text=str(line.first.state), colour=colour)
    found = counts(line.jobs)
    text = " ".join(f"{count} {_CODES.get(state, str(state))}" for state, count in found)
    return Cell(text=text, colour=colour)


def _time(line: Line) -> str:
    """Return how long it runs or ran, or when a waiting one is expected to start."""
    spent = [job.elapsed_s for job in line.jobs if job.elapsed_s and not is_waiting(job.state)]
    if spent:
        return short_time(max(spent))
    expected = [job.expected_start for job in line.jobs if job.expected_start]
    return f">{clock(min(expected))}" if expected else ""


def short_time(seconds: float) -> str:
    """Return a duration as Slurm writes it: `4:07`, `1:02:03`, `2-03:04`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def clock(moment: float) -> str:
    """Return a moment of today as its time, another as its day."""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%m-%d", then)


def sparkline(values: Sequence[float | None], *, unicode: bool = True) -> str:
    """Return percents as one letter each, the newest last; a blank where nothing is known."""
    blocks = BLOCKS if unicode else _PLAIN_BLOCKS
    return "".join(
        " " if value is None else blocks[min(int(max(value, 0) * len(blocks) / 100.01), 7)]
        for value in values
    )


def _busy(line: Line, sparks: int, *, unicode: bool) -> str:
    rows = [job.busy for job in line.jobs if job.busy]
    if not rows:
        return ""
    if len(rows) > 1:  # of an array: each task's newest
        known = [row[-1] for row in rows if row[-1] is not None]
        return f"{sum(known) / len(known):3.0f}% mean"[: sparks + 5] if known else ""
    last = rows[0][-1]
    percent = "  ?" if last is None else f"{last:3.0f}%"
    return f"{percent} {sparkline(rows[0][-sparks:], unicode=unicode)}"


def _what(line: Line) -> str:
    """Return how far it is, why it waits, or how it ended."""
    if line.is_array:
        ended = sum(job.over for job in line.jobs)
        reasons = dict.fromkeys(job.reason for job in line.jobs if job.reason)
        waits = f"; {', '.join(reasons)}" if reasons else ""
        return f"{ended}/{len(line.jobs)} tasks ended{waits}"
    job = line.first
    said = []
    if job.restarts:
        said.append(f"restarted {job.restarts}x")
    if job.progress:
        said.append(job.progress.text(over=job.over))
    if is_waiting(job.state) and job.reason:
        said.append(job.reason)
    elif job.over and job.exit_code:
        said.append(f"exit status {job.exit_code}")
    if job.why and not (is_waiting(job.state) and job.reason):
        said.append(job.why)
    return ", ".join(said)


def top_line(jobs: Sequence[JobNow], said: str) -> str:
    """Return the line at the top: how many are in which state, and what is known of Slurm."""
    found = ", ".join(f"{count} {state}" for state, count in counts(jobs)) or "no jobs"
    return in_line(f"{found} | {said}")


def about(line: Line) -> list[str]:
    """Return what is said of the chosen line: two lines or three, or five with odd times."""
    job = line.first
    if line.is_array:
        states = ", ".join(f"{count} {state}" for state, count in counts(line.jobs))
        head = f"array {job.whole} {short_name(job)}: {states}"
        return [in_line(row) for row in (head, "Enter shows its tasks one by one")]
    head = f"{job.job_id} {short_name(job)} {job.state}"
    if job.hosts:
        head += f" on {', '.join(job.hosts)}"
    if is_waiting(job.state) and job.expected_start:
        head += f", expected start {clock(job.expected_start)}"
    why = job.why or (job.progress.text(over=job.over) if job.progress else "")
    odd = job.progress.odd_times if job.progress else None
    said = odd.sentences("timed", newest=True) if odd else ()
    rows = (head, why, *said, job.folder)
    return [in_line(row) for row in rows]


def short_name(job: JobNow) -> str:
    """Return a job's name, of a long one the beginning: what follows it is to be seen."""
    return cut(in_line(job.name), _NAME)


def free_lines(parts: Sequence[FreePart]) -> list[str]:
    """Return free GPUs by partition and type, for the side of a screen."""
    rows = [row for row in parts if row.may_use is not False]
    said = []
    for row in rows:
        name = f"{row.partition}{'*' if row.default else ''}"
        if row.gpus:
            free = "?" if row.gpus_free is None else str(row.gpus_free)
            most = f", {row.largest.gpus} on a node" if row.largest else ""
            said.append(in_line(f"{name} {row.gpu or 'gpu'} {free}/{row.gpus}{most}"))
        else:
            free = "?" if row.cpus_free is None else str(row.cpus_free)
            said.append(in_line(f"{name} {free} CPUs"))
    return said


def frame(
    found: Sequence[Line],
    jobs: Sequence[JobNow],
    said: str,
    free: Sequence[str],
    columns: int,
    *,
    unicode: bool = True,
) -> str:
    """Return a whole frame as plain text; no line is longer than `columns`."""
    sizes, mark = widths(columns), "…" if unicode else "~"
    table = [
        HEADS,
        *([cell.text for cell in cells(line, sizes, unicode=unicode)] for line in found),
    ]
    rows = [
        line
        for row in table
        for line in _lines(
            [padded(cut(text, size, mark), size) for text, size in zip(row, sizes, strict=True)],
            columns,
        )
    ]
    side = [f"free now: {'; '.join(free)}"] if free else []
    head = [cut(text, columns, mark) for text in (top_line(jobs, said), *side)]
    return "\n".join([*head, "", *rows])


def _lines(cells: Sequence[str], columns: int) -> list[str]:
    """Return a row; on a screen too narrow for its columns those that are left follow below."""
    lines = [cells[0]]
    for cell in cells[1:]:
        longer = f"{lines[-1]} {cell}"
        if columns_of(longer.rstrip()) <= columns:
            lines[-1] = longer
        else:
            lines.append(f"  {cell}")
    return [line.rstrip() for line in lines if line.strip()]
