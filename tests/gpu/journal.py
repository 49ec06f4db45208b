"""What checks said so far, a line each: it outlives a process that CUDA takes with it.

The one who supervises (`python -m tests.gpu`) and the pytest it starts share this file.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Verdicts. ABSENT is neither good nor bad.
PASSED, FAILED, ABSENT, CRASHED, RUNNING = "passed", "failed", "not here", "crashed", "running"
# Where pytest finds the journal, and which checks it need not make again.
VARIABLE = "HPCKIT_GPU_JOURNAL"


@dataclass
class Made:
    """One check that was begun.

    Attributes:
        id: pytest's.
        why: of a failure, a crash or an absence; the first line says it all.
        absences: (what, why) of single things that are not on this machine.
    """

    id: str
    title: str
    budget_s: float
    began_s: float = 0.0
    seconds: float = 0.0
    verdict: str = RUNNING
    why: str = ""
    figures: list[dict[str, Any]] = field(default_factory=list)
    absences: list[tuple[str, str]] = field(default_factory=list)


class Journal:
    """A file of events that is only appended to; each line goes to the kernel at once."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def put(self, event: Mapping[str, Any]) -> None:
        """Append an event; without a file it is not kept."""
        if self.path is None:
            return
        line = json.dumps(event, allow_nan=False, default=str) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def events(self) -> list[dict[str, Any]]:
        """Return all events; a torn last line is left out."""
        if self.path is None or not self.path.is_file():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def read_checks(events: Iterable[Mapping[str, Any]]) -> list[Made]:
    """Return the checks that were begun, in order, with what they said."""
    found: dict[str, Made] = {}
    for event in events:
        kind, name = event.get("event"), str(event.get("id", ""))
        if kind == "began":
            found[name] = Made(
                id=name,
                title=event["title"],
                budget_s=event["budget_s"],
                began_s=event["at"],
            )
            continue
        if name not in found:
            continue
        made = found[name]
        if kind == "figure":
            made.figures.append({k: v for k, v in event.items() if k not in ("event", "id")})
        elif kind == "absent":
            made.absences.append((event["what"], event["why"]))
        elif kind == "ended":
            made.verdict, made.why = event["verdict"], event["why"]
            made.seconds = event["seconds"]
    return list(found.values())


def read_head(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was said of the machine, latest word first."""
    head: dict[str, Any] = {}
    for event in events:
        if event.get("event") == "head":
            head |= {k: v for k, v in event.items() if k != "event"}
    return head
