"""Two users' jobs with a ledger of their group: what each one's report says of both."""

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurm.conftest import Record, accounted, add_site, eventually, processes_of
from tests.slurm.playing import NODES, SCALE, WORK, gpu
from tests.slurm.users import GROUP, Person, people
from tests.slurmbox.fixture import Slurm
from tests.stats.stub.script import Stub, build_library

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
USED = {"hpckit-alice": 40, "hpckit-bob": 80}
_HIDES = '#!/bin/bash\nexec {sacct} "${{@/--allusers/--user={name}}}"\n'
COLUMNS = "User,JobID,Start,End,AllocTRES"


@dataclass(frozen=True)
class Group:
    """Two users whose jobs have ended, and their ledger."""

    alice: Person
    bob: Person
    ledger: Path
    jobs: dict[str, list[Record]]
    began: float

    @property
    def since(self) -> str:
        """When the first was submitted: a Slurm that stays up knows earlier jobs too."""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self.began))

    @property
    def lines(self) -> list[Record]:
        """All lines of the ledger, in the order of the files' names."""
        files = sorted(self.ledger.iterdir())
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def report(self, who: Person, *words: str, hidden: bool = False) -> Record:
        """What a user's report says of both, by user; `hidden`: where Slurm shows own jobs only."""
        env = {}
        if hidden:
            folder = who.home / "bin"
            folder.mkdir(exist_ok=True)
            wrapper = folder / "sacct"
            wrapper.write_text(_HIDES.format(sacct=shutil.which("sacct"), name=who.name))
            wrapper.chmod(0o755)
            env = {"PATH": f"{folder}:{who.env['PATH']}"}
        whose = [word for name in USED for word in ("--user", name)] if not hidden else ["--all"]
        argv = ("report", *whose, "--site", "box", "--since", self.since, "--json", *words)
        return who.call(*argv, env=env).json

    def accounting(self) -> dict[str, dict[str, tuple[int, int, int]]]:
        """Start, end and GPUs of each job, by user, in sacct's words."""
        ids = ",".join(job["job_id"] for jobs in self.jobs.values() for job in jobs)
        ask = ("sacct", "-X", "-n", "-P", "-D", "-a", "-o", COLUMNS, "-j", ids)
        env = {"SLURM_TIME_FORMAT": "%s"}
        found: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
        done = self.alice.slurm.run("env", *(f"{key}={value}" for key, value in env.items()), *ask)
        for line in done.stdout.splitlines():
            user, job_id, start, end, tres = line.split("|")
            held = dict(part.split("=") for part in tres.split(","))
            found[user][job_id] = int(start), int(end), int(held["gres/gpu"])
        return found


@pytest.fixture(scope="module")
def group(slurm: Slurm) -> Iterator[Group]:
    with people(slurm, *USED) as (alice, bob):
        began, base = time.time(), alice.home.parents[1]
        (base / "lib").mkdir()
        library = build_library(base / "lib")
        ledger = base / "ledger"
        ledger.mkdir()
        shutil.chown(ledger, "root", GROUP)
        ledger.chmod(0o3770)
        jobs = {who.name: list(_submit(who, library, ledger)) for who in (alice, bob)}
        for who in (alice, bob):
            for job in jobs[who.name]:
                who.over(job["job_id"])
                gone = lambda folder=job["run_dir"]: processes_of(folder) == []  # noqa: E731
                assert eventually(gone, LONG_S, pause_s=0.3)
        made = Group(alice=alice, bob=bob, ledger=ledger, jobs=jobs, began=began)
        ids = [*alice.submitted, *bob.submitted]
        accounted(slurm, *ids)
        yield made


def _submit(who: Person, library: Path, ledger: Path) -> Iterator[Record]:
    """Submit a job whose GPUs are used, and one that fails."""
    clock = f"{who.python} -c 'import time; print(time.monotonic())'"
    add_site(who, f'ledger: {ledger}\nsetup:\n  - "export NVML_STUB_T0=$({clock})"\n')
    script = who.work / WORK.name
    shutil.copyfile(WORK, script)
    for host in NODES:
        gpus = [gpu(host, at, [(0, USED[who.name])]) for at in range(4)]
        (who.work / f"stub.{host}.txt").write_text(Stub.script(gpus))
    env = {
        "LD_LIBRARY_PATH": str(library.parent),
        "NVML_STUB_SCRIPT": str(who.work / "stub.%h.txt"),
        "NVML_STUB_SCALE": f"{SCALE:g}",
    }
    shape = ("--site", "box", "--nodes", "1", "--sample-interval", "0.2")
    for name, gpus_, work in (("works", "2", "8"), ("fails", "1", "no-number")):
        words = ("ddp", script, "--name", name, *shape, "--gpus", gpus_, "--", work)
        yield who.submit(*words, env=env)


def test_each_report_knows_both_users_jobs_once(group: Group) -> None:
    known = group.accounting()
    for who in (group.alice, group.bob):
        said = group.report(who)
        assert said["sources"]["ledger"] == 0, (said["notes"], group.lines, known)
        assert said["notes"] == []
        rows = {row["name"]: row for row in said["groups"]}
        for name, used in USED.items():
            held = sum((end - start) * gpus for start, end, gpus in known[name].values())
            row = rows[name]
            assert round(row["gpu_hours"] * 3600) == held
            assert (row["jobs"], row["failed_jobs"]) == (2, 1)
            assert row["gpu_hours_measured"] > 0
            measured = group.jobs[name][0]["job_id"]
            start, end, gpus = known[name][measured]
            assert round(row["gpu_hours_measured"] * 3600) >= (end - start) * gpus
            works = said_of(group, who, name)
            assert works["utilization_percent"] == pytest.approx(used, rel=0.01)


def said_of(group: Group, who: Person, name: str) -> Record:
    """What a report says of one user's job that works."""
    argv = (
        "report",
        "--user",
        name,
        "--site",
        "box",
        "--since",
        group.since,
        "--by",
        "name",
        "--json",
    )
    rows = who.call(*argv).json["groups"]
    found: Record = next(row for row in rows if row["name"] == "works")
    return found


def test_where_slurm_hides_others_their_jobs_are_known_from_the_ledger(group: Group) -> None:
    known = group.accounting()
    said = group.report(group.bob, "--by", "user", hidden=True)
    rows = {row["name"]: row for row in said["groups"]}
    mine, theirs = (rows[name] for name in ("hpckit-bob", "hpckit-alice"))
    held = sum((end - start) * gpus for start, end, gpus in known["hpckit-bob"].values())
    assert round(mine["gpu_hours"] * 3600) == held
    assert (theirs["jobs"], theirs["failed_jobs"]) == (2, 1)
    assert said["sources"]["ledger"] == 2
    assert any("known from the ledger alone" in note for note in said["notes"])
    # A job cannot see Slurm's own end of it: the ledger has what was before.
    for line in group.lines:
        start, end, gpus = known[line["user"]][line["job_id"]]
        assert start <= line["start"] <= line["end"] <= end + 1
        assert line["gpus"] == gpus
    alone = sum((one["end"] - one["start"]) * one["gpus"] for one in group.lines
                if one["user"] == "hpckit-alice")  # fmt: skip
    assert theirs["gpu_hours"] * 3600 == pytest.approx(alone, abs=0.1)


def test_each_summary_says_what_accounting_says_before_anybody_asked_it(group: Group) -> None:
    fields = ("state", "exit_code", "user", "account", "partition", "qos")
    for who in (group.alice, group.bob):
        for job, ended in zip(group.jobs[who.name], ("COMPLETED", "FAILED"), strict=True):
            path = Path(job["run_dir"], "summary.json")
            early = json.loads(path.read_text())
            assert (early["state"], early["origins"]["state"]) == (ended, "ranks")
            asked = who.call("stats", job["job_id"], "--json").json
            assert [early[name] for name in fields] == [asked[name] for name in fields]
            assert {row["code"] for row in early["notes"]} <= {
                row["code"] for row in asked["notes"]
            }


def test_the_ledger_has_a_line_of_each_job_that_its_group_may_read(group: Group) -> None:
    jobs = {(job["job_id"], name) for name, rows in group.jobs.items() for job in rows}
    assert {(line["job_id"], line["user"]) for line in group.lines} == jobs
    states = {(line["name"], line["state"]) for line in group.lines}
    assert states == {("works", "COMPLETED"), ("fails", "FAILED")}
    for path in group.ledger.iterdir():
        assert path.name.startswith(f"{path.owner()}-")
        assert (path.group(), path.stat().st_mode & 0o777) == (GROUP, 0o640)
    works = [line for line in group.lines if line["name"] == "works"]
    for line in works:
        assert line["utilization_percent"] == pytest.approx(USED[line["user"]], rel=0.01)


def test_a_ledger_that_is_gone_is_said_once_and_the_job_ends_well(group: Group) -> None:
    bob = group.bob
    add_site(bob, f"ledger: {group.ledger}-gone\n", name="gone")
    job = bob.submit("serial", "/bin/true", "--site", "gone", "--sample-interval", "0")
    assert bob.over(job["job_id"])["state"] == "COMPLETED"
    log = lambda: bob.call("logs", job["job_id"], "--all", expect=None).out  # noqa: E731
    line = f"The ledger {group.ledger}-gone has no line of this job: No such file or directory."
    assert eventually(lambda: line in log(), pause_s=0.5), log()
    assert log().count("has no line of this job") == 1
