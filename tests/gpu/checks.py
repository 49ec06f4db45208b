"""How a check of a GPU is declared, what it records, and how it says that it cannot be made here.

    @check("Memory in use, against torch.cuda", budget_s=10, needs=("NVML",))
    def test_memory(report: Recorder, machine: Machine) -> None:
        report.figure("memory in use", seen, unit="MiB", near=told, within=2)

All figures of a check are recorded; then it fails if a limit of one of them is not met. What is not
there is neither passed nor failed: `report.absent` for one thing, `needs` or `report.not_here` for
a whole check.
"""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

# A check's own limit is generous: budgets are for the whole. They are of a machine with 16 cores;
# with few, programs of torch take long to begin.
_FEW_CORES = 8
_LIMIT_FACTOR = 3.0
_LIMIT_MORE_S = 60.0 if len(os.sched_getaffinity(0)) >= _FEW_CORES else 150.0
# What is left of it when a program of a check is ended: the check can still tell what it found.
_TELL_S = 5.0


def limit_s(budget_s: float) -> float:
    """Return the seconds after which a check is ended."""
    return max(budget_s * _LIMIT_FACTOR, budget_s + _LIMIT_MORE_S)


class NotHere(Exception):  # noqa: N818  # no error
    """This machine cannot make the check; the text says why."""


def check(
    title: str, *, budget_s: float, needs: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a check.

    Args:
        title: what the report calls it.
        budget_s: how long it may take; after three times that, or a minute more, it is ended.
        needs: words of `Machine.lacks`; where one is lacking, the check is not made.
    """
    return pytest.mark.gpu(title=title, budget_s=float(budget_s), needs=tuple(needs))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a check, and the limit it has to keep, if it has one.

    Attributes:
        limit: as text, `>= 0.9 of the chip's`; empty where the figure is only told.
        met: None without a limit.
        source: what said it. peer: what it was compared with.
    """

    name: str
    value: float | str | None
    unit: str = ""
    limit: str = ""
    met: bool | None = None
    source: str = ""
    peer: str = ""
    note: str = ""


@dataclass
class Recorder:
    """What one check says. `enforced` is false in a dry run, whose figures mean nothing.

    Attributes:
        until: when the check is ended, by the monotonic clock.
    """

    enforced: bool = True
    until: float = math.inf
    tell: Callable[[Mapping[str, Any]], None] = lambda _: None
    figures: list[Figure] = field(default_factory=list)

    def figure(
        self,
        name: str,
        value: float | None,
        *,
        unit: str = "",
        at_least: float | None = None,
        at_most: float | None = None,
        near: float | None = None,
        within: float | None = None,
        source: str = "",
        peer: str = "",
        note: str = "",
    ) -> bool:
        """Record a figure; return whether it keeps all its limits.

        Args:
            name: what it is.
            value: in `unit`. None and NaN are unknown, which keeps no limit.
            unit: its unit, empty for a ratio.
            at_least: the lowest that is right.
            at_most: the highest that is right.
            near: what `peer` says, in the same unit; with `within`, how far off it may be.
            within: see `near`.
            source: what said it.
            peer: what it is compared with.
            note: what a reader of the report should know.
        """
        known = value is not None and math.isfinite(value)
        words, kept = [], []
        if at_least is not None:
            words.append(f">= {at_least:g}")
            kept.append(known and value is not None and value >= at_least)
        if at_most is not None:
            words.append(f"<= {at_most:g}")
            kept.append(known and value is not None and value <= at_most)
        if near is not None:
            off = 0.0 if within is None else within
            words.append(f"{number(near)} ± {number(off)}")
            kept.append(known and value is not None and abs(value - near) <= off)
        met = all(kept) if kept else None
        return self._put(
            Figure(
                name=name,
                value=float(value) if known and value is not None else None,
                unit=unit,
                limit=", ".join(words),
                met=met,
                source=source,
                peer=peer,
                note=note,
            )
        )

    def fact(self, name: str, value: str, *, good: bool | None = None, note: str = "") -> bool:
        """Record something that is not a number; `good` is whether it is as it should be."""
        limit = "" if good is None else "as expected"
        return self._put(Figure(name=name, value=value, limit=limit, met=good, note=note))

    def absent(self, what: str, why: str) -> None:
        """Record one thing that is not on this machine."""
        self.tell({"event": "absent", "what": what, "why": why})

    def not_here(self, why: str) -> NoReturn:
        """End the check: it cannot be made on this machine."""
        raise NotHere(why)

    def child(
        self,
        argv: Sequence[str],
        *,
        limit_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a process group of its own, which is killed at the limit.

        For whatever may leave CUDA unusable in the process that does it. Its output is text; a
        status of -9 with `limit` in stderr is one that took too long: this limit, or the check's.
        """
        process = subprocess.Popen(
            [os.fspath(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        late = ""
        limit_s = max(min(limit_s, self.until - _TELL_S - time.monotonic()), 0.0)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            late = f"\nended at its limit of {limit_s:.0f} s"
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err + late)

    def misses(self) -> list[str]:
        """Return a line for each figure that does not keep its limit."""
        return [
            f"{row.name}: {shown(row)}, and the limit is {row.limit}"
            + (f" ({row.note})" if row.note else "")
            for row in self.figures
            if row.met is False
        ]

    def _put(self, row: Figure) -> bool:
        if not self.enforced and row.met is not None:
            row = Figure(**{**vars(row), "met": None})
        self.figures.append(row)
        self.tell({"event": "figure", **vars(row)})
        return row.met is not False


def number(value: float) -> str:
    """Write a number as a reader wants it: four digits that count."""
    if not math.isfinite(value):
        return "unknown"
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.3e}" if value else "0"


def shown(row: Figure) -> str:
    """Write a figure's value with its unit."""
    if row.value is None:
        return "unknown"
    text = row.value if isinstance(row.value, str) else number(row.value)
    return f"{text} {row.unit}".strip()
