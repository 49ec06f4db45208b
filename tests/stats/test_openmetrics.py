"""`hpckit stats --openmetrics`, `--textfile`, `--dashboard`: what other programs read of jobs."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.stats.dashboard import PANELS, dashboard
from hpckit.stats.openmetrics import metric_name, openmetrics
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse, Summary
from tests.conftest import Answer, needs
from tests.report.made import make_run, write_samples

needs("prometheus_client")
Cli = Callable[..., Answer]
DASHBOARD = Path(__file__).parents[2] / "templates" / "grafana" / "hpckit.json"
HOSTILE = 'a"b\\c\nd}, x="1" \x1b[31m'


def families(text: str) -> dict[str, Any]:
    """Read a text by OpenMetrics' own parser, by that of the older format, and by promtool."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    from prometheus_client.parser import (
        text_string_to_metric_families as older,
    )

    found = {row.name: row for row in text_string_to_metric_families(text)}
    again = {row.name: row for row in older(text)}
    assert {name: row.samples for name, row in again.items()} == {
        name: row.samples for name, row in found.items()
    }
    if tool := shutil.which("promtool"):
        # What node_exporter reads by the same library; it only finds fault with names and units.
        done = subprocess.run(
            [tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert "error while linting: " not in done.stderr + done.stdout, done.stderr
    return found


def value(found: dict[str, Any], name: str, **labels: str) -> float:
    [sample] = [
        one
        for one in found[name].samples
        if all(one.labels.get(key) == label for key, label in labels.items())
    ]
    return float(sample.value)


def every_figure(kind: type, **more: object) -> object:
    """A row in which each number is known."""
    names = [field.name for field in fields(kind) if field.name not in ("host", *more)]
    hints = {field.name: str(field.type) for field in fields(kind)}
    numbers = {name: 7 for name in names if re.search(r"int|float", hints[name])}
    return kind(**numbers, **more)


FULL = JobUse(
    job_id="123_4",
    user="me",
    account="lab",
    cluster="tiger",
    name=HOSTILE,
    state="COMPLETED",
    elapsed_s=3600.5,
    gpus=1,
    nodes=1,
    summary=every_figure(Summary),
    per_node=(every_figure(NodeUse, host="n1"),),
    per_gpu=(every_figure(GpuUse, host="n1", index=0, uuid="GPU-1", lost=True),),
)


def test_each_figure_of_each_room_has_a_metric_with_its_unit_and_help() -> None:
    found = families(openmetrics([FULL]))
    for room, kind in (("job", Summary), ("node", NodeUse), ("gpu", GpuUse)):
        for field in fields(kind):
            if re.search(r"int|float", str(field.type)) and field.name not in (
                *("index", "lost_at", "back_at"),
            ):
                family = found[metric_name(room, field.name)]
                assert (family.type, len(family.samples)) == ("gauge", 1), field.name
                assert family.documentation.endswith("."), field.name
                assert len(family.documentation.split()) > 2, field.name  # not its name again
    assert found["hpckit_job_gpu_utilization_percent"].unit == "percent"
    assert found["hpckit_gpu_idle_tail_seconds"].unit == "seconds"
    assert found["hpckit_gpu_temperature_peak_celsius"].unit == "celsius"
    assert found["hpckit_job_energy_joules"].unit == "joules"
    assert (
        "a kernel ran, mean over GPUs and time"
        in found["hpckit_job_gpu_utilization_percent"].documentation
    )


def test_labels_are_escaped_and_say_whose_it_is() -> None:
    found = families(openmetrics([FULL]))
    [info] = found["hpckit_job_info"].samples
    assert info.value == 1
    assert info.labels["name"] == 'a"b\\c\\nd}, x="1" \\x1b[31m'  # spelt out, and then escaped
    assert (info.labels["job_id"], info.labels["state"]) == ("123_4", "COMPLETED")
    assert "site" not in info.labels
    [gpu] = found["hpckit_gpu_utilization_percent"].samples
    own = {"job_id": "123_4", "cluster": "tiger", "user": "me", "account": "lab"}
    assert gpu.labels == own | {"host": "n1", "gpu": "0", "uuid": "GPU-1"}


def test_what_is_not_known_is_left_out_and_never_0() -> None:
    found = families(openmetrics([JobUse(job_id="1")]))
    assert set(found) == {"hpckit_job_info", "hpckit_job_running"}
    nothing = replace(FULL.summary, gpu_utilization_percent=float("nan"))
    text = openmetrics([replace(FULL, summary=nothing)])
    assert "hpckit_job_gpu_utilization_percent" not in families(text)


def test_numbers_are_those_of_json(here: Path, cli: Cli) -> None:
    for name, job in (("one", "local-one111"), ("two", "local-two222")):
        folder = make_run(here / "runs", name, job_id=job)
        write_samples(folder / "samples", [[80.0] * 361, [20.0] * 361])
    answer = cli("stats", "local-one111", "local-two222", "--openmetrics")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.endswith("\n# EOF\n")
    found = families(answer.out)
    jobs = json.loads(cli("stats", "local-one111", "local-two222", "--json").out)["jobs"]
    for job in jobs:
        for name, figure in job["summary"].items():
            if figure is not None:
                told = value(found, metric_name("job", name), job_id=job["job_id"])
                assert told == pytest.approx(figure), name
        for gpu in job["per_gpu"]:
            told = value(
                found,
                "hpckit_gpu_utilization_percent",
                job_id=job["job_id"],
                gpu=str(gpu["index"]),
            )
            assert told == gpu["utilization_percent"]


def test_a_textfile_is_whole_or_not_there(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_samples(make_run(here / "runs") / "samples", [[80.0] * 361])
    path = here / "hpckit.prom"
    answer = cli("stats", "latest", "--textfile", str(path))
    assert (answer.status, answer.out, answer.err) == (0, "", "")
    text = path.read_text()
    assert text == cli("stats", "latest", "--openmetrics").out
    assert path.stat().st_mode & 0o777 == 0o644 & ~os.umask(os.umask(0o022))
    wrong = cli("stats", "latest", "--textfile", "hpckit.txt")
    assert (wrong.status, wrong.out) == (2, "")
    assert "node_exporter reads only files whose names end with .prom" in wrong.err

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    failed = cli("stats", "latest", "--textfile", str(path))
    assert failed.status == 3
    assert "hpckit.prom' cannot be written: No space left on device" in failed.err
    assert path.read_text() == text
    assert [entry.name for entry in here.iterdir() if entry.name.startswith(".hpckit")] == []


def test_the_dashboard_asks_only_for_metrics_there_are(cli: Cli) -> None:
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        DASHBOARD.write_text(dashboard())
    assert cli("stats", "--dashboard").out == dashboard() == DASHBOARD.read_text()
    found = json.loads(dashboard())
    expressions = [target["expr"] for panel in found["panels"] for target in panel["targets"]]
    assert len(expressions) == len(PANELS) + 1
    there = families(openmetrics([FULL]))
    for expression in expressions:
        name, brace, labels = expression.partition("{")
        assert name in there
        assert brace
        [sample] = there[name].samples
        assert set(re.findall(r"(\w+)=~", labels)) <= set(sample.labels)
    legends = " ".join(row.legend for row in PANELS)
    assert set(re.findall(r"{{(\w+)}}", legends)) == {"job_id", "host", "gpu"}
    queries = [row["query"] for row in found["templating"]["list"][1:]]
    assert all("hpckit_job_info" in query for query in queries)
    places = [tuple(panel["gridPos"].values())[:2] for panel in found["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in found["panels"]}) == len(places)
