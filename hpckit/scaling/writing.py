"""A study's figures as texts: the page for a terminal, and the sentences of all pages. Pure."""

from collections.abc import Iterator, Sequence

from hpckit.report.terminal import fold, hours
from hpckit.scaling.document import is_certain
from hpckit.scaling.intervals import Estimate
from hpckit.scaling.laws import AMDAHL, Law
from hpckit.scaling.study import Outcome, Scaling, SizeFigures
from hpckit.scaling.timing import PARTS, Source
from hpckit.text import counted, in_line
from hpckit.units import format_seconds

_WIDTH = 96
PART_NAMES = {name: name.removesuffix("_s") for name in PARTS}
TIMED = {
    Source.PROGRAM: "seconds per step, as the program measured them after its first ones",
    Source.LINES: "seconds per step, by the moments of the lines in metrics.jsonl, from the first "
    "line to the last: imports and the first steps are left out, tests and checkpoints are not",
    Source.WALL: "the whole run, from its first rank's start to its last rank's end, without the "
    "wait in the queue: starting the program is in it",
}
_INTERVAL = (
    "± and ranges: 95 % intervals by Student's t over the repeats; of speed-up and efficiency, of "
    "the ratio of the mean times (delta method, Welch's degrees of freedom)"
)


def text(found: Scaling) -> str:
    """Return the study as a page of plain text."""
    return "\n".join(_lines(found))


def _lines(found: Scaling) -> Iterator[str]:
    yield from _folded(title(found))
    if found.source is None:
        yield "No run counts: there are no figures."
    else:
        yield from _folded(f"Timed: {TIMED[found.source]}.")
        yield ""
        heads, rows = size_texts(found)
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        for row in (heads, *rows):
            cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            yield "  ".join(cells).rstrip()
        yield ""
        for line in conclusions(found):
            yield from _folded(line)
    for line in found.notes:
        yield from _folded(f"Note: {in_line(line)}.")


def _folded(line: str) -> list[str]:
    return fold(line, _WIDTH, "", "  ")


def title(found: Scaling) -> str:
    """Return what the study is, in a line."""
    about = found.about
    kind = "strong scaling"
    if about.weak:
        kind = f"weak scaling ({', '.join(about.grow)} grows with the {found.unit})"
    return in_line(
        f"Study {about.study}: {kind} of {about.name}, {counted(about.repeats, 'run')} a size"
    )


def size_texts(found: Scaling) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of the sizes, as texts."""
    parts = [
        name for name in PART_NAMES if any(row.parts.get(name) is not None for row in found.sizes)
    ]
    per = "run" if found.source is Source.WALL else "step"
    full = any(row.full_s for row in found.sizes)
    heads = [found.unit, "runs", f"time/{per}", "speed-up", "efficiency"]
    heads += [PART_NAMES[name] for name in parts]
    heads += ["full time", f"{found.device}-hours"] if full else []
    rows = []
    for row in found.sizes:
        cells = [row.shape.label, f"{row.runs}/{row.of}", _time(row.time_s), _ratio(row.speed_up)]
        cells += [_percents(row.efficiency), *(_share(row, name) for name in parts)]
        if full:
            cells += [
                format_seconds(row.full_s.value) if row.full_s else "-",
                hours(row.device_hours.value) if row.device_hours else "-",
            ]
        rows.append(cells)
    return heads, rows


def seconds(value: float) -> str:
    """Return seconds with three digits, in the unit that suits them."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1 or unit == "µs":
            return f"{_digits(value * factor)} {unit}"
    raise AssertionError


def _digits(value: float) -> str:
    """Return a number with three digits, and no exponent."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _percent(share: float) -> str:
    """Return a share in percent, with two digits or more, and no exponent; 0 is below 0.001 %."""
    percent = 100 * share
    if abs(percent) >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %" if abs(percent) >= 0.001 else "0 %"


def _digits_like(number: str, value: float) -> str:
    """Return a value with as many digits behind the point as a number has."""
    return f"{value:.{len(number.partition('.')[2])}f}"


def _time(found: Estimate | None) -> str:
    if found is None:
        return "-"
    shown = seconds(found.value)
    if found.high is None:
        return shown
    number, unit = shown.split(" ")
    half = found.high / found.value - 1
    return f"{number} ± {_digits_like(number, half * float(number))} {unit}"


def _ratio(found: Estimate | None) -> str:
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return _digits(found.value)
    return f"{_digits(found.value)} ({_digits(found.low)}-{_digits(found.high)})"


def _percents(found: Estimate | None) -> str:
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{100 * found.value:.0f} %"
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f}-{100 * found.high:.0f})"


def _share(row: SizeFigures, name: str) -> str:
    part = row.parts.get(name)
    if part is None or row.time_s is None:
        return "not measured"
    return f"{100 * part / row.time_s.value:.1f} %"


def conclusions(found: Scaling) -> Iterator[str]:
    """Yield the sentences below the table."""
    yield from findings(found)
    yield from remarks(found)


def findings(found: Scaling) -> Iterator[str]:
    """Yield what a study is made for: its law, and the largest size that is worth it."""
    if found.law is not None:
        yield _about_law(found.law, found)
    yield _about_largest(found)


def remarks(found: Scaling) -> Iterator[str]:
    """Yield what is to be known of the figures."""
    if split := _not_measured(found):
        yield split
    if any(row.full_s for row in found.sizes):
        yield _about_full(found)
    if any(row.time_s and row.time_s.low is not None for row in found.sizes):
        yield f"{_INTERVAL}."


def _about_law(law: Law, found: Scaling) -> str:
    part = _percent(law.serial_fraction)
    if law.standard_error is None:
        error = f"{law.sizes} sizes: the fit has no error estimate"
    else:
        error = f"± {_percent(law.standard_error)} standard error, {law.sizes} sizes"
    line = f"{law.name}'s law: {part} of the work is serial ({error})"
    if law.serial_fraction < 0:
        return f"{line}: below 0, so it scales better than the law allows (caches, memory)."
    if law.serial_fraction > 1:
        return f"{line}: above 100 %, so more {found.unit} are slower."
    if law.name == AMDAHL and law.most is not None:
        return f"{line}; at most {_digits(law.most)} times the speed of one {found.device}."
    return f"{line}."


def _about_largest(found: Scaling) -> str:
    limit = f"an efficiency of {100 * found.wanted.efficiency:.0f} %"
    if found.largest is None:
        return f"No size has {limit} or more."
    certain = {True: "", False: " (its interval reaches below that)", None: ""}[is_certain(found)]
    line = f"Largest size measured with {limit} or more: {found.largest.shape.label}{certain}"
    more = None
    if found.law is not None and found.smallest is not None:
        more = found.law.largest(found.wanted.efficiency, found.smallest.count)
    if more is None or found.law is None:
        return f"{line}."
    most = max(int(more + 1e-9), 0)
    unit = found.device if most == 1 else found.unit
    return f"{line}; by {found.law.name}'s law up to {most} {unit}."


def _not_measured(found: Scaling) -> str:
    missing = [
        label
        for name, label in PART_NAMES.items()
        if all(row.parts.get(name) is None for row in found.sizes)
    ]
    return f"Not measured by the program: {', '.join(missing)}." if missing else ""


def _about_full(found: Scaling) -> str:
    """Say how the time of the full training was found."""
    if found.source is Source.WALL:
        return f"Full time: the run as it was. {found.device}-hours: that times the {found.unit}."
    line = f"Full time: {found.steps} steps ({found.steps_from}) x the time per step"
    if found.about.weak:
        line += ", and fewer steps by as much as each has grown"
    return (
        f"{line}; starting, tests and checkpoints come on top. {found.device}-hours: that times "
        f"the {found.unit}."
    )


def outcomes_table(outcomes: Sequence[Outcome], source: Source | None) -> list[list[str]]:
    """Return a row of texts for each run."""
    return [
        [
            row.job_id,
            row.shape.label,
            str(row.repeat),
            row.state,
            seconds(row.timing.seconds[source]) if source and source in row.timing.seconds else "-",
            row.left_out or "counts",
        ]
        for row in outcomes
    ]
