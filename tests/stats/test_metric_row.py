"""A metric is one row and its reader: two that hpckit lacks are added in a temporary module.

Nothing else is told of them. Then they are in the samples, in summary.json, in the JSON and its
schema, on the page, in rules of advice, and in the table of the docs.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import Sample, samples_files
from tests.conftest import write_files
from tests.patience import LONG_S
from tests.report import made
from tests.stats.stub.script import Stub, busy

pytestmark = pytest.mark.long

# What a contributor would write into hpckit/stats/metric_table.py.
ROWS = """
from pathlib import Path

from hpckit.stats import metric_table
from hpckit.stats.metric import Metric, Over

metric_table.GPU += (
    Metric(
        name="encoder_percent",
        title="video encoder",
        says="time in which the video encoder was busy",
        source="NVML",
        read=lambda nvml, unit: nvml.call("nvmlDeviceGetEncoderUtilization", unit.board)[0],
        bits=16,
        figure="encoder_percent",
        in_summary="gpu_encoder_percent",
        on_page=True,
        column="enc",
    ),
    Metric(
        name="encoder_now_percent",
        title="video encoder, now and then",
        says="the same, once a minute",
        source="NVML",
        read=lambda nvml, unit: nvml.call("nvmlDeviceGetEncoderUtilization", unit.board)[0],
        figure="encoder_peak_percent",
        over_time=Over.HIGHEST,
    ),
)
metric_table.NODE += (
    Metric(
        name="probe_bytes",
        title="probe",
        says="what a probe of the site counts",
        source="a file",
        read=lambda files: int(Path("probe").read_text()),
        bits=32,
        figure="probe_peak_bytes",
        over_time=Over.HIGHEST,
        in_summary="probe_peak_bytes",
        over_all=Over.HIGHEST,
        on_page=True,
    ),
)
"""
RULE = """
title: The encoder is busy
why: It was.
for_each: gpu
levels: {info: gpu.encoder_percent > 38}
message: "{where}: {percent(gpu.encoder_percent)}."
evidence: "{bytes(node.probe_peak_bytes)} of {bytes(job.summary.probe_peak_bytes)}"
sources: [NVML]
"""
_RUN = (
    "import sys, runpy, rows; del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__')"
)
_DOCS = "import rows; from tests.stats.test_docs import metrics_table; print(*metrics_table())"


@pytest.fixture
def rows(here: Path) -> Mapping[str, str]:
    """The environment of a Python that has the rows."""
    folder = here.parent / "rows"
    write_files(folder, {"rows.py": ROWS, "lab/templates/advice/encoder.yaml": RULE})
    (here / "probe").write_text("4096")
    root = Path(__file__).parents[2]
    return {
        **os.environ,
        "PYTHONPATH": f"{folder}:{root}",
        "HPCKIT_COLLECTIONS": str(folder / "lab"),
        "NO_COLOR": "1",
    }


def run(environ: Mapping[str, str], *argv: str) -> str:
    command = [sys.executable, "-c", *argv]
    return subprocess.run(
        command, env=environ, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def sampled(
    environ: Mapping[str, str], stub: Stub, here: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a run's folder with some samples of a stub's two GPUs."""
    gpus = stub.environment([busy(0), busy(1)])
    words = ["--dir", "samples", "--interval", "0.2", "--root-pid", str(os.getpid())]
    command = [sys.executable, "-c", _RUN, "hpckit.stats.sampler", *words]
    sampler = subprocess.Popen(command, env={**gpus, **environ})
    deadline = time.monotonic() + LONG_S
    while sum(isinstance(row, Sample) for row in records(Path("samples"))) < 4:
        assert sampler.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    sampler.send_signal(signal.SIGTERM)
    assert sampler.wait(LONG_S) == 0
    header, *_, end = records(Path("samples"))
    monkeypatch.setattr(made, "START", header.epoch_us / 1e6)
    folder = made.make_run(here / "runs", seconds=(end.mono_us - header.mono_us) / 1e6)
    Path("samples").rename(folder / "samples")
    return folder


def records(folder: Path) -> list:
    """What this Python, which does not have the rows, reads."""
    return [row for file in samples_files(folder) for row in read_records(file.path, Damage())]


def test_two_rows_are_all_that_two_metrics_need(
    rows: Mapping[str, str], stub: Stub, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sampled(rows, stub, here, monkeypatch)
    (samples,) = (file.path for file in samples_files(folder / "samples"))

    def hpckit(*words: str) -> str:
        return run(rows, _RUN, "hpckit", *words)

    # The samples' file, whoever reads it: the header names the new places.
    printed = run(rows, _RUN, "hpckit.stats.samples.reading", str(samples)).splitlines()
    lines = [json.loads(line) for line in printed]
    last = [line for line in lines if line["record"] == "Sample"][-1]
    assert last["probe_bytes"] == 4096
    assert [gpu["encoder_percent"] for gpu in last["gpus"]] == [37, 39]
    assert (
        next(line for line in lines if line["record"] == "Slow")["gpus"][1]["encoder_now_percent"]
        == 39
    )
    plain = [row for row in records(folder / "samples") if isinstance(row, Sample)][-1]
    assert plain.gpus[1].memory_bytes == last["gpus"][1]["memory_bytes"]
    assert plain.mono_us == last["mono_us"]

    # The JSON, its schema, and what the job's end writes.
    document = json.loads(hpckit("stats", str(folder), "--json"))
    run(rows, _RUN, "hpckit.report", str(folder))
    for found in (document, json.loads((folder / "summary.json").read_text())):
        assert [gpu["encoder_percent"] for gpu in found["per_gpu"]] == [37, 39]
        assert [gpu["encoder_peak_percent"] for gpu in found["per_gpu"]] == [37, 39]
        assert found["summary"]["gpu_encoder_percent"] == pytest.approx(38)
        assert found["per_node"][0]["probe_peak_bytes"] == 4096
        assert found["summary"]["probe_peak_bytes"] == 4096
        # And in rules of advice.
        (advice,) = (item for item in found["advice"] if item["id"] == "encoder")
        assert "39 %" in advice["message"]
        assert advice["evidence"] == "4.0 KiB of 4.0 KiB"
    schema = json.loads(hpckit("stats", "--schema"))
    said = schema["$defs"]["GpuUse"]["properties"]["encoder_percent"]["description"]
    assert said == "time in which the video encoder was busy: mean over time."
    assert schema["$defs"]["Summary"]["properties"]["probe_peak_bytes"]["type"] == [
        "integer",
        "null",
    ]

    # The page, and the docs.
    page = hpckit("stats", str(folder))
    assert any(line.startswith("video encoder  ") and "38 %" in line for line in page.splitlines())
    assert "probe" in page
    (head,) = (line for line in page.splitlines() if " util " in line)
    assert " enc " in head
    assert "| GPU | `encoder_percent` | each sample | time in which the video" in run(rows, _DOCS)
    assert "| node | `probe_bytes` |" in run(rows, _DOCS)
