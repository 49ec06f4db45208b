"""Progress of a running script, read from the end of its `metrics.jsonl`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TAIL_BYTES = 32_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a script is. Rates come from the times in the file; None is what it does not say."""

    step: int
    total_steps: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    test_accuracy: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time left at the recent rate."""
        if not self.steps_per_s or self.total_steps is None:
            return None
        return max(self.total_steps - self.step, 0) / self.steps_per_s


def read_progress(run_dir: Path) -> Progress | None:
    """Return the progress of a run; None when nothing has been logged."""
    rows = tail_rows(run_dir / "metrics.jsonl")
    steps = [row for row in rows if isinstance(row.get("step"), int)]
    if not steps:
        return None
    return Progress(
        step=steps[-1]["step"],
        total_steps=_last(rows, "total_steps"),
        epoch=_last(rows, "epoch"),
        epochs=_last(rows, "epochs"),
        loss=_last(rows, "loss"),
        samples_per_s=_last(rows, "samples_per_s"),
        steps_per_s=_rate(steps),
        test_accuracy=_last(rows, "test_accuracy"),
    )


def tail_rows(path: Path) -> list[dict[str, Any]]:
    """Return the last rows of a JSON-lines file; a torn line is left out."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _last(rows: list[dict[str, Any]], key: str) -> Any:  # noqa: ANN401
    return next((row[key] for row in reversed(rows) if row.get(key) is not None), None)


def _rate(steps: list[dict[str, Any]]) -> float | None:
    timed = [row for row in steps if isinstance(row.get("time"), int | float)]
    if len(timed) < 2:
        return None
    seconds = timed[-1]["time"] - timed[0]["time"]
    count = timed[-1]["step"] - timed[0]["step"]
    return count / seconds if seconds > 0 and count > 0 else None
