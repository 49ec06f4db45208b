"""A real Prometheus with recorded series of three exporters: the same figures as of samples."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpckit
from tests.conftest import Answer, add_program, document
from tests.report.made import START, make_run, write_samples
from tests.sources.conftest import LATER, Site
from tests.sources.series import CORES_USED, GPUS, LIMIT, MEMORY, SECONDS
from tests.stats.stub.script import uuid

Cli = Callable[..., Answer]
Accounts = Callable[..., Path]
# Of these hpckit's own samples say more, or something else.
_OWN = {"samples"}
LAB = {"name": "lab"}


def own_samples(here: Path) -> None:
    """Write hpckit's samples of the same hour, of a run that is here."""
    folder = make_run(here / "runs", job_id="local-own", plan={"total_gpus": 2})
    used = [
        [gpu.mean("util", max(at - 10, 0), max(at, 1)) for at in range(0, SECONDS + 1, 10)]
        for gpu in GPUS
    ]
    write_samples(folder / "samples", used, cores_used=CORES_USED, memory=MEMORY, limit=LIMIT)


def notes(found: dict[str, Any]) -> list[str]:
    return [note["text"] for note in found["notes"]]


@pytest.mark.parametrize(
    ("job", "host", "without"),
    [
        ("77", "n1", {"energy_joules"}),  # the jobstats exporter has no counter of energy
        ("78", "n2", {"energy_joules"}),
        ("79", "n3", set()),
        ("80", "n4", {"sm_active_percent", "tensor_percent", "dram_percent"}),
    ],
    ids=["jobstats", "jobstats-owner", "dcgm", "nvidia-smi"],
)
def test_the_same_summary_as_of_samples(
    here: Path,
    cli: Cli,
    site: Site,
    accounts: Accounts,
    prometheus: str,
    job: str,
    host: str,
    without: set[str],
) -> None:
    own_samples(here)
    own = document(cli, "local-own")
    accounts({"job_id": job, "NodeList": host})
    site(prometheus)
    found = document(cli, job)
    asked = {name for name, value in own["summary"].items() if value is not None}
    names = asked - without - _OWN - {"io_read_bytes", "io_write_bytes", "oom_kills"}
    wanted = {name: own["summary"][name] for name in names if own["summary"][name]}
    assert len(wanted) >= 15
    assert {name: found["summary"][name] for name in wanted} == {
        name: pytest.approx(value, rel=0.01) for name, value in wanted.items()
    }
    # And as the scripts say, whatever reads them.
    exact = sum(gpu.mean("util", 0, SECONDS) for gpu in GPUS) / len(GPUS)
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(exact, rel=0.01)
    assert {name: found["summary"][name] for name in without} == dict.fromkeys(without)
    assert found["origins"]["summary.gpu_utilization_percent"] == "Prometheus"
    assert found["origins"]["per_gpu"] == "Prometheus"
    assert [gpu["uuid"] for gpu in found["per_gpu"]] == [uuid(0), uuid(1)]
    assert [gpu["index"] for gpu in found["per_gpu"]] == [0, 1]
    assert {(gpu["host"], gpu["name"]) for gpu in found["per_gpu"]} == {(host, "NVIDIA H200")}


def test_the_page_says_the_origin_and_what_it_is_worth(
    cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    accounts({"job_id": "77"})
    site(prometheus)
    answer = cli("stats", "77")
    assert (answer.status, answer.err) == (0, "")
    said = " ".join(answer.out.split())
    assert "2 GPUs (NVIDIA H200)" in said
    assert "From Prometheus (single readings: 100 % of the job, 100 % of its GPUs' time)" in said
    assert "single readings: their mean utilization has an error of" in said
    assert "n1 1    68%    0%   43%   34%   438" in answer.out
    assert "(idle-tail)" in answer.out
    assert cli("stats", "77", "--fail-under", "50").status == 0
    assert cli("stats", "77", "--fail-under", "70").status == 1


def test_holes_vanished_gpus_and_resets(
    cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    accounts({"job_id": "81", "NodeList": "n5"})
    site(prometheus)
    found = document(cli, "81")
    first, second = found["per_gpu"]
    assert first["covered_percent"] == pytest.approx(87.5, abs=1)  # 30 of 240 scrapes failed
    assert second["covered_percent"] == pytest.approx(25, abs=1)  # it went after 60
    assert second["utilization_percent"] == pytest.approx(70, rel=0.01)
    # Over a reset and a hole: all that the counters grew by, but from the last scrape to the reset.
    assert first["energy_joules"] == pytest.approx(
        GPUS[0].mean("power", 0, SECONDS) * SECONDS / 1000, rel=0.015
    )
    assert found["summary"]["cpu_s"] == pytest.approx(CORES_USED * SECONDS, rel=0.01)
    # Half-known is unknown, and too little for a gate.
    assert (second["energy_joules"], second["idle_hours"]) == (None, None)
    assert found["summary"]["energy_joules"] is None
    assert found["summary"]["gpu_coverage_percent"] == pytest.approx(56.25, abs=1)
    assert cli("stats", "81", "--fail-under", "1").status == 1
    [gone] = [note for note in found["notes"] if "no readings of this GPU" in note["text"]]
    assert (gone["host"], gone["gpu"]) == ("n5", uuid(1))
    assert gone["text"].endswith("after 15 min.")


def test_attempts_of_a_requeued_job(
    cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    again = {"Start": str(LATER), "End": str(LATER + 1800), "ElapsedRaw": "1800"}
    accounts(
        {"job_id": "82", "NodeList": "n6", "State": "REQUEUED"},
        {"job_id": "82", "NodeList": "n7", "Submit": str(START + 3600), **again},
    )
    site(prometheus)
    found = document(cli, "82")
    assert [(one["restart"], one["hosts"], one["elapsed_s"]) for one in found["attempts"]] == [
        (0, ["n6"], 3600),
        (1, ["n7"], 1800),
    ]
    exact = [
        sum(gpu.mean("util", 0, seconds) for gpu in GPUS) / len(GPUS) for seconds in (3600, 1800)
    ]
    for one, value in zip(found["attempts"], exact, strict=True):
        assert one["gpu_utilization_percent"] == pytest.approx(value, rel=0.01)
    both = (exact[0] * 3600 + exact[1] * 1800) / 5400
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(both, rel=0.01)
    assert found["summary"]["gpu_hours"] == pytest.approx(3)
    # Nobody scraped its cores: not measured, and not 0.
    assert found["summary"]["cpu_efficiency_percent"] is None


def test_a_node_that_is_not_scraped_leaves_the_whole_unknown(
    cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    cells = {"NodeList": "n[8,88]", "NNodes": "2", "AllocTRES": "cpu=32,gres/gpu=4,node=2"}
    accounts({"job_id": "83", **cells})
    site(prometheus)
    found = document(cli, "83")
    assert [gpu["host"] for gpu in found["per_gpu"]] == ["n8", "n8"]
    assert found["per_gpu"][1]["utilization_percent"] == pytest.approx(67.5, rel=0.01)
    assert found["summary"]["gpu_utilization_percent"] is None
    assert found["summary"]["gpu_hours"] == 4
    assert any("has 2 of the job's 4 GPUs" in text for text in notes(found))


def test_scrapes_a_minute_apart(cli: Cli, site: Site, accounts: Accounts, prometheus: str) -> None:
    accounts({"job_id": "84", "NodeList": "n9"})
    site(prometheus)
    found = document(cli, "84")
    exact = sum(gpu.mean("util", 0, SECONDS) for gpu in GPUS) / len(GPUS)
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(exact, rel=0.01)
    assert found["summary"]["gpu_coverage_percent"] == pytest.approx(100)


def test_a_job_that_runs_has_what_was_read_so_far(
    cli: Cli, site: Site, accounts: Accounts, prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: START + 1800.0)
    running = {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "1800"}
    accounts({"job_id": "77", **running})
    site(prometheus)
    found = document(cli, "77")
    assert found["running"] is True
    exact = sum(gpu.mean("util", 0, 1800) for gpu in GPUS) / len(GPUS)
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(exact, rel=0.01)
    assert found["attempts"][0]["end"] is None


def test_nobody_is_asked_about_what_samples_tell(
    here: Path, cli: Cli, site: Site, accounts: Accounts
) -> None:
    folder = make_run(
        here / "runs", job_id="77", executor="slurm", plan={"total_gpus": 1}, site=LAB
    )
    write_samples(folder / "samples", [[50.0] * 361])
    accounts({"job_id": "77", "AllocTRES": "cpu=16,gres/gpu=1,node=1"})
    site("http://127.0.0.1:1")  # nothing listens there: a question would leave a note
    found = document(cli, "77")
    assert found["sources"][0] == "samples"
    assert not any("Prometheus" in text for text in notes(found))


def test_samples_without_gpus_and_a_server_that_has_them(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    folder = make_run(
        here / "runs", job_id="77", executor="slurm", plan={"total_gpus": 2}, site=LAB
    )
    write_samples(folder / "samples", [[None] * 361] * 2, cores_used=6.0)
    accounts({"job_id": "77"})
    site(prometheus)
    found = document(cli, "77")
    assert found["origins"]["summary.cpu_efficiency_percent"] == "samples"
    assert found["summary"]["cpu_efficiency_percent"] == pytest.approx(6 / 16 * 100, rel=0.01)
    assert found["origins"]["summary.gpu_utilization_percent"] == "Prometheus"
    assert found["origins"]["per_gpu"] == "Prometheus"
    assert found["sources"][:2] == ["samples", "Prometheus"]


def test_nodes_shared_with_other_jobs_without_a_label(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    cells = {"NodeList": "n4", "AllocTRES": "cpu=16,gres/gpu=1,node=1"}
    accounts({"job_id": "80", **cells})
    site(prometheus, "scheme: nvidia-smi")
    found = document(cli, "80")
    assert found["per_gpu"] == []
    assert found["summary"]["gpu_utilization_percent"] is None
    assert any("does not say which of this node's GPUs" in text for text in notes(found))
    # Slurm tells while it knows the job.
    details = (
        "   JOB_GRES=gpu:1\n     Nodes=n4 CPU_IDs=0 Mem=1 GRES=gpu:h200:1(IDX:0)\n   MinCPUs\n"
    )
    add_program(here.parent / "bin" / "scontrol", f"#!/bin/sh\nprintf '{details}'\n")
    assert [gpu["uuid"] for gpu in document(cli, "80")["per_gpu"]] == [uuid(0)]
    # hpckit's sampler knew the GPU, though it could read nothing else of it.
    folder = make_run(
        here / "runs", job_id="80", executor="slurm", plan={"total_gpus": 1}, site=LAB
    )
    write_samples(folder / "samples", [[None] * 361], host="n4", uuids=(uuid(1),))
    found = document(cli, "80")
    assert [gpu["uuid"] for gpu in found["per_gpu"]] == [uuid(1)]
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(67.5, rel=0.01)


def test_what_the_site_says_narrows_the_question(
    cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    accounts({"job_id": "77"})
    for more in ("scheme: dcgm", "match: {cluster: other}", "job_label: slurm_job"):
        site(prometheus, more)
        found = document(cli, "77")
        assert found["summary"]["gpu_utilization_percent"] is None, more
    site(prometheus, "match: {name: NVIDIA H200}", "host_label: instance", "scheme: jobstats")
    assert document(cli, "77")["summary"]["gpu_utilization_percent"] is not None


def test_hostile_labels_are_text(cli: Cli, site: Site, accounts: Accounts, prometheus: str) -> None:
    accounts({"job_id": "85", "NodeList": "n10"})
    site(prometheus)
    answer = cli("stats", "85")
    assert answer.status == 0
    assert "\x1b" not in answer.out
    assert "\\x1b]0;gotcha" in answer.out


def test_what_it_said_stays_in_the_summary_when_it_is_silent(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    folder = make_run(
        here / "runs", job_id="77", executor="slurm", plan={"total_gpus": 2}, site=LAB
    )
    accounts({"job_id": "77"})
    site(prometheus)
    assert "Prometheus" in document(cli, "77")["sources"]
    kept = json.loads((folder / "summary.json").read_text())
    assert kept["summary"]["gpu_utilization_percent"] == pytest.approx(58.75, rel=0.01)
    site(prometheus, "match: {cluster: gone}")
    assert document(cli, "77")["summary"]["gpu_utilization_percent"] is None
    assert json.loads((folder / "summary.json").read_text()) == kept


def test_its_readings_are_drawn_over_time(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    accounts({"job_id": "79", "NodeList": "n3"})
    site(prometheus)
    answer = cli("stats", "79", "--html", "job.html", "--svg", "job.svg")
    assert answer.status == 0
    assert "utilization" in (here / "job.svg").read_text()
    page = (here / "job.html").read_text()
    assert "so there are no pictures" not in page
    for title in ("GPU utilization", "GPU memory", "GPU power", "Node: cores in use"):
        assert title in page
    found = hpckit.stats("79")
    assert [len(line.gpu_utilization) for line in found.timelines] == [2]
