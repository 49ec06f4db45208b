"""`hpckit clean`: what goes, what an unfinished run keeps, and what a kill leaves."""

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.errors import RequestError
from hpckit.paths import cache_folder
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.index import add_to_index, handed_over, index_path
from hpckit.run_folders.runs import Run
from hpckit.schedulers.local.state import LocalState, my_start_ticks, write_local_state
from hpckit.slurm.states import JobState
from hpckit.submission import folders, leftovers
from hpckit.submission.cleaning import measured
from hpckit.submission.handover import begin, new_handover, remember
from hpckit.units import format_bytes, parse_bytes
from tests.conftest import Answer
from tests.unit.made import make_run, run_record

Cli = Callable[..., Answer]
DAY_S, OLD_S = 86400.0, 40 * 86400.0


def run_id(number: int, name: str = "old") -> str:
    return f"{name}-20261001-120000-{number:06x}"


def local_run(root: Path, number: int, state: str = "COMPLETED", **changes: Any) -> Run:
    """A run on this machine, unchanged for 40 days; it is over unless `state` says otherwise."""
    over = state not in ("RUNNING", "PENDING")
    values = {
        "job_id": f"local-{number}",
        "executor": "local",
        "submitted_at": time.time() - OLD_S + number,
        **changes,
    }
    run = make_run(root, values.pop("run_id", run_id(number)), **values)
    said = LocalState(
        job_id=run.job_id, state=JobState(state), host=socket.gethostname(), pid=os.getpid(),
        pid_started=my_start_ticks(), ended=run.submitted_at if over else None,
    )  # fmt: skip
    write_local_state(run.dir, said)
    make_old(run.dir, OLD_S - number)
    return run


def make_old(folder: Path, age_s: float = OLD_S) -> None:
    then = time.time() - age_s
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then), follow_symlinks=False)


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def goes(**wanted: Any) -> list[str]:
    return [row.run.run_id for row in hpckit.clean(**wanted).runs]


def kept(**wanted: Any) -> dict[str, str]:
    return {row.run.run_id: row.why for row in hpckit.clean(**wanted).kept}


def test_only_what_is_asked_for_goes_and_no_script_is_asked(here: Path, cli: Cli) -> None:
    runs = here / "runs"
    old, failed = local_run(runs, 1), local_run(runs, 2, "FAILED")
    new = local_run(runs, 3)
    (new.dir / "logs" / "0.out").write_bytes(b"x" * 200_000)
    add_to_index([old, failed, new])
    before = left(runs)
    nothing = cli("clean", "--yes")
    assert (nothing.status, nothing.out) == (0, "Removed: nothing.\n")
    assert "No run is removed without" in nothing.err
    refused = cli("clean", "--older", "30d")
    assert refused.status == 2
    assert "no terminal to ask at" in refused.err
    assert cli("clean", "--older", "30d", "--json").status == 2
    shown = cli("clean", "--older", "30d", "--dry-run")
    assert shown.status == 0
    assert [line.split()[0] for line in shown.out.splitlines()] == ["JOBID", "local-1", "local-2"]
    assert "To be removed: 2 runs" in shown.err
    assert goes(larger="150K") == [new.run_id]
    assert goes(larger="10G") == goes(state="CANCELLED") == []
    assert goes(state="COMPLETED,FAILED", older="1d") == [old.run_id, failed.run_id]
    assert goes(state=["FAILED"]) == [failed.run_id]
    assert left(runs) == before
    said = cli("clean", "--older", "30d", "--state", "FAILED", "--yes", "--json")
    assert said.status == 0
    document = json.loads(said.out)
    assert [row["run_id"] for row in document["runs"]] == [failed.run_id]
    assert (document["removed"], document["index_lines"], document["errors"]) == (True, 1, [])
    assert document["bytes"] == document["runs"][0]["bytes"] > 0
    assert left(runs) == [old.run_id, new.run_id]
    assert "local-2" not in index_path().read_text()
    plan = hpckit.clean(older="30d")
    assert [row.run.run_id for row in plan.remove().runs] == [old.run_id]
    assert left(runs) == [new.run_id]
    for words in (("--older", "30"), ("--state", "BROKEN"), ("--larger", "big"), ("--runs", "no")):
        assert cli("clean", *words, "--yes").status == 2


def test_the_last_run_of_a_folder_takes_its_line_with_it(here: Path, cli: Cli) -> None:
    add_to_index([local_run(here / "runs", 1)])
    assert cli("clean", "--older", "30d", "--yes").status == 0
    assert index_path().read_text() == ""


def test_runs_narrows_to_one_folder_but_needs_are_those_of_all(here: Path, cli: Cli) -> None:
    there, needed = local_run(here / "there", 1), local_run(here / "there", 2)
    other = local_run(here / "other", 3)
    add_to_index([there, needed, other])
    add_to_index([local_run(here / "far", 4, "RUNNING", parameters={"from": str(needed.dir)})])
    assert goes(older="30d", runs="there") == [there.run_id]
    assert goes(older="30d") == [there.run_id, other.run_id]
    assert [*kept(older="30d", runs="there")] == [needed.run_id]


def test_what_an_unfinished_run_needs_stays(here: Path, cli: Cli) -> None:
    runs = here / "runs"
    free = local_run(runs, 1)
    awaited = local_run(runs, 2)
    latest = local_run(runs, 3)
    local_run(runs, 4, "PENDING", request={"after": ["afterany:local-2", "latest"]})
    checkpoint = local_run(runs, 5)
    own = local_run(runs, 6, "RUNNING", command=["x", f"--from={checkpoint.dir}/checkpoints"])
    study = {"id": "s", "sizes": 2, "repeats": 1, "repeat": 1, "weak": False, "grow": [],
             "in_turn": False}  # fmt: skip
    measured_run = local_run(runs, 7, study=study)
    local_run(runs, 8, "PENDING", study=study)
    tasks = [
        local_run(runs, 9, state, run_id=f"{run_id(9)}_{task}", job_id=f"local-9_{task}",
                  array={"job_id": "local-9", "index": task})
        for task, state in enumerate(("COMPLETED", "RUNNING"))
    ]  # fmt: skip
    assert goes(older="1s") == [free.run_id]
    said = kept(older="1s")
    assert "waits" not in said[own.run_id]
    assert said[own.run_id] == "it is RUNNING"
    assert said[awaited.run_id].startswith("job local-4, which is PENDING")
    assert said[latest.run_id] == said[awaited.run_id]
    assert said[checkpoint.run_id] == "run.json of job local-6, which is RUNNING, names it"
    assert said[measured_run.run_id] == "its study has job local-8, which is PENDING"
    assert said[tasks[0].run_id] == "its array has task local-9_1, which is RUNNING"
    shown = cli("clean", "--older", "1s", "--dry-run")
    assert f"kept: local-6, {own.dir}: it is RUNNING" in shown.err


@pytest.mark.parametrize("queue", ["answers", "is silent"])
def test_a_run_whose_state_nobody_knows_stays_and_slurm_is_asked_once(
    here: Path, cli: Cli, fake_slurm: Path, queue: str
) -> None:
    for number in range(5):
        make_old(make_run(here / "runs", run_id(number), job_id=str(100 + number)).dir)
    if queue == "is silent":
        (fake_slurm / "squeue.rc").write_text("1")
        (fake_slurm / "sacct.rc").write_text("1")
    assert goes(older="30d") == []
    calls = [json.loads(line)[0] for line in (fake_slurm / "calls.jsonl").read_text().splitlines()]
    assert calls.count("squeue") == 1
    why = kept(older="30d")[run_id(0)]
    assert why.startswith("its state is not known" if queue == "answers" else "its state cannot be")
    assert len(goes(older="30d", state="UNKNOWN")) == (5 if queue == "answers" else 0)


def test_what_others_may_write_stays(here: Path, cli: Cli) -> None:
    shared, whole = local_run(here / "runs", 1), local_run(here / "open", 2)
    (shared.dir / "run.json").chmod(0o666)
    add_to_index([whole])
    (here / "open").chmod(0o777)
    assert kept(older="30d") == {
        shared.run_id: "everybody may write to it",
        whole.run_id: f"everybody may write {here / 'open'}",
    }
    assert goes(older="30d") == []


def test_no_link_is_followed(here: Path, cli: Cli) -> None:
    precious = here / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    run = local_run(here / "runs", 1)
    (run.dir / "checkpoints").symlink_to(precious)
    (run.dir / "logs" / "link").symlink_to(precious / "data")
    moved = local_run(here / "elsewhere", 2)
    (here / "runs" / moved.run_id).symlink_to(moved.dir)
    make_old(run.dir)
    done = hpckit.clean(older="30d", runs="runs").remove()
    assert [row.run.run_id for row in done.runs] == [run.run_id]
    assert "is a link" in kept(older="30d", runs="runs")[moved.run_id]
    assert left(here / "runs") == [moved.run_id]
    assert (precious / "data").read_text() == "mine"
    assert left(moved.dir)


def test_a_link_beside_a_run_does_not_keep_it(here: Path) -> None:
    run = local_run(here / "runs", 1)
    (here / "runs" / "best").symlink_to(run.dir.name)
    make_old(run.dir)
    assert goes(older="30d", runs="runs") == [run.run_id]


def test_a_run_replaced_meanwhile_is_looked_at_again(here: Path) -> None:
    run = local_run(here / "runs", 1)
    plan = hpckit.clean(older="30d")
    local_run(here / "other", 2, "RUNNING", parameters={"from": run.run_id})
    add_to_index(newest_runs(here / "other", None))
    assert replace(plan, made_at=plan.made_at - 60).remove().runs == ()
    assert left(here / "runs") == [run.run_id]


def test_an_array_goes_with_its_own_folder(here: Path, cli: Cli) -> None:
    base = here / "runs" / run_id(1)
    for task, state in enumerate(("COMPLETED", "FAILED")):
        local_run(here / "runs", 1, state, run_id=f"{base.name}_{task}", job_id=f"local-1_{task}",
                  array={"job_id": "local-1", "index": task})  # fmt: skip
    (base / "submitit").mkdir(parents=True)
    (base / "array.json").write_text("{}")
    assert cli("clean", "--state", "FAILED", "--yes").status == 0
    assert left(here / "runs") == [base.name, f"{base.name}_0"]
    assert cli("clean", "--state", "COMPLETED", "--yes").status == 0
    assert left(here / "runs") == []


def test_a_removal_that_is_killed_leaves_no_run_and_the_next_ends_it(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = local_run(here / "runs", 1)
    stays = local_run(here / "runs", 2)
    add_to_index([run, stays])
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: os._exit(9))
        if (child := os.fork()) == 0:
            hpckit.clean(older=stays.submitted_at, runs="runs").remove()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    rest = next(name for name in left(here / "runs") if name.startswith("."))
    assert [row.run_id for row in newest_runs(here / "runs", None)] == [stays.run_id]
    said = cli("clean", "--yes")
    assert said.status == 0
    assert rest in said.out
    assert left(here / "runs") == [stays.run_id]
    assert "local-1" not in index_path().read_text()


def test_what_cannot_be_removed_is_said_and_the_rest_goes(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = local_run(here / "runs", 1), local_run(here / "runs", 2)
    real = folders._remove

    def failing(name: str, identity: Any, root: int) -> None:
        if first.run_id in name:
            raise OSError(30, "Read-only file system")
        real(name, identity, root)

    monkeypatch.setattr(folders, "_remove", failing)
    said = cli("clean", "--older", "30d", "--yes")
    assert said.status == 3
    assert f"{first.dir} cannot be removed: Read-only file system" in said.err
    assert said.out.splitlines()[-1].startswith("Removed: 1 run ")
    assert not second.dir.exists()


def test_leftovers_of_killed_submissions_go_once_nothing_can_come_of_them(
    here: Path, cli: Cli, fake_slurm: Path
) -> None:
    root = here / "runs"

    def folder(number: int, *files: str, age_s: float = DAY_S) -> str:
        made = root / run_id(number)
        (made / "submitit").mkdir(parents=True)
        for name in ("job.sh", *files):
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_text("text")
        make_old(made, age_s)
        return made.name

    gone = folder(1)
    stay = [folder(2, age_s=60), folder(7, age_s=-DAY_S)]
    files = ("ranks/0.json", "job.out", "submitit/0.pkl", "run.json")
    stay += [folder(number, name) for number, name in enumerate(files, start=3)]
    # A folder of the user's own that is called like a run, and a file put into a run's.
    (root / run_id(10)).mkdir()
    (root / run_id(10) / "thesis.txt").write_text("text")
    make_old(root / run_id(10))
    stay += [run_id(10), folder(11, "notes.txt")]
    (root / "mine").mkdir()
    (root / "mine" / "data").write_text("")
    make_old(root / "mine")
    for number, pid in ((8, 2**22 + 1), (9, os.getpid())):
        record = run_record(run_id=folder(number, "submitit/0.pkl"))
        handover = replace(new_handover(run_id(number), root, [record], array=False), pid=pid)
        begin(root / run_id(number), replace(handover, since=time.time() - DAY_S))
        remember(run_id(number), root)
        make_old(root / run_id(number), DAY_S)
    (fake_slurm / "squeue.rc").write_text("1")
    (fake_slurm / "sacct.rc").write_text("1")
    assert [row.path.name for row in hpckit.clean(runs=root).leftovers] == [gone]
    (fake_slurm / "squeue.rc").unlink()
    (fake_slurm / "sacct.rc").unlink()
    said = cli("clean", "--yes")
    assert said.status == 0, said.err
    assert left(root) == sorted([*stay, run_id(9), "mine"])
    assert left(handed_over()) == [run_id(9)]


def test_old_entries_of_the_caches_go(here: Path, cli: Cli) -> None:
    made = cache_folder() / "made"
    made.mkdir(parents=True)
    for name, age_s in (("old", 31 * DAY_S), ("new", DAY_S), (f".new.{'0' * 16}", DAY_S)):
        (made / name).write_text("x")
        make_old(made / name, age_s)
    assert hpckit.clean(runs=here).leftovers == ()
    said = cli("clean", "--dry-run")
    assert str(made / "old") in said.out
    assert str(made / "new") not in said.out
    assert cli("clean", "--yes").status == 0
    # What these commands themselves have kept stands beside.
    assert {"old", "new", f".new.{'0' * 16}"} & {*left(made)} == {"new"}


@pytest.mark.long
def test_at_a_terminal_it_asks(here: Path) -> None:
    run = local_run(here / "runs", 1)
    for answer, stays in ((b"n\n", True), (b"y\n", False)):
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-m", "hpckit", "clean", "--older", "30d"],
            stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        assert b"Remove 1 run (" in said
        child.communicate()
        os.close(ours)
        assert child.returncode == 0
        assert run.dir.exists() == stays


def test_sizes_as_people_write_them(tmp_path: Path) -> None:
    sizes = {"0": 0, "500": 500, "1k": 1024, "2 MB": 2 << 20, "1.5GiB": 3 << 29, "1T": 1 << 40}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    for text in ("", "-1", "1P", "G", "1 2"):
        with pytest.raises(RequestError, match="write 500M"):
            parse_bytes(text)
    assert [format_bytes(size) for size in (0, 999, 2048, 20 << 20, 3 << 30, 5 << 40)] == [
        "0 B", "999 B", "2.0 KiB", "20 MiB", "3.0 GiB", "5.0 TiB",
    ]  # fmt: skip
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    assert measured(tmp_path)[0] >= 10_000


def test_a_run_whose_record_is_gone_is_named_and_stays(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    own = leftovers._own
    monkeypatch.setattr(leftovers, "_own", lambda path: looked.append(path) or own(path))
    lost, young = run_id(0), run_id(1)
    for name in (lost, young, "results"):
        (here / "runs" / name / "logs").mkdir(parents=True)
    gone = local_run(here / "runs", 3)
    for name in (lost, "results"):
        make_old(here / "runs" / name)
    plan = hpckit.clean(older="30d", runs="runs")
    assert [row.dir.name for row in plan.damaged] == [lost]
    assert looked.count(here / "runs") == 1
    said = cli("clean", "--older", "30d", "--yes")
    assert f"{lost} has what a job wrote, but no run.json" in said.err
    assert {lost, young, "results"} <= {*left(here / "runs")}
    assert gone.run_id not in left(here / "runs")
