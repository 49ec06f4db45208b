"""A scheduler of sixty lines registers itself, and runs jobs with hpckit as it is."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpckit.errors import RequestError
from hpckit.registry import Registry
from hpckit.schedulers.base import SCHEDULERS, Scheduler, find_scheduler
from tests.conftest import HPCKIT, Answer
from tests.schedulers import at_scheduler
from tests.unit.made import make_run

Cli = Callable[..., Answer]
HELLO = 'import os\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])\n'
WORDS = ("--executor=at", "--sample-interval=0", "--gpus=0", "--json")


@pytest.fixture
def registered(here: Path) -> Iterator[None]:
    SCHEDULERS.register("at", at_scheduler.At())
    yield
    SCHEDULERS.forget("at")


def test_it_is_no_longer_than_it_says() -> None:
    assert len(Path(at_scheduler.__file__).read_text().splitlines()) <= 60


@pytest.mark.usefixtures("registered")
def test_it_runs_a_job_whose_ranks_are_seen(here: Path, cli: Cli) -> None:
    (here / "train.py").write_text(HELLO)
    said = cli("submit", "ddp", "train.py", *WORDS, "--nodes=2", "--tasks-per-node=1", "--wait")
    assert said.status == 0, said.err
    run = json.loads(said.out)
    assert (run["executor"], run["state"], run["exit_code"]) == ("at", "COMPLETED", 0)
    assert run["job_id"].startswith("at-")
    status = json.loads(cli("status", run["job_id"], "--json").out)
    assert (status["state"], status["source"]) == ("COMPLETED", "at")
    assert [row["rank"] for row in status["ranks"]] == [0, 1]
    assert "rank 1 of 2" in cli("logs", run["job_id"], "--rank=1").out
    assert run["job_id"] in cli("jobs").out
    assert cli("resubmit", run["job_id"], "--dry-run").status == 0


@pytest.mark.usefixtures("registered")
def test_a_failure_is_told_with_its_rank(here: Path, cli: Cli) -> None:
    (here / "train.py").write_text('raise SystemExit("no data")\n')
    said = cli("submit", "serial", "train.py", *WORDS, "--wait")
    assert said.status == 1
    run = json.loads(said.out)
    assert (run["state"], run["exit_code"]) == ("FAILED", 1)
    assert "no data" in cli("logs", run["job_id"], "--errors").out


@pytest.mark.usefixtures("registered")
def test_an_array_has_a_run_for_each_task_and_each_is_cancelled(here: Path, cli: Cli) -> None:
    (here / "train.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    said = cli("submit", "serial", "train.py", *WORDS, "--array=seed=1,2")
    assert said.status == 0, said.err
    jobs = [row["job_id"] for row in json.loads(said.out)["jobs"]]
    array = jobs[0].rpartition("_")[0]
    assert jobs == [f"{array}_0", f"{array}_1"]
    while not all("here" in cli("logs", job).out for job in jobs):
        time.sleep(0.1)
    ended = cli("cancel", array, "--json")
    assert ended.status == 0, ended.err
    found = json.loads(cli("wait", array, "--json").out)["jobs"]
    assert [row["state"] for row in found] == ["CANCELLED", "CANCELLED"]


@pytest.mark.usefixtures("registered")
def test_its_run_is_one_clear_error_where_it_is_not_known(here: Path, cli: Cli) -> None:
    (here / "train.py").write_text(HELLO)
    said = cli("submit", "serial", "train.py", *WORDS, "--wait")
    run = json.loads(said.out)
    SCHEDULERS.forget("at")
    for command in ("status", "logs", "cancel"):
        refused = cli(command, run["run_id"])
        assert refused.status
        assert refused.err.count("error:") == 1
        assert "was submitted with --executor 'at', which this hpckit does not know" in refused.err
    assert "which this hpckit does not know" in cli("jobs").err
    assert cli("submit", "serial", "train.py", *WORDS).status == 2


def test_an_installed_package_brings_one(here: Path) -> None:
    """Its entry point is found by each process, where the name is asked for."""
    package = here.parent / "package"
    info = package / "at-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: at\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hpckit.schedulers]\nat = at_scheduler:At\n")
    source = Path(at_scheduler.__file__).read_text()
    (package / "at_scheduler.py").write_text(source.replace('SCHEDULERS.register("at", At())', ""))
    (here / "train.py").write_text(HELLO)

    def hpckit(*words: str) -> str:
        done = subprocess.run(
            [*HPCKIT, *words],
            env={**os.environ, "PYTHONPATH": str(package)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    run = json.loads(hpckit("submit", "serial", "train.py", *WORDS, "--wait"))
    assert (run["executor"], run["state"]) == ("at", "COMPLETED")
    assert json.loads(hpckit("status", run["run_id"], "--json"))["state"] == "COMPLETED"


def test_what_a_package_brings_and_cannot_be_loaded_is_said() -> None:
    table: Registry[Scheduler] = Registry("scheduler", "nobody", {"broken": "no.such:Thing"})
    with pytest.raises(RequestError, match=r"Scheduler 'broken' \(no.such:Thing\) cannot be load"):
        table.find("broken")
    with pytest.raises(RequestError, match="Unknown scheduler 'slrum'"):
        find_scheduler("slrum")


def test_a_package_that_cannot_be_loaded_spoils_its_own_runs_only(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = {"broken": "gone:X"}
    monkeypatch.setattr("hpckit.registry.installed", lambda _group: brought)
    make_run(here / "runs", "good-1", executor="local", job_id="local-1")
    make_run(here / "runs", "bad-1", executor="broken", job_id="b-1")
    said = cli("jobs")
    assert said.status == 0, said.err
    assert "local-1" in said.out
    assert "'broken' (gone:X) cannot be loaded" in said.err
