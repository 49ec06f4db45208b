"""What is told: an event of a job, as JSON, as text, and as the chats that are known take it.

Names and errors are text of others: no letter of theirs may call everybody in a chat, or make a
line of mail an order to the program that sends it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from hpckit.frozen import frozen
from hpckit.sinks import END, ERROR, FAILURE, IDLE, RESTART, START
from hpckit.text import in_line

SCHEMA = 1
TEST = "test"
COMPLETED, FAILED, TIMEOUT, STOPPED = "COMPLETED", "FAILED", "TIMEOUT", "STOPPED"
_LONGEST, _LONGEST_ERROR = 200, 500
_WORDS = {
    START: "has started",
    RESTART: "has started again",
    ERROR: "has its first error",
    IDLE: "does not use its GPUs",
    TEST: "is a test of hpckit doctor notify",
}
_STATES = {
    COMPLETED: "is COMPLETED",
    FAILED: "has FAILED",
    TIMEOUT: "has reached its time limit",
    STOPPED: "was stopped (cancelled, preempted, or its node is gone)",
}


@frozen(kw_only=True)
class Event:
    """One event. `at` is in epoch seconds; None is unknown.

    Attributes:
        event: one of `hpckit.sinks.EVENTS`, or a test.
        attempt: how often the job was started before.
        state: of an end: COMPLETED, FAILED, TIMEOUT, or STOPPED by a signal.
        detail: why, or which GPUs for how long: one line.
        tasks: of an array: how many there are; `task` is the one that it is about.
    """

    event: str
    at: float
    job_id: str
    name: str
    run_id: str
    attempt: int = 0
    state: str | None = None
    detail: str | None = None
    user: str | None = None
    cluster: str | None = None
    host: str | None = None
    task: int | None = None
    tasks: int | None = None
    elapsed_s: float | None = None

    @property
    def title(self) -> str:
        """One line that says what happened to which job."""
        # Tasks are numbered from 0, and those that were submitted again keep their numbers.
        of = f" of an array of {self.tasks}"
        task = f", task {self.task}{of}" if self.task is not None else ""
        what = _STATES.get(self.state or "") or _WORDS.get(self.event, "has ended")
        return f"Job {self.job_id} ({self.name}{task}) {what}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The title, and what else is known: each begins with letters of ours."""
        more = [("why", self.detail), ("cluster", self.cluster), ("host", self.host)]
        more.append(("attempt", str(self.attempt + 1) if self.attempt else None))
        more.append(("run", self.run_id))
        return (self.title, *(f"{name}: {value}" for name, value in more if value))

    def document(self) -> dict[str, Any]:
        """Return what a webhook with `body: json`, and a command, get."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {"schema": SCHEMA, **known, "text": self.title}


def plain(event: Event) -> Event:
    """Return the event with each text on one line, of bounded length, control letters spelt out."""
    changes: dict[str, Any] = {
        name: in_line(value)[: _LONGEST_ERROR if name == "detail" else _LONGEST]
        for name, value in asdict(event).items()
        if isinstance(value, str)
    }
    return replace(event, **changes)


def body(event: Event, kind: str) -> tuple[bytes, Mapping[str, str]]:
    """Return the body of a webhook, and the headers that go with it."""
    text = "\n".join(event.lines)
    if kind == "ntfy":
        urgent = "high" if event.event in (FAILURE, ERROR, IDLE) else "default"
        return text.encode(), {
            "Content-Type": "text/plain; charset=utf-8",
            "Title": f"hpckit: {event.event}",
            "Priority": urgent,
        }
    made: dict[str, Any] = event.document()
    if kind == "slack":
        made = {"text": _slack(text)}
    elif kind == "discord":
        made = {"content": text[:1900], "allowed_mentions": {"parse": []}}
    elif kind == "teams":
        made = _card(event.lines)
    return json.dumps(made).encode(), {"Content-Type": "application/json"}


def _slack(text: str) -> str:
    """Spell out what Slack, and Mattermost's `@channel`, take for orders.

    docs.slack.dev, "Formatting message text": &, < and > as entities.
    """
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe.replace("@", "@\u200b")


def _card(lines: tuple[str, ...]) -> dict[str, Any]:
    """Return an Adaptive Card, which is all that Teams' workflows take."""
    blocks = [
        {
            "type": "TextBlock",
            "text": line,
            "wrap": True,
            "weight": "Bolder" if at == 0 else "Default",
        }
        for at, line in enumerate(lines)
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


def wanted(event: Event, events: tuple[str, ...]) -> bool:
    """Say whether a sink wants an event: a bad end is an end, too."""
    return event.event in (*events, TEST) or (event.event == FAILURE and END in events)


def variables(event: Event) -> dict[str, str]:
    """Return what a command finds in its environment."""
    names = ("event", "job_id", "name", "run_id", "state", "detail", "attempt")
    values = {name: getattr(event, name) for name in names}
    given = {f"HPCKIT_EVENT_{name.upper()}": str(v) for name, v in values.items() if v is not None}
    return {**given, "HPCKIT_EVENT": event.event, "HPCKIT_EVENT_TEXT": event.title}
