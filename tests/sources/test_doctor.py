"""`hpckit doctor stats`: which sources answer."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.js1 import encode
from tests.report.made import START, make_run, write_samples
from tests.sources.conftest import Site

Cli = Callable[..., Answer]
Accounts = Callable[..., Path]


@pytest.fixture(autouse=True)
def then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask while the recorded jobs ran."""
    monkeypatch.setattr(time, "time", lambda: START + 1800.0)


def lines(answer: Answer, level: str) -> list[str]:
    return [
        row.removeprefix(level).strip() for row in answer.out.splitlines() if row.startswith(level)
    ]


def test_all_of_them_answer(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    write_samples(make_run(here / "runs") / "samples", [[50.0] * 10])
    make_run(here / "runs", "other")
    record = {"nodes": {"n1": {"cpus": 16, "total_time": 9}}, "total_time": 60, "gpus": 0}
    accounts(
        {"job_id": "77", "AdminComment": encode(record), "State": "NODE_FAIL"},  # an attempt of it
        {"job_id": "77", "AdminComment": encode(record)},
        {"job_id": "78", "AdminComment": "JS1:Short"},
    )
    site(prometheus)
    answer = cli("doctor", "stats", "--runs", "runs")
    assert answer.status == 0
    assert lines(answer, "ok") == [
        f"hpckit's samples: 1 of the newest 2 runs in {here / 'runs'} has some",
        "accounting (sacct) answers: 2 of your jobs in 7 days",
        "jobstats' records (JS1) of 1 of them",
        f"Prometheus {prometheus} answers (version 2.42.0+ds)",
        "jobstats' nvidia_gpu_*: 12 GPUs, 10 of them with a job now (jobid), read every 15 s",
        "DCGM's DCGM_FI_*: 2 GPUs, 2 of them with a job now (hpc_job), read every 15 s",
        "nvidia_gpu_exporter's nvidia_smi_*: 2 GPUs, read every 15 s",
        "cgroup_*: 5 nodes, 5 of them with a job now (jobid), read every 15 s",
    ]
    assert lines(answer, "bad") == []
    [smi] = lines(answer, "?")
    assert smi.startswith(
        "cannot be checked here: which GPUs are a job's: these series name no job"
    )
    rows = cli("doctor", "stats", "--json").out
    assert '"what": "jobstats\' records (JS1) of 1 of them"' in rows


def test_none_of_them(here: Path, cli: Cli) -> None:
    answer = cli("doctor", "stats")
    assert answer.status == 0
    assert lines(answer, "ok") == []
    said = answer.out
    assert "hpckit's samples: there is no run in" in said
    assert "bad  accounting (sacct) does not answer" in said
    assert "cannot be checked here: Prometheus: site 'generic' names none" in said
    assert "write 'prometheus:' into a site file of your own, which hpckit init makes" in said


def test_runs_elsewhere_are_looked_at_where_this_folder_has_none(here: Path, cli: Cli) -> None:
    make_run(here / "study" / "runs")
    assert cli("jobs", "--rebuild", "--runs", "study/runs").status == 0
    said = cli("doctor", "stats").out
    assert "hpckit's samples: 0 of the newest 1 run of yours have some" in said


def test_samples_that_are_off_and_a_server_that_is_down(
    here: Path, cli: Cli, site: Site, accounts: Accounts
) -> None:
    make_run(here / "runs")
    accounts()
    site("http://127.0.0.1:1", "token_env: LAB_TOKEN")
    answer = cli("doctor", "stats", "--runs", "runs")
    assert answer.status == 1  # the site names a server that does not answer
    none, down = lines(answer, "bad")
    assert none.startswith("hpckit's samples: 0 of the newest 1 run in ")
    assert "the variable LAB_TOKEN has no value" in down
    assert f"correct 'prometheus:' in {here.parent}/home/.config/hpckit/templates" in down


def test_a_server_with_nothing_of_gpus(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    accounts()
    site(prometheus, "match: {cluster: other}")
    answer = cli("doctor", "stats")
    assert answer.status == 1
    [nothing] = lines(answer, "bad")
    assert (
        "has no series of GPUs now that hpckit knows: hpckit looks for nvidia_gpu_memory_used_bytes"
        in nothing
    )
    assert "with {'cluster': 'other'}: correct 'match' or 'scheme'" in nothing


def test_a_label_that_is_not_there(
    here: Path, cli: Cli, site: Site, accounts: Accounts, prometheus: str
) -> None:
    accounts()
    site(prometheus, "scheme: dcgm", "job_label: slurm_job")
    said = cli("doctor", "stats").out
    assert "ok   DCGM's DCGM_FI_*: 2 GPUs, read every 15 s" in said
    assert "whether the label 'slurm_job' names the job: no GPU has one now" in said
