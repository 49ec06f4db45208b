"""`hpckit report` against accounting itself, and against scripts of what GPUs did."""

import os
import re
import secrets
import shutil
import time
from collections import defaultdict
from pathlib import Path

import pytest

from hpckit.group_report.allocations import Allocation, ask_allocations
from hpckit.group_report.cache import SETTLED_S, allocations
from hpckit.group_report.ledgers import Asked
from hpckit.render.writers import format_hours
from tests.report.groups import moment
from tests.slurm.conftest import accounted
from tests.slurm.playing import NODES, Show, Theatre, gpu, theatre

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
__all__ = ["theatre"]
GPUS = {host: [gpu(host, at, [(0, 20 + 40 * at)]) for at in range(4)] for host in NODES}
COLUMNS = "JobName,Account,State,ElapsedRaw,AllocTRES,JobID"


def gpu_seconds(theatre: Theatre, names: set[str]) -> dict[str, int]:
    """What sacct says that jobs of these names held, by account."""
    ask = ("sacct", "-X", "-n", "-P", "-D", "-a", "-o", COLUMNS, f"--name={','.join(names)}")
    found: dict[str, int] = defaultdict(int)
    for line in theatre.desk.slurm.run(*ask).stdout.splitlines():
        _, account, _, elapsed, tres, _ = line.split("|")
        held = dict(part.split("=") for part in tres.split(",") if part)
        found[account] += int(elapsed) * int(held.get("gres/gpu", 0))
    return found


def test_it_equals_accounting_and_what_the_gpus_did(theatre: Theatre) -> None:
    desk, mark = theatre.desk, secrets.token_hex(4)  # the box may have seen this test before
    measured = f"measured-{mark}"
    # Two GPUs, at 20 and 60 %: their mean is 40 %.
    show: Show = theatre.submit(measured, GPUS, shape=("--nodes", "1", "--gpus", "2"), work=("8",))
    arrays = {}
    for account, end in (("lab", "true"), ("other", "exit 3")):
        words = ("sbatch", "--parsable", "-A", account, "-J", f"{account}-{mark}", "-n1")
        words += ("--gpus=1", "--array=0-29", "-o", "/dev/null", f"--chdir={desk.work}")
        arrays[account] = desk.slurm.run(*words, "--wrap", f"sleep 1; {end}").stdout.strip()
    desk.submitted.extend(arrays.values())
    for job_id in arrays.values():
        accounted(desk.slurm, job_id, rows=30)
    assert show.over() == "COMPLETED"
    used = show.ask()["summary"]["gpu_utilization_percent"]
    assert used == pytest.approx(40, rel=0.01)

    lab, other = f"lab-{mark}", f"other-{mark}"
    names = {measured, lab, other}
    report = ("report", "--all", "--since", "1h", "--json", "--by")
    said = desk.call(*report, "name").json
    groups = {row["name"]: row for row in said["groups"] if row["name"] in names}
    assert {name: row["jobs"] for name, row in groups.items()} == {
        measured: 1, lab: 30, other: 30,
    }  # fmt: skip
    known = gpu_seconds(theatre, names)
    held = {name: round(row["gpu_hours"] * 3600) for name, row in groups.items()}
    assert held[measured] + held[lab] == known["lab"]
    assert held[other] == known["other"]
    assert groups[other]["failed_jobs"] == 30
    assert round(groups[other]["gpu_hours_failed"] * 3600) == known["other"]
    mine = groups[measured]
    assert mine["gpu_hours_measured"] == mine["gpu_hours"]
    assert mine["utilization_percent"] == pytest.approx(40, rel=0.01)
    assert mine["gpu_hours_used"] == pytest.approx(mine["gpu_hours"] * 0.4, rel=0.01)
    accounts = {row["name"]: row for row in desk.call(*report, "account").json["groups"]}
    assert accounts["other"]["jobs"] >= 30
    workloads = {row["name"] for row in desk.call(*report, "template").json["groups"]}
    assert "base" in workloads
    by_name = ("report", "--all", "--since", "1h", "--by", "name", "--template", "mail")
    mail = [line.split() for line in desk.call(*by_name).out.splitlines()]
    assert [measured, "1", format_hours(mine["gpu_hours"]), "40", "%"] in mail


def test_suspended_time_is_not_held(theatre: Theatre) -> None:
    desk, name = theatre.desk, f"away-{secrets.token_hex(4)}"
    words = ("sbatch", "--parsable", "-A", "lab", "-J", name, "-n1", "--gpus=2", "-o", "/dev/null")
    job = desk.slurm.run(*words, f"--chdir={desk.work}", "--wrap", "sleep 600").stdout.strip()
    desk.submitted.append(job)
    accounted(desk.slurm, job, moment="Start")

    def held() -> float:
        said = desk.call("report", "--all", "--since", "1h", "--json", "--by", "name").json
        return next(row["gpu_hours"] for row in said["groups"] if row["name"] == name) * 3600

    desk.slurm.run("scontrol", "suspend", job)
    time.sleep(8)
    # Slurm's moments are whole seconds, and two questions are not asked at once.
    assert held() == pytest.approx(gpu_seconds(theatre, {name})["lab"], abs=4)
    desk.slurm.run("scontrol", "resume", job)
    time.sleep(2)
    desk.slurm.run("scancel", job)
    accounted(desk.slurm, job)
    assert round(held()) == gpu_seconds(theatre, {name})["lab"]


_COUNTS = """#!/bin/bash
printf '%s\\n' "$*" >> {log}
exec {sacct} "$@"
"""


def test_a_second_report_asks_for_what_is_new(
    theatre: Theatre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, log, wrapper = theatre.desk, tmp_path / "log", tmp_path / "bin" / "sacct"
    wrapper.parent.mkdir()
    wrapper.write_text(_COUNTS.format(log=log, sacct=shutil.which("sacct")))
    wrapper.chmod(0o755)
    for name, value in desk.slurm.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ("sbatch", "--parsable", "-A", "other", "-n1", "-o", "/dev/null")
    words += (f"--chdir={desk.work}",)
    long = desk.slurm.run(*words, "--wrap", "sleep 600").stdout.strip()
    done = desk.slurm.run(*words, "--array=0-3", "--wrap", "sleep 1").stdout.strip()
    desk.submitted.extend((long, done))
    accounted(desk.slurm, done, rows=4)
    accounted(desk.slurm, long, moment="Start")

    def told() -> tuple[list[Allocation], list[str]]:
        """What is known as if a day had gone by, and how sacct was asked."""
        log.unlink(missing_ok=True)
        now = time.time()
        asked = Asked(since=now - 86400, until=now, accounts=("other",))
        rows, notes = allocations(asked, "box", now + SETTLED_S)
        assert notes == []
        assert {row for row in rows if row.end} <= set(
            ask_allocations(asked.since, now, accounts=asked.accounts)
        )
        calls = log.read_text().splitlines()[:-1]  # the last one is this function's own
        return rows, calls

    first, calls = told()
    assert len(calls) == 1
    desk.slurm.run("scancel", long)
    accounted(desk.slurm, long)
    again, calls = told()
    assert len(calls) == 2
    window = next(line for line in calls if "--jobs=" not in line)
    asked_from = re.search(r"--starttime=(\S+)", window)
    assert asked_from
    assert moment(asked_from[1]) > time.time() - 7200
    ended = {row.job_id: row.end for row in again}
    assert ended[long]
    assert {row.job_id for row in first} <= ended.keys()


def test_a_user_whom_slurm_does_not_know_is_a_wrong_word(theatre: Theatre) -> None:
    refused = theatre.desk.call("report", "--user", "nobody-of-that-name", expect=2)
    assert "--user 'nobody-of-that-name': this machine knows no such user." in refused.err


def test_an_account_whom_slurm_does_not_know_is_a_wrong_word(theatre: Theatre) -> None:
    refused = theatre.desk.call("report", "--account", "labb", expect=2)
    assert "--account 'labb': Slurm's accounting has no such account. Did you mean 'lab'?" in (
        refused.err
    )


def test_a_user_without_jobs_has_none(theatre: Theatre) -> None:
    said = theatre.desk.call("report", "--user", "daemon", "--json").json
    assert (said["who"], said["total"]["jobs"], said["groups"]) == ("daemon", 0, [])
    assert said["notes"][0].startswith("no job of daemon is in this time")
