"""`hpckit jobs`: which runs it lists, arrays on one line, columns and colours."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hpckit
from hpckit.errors import RequestError
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.index import add_to_index
from hpckit.run_folders.runs import DamagedRun, Run
from hpckit.slurm.states import JobState
from hpckit.text import state_colour
from tests.conftest import Answer
from tests.unit.made import make_run
from tests.unit.test_silence import answers, asked, squeue_row, up

Cli = Callable[..., Answer]
ARRAY = "sweep-20261101-101010-abc123"


@pytest.fixture
def runs(here: Path) -> list[Run]:
    """Make 25 single runs, the newest first, and an array of 30 that is newer than all."""
    single = [
        make_run(here / "runs", f"ddp-{n:02}", job_id=str(100 + n), submitted_at=1000.0 - n)
        for n in range(25)
    ]
    tasks = [
        make_run(
            here / "runs", f"{ARRAY}_{n}", name="sweep", job_id=f"20_{n}", submitted_at=2000.0,
            array={"job_id": "20", "index": n},
        )
        for n in range(30)
    ]  # fmt: skip
    for number, run in enumerate(reversed(single + tasks[::-1])):
        os.utime(run.dir / "run.json", (number, number + 100 * (run in tasks)))
    return single + tasks


def all_are(folder: Path, runs: list[Run], states: dict[str, str]) -> None:
    """Let squeue say the states of runs, by their ids; all others' is COMPLETED."""
    rows = (squeue_row(run.job_id, states.get(run.job_id, "COMPLETED")) for run in runs)
    up(folder, "".join(rows))
    answers(folder, sacct_out="")


def first_column(said: Answer) -> list[str]:
    return [line.split()[0] for line in said.out.splitlines()[1:]]


def test_an_array_is_one_line_with_its_states_and_counts_as_one(
    fake_slurm: Path, runs: list[Run], cli: Cli
) -> None:
    states = {f"20_{n}": "RUNNING" for n in range(4)} | {"20_5": "FAILED"}
    all_are(fake_slurm, runs, states)
    said = cli("jobs", "--limit", "3")
    assert first_column(said) == ["20", "100", "101"]
    assert "25 COMPLETED, 1 FAILED, 4 RUNNING" in said.out
    assert said.out.splitlines()[1].endswith(f"  {ARRAY}")
    assert said.err == "These are the newest 3 runs; --limit 0 shows all.\n"
    assert asked(fake_slurm)["squeue"] == 1
    said = cli("jobs", "--limit", "3", "--tasks")
    assert len(first_column(said)) == 3
    assert {row.rpartition("_")[0] for row in first_column(said)} == {"20"}
    assert len(first_column(cli("jobs", "--tasks", "-n0"))) == 55
    assert len(json.loads(cli("jobs", "--json", "-n0").out)["jobs"]) == 55


def test_no_more_folders_are_read_than_are_shown(
    here: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["hpckit.run_folders.runs"]
    read: list[str] = []
    real = module.read_or_tell

    def counted(folder: Path, damaged: list[DamagedRun] | None = None) -> Run | None:
        read.append(folder.name)
        return real(folder, damaged)

    monkeypatch.setattr(module, "read_or_tell", counted)
    assert len(newest_runs(here / "runs", 3, arrays_as_one=True)) == 32
    assert len(read) == 32
    assert len(newest_runs(here / "runs", 3)) == 3
    assert len(read) == 35


def test_active_shows_all_that_are_not_over_however_old(
    fake_slurm: Path, runs: list[Run], cli: Cli
) -> None:
    states = {str(100 + n): "PENDING" for n in range(1, 25)}
    all_are(fake_slurm, runs, states)
    said = cli("jobs", "--active")
    assert sorted(first_column(said)) == sorted(states)
    assert said.err == ""
    assert asked(fake_slurm)["squeue"] == 1
    said = cli("jobs", "--active", "--limit", "5")
    assert first_column(said) == [str(101 + n) for n in range(5)]
    assert "newest 5 runs" in said.err
    assert [run.job_id for run in hpckit.runs(active=True, limit=2)] == ["101", "102"]


@pytest.mark.long
def test_states_names_ages_and_users_choose_in_both_languages(
    fake_slurm: Path, runs: list[Run], cli: Cli, here: Path
) -> None:
    make_run(here / "runs", "other", job_id="500", name="[odd]", submitted_at=time.time() - 7200)
    all_are(fake_slurm, runs, {"101": "FAILED", "102": "TIMEOUT", "20_3": "FAILED"})
    me = runs[0].owner
    for words, python, ids in (
        (["--state", "failed,TIMEOUT"], {"state": ["FAILED", "TIMEOUT"]}, {"101", "102", "20_3"}),
        (["--state", "FAILED", "--name", "ddp"], {"state": "FAILED", "name": "ddp"}, {"101"}),
        (["--name", "[odd]"], {"name": "[odd]"}, {"500"}),
        (["--name", "*dd]"], {"name": "*dd]"}, {"500"}),
        (["--since", "1d"], {"since": "1d"}, {"500"}),
        (["-u", me, "--since", "1d"], {"user": me, "since": "1d"}, {"500"}),
        (["--user", "nobody-here"], {"user": "nobody-here"}, set()),
    ):
        said = cli("jobs", "--tasks", *words)
        assert set(first_column(said)) == ids
        assert {run.job_id for run in hpckit.runs(**python)} == ids
    assert said.err == "None of your 56 runs is so.\n"


def test_what_is_no_state_age_or_column_is_refused(runs: list[Run], cli: Cli) -> None:
    for words, text in (
        (["--state", "BROKEN"], "'BROKEN' is not a state"),
        (["--since", "x"], "since 'x' is neither an age"),
        (["--format", "jobid,colour"], "there is no column 'colour'. Columns: jobid, name, state"),
        *(
            (["--format", words], f"--format '{words}': a column's name is empty. Columns: jobid,")
            for words in ("", " ", ",", "jobid,", ",jobid", "jobid,,name")
        ),
        (["--state", "FAILED,"], "'' is not a state"),
    ):
        said = cli("jobs", *words)
        assert (said.status, said.out) == (2, "")
        assert text in said.err
    with pytest.raises(RequestError, match="not a state"):
        hpckit.runs(state="BROKEN")


def test_columns_are_those_that_were_asked_for(fake_slurm: Path, runs: list[Run], cli: Cli) -> None:
    all_are(fake_slurm, runs, {"100": "PENDING"})
    (runs[1].dir / "metrics.jsonl").write_text('{"step": 3, "total_steps": 9, "loss": 0.5}\n')
    said = cli("jobs", "--format", "jobid,tasks,state,progress,user", "-n", "3")
    rows = [re.split(r"\s{2,}", line) for line in said.out.splitlines()]
    assert rows[0] == ["JOBID", "TASKS", "STATE", "PROGRESS", "USER"]
    assert rows[1] == ["20", "30", "30 COMPLETED", "30/30 tasks", runs[0].owner]
    assert rows[2] == ["100", "1", "PENDING", "-", runs[0].owner]
    assert rows[3][3] == "step 3/9 loss 0.5"
    every = cli("jobs", "--format", "nothing").err.partition("Columns: ")[2].strip(".\n")
    said = cli("jobs", "--format", every.replace(" ", ""), "-n", "2")
    assert said.status == 0


def on_terminal(*words: str, **environ: str) -> str:
    """Return what `hpckit` writes to a terminal."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "hpckit", *words],
        stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", **environ},
    )  # fmt: skip
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 65536):
            text += chunk
    except OSError:  # the other end is closed
        pass
    assert done.wait() == 0
    os.close(ours)
    return text.decode()


@pytest.mark.long
def test_colours_are_for_terminals_that_want_them(
    fake_slurm: Path, runs: list[Run], cli: Cli, here: Path
) -> None:
    make_run(here / "runs", "evil", job_id="501", name="x\x1b[2Jy", submitted_at=9e8)
    all_are(fake_slurm, runs, {"100": "RUNNING", "101": "FAILED", "102": "PENDING"})
    said = on_terminal("jobs", "--tasks", "-n0")
    assert "\x1b[31mFAILED" in said
    assert "\x1b[32mRUNNING" in said
    assert "\x1b[33mPENDING" in said
    assert "x\\x1b[2Jy" in said
    assert "\x1b[2J" not in said
    lines = re.sub(r"\x1b\[\d*m", "", said).splitlines()
    assert {line.index("ddp-") for line in lines if "ddp-0" in line} == {lines[0].index("RUN")}
    plain = cli("jobs", "--tasks", "-n0").out
    assert "\x1b" not in plain
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal("jobs", **environ)


def test_counts_have_the_colour_of_the_worst() -> None:
    assert state_colour("25 COMPLETED, 1 FAILED, 4 RUNNING") == "red"
    assert state_colour("25 COMPLETED, 4 RUNNING") == "green"
    assert state_colour("CANCELLED") == "dim"
    assert state_colour("SOMETHING_NEW") is None
    assert {state for state in JobState if state_colour(state) is None} == set()


@pytest.mark.parametrize(
    ("state", "said"), [("RUNNING", "nothing yet."), ("CANCELLED", "nothing.")]
)
def test_a_log_of_nothing_is_told_by_whether_more_may_come(
    here: Path, fake_slurm: Path, cli: Cli, state: str, said: str
) -> None:
    run = make_run(here / "runs")
    all_are(fake_slurm, [run], {run.job_id: state})
    assert cli("logs", "11").err == f"11 has written {said} See `hpckit status 11`.\n"


def test_where_a_run_was_submitted_may_have_moved(here: Path, fake_slurm: Path, cli: Cli) -> None:
    (here / "old one").mkdir()
    (here / "old one" / "train.py").write_text("print(1)")
    asked = {"target": "ddp", "program": "train.py", "gpus": 1}
    make_run(here / "runs", cwd=str(here / "old one"), request=asked)
    (here / "old one").rename(here / "new")
    said = cli("resubmit", "11", "--dry-run")
    assert said.status == 3
    assert (
        f"The run was submitted from {here}/old one, but this folder cannot be entered: No such "
        f"file or directory. If it was moved to NEW, lead there by a link (ln -s NEW '{here}/old "
        "one'), or submit anew from there." in said.err
    )
    (here / "old one").symlink_to(here / "new")
    assert cli("resubmit", "11", "--dry-run").status == 0


def test_a_folder_that_is_named_is_listed_alone(here: Path, fake_slurm: Path, cli: Cli) -> None:
    mine = make_run(here / "runs", "mine", job_id="1")
    other = make_run(here / "other", "other", job_id="2")
    add_to_index([mine, other])
    all_are(fake_slurm, [mine, other], {})
    assert {*first_column(cli("jobs"))} == {"1", "2"}
    assert first_column(cli("jobs", "--runs", "other")) == ["2"]
    said = cli("jobs", "--runs", "othre")  # misspelt
    assert (said.status, said.out) == (0, "")
    assert said.err == f"No runs yet in {here / 'othre'}. Start one: hpckit submit ddp\n"
    assert [run.run_id for run in hpckit.runs(runs="other")] == ["other"]
    assert {run.run_id for run in hpckit.runs()} == {"mine", "other"}
    assert [run.run_id for run in hpckit.runs("1", runs="other")] == ["mine"]


def test_another_name_for_a_run_beside_it_is_no_other_run(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    run = make_run(here / "runs", "mine", job_id="1")
    (here / "runs" / "best").symlink_to("mine")
    all_are(fake_slurm, [run], {})
    assert first_column(cli("jobs")) == ["1"]
    assert json.loads(cli("status", "best", "--json").out)["run_id"] == "mine"


@pytest.mark.long
def test_latest_of_a_folder_that_is_named_is_the_newest_in_it(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    mine = make_run(here / "runs", "mine", job_id="1", submitted_at=2000.0)
    other = make_run(here / "other", "other", job_id="2", submitted_at=1000.0)
    add_to_index([other, mine])
    all_are(fake_slurm, [mine, other], {})
    for command in ("status", "wait", "cancel", "stats"):
        for words, job in ((("--runs", "other"), "2"), ((), "1")):
            assert f'"job_id": "{job}"' in cli(command, "latest", *words, "--json").out, command
    for words, name in ((("--runs", "other"), "other"), ((), "mine")):
        assert f"Run {name} has no copy" in cli("code", "latest", *words).err
    assert hpckit.find("latest", runs="other").run_id == "other"
    assert [run.run_id for run in hpckit.runs("latest", runs="other")] == ["other"]
    assert hpckit.stats("latest", runs="other").job.job_id == "2"
    assert hpckit.find("latest").run_id == "mine"
    (here / "empty").mkdir()
    for command in ("status", "logs", "wait", "cancel", "stats", "code"):
        said = cli(command, "latest", "--runs", "empty")
        assert (said.status, said.out) == (2, "")
        assert "There is no run yet in empty." in said.err.replace(f"{here}/", "")
    all_are(fake_slurm, [mine, other], {"1": "RUNNING"})
    assert cli("ssh-config", "latest").status == 0
    said = cli("ssh-config", "latest", "--runs", "other")
    assert "No job of yours in other runs on Slurm." in said.err.replace(f"{here}/", "")
    # Where --runs is for the new run, `latest` is any.
    assert cli("resubmit", "latest", "--runs", "empty", "--dry-run").status == 0


def test_top_of_a_folder_that_is_named_shows_its_jobs_alone(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    mine = make_run(here / "runs", "mine", job_id="1")
    other = make_run(here / "other", "other", job_id="2")
    add_to_index([mine, other])
    all_are(fake_slurm, [mine, other], {"1": "RUNNING", "2": "RUNNING"})
    shown = [cli("top", "--once", *words).out for words in ((), ("--runs", "other"))]
    jobs = [{line[0] for line in text.splitlines() if " ddp " in line} for text in shown]
    assert jobs == [{"1", "2"}, {"2"}]


def test_since_may_be_pythons_own(here: Path, fake_slurm: Path) -> None:
    now = time.time()
    for name, hours in (("new", 1), ("old", 30)):
        make_run(here / "runs", name, job_id=str(hours), submitted_at=now - 3600 * hours)
    zoned = datetime.fromtimestamp(now - 86400, UTC)
    local = datetime.fromtimestamp(now - 86400)  # without a zone: this machine's
    for since in (timedelta(days=1), zoned, local, now - 86400, "1d"):
        assert [run.run_id for run in hpckit.runs(since=since)] == ["new"]
        assert not hpckit.clean(older=since).runs  # their folders are of now
    with pytest.raises(RequestError, match=r"since datetime.timedelta\(days=-1\) is neither"):
        hpckit.runs(since=timedelta(days=-1))
    with pytest.raises(RequestError, match="is not before until"):
        hpckit.report(since=zoned, until=timedelta(days=2))


def test_a_run_that_is_removed_while_it_is_listed_hides_no_other(
    here: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hpckit jobs --user` beside `hpckit clean` ended with the one run's error."""
    for name in ("kept", "gone"):
        make_run(here / "runs", name, job_id=f"local-{name}", executor="local")
    user = hpckit.find("kept").owner

    def removing(*args: object, **words: object) -> list[Run]:
        found = newest_runs(*args, **words)  # type: ignore[arg-type]
        shutil.rmtree(here / "runs" / "gone", ignore_errors=True)
        return found

    for home in ("hpckit.api.lookup", "hpckit.api.choice"):
        monkeypatch.setattr(f"{home}.newest_runs", removing)
    assert [run.run_id for run in hpckit.runs(user=user)] == ["kept"]
    make_run(here / "runs", "gone", job_id="local-gone", executor="local")
    said = cli("jobs", "--user", user, "--format", "run")
    assert (said.status, said.out.split()) == (0, ["RUN", "kept"])
    make_run(here / "runs", "gone", job_id="local-gone", executor="local")
    said = cli("jobs", "--format", "run,user")
    assert said.status == 0, said.err
    assert {"kept", user} <= {*said.out.split()}
