"""`hpckit report` with a ledger: what others' jobs wrote of themselves, each job once."""

import json
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import hpckit
from tests.conftest import Answer, add_program, write_files
from tests.report.groups import HOUR, NOW, accounts, row, summary, uncounted
from tests.unit.lab import make_lab
from tests.unit.made import make_run

pytestmark = pytest.mark.long
__all__ = ["accounts"]
Cli = Callable[..., Answer]
ME = pwd.getpwuid(os.getuid()).pw_name
OTHER = pwd.getpwuid(1).pw_name
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
_SCONTROL = """#!{python}
print("Configuration data as of now")
print("ClusterName             = test")
"""


@pytest.fixture
def ledger(here: Path) -> Path:
    """A ledger that the site names, on the cluster `test`."""
    add_program(here.parent / "bin" / "scontrol", _SCONTROL.format(python=sys.executable))
    add_program(here.parent / "bin" / "sacctmgr", "#!/bin/sh\n")
    folder = here.parent / "ledger"
    folder.mkdir()
    text = yaml.safe_dump({"description": "ours", "ledger": str(folder)})
    write_files(here, {"templates/sites/ours.yaml": text})
    return folder


def line(user: str, job_id: str, start: float, hours: float, **changes: Any) -> dict[str, Any]:
    usual = {
        "user": user, "job_id": job_id, "cluster": "test", "account": "lab", "state": "COMPLETED",
        "start": start, "end": start + hours * HOUR - 2, "nodes": 1, "gpus": 2, "name": "train",
        "utilization_percent": 50.0, "workload": "ddp", "template": "base", "partition": "gpu",
    }  # fmt: skip
    return usual | changes


def put(ledger: Path, user: str, *rows: dict[str, Any]) -> Path:
    path = ledger / f"{user}-2026-09.n1.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    return path


def report(cli: Cli, *words: str) -> dict[str, Any]:
    answer = cli("report", "--site", "ours", "--since", "2d", "--json", *words)
    assert answer.status == 0, answer.err
    said: dict[str, Any] = json.loads(answer.out)
    return said


def test_a_gpu_has_one_name(accounts, cli: Cli, ledger: Path) -> None:
    """A line has the driver's name where the job asked for no type; accounting has Slurm's."""
    slurms = ("a100", "a100_80gb", "gh200")
    accounts(*(
        row(str(at), NOW - 5 * HOUR, 1, AllocTRES=f"gres/gpu:{one}=2,gres/gpu=2")
        for at, one in enumerate(slurms)
    ))  # fmt: skip
    names = {
        "NVIDIA A100-SXM4-80GB": "a100_80gb", "NVIDIA A100-PCIE-40GB": "a100",
        "NVIDIA GH200 480GB": "gh200", "NVIDIA H200": "NVIDIA H200", "a100": "a100", None: "-",
    }  # fmt: skip
    rows = [
        line(ME, str(90 + at), NOW - 5 * HOUR, 1, **({"gpu_type": one} if one else {}))
        for at, one in enumerate(names)
    ]
    put(ledger, ME, *rows)
    counts = {row["name"]: row["jobs"] for row in report(cli, "--by", "gpu")["groups"]}
    wanted = [*slurms, *names.values()]
    assert counts == {name: wanted.count(name) for name in wanted}


@pytest.mark.parametrize("controller", ["answers", "is down", "is down, no jobs"])
def test_another_clusters_job_of_the_same_number_stays_another(
    accounts, cli: Cli, ledger: Path, here: Path, controller: str
) -> None:
    """Two clusters share a ledger: accounting, too, says which of them this is."""
    start = NOW - 5 * HOUR
    accounts(*([row("1", start, 2, User=ME, Cluster="test")] if "no" not in controller else []))
    put(
        ledger,
        ME,
        line(ME, "1", start, 2, utilization_percent=20.0),
        line(ME, "1", start, 2, cluster="old", gpus=8),
        line(ME, "2", start, 2, cluster="old", gpus=8),
    )
    if controller != "answers":
        add_program(here.parent / "bin" / "scontrol", "#!/bin/sh\nexit 1\n")
    said = report(cli, "--all")
    if "no" in controller:
        assert said["total"]["jobs"] == 2
        (mixed,) = [note for note in said["notes"] if "clusters" in note]
        assert mixed.startswith("attempts in the ledger on clusters old, test count, of each")
        return
    assert (said["total"]["jobs"], said["total"]["gpu_hours"]) == (1, 4)
    assert said["total"]["utilization_percent"] == 20
    assert said["notes"] == []


@pytest.mark.parametrize("kind", ["accounting_storage/none", "(null)"])
def test_a_ledger_is_enough_where_there_is_no_accounting(
    accounts, cli: Cli, ledger: Path, here: Path, kind: str
) -> None:
    off = "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n"
    for name in ("sacct", "sacctmgr"):
        add_program(here.parent / "bin" / name, off)
    config = _SCONTROL.format(python=sys.executable) + f"print('AccountingStorageType = {kind}')\n"
    add_program(here.parent / "bin" / "scontrol", config)
    start = NOW - 5 * HOUR
    put(ledger, OTHER, line(OTHER, "1", start, 2), line(OTHER, "2", start, 1, gpus=1))
    said = report(cli, "--all")
    assert said["total"]["jobs"] == 2
    assert said["total"]["gpu_hours_used"] == pytest.approx(2.5, abs=0.001)
    assert said["notes"][0].startswith("this cluster keeps no accounting, so the report is of the ")
    assert "known from the ledger alone" in said["notes"][1]
    assert report(cli, "--all", "--anonymous")["notes"][0] == said["notes"][0]
    assert report(cli, "--user", OTHER)["total"]["jobs"] == 2
    refused = cli("report", "--all")  # without a ledger there is nothing to tell
    assert refused.status == 3
    assert "This cluster keeps no accounting" in refused.err


def test_a_line_has_the_gpus_that_accounting_does_not_list(
    accounts, cli: Cli, ledger: Path, here: Path
) -> None:
    uncounted(here)
    start = NOW - 5 * HOUR
    accounts(row("1", start, 2, User=ME, AllocTRES="cpu=1,node=1"))
    put(ledger, ME, line(ME, "1", start, 2, gpus=3))
    said = report(cli, "--all")
    assert (said["total"]["gpu_hours"], said["total"]["gpu_hours_used"]) == (6, 3)
    assert said["notes"] == []


def test_a_line_is_in_the_class_of_its_summary(accounts, cli: Cli, ledger: Path) -> None:
    accounts()
    put(ledger, ME, line(ME, "1", NOW - 5 * HOUR, 2, utilization_percent=49.99999999999999))
    hours = report(cli, "--all")["total"]["utilization_hours"]
    assert [value > 0 for value in hours] == [False, False, False, True, False]


def test_capitals_and_numbers_mean_the_same_in_a_ledger(accounts, cli: Cli, ledger: Path) -> None:
    """As for sacct."""
    start = NOW - 5 * HOUR
    accounts(row("1", start, 2, User=ME))
    put(ledger, ME, line(ME, "1", start, 2), line(ME, "2", start, 1))
    for words in (("--account", "LAB"), ("--user", str(os.getuid())), ("--user", ME)):
        said = report(cli, *words)
        assert (said["total"]["jobs"], said["total"]["gpu_hours_measured"]) == (
            2,
            pytest.approx(6, abs=0.01),
        )
        assert said["who"] in ("account LAB", ME)


@as_root
def test_jobs_that_slurm_hides_count_and_all_others_once(
    accounts, cli: Cli, here: Path, ledger: Path
) -> None:
    start = NOW - 20 * HOUR
    accounts(
        row("1", start, 2, User=ME),  # in the user's own summaries too
        row("2", start, 2, User=ME),
        row("3", start, 2, User=ME, State="RUNNING", End="Unknown"),
    )
    run = make_run(here / "runs", job_id="1", submitted_at=start - 61)
    (run.dir / "summary.json").write_text(json.dumps(summary(start, 25)))
    put(ledger, ME, line(ME, "1", start + 5, 2), line(ME, "2", start + 5, 2))
    put(
        ledger,
        OTHER,
        line(OTHER, "4", start, 1, utilization_percent=10.0),
        line(OTHER, "4", start + 2 * HOUR, 1, restart=1, utilization_percent=30.0),
        line(OTHER, "5", start, 1, cluster="another"),
        line(OTHER, "6", start - 90 * HOUR, 1),
        line(OTHER, "2", start, 2),  # that is not theirs
    )
    said = report(cli, "--all", "--by", "user")
    groups = {one["name"]: one for one in said["groups"]}
    mine, theirs = groups[ME], groups[OTHER]
    assert (mine["jobs"], mine["gpu_hours"]) == (3, 4 + 4 + 40)
    assert mine["gpu_hours_measured"] == 8
    assert mine["gpu_hours_used"] == pytest.approx(4 * 0.25 + 4 * 0.5)
    held = 2 * (1 - 2 / HOUR)
    assert (theirs["jobs"], theirs["gpu_hours"]) == (1, pytest.approx(2 * held, abs=1e-5))
    assert theirs["utilization_percent"] == pytest.approx(20)
    assert said["sources"] == {"accounting": 3, "ledger": 2}
    alone = "2 attempts are known from the ledger alone, Slurm shows none of them here: of"
    assert f"{alone} {OTHER} (2)" in said["notes"]
    assert "ledger: 1 line left out: Slurm says that its job is another user's" in said["notes"]
    assert report(cli, "-A", "nobodys")["sources"]["ledger"] == 0


@as_root
def test_a_line_is_of_the_attempt_that_began_nearest(accounts, cli: Cli, ledger: Path) -> None:
    start = NOW - 20 * HOUR
    accounts(
        row("1", start, 2 / HOUR, User=ME),
        row("2", start, 100 / HOUR, User=ME, State="REQUEUED"),
        row("2", start + 130, 1, User=ME),
    )
    # A node's clock is 3 s ahead of Slurm's; and the rank of the first wrote nothing but its end.
    late = (line(ME, "1", start + 5, 2 / HOUR), line(ME, "2", start + 133, 1, restart=1))
    put(ledger, ME, *late)
    said = report(cli)
    assert said["sources"] == {"accounting": 3, "ledger": 0}
    of_second = 2 / HOUR * 2 + 2
    assert said["total"]["gpu_hours_measured"] == pytest.approx(of_second, abs=1e-4)


@as_root
def test_one_attempt_of_a_ledger_is_said_to_be_one(accounts, cli: Cli, ledger: Path) -> None:
    accounts()
    put(ledger, OTHER, line(OTHER, "4", NOW - 20 * HOUR, 1))
    alone = "1 attempt is known from the ledger alone, Slurm does not show it here: of"
    assert f"{alone} {OTHER} (1)" in report(cli, "--all")["notes"]


@as_root
def test_a_start_that_accounting_lost_is_that_of_the_line(accounts, cli: Cli, ledger: Path) -> None:
    start = NOW - 20 * HOUR
    lost = {"User": OTHER, "Start": "Unknown"}
    ended = str(start + HOUR)
    accounts(
        row("1", start, 1, **lost),
        row("2", start, 1, State="FAILED", End="Unknown", **{**lost, "Submit": str(start - 60)}),
        row("3", start, 0, **{**lost, "End": ended}),  # another's line tells nothing of it
    )
    lines = [line(OTHER, job_id, start + 5, 1) for job_id in ("1", "2")]
    put(ledger, OTHER, *lines)
    put(ledger, ME, line(ME, "3", start, 1))
    said = report(cli, "--all", "--by", "user")
    (theirs,) = said["groups"]
    assert (theirs["jobs"], theirs["failed_jobs"]) == (2, 1)
    held = 2 * (HOUR - 5 + HOUR - 2) / HOUR  # until Slurm's end, and the line's
    assert theirs["gpu_hours"] == pytest.approx(held, abs=1e-4)
    assert theirs["gpu_hours_measured"] == theirs["gpu_hours"]
    assert said["sources"] == {"accounting": 2, "ledger": 0}
    assert any(f"(3 of {OTHER})" in note for note in said["notes"])


@as_root
def test_what_colleagues_run_is_known_from_the_ledger(accounts, cli: Cli, ledger: Path) -> None:
    start = NOW - 20 * HOUR
    accounts(row("4", start, 2, User=OTHER))
    put(ledger, OTHER, line(OTHER, "4", start, 2, advice="Ask for one GPU.", energy_joules=7.2e6))
    said = report(cli, "--all", "--by", "workload")
    assert [(one["name"], one["gpu_hours"]) for one in said["groups"]] == [("ddp", 4)]
    assert said["total"]["energy_kwh"] == 2
    assert said["wasteful"][0]["advice"] == "Ask for one GPU."
    assert report(cli, "--all", "--by", "template")["groups"][0]["name"] == "base"


@as_root
def test_names_are_hidden_in_what_is_said_of_ledgers(accounts, cli: Cli, ledger: Path) -> None:
    start = NOW - 20 * HOUR
    accounts()
    put(ledger, OTHER, line(OTHER, "4444", start, 2), {"user": "mallory"})
    for shape in ((), ("--json",), ("--csv",), ("--markdown",)):
        said = cli("report", "--site", "ours", "--since", "2d", "--all", "--hide-names", *shape)
        assert said.status == 0
        assert not any(word in said.out for word in (OTHER, "mallory", "4444", "train"))
        if shape != ("--csv",):
            assert "of the ledger 1 line is left out" in said.out


def test_a_ledger_that_cannot_be_read_is_said_and_the_report_goes_on(
    accounts, cli: Cli, ledger: Path
) -> None:
    accounts(row("1", NOW - 5 * HOUR, 2, User=ME))
    ledger.rmdir()
    said = report(cli, "--all")
    assert said["total"]["jobs"] == 1
    assert said["notes"] == [f"The ledger '{ledger}' cannot be read: No such file or directory"]


def test_a_collection_may_name_a_ledger(
    accounts, cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, folder = NOW - 20 * HOUR, here.parent / "labs"
    folder.mkdir()
    put(folder, ME, line(ME, "4", start, 2, cluster=None))
    lab = make_lab(here.parent / "lab", **{"hpckit.yaml": "name: lab\nledger: $LABS/labs\n"})
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(lab))
    monkeypatch.setenv("LABS", str(here.parent))
    accounts()
    assert hpckit.report(users=[ME], since="2d").total.jobs == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("templates/sites/ours.yaml", "description: ours\nledger: proj/ledger\n"),
        ("hpckit.yaml", "name: ours\nledger: proj/ledger\n"),
    ],
)
def test_a_relative_ledger_is_one_error(cli: Cli, here: Path, file: str, text: str) -> None:
    write_files(here, {file: text})
    answer = cli("report", "--site", "ours")
    assert answer.status == 2
    assert f"{file}:2: 'ledger' is 'proj/ledger', must be a folder's whole path" in answer.err
