"""A Grafana dashboard of what `hpckit stats --openmetrics` says, made of the figures' names. Pure.

`templates/grafana/hpckit.json` is what this makes: a test compares them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpckit.stats.openmetrics import INFO, metric_name

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_PICKED = '{job_id=~"$job",user=~"$user"}'
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One picture over time.

    Attributes:
        room, figure: which figure, and whose: `hpckit.stats.openmetrics.metric_name`.
        unit: Grafana's word.
        legend: Grafana's template of a curve's name.
    """

    title: str
    room: str
    figure: str
    unit: str
    legend: str = "{{job_id}}"


_GPU, _NODE = "{{job_id}} {{host}} GPU {{gpu}}", "{{job_id}} {{host}}"
PANELS = (
    Panel(title="GPU utilization", room="job", figure="gpu_utilization_percent", unit="percent"),
    Panel(title="GPU memory", room="job", figure="gpu_memory_used_percent", unit="percent"),
    Panel(title="SM activity", room="job", figure="sm_active_percent", unit="percent"),
    Panel(title="Power of one GPU", room="job", figure="power_watts_mean", unit="watt"),
    Panel(title="CPU", room="job", figure="cpu_efficiency_percent", unit="percent"),
    Panel(title="CPU memory", room="job", figure="memory_efficiency_percent", unit="percent"),
    Panel(title="GPU-hours", room="job", figure="gpu_hours", unit="h"),
    Panel(title="Idle GPU-hours", room="job", figure="gpu_hours_idle", unit="h"),
    Panel(title="Energy", room="job", figure="energy_joules", unit="joule"),
    Panel(title="Utilization of each GPU", room="gpu", figure="utilization_percent",
          unit="percent", legend=_GPU),
    Panel(title="Memory of each GPU, highest", room="gpu", figure="memory_peak_bytes",
          unit="bytes", legend=_GPU),
    Panel(title="Cores in use on each node", room="node", figure="cores_used",
          unit="short", legend=_NODE),
    Panel(title="Memory of each node, highest", room="node", figure="memory_peak_bytes",
          unit="bytes", legend=_NODE),
    Panel(title="How much of the job was measured", room="job", figure="coverage_percent",
          unit="percent"),
)  # fmt: skip


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    document = {
        "__inputs": [],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
        ],
        "title": "hpckit jobs",
        "uid": "hpckit-jobs",
        "description": "What hpckit stats --textfile says of jobs.",
        "tags": ["hpckit", "slurm"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": [_jobs(), *(_panel(number, panel) for number, panel in enumerate(PANELS))],
    }
    return json.dumps(document, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    for name, label, query in (
        ("user", "User", f"label_values({INFO}, user)"),
        ("job", "Job", f'label_values({INFO}{{user=~"$user"}}, job_id)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _jobs() -> dict[str, Any]:
    return {
        "id": 1,
        "title": "Jobs",
        "type": "table",
        "datasource": _SOURCE,
        "gridPos": {"x": 0, "y": 0, "w": _COLUMNS, "h": _HEIGHT},
        "targets": [_target(INFO + _PICKED) | {"format": "table", "instant": True}],
        "transformations": [
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(
                        ("Time", "Value", "__name__", "instance", "job"), True
                    )
                },
            }
        ],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    across = _COLUMNS // _WIDTH
    row, column = divmod(number, across)
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percent":
        defaults["max"] = 100
    target = _target(metric_name(panel.room, panel.figure) + _PICKED)
    return {
        "id": number + 2,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {
            "x": column * _WIDTH,
            "y": _HEIGHT * (row + 1),
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [target | {"legendFormat": panel.legend}],
    }


def _target(expression: str) -> dict[str, Any]:
    return {"refId": "A", "datasource": _SOURCE, "expr": expression}
