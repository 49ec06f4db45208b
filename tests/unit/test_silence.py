"""Services that keep silent, are behind or lie; and how seldom they are asked for many jobs."""

import itertools
import json
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import hpckit
from hpckit.cli.view import LiveView, NeverStarting
from hpckit.errors import StillRunningError
from hpckit.run_folders.ranks import write_rank
from hpckit.run_folders.runs import Run
from hpckit.slurm import client
from hpckit.slurm.states import JobState
from hpckit.submission import waiting
from hpckit.submission.states import statuses
from hpckit.submission.waiting import pauses, wait
from tests.conftest import Answer, add_program
from tests.unit.made import PLAN, make_run, rank
from tests.unit.played_slurm import DOWN, OFF, answers, down, end_ranks, one, sacct_row, squeue_row

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
MANY = 40


def asked(folder: Path) -> Counter[str]:
    """Give how often each of Slurm's programs was called, and forget it."""
    path = folder / "calls.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return Counter(json.loads(line)[0] for line in lines)


def up(folder: Path, rows: str) -> None:
    answers(folder, squeue_rc="0", squeue_err="", squeue_out=rows)


def many(root: Path) -> list[Run]:
    """Make runs of single jobs and of one array."""
    single = [make_run(root, f"ddp-{n}", job_id=str(100 + n)) for n in range(MANY // 2)]
    array = [
        make_run(root, f"a_{n}", job_id=f"20_{n}", array={"job_id": "20", "index": n})
        for n in range(MANY // 2)
    ]
    return single + array


def rows_of(runs: list[Run], state: str) -> str:
    return "".join(squeue_row(run.job_id, state) for run in runs)


# --- one question for any number of jobs ---


@pytest.mark.parametrize("command", ["jobs", "status", "wait", "cancel", "stats"])
def test_a_command_asks_once_for_all_jobs(
    fake_slurm: Path, here: Path, cli: Cli, command: str
) -> None:
    runs = many(here / "runs")
    state = {"wait": "COMPLETED", "cancel": "COMPLETED"}.get(command, "RUNNING")
    up(fake_slurm, rows_of(runs, state))
    answers(fake_slurm, sacct_out="")
    words = {"jobs": ("--limit", "0", "--json")}
    ids = [run.job_id for run in runs[: MANY // 2]] + ["20"]
    told = cli(command, *words.get(command, ids))
    assert told.status == 0, told
    counts = asked(fake_slurm)
    extra = {"sacct": 2} if command == "stats" else {}  # once, and its columns
    if command == "cancel":  # before, and after
        extra = {"squeue": 2}
    assert counts == Counter({"squeue": 1} | extra)
    if command == "jobs":
        assert len(json.loads(told.out)["jobs"]) == MANY


def test_waiting_for_many_is_one_squeue_a_round_and_none_for_those_that_are_over(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounting would be asked, again and again, for those that the queue has forgotten."""
    runs = many(here / "runs")
    first, rest = runs[:5], runs[5:]
    rounds = [
        rows_of(first, "FAILED") + rows_of(rest, "RUNNING"),
        rows_of(rest, "RUNNING"),
        rows_of(rest, "RUNNING"),
        rows_of(rest, "COMPLETED"),
    ]
    seen: list[Counter[str]] = []

    def turn(_seconds: float = 0) -> None:
        up(fake_slurm, rounds.pop(0))

    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=turn, monotonic=time.monotonic))
    turn()
    found = wait(runs, look=lambda _rows: seen.append(asked(fake_slurm)))
    # Once more for the exit statuses of those that have failed since the round before.
    assert seen == [Counter({"squeue": 2}), *[Counter({"squeue": 1})] * 3]
    assert [row.state for row in found] == ["FAILED"] * 5 + ["COMPLETED"] * len(rest)
    assert [row.run.dir for row in found] == [run.dir for run in runs]


def test_following_many_that_wait_is_one_squeue_a_round(
    fake_slurm: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = many(here / "runs")
    up(fake_slurm, rows_of(runs, "PENDING"))
    view = LiveView()
    for _ in range(3):
        view(statuses(runs))
    assert asked(fake_slurm) == Counter({"squeue": 3})
    assert capsys.readouterr().err.count("PENDING") == MANY


def test_who_waits_for_hours_asks_once_a_minute(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    spans = list(itertools.islice(pauses([run]), 400))
    assert spans[0] <= 0.3
    assert sum(spans[:20]) > 60
    assert max(spans[:60]) <= 10  # of the first minutes
    assert 48 <= spans[-1] <= 60
    local = make_run(tmp_path, "local", job_id="local-1", executor="local")
    assert max(itertools.islice(pauses([local]), 400)) <= 1


def test_a_loop_over_states_is_two_questions_and_each_answer_serves_once(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.api.run_status.FRESH_S", 1e6)
    runs = many(here / "runs")
    up(fake_slurm, rows_of(runs, "PENDING"))
    found = hpckit.runs(runs=here / "runs")
    assert [run.state for run in found] == ["PENDING"] * MANY
    assert asked(fake_slurm) == Counter({"squeue": 2})
    # The next round sees what has changed, and who looks at one run alone always does.
    up(fake_slurm, rows_of(runs, "RUNNING"))
    assert [run.state for run in found] == ["RUNNING"] * MANY
    assert asked(fake_slurm) == Counter({"squeue": 1})
    for state in ("RUNNING", "SUSPENDED", "COMPLETING"):
        up(fake_slurm, rows_of(runs, state))
        assert found[7].state == state
    # What was said before it was cancelled, or asked for with others, is no answer.
    assert [run.state for run in found[3:5]] == ["COMPLETING"] * 2
    up(fake_slurm, rows_of(runs, "CANCELLED"))
    assert found[9].cancel().state == "CANCELLED"
    asked(fake_slurm)
    assert {run.state for run in found[10:]} == {"CANCELLED"}  # they are over
    assert asked(fake_slurm) == Counter()
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


def test_an_old_answer_is_none(
    fake_slurm: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.api.run_status.FRESH_S", -1.0)
    runs = many(here / "runs")[:5]
    up(fake_slurm, rows_of(runs, "PENDING"))
    found = hpckit.runs(runs=here / "runs", name="ddp")[-5:]
    assert len([run.state for run in found]) == 5
    assert asked(fake_slurm) == Counter({"squeue": 5})


# --- accounting that is behind, or lost an end ---


@pytest.mark.parametrize("word", ["RUNNING", "PENDING", "COMPLETING", "REQUEUED"])
def test_what_the_queue_does_not_list_does_not_run_whatever_accounting_says(
    fake_slurm: Path, tmp_path: Path, word: str
) -> None:
    """Such rows stay until an administrator mends them: sacctmgr show runawayjobs."""
    run = make_run(tmp_path)
    answers(fake_slurm, sacct_out=sacct_row("11", word))
    found = one(run)
    assert (found.state, found.left_queue) == (JobState.UNKNOWN, True)
    said = f"accounting says {word}, but the queue no longer lists the job"
    assert found.reason_text == said
    end_ranks(run, 0, 0, 0, 0)
    found = one(run)
    assert (found.state, found.source, found.finished) == (JobState.COMPLETED, "ranks", True)
    assert said in str(found.reason_text)
    # Of a job whose queue does not answer it may be true.
    down(fake_slurm)
    assert one(run).state == word


def test_a_row_of_an_earlier_attempt_is_not_how_a_job_ended(
    fake_slurm: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path, plan={**PLAN, "max_requeues": 2})
    answers(fake_slurm, sacct_out=sacct_row("11", "PREEMPTED"))
    assert one(run).state is JobState.PREEMPTED
    for number in range(4):
        write_rank(run.dir, rank(number, restart=1, exit_code=0, ended=30.0))
    found = one(run)
    assert (found.state, found.restarts) == (JobState.COMPLETED, 1)
    assert "accounting knows only an earlier attempt" in str(found.reason_text)


@pytest.mark.parametrize("began", [111.0, 300.0, 30.0])
def test_the_only_row_that_accounting_has_is_of_the_attempt_whose_ranks_began_in_it(
    fake_slurm: Path, tmp_path: Path, began: float
) -> None:
    """It lost the rows of the attempts before; else the row is of an earlier attempt."""
    run = make_run(tmp_path, plan={**PLAN, "max_requeues": 2})
    answers(fake_slurm, sacct_out=sacct_row("11", "FAILED", "3:0"))
    for number in range(4):
        ended = rank(number, restart=2, started=began, exit_code=3, ended=began + 50)
        write_rank(run.dir, ended)
    found = one(run)
    mine = began == 111.0
    assert (found.state, found.restarts, found.exit_code) == (JobState.FAILED, 2, 3)
    assert found.source == ("sacct" if mine else "ranks")
    assert ("knows only an earlier attempt" in str(found.reason_text)) is not mine


def test_somebody_elses_job_may_be_hidden_from_the_queue(
    fake_slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    answers(fake_slurm, sacct_out=sacct_row("11", "RUNNING"))
    monkeypatch.setattr(Run, "mine", property(lambda _run: False))
    assert one(run).state is JobState.RUNNING


# --- what is said while nobody answers ---


@pytest.mark.parametrize(
    ("words", "status"), [(["report"], 3), (["resubmit", "1001", "--right-size", "--dry-run"], 0)]
)
def test_a_question_that_takes_long_is_told_once(
    fake_slurm: Path, here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, words: list[str],
    status: int,
) -> None:  # fmt: skip
    assert cli("submit", "serial", "/bin/true", "--gpus=0", "--executor=slurm").status == 0
    up(fake_slurm, squeue_row("1001", "COMPLETED"))
    add_program(here.parent / "bin" / "sacct", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(client, "SLOW_S", 1.0)
    monkeypatch.setattr("hpckit.api.report._PATIENCE_S", 4.0)
    monkeypatch.setenv("HPCKIT_PATIENCE", "4")
    said = cli(*words)
    assert said.status == status, said
    told = re.findall(
        r"^note: (\w+) has not answered for 1 s; hpckit waits up to [1-4] s", said.err, re.M
    )
    # On a loaded machine also an squeue that only starts slowly is told of.
    assert [name for name in told if name != "squeue"] == ["sacct"], said
    assert told.count("squeue") <= 1, said
    assert "(HPCKIT_PATIENCE=SECONDS sets how long)" in said.err


def test_who_follows_a_log_hears_once_that_slurm_is_silent(
    fake_slurm: Path, here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(here / "runs")
    (run.dir / "logs" / "0.out").write_text("step 1\n")
    down(fake_slurm, accounting=True)
    monkeypatch.setattr(waiting, "pauses", lambda _runs: itertools.repeat(0.0))
    naps = itertools.count()

    def sleep(_seconds: float) -> None:
        if next(naps) == 3:
            up(fake_slurm, squeue_row("11", "COMPLETED"))

    monkeypatch.setattr("hpckit.run_folders.logs.time", SimpleNamespace(sleep=sleep))
    said = cli("logs", "11", "-f")
    assert (said.status, said.out) == (0, "step 1\n")
    silent, back = said.err.splitlines()
    assert "hpckit does not know what became of the jobs: squeue: " in silent
    assert "Slurm answers again, after " in back


def test_who_waits_hears_once_that_slurm_is_silent_and_that_it_is_back(
    fake_slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(tmp_path), make_run(tmp_path, "ddp-2", job_id="12")]
    rows = rows_of(runs, "RUNNING")
    for kind in (NeverStarting, LiveView):
        look = kind()
        up(fake_slurm, rows)
        look(statuses(runs))
        capsys.readouterr()
        down(fake_slurm, accounting=True)
        (fake_slurm / "squeue.out").unlink()
        look(statuses(runs))
        look(statuses(runs))
        (line,) = capsys.readouterr().err.splitlines()
        assert "hpckit does not know what became of the jobs: squeue: " in line
        assert "Unable to contact slurm controller" in line
        assert "hpckit keeps asking" in line
        up(fake_slurm, rows)
        look(statuses(runs))
        look(statuses(runs))
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(r"Slurm answers again, after [\d.]+ s\.", line)


def test_giving_up_says_what_is_not_known(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    up(fake_slurm, squeue_row("11", "RUNNING"))
    with pytest.raises(StillRunningError, match=r"not over after 0\.1 s; it continues\.$"):
        wait([run], timeout_s=0.1)
    (fake_slurm / "squeue.out").unlink()
    down(fake_slurm, accounting=True)
    with pytest.raises(StillRunningError) as told:
        wait([run], timeout_s=0.1)
    assert "continue" not in str(told.value)
    assert "as far as hpckit knows: Slurm did not answer for 1 of them. squeue: " in str(told.value)


def test_a_list_of_states_says_which_are_old(fake_slurm: Path, here: Path, cli: Cli) -> None:
    make_run(here / "runs")
    answers(fake_slurm, squeue_rc="1", squeue_err=DOWN, sacct_out=sacct_row("11", "RUNNING"))
    told = cli("jobs")
    assert "note: 1 of 1 states may be old, because Slurm did not answer. squeue: " in told.err
    up(fake_slurm, squeue_row("11", "RUNNING"))
    assert "note" not in cli("jobs").err


def test_a_waiting_task_that_is_cancelled_needs_no_word_of_accounting(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    """Slurm's queue forgets it at once: what never ran is nowhere but in accounting."""
    for number in range(2):
        array = {"job_id": "20", "index": number}
        make_run(here / "runs", f"a_{number}", job_id=f"20_{number}", array=array)
    answers(fake_slurm, sacct_rc="1", sacct_err=OFF)
    (fake_slurm / "squeue.out.0").write_text("")
    runs, waits = squeue_row("20_0", "RUNNING"), squeue_row("20_1", "PENDING")
    up(fake_slurm, runs + waits)
    program = here.parent / "bin" / "scancel"
    program.write_text(
        f"#!/bin/sh\nrm {fake_slurm}/squeue.out\nmv {here}/after {fake_slurm}/squeue.out\n"
    )
    program.chmod(0o755)
    (here / "after").write_text(runs)
    told = cli("cancel", "20_1")
    assert told.status == 0, told
    assert told.out == "20_1 CANCELLED: never started\n"
    assert told.err == ""
