"""`hpckit stats` where Slurm's word and the samples meet: attempts, suspension, exit codes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.run_folders.ranks import write_rank
from hpckit.stop_marks import PREEMPTED, add_mark, marks_of
from tests.conftest import Answer, document
from tests.js1 import encode
from tests.report.accounting import keep_accounts, row
from tests.report.html import data_of, read_html
from tests.report.made import START, make_run, write_samples
from tests.unit.made import rank

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
HOUR = [50.0] * 361


@pytest.fixture
def programs(here: Path) -> Path:
    return here.parent / "bin"


def codes(found: dict[str, Any]) -> list[str]:
    return [note["code"] for note in found["notes"]]


def make(here: Path, *restarts: tuple[int, float]) -> Path:
    """Make a run of job 77 with an hour's samples of two GPUs for each (restart, seconds late)."""
    folder = make_run(here / "runs", job_id="77", executor="slurm", plan={"total_gpus": 2})
    for restart, late_s in restarts:
        write_samples(folder / "samples", [HOUR, HOUR], restart=restart, late_s=late_s)
    return folder


def moments(late_s: int, seconds: int = 3600) -> dict[str, str]:
    start = START + late_s
    return {"Start": str(start), "End": str(start + seconds), "ElapsedRaw": str(seconds)}


def test_samples_called_r1_beside_the_only_row_are_that_attempts(
    here: Path, programs: Path, cli: Cli
) -> None:
    make(here, (1, 0))
    keep_accounts(programs, [row("77")])
    found = document(cli, "77")
    assert found["summary"]["gpu_hours"] == pytest.approx(2, abs=0.001)
    assert [(one["restart"], one["state"]) for one in found["attempts"]] == [(1, "COMPLETED")]
    assert found["elapsed_s"] == 3600
    assert "unmatched" not in codes(found)


def test_an_attempt_that_accounting_lost_is_named(here: Path, programs: Path, cli: Cli) -> None:
    make(here, (0, 0), (1, 7200))
    keep_accounts(programs, [row("77", **moments(7200))])
    found = document(cli, "77")
    assert [(one["restart"], one["state"]) for one in found["attempts"]] == [
        (0, None),
        (1, "COMPLETED"),
    ]
    assert [one["start"] for one in found["attempts"]] == [START, START + 7200]
    assert "unmatched" in codes(found)
    assert "Attempt 0 is known only from its samples" in cli("stats", "77").out


def test_an_attempt_without_a_row_whose_ranks_were_killed_ends_with_its_samples(
    here: Path, programs: Path, cli: Cli
) -> None:
    """It did not hold nodes while it waited for its next attempt."""
    folder = make(here, (0, 0), (1, 7200))
    shutil.rmtree(folder / "ranks")
    for restart in (0, 1):
        write_rank(folder, rank(0, restart=restart, started=START + 7200.0 * restart))
    keep_accounts(programs, [row("77", **moments(7200))])
    found = document(cli, "77")
    assert [(one["restart"], one["elapsed_s"]) for one in found["attempts"]] == [
        (0, pytest.approx(3600)),
        (1, 3600),
    ]
    assert found["summary"]["gpu_hours"] == pytest.approx(4, abs=0.001)
    assert codes(found).count("rank_times") == 1
    assert "Accounting does not have attempt 0 (yet)" in cli("stats", "77").out


@pytest.mark.parametrize(("gpus", "each"), [(3, None), (4, 2), (0, 0)])
def test_gpus_of_each_node_are_unknown_where_not_all_have_as_many(
    here: Path, programs: Path, cli: Cli, gpus: int, each: int | None
) -> None:
    tres = f"cpu=16,gres/gpu={gpus},mem=64G,node=2"
    keep_accounts(programs, [row("77", AllocTRES=tres, NNodes="2", NodeList="n[1-2]")])
    asked = document(cli, "77")["requested"]
    assert (asked["nodes"], asked["gpus"], asked["gpus_per_node"]) == (2, gpus, each)


def test_a_job_renamed_between_two_attempts_keeps_both(
    here: Path, programs: Path, cli: Cli
) -> None:
    make(here, (0, 0), (1, 7200))
    first = row("77", State="REQUEUED", **moments(0))
    again = {"Submit": first["End"], "JobName": "renamed"}
    keep_accounts(programs, [first, row("77", **again, **moments(7200, 5400))])
    found = document(cli, "77")
    assert [(one["restart"], one["state"], one["elapsed_s"]) for one in found["attempts"]] == [
        (0, "REQUEUED", 3600),
        (1, "COMPLETED", 5400),
    ]
    assert found["summary"]["gpu_hours"] == pytest.approx(2 * (3600 + 5400) / 3600, abs=0.001)


def test_an_attempt_that_completed_was_not_preempted(here: Path, programs: Path, cli: Cli) -> None:
    """Slurm 24.11.5 takes its end for the preemption of the attempt before."""
    folder = make(here, (0, 0), (1, 7200))
    began = float(START + 7200)
    for number in range(4):
        ended = rank(number, restart=1, started=began, ended=began + 3600, exit_code=0)
        write_rank(folder, ended)
    add_mark(marks_of(folder, 0), 0, PREEMPTED)
    first = row("77", State="REQUEUED", **moments(0))
    again = row("77", State="PREEMPTED", Submit=first["End"], **moments(7200))
    keep_accounts(programs, [first, again])
    found = document(cli, "77")
    assert found["state"] == "COMPLETED"
    assert [one["state"] for one in found["attempts"]] == ["REQUEUED", "COMPLETED"]


@pytest.mark.parametrize(("code", "state"), [(0, "COMPLETED"), (143, "TIMEOUT")])
def test_an_attempt_whose_ranks_had_ended_well_was_ended_by_no_limit(
    here: Path, programs: Path, cli: Cli, code: int, state: str
) -> None:
    folder = make(here, (0, 0))
    for number in range(4):
        ended = rank(number, started=float(START), ended=START + 3590.0, exit_code=code)
        write_rank(folder, ended)
    keep_accounts(programs, [row("77", State="TIMEOUT", **moments(0))])
    found = document(cli, "77")
    assert (found["state"], [one["state"] for one in found["attempts"]]) == (state, [state])


def test_hours_are_unknown_where_an_attempts_length_is(
    here: Path, programs: Path, cli: Cli
) -> None:
    folder = make(here, (1, 7200))
    shutil.rmtree(folder / "ranks")  # which would tell
    first = row("77", State="NODE_FAIL", Submit="1789999990", ElapsedRaw="", End="Unknown")
    again = row("77", Submit=str(START + 7100), **moments(7200))
    keep_accounts(programs, [first, again])
    found = document(cli, "77")
    assert (found["start"], found["elapsed_s"]) == (START, None)
    assert found["summary"]["gpu_hours"] is None
    assert [attempt["gpu_hours"] for attempt in found["attempts"]] == [pytest.approx(2)]
    assert "attempt_lost" in codes(found)
    assert "ran for an unknown time" in cli("stats", "77").out


@pytest.mark.parametrize(
    ("lost", "moments_lost", "until", "first_s"),
    [
        ({"Start": "Unknown"}, "start", "its end", 3500),
        (
            {"Start": "Unknown", "End": "Unknown"},
            "start and end",
            "the last rank's end or sample",
            3000,
        ),
    ],
)
def test_an_attempt_whose_start_accounting_lost_is_told_by_its_ranks(
    here: Path,
    programs: Path,
    cli: Cli,
    lost: dict[str, str],
    moments_lost: str,
    until: str,
    first_s: int,
) -> None:
    folder = make(here, (0, 100), (1, 7200))
    shutil.rmtree(folder / "ranks")
    for restart, late_s in ((0, 100), (1, 7260)):
        began, ended = START + late_s, START + late_s + 3000
        write_rank(folder, rank(0, restart=restart, started=began, ended=ended, exit_code=0))
    first = row("77", State="NODE_FAIL", Submit="1789999990", ElapsedRaw="0", **lost)
    again = row("77", Submit=str(START + 7100), **moments(7200))
    keep_accounts(programs, [first, again])
    found = document(cli, "77")
    assert [(one["restart"], one["state"], one["start"]) for one in found["attempts"]] == [
        (0, "NODE_FAIL", START + 100),
        (1, "COMPLETED", START + 7200),
    ]
    assert (found["start"], found["elapsed_s"]) == (START + 100, first_s + 3600)
    assert found["summary"]["gpu_hours"] == pytest.approx(2 * (first_s + 3600) / 3600)
    assert "attempt_lost" not in codes(found)
    said = f"Accounting does not give the {moments_lost} of attempt 0: its time is from the first "
    assert f"{said}rank's start to {until}." in " ".join(cli("stats", "77").out.split())
    # Nothing is made up of an attempt that left no ranks: it may have begun none.
    shutil.rmtree(folder / "ranks")
    assert [one["restart"] for one in document(cli, "77")["attempts"]][-1] == 1


@pytest.mark.parametrize("sampled", [True, False])
def test_suspended_time_is_in_no_figure(
    here: Path, programs: Path, cli: Cli, sampled: bool
) -> None:
    make(here, *[(0, 0.0)] * sampled)
    keep_accounts(programs, [row("77", End=str(START + 5400))])
    found = document(cli, "77")
    (attempt,) = found["attempts"]
    assert (found["elapsed_s"], attempt["elapsed_s"]) == (3600, 3600)
    hours = (found["summary"]["gpu_hours"], attempt["gpu_hours"])
    assert hours == (pytest.approx(2, abs=0.001), pytest.approx(2, abs=0.001))
    assert (found["end"], attempt["end"]) == (START + 5400, START + 5400)
    if sampled:
        assert found["summary"]["coverage_percent"] == pytest.approx(100, abs=0.5)
    assert codes(found).count("suspended") == 1
    assert "The job was suspended for 30 min 00 s" in cli("stats", "77").out


def resized(at_s: int, end_s: int, **cells: str) -> list[dict[str, str]]:
    """Return the rows of a job of two nodes that went on with n1 alone, as Slurm 22.05 has them."""
    begun = {"Submit": str(START - 10), "Start": str(START)}
    first = {"End": str(START + at_s), "ElapsedRaw": str(at_s), "State": "RESIZING"}
    two = {"NNodes": "2", "NodeList": "n[1-2]", "AllocTRES": "cpu=32,gres/gpu=4,mem=128G,node=2"}
    then = {"Submit": str(START + at_s), "End": str(START + end_s), "ElapsedRaw": str(end_s)}
    return [row("77", **begun | first | two), row("77", **begun | then | cells)]


def sampled_run(here: Path) -> Path:
    return make_run(
        here / "runs", job_id="77", executor="slurm", plan={"total_gpus": 4, "nodes": 2}
    )


def test_samples_of_a_node_that_a_resized_job_kept_are_cut_at_the_change(
    here: Path, programs: Path, cli: Cli
) -> None:
    """n1 is at 90 % before the change and at 60 % after it, n2 at 60 % until then."""
    folder = sampled_run(here)
    kept = [0.0, *[90.0] * 360, *[60.0] * 360]
    write_samples(folder / "samples", [kept, kept])
    write_samples(folder / "samples", [[60.0] * 361] * 2, host="n2", end=False)
    keep_accounts(programs, resized(3600, 7200))
    found = document(cli, "77")
    parts = [
        (one["restart"], one["state"], one["start"], one["elapsed_s"], one["hosts"])
        for one in found["attempts"]
    ]
    assert parts == [
        (0, "RESIZING", START, 3600, ["n1", "n2"]),
        (1, "COMPLETED", START + 3600, 3600, ["n1"]),
    ]
    used = [one["gpu_utilization_percent"] for one in found["attempts"]]
    assert used == [pytest.approx(75), pytest.approx(60)]
    summary = found["summary"]
    assert summary["gpu_utilization_percent"] == pytest.approx(70)
    assert (summary["gpu_hours"], found["elapsed_s"], found["start"]) == (6, 7200, START)
    assert summary["coverage_percent"] == pytest.approx(100, abs=0.1)
    assert summary["gpu_coverage_lowest_percent"] == pytest.approx(100, abs=0.1)
    # 100 W and 5 W for each percent.
    watts = 2 * (550 + 400) + 2 * 400
    assert summary["energy_joules"] == pytest.approx(watts * 3600, rel=1e-3)
    assert summary["cpu_s"] == pytest.approx(4 * 3600 * 3, rel=1e-3)
    assert [note["code"] for note in found["notes"]] == ["sampler_stopped"]


def test_what_is_said_of_a_resized_job_counts_one_attempt(
    here: Path, programs: Path, cli: Cli
) -> None:
    """On the page, in the picture and in metrics, as in the text; lines go on over the change."""
    folder = sampled_run(here)
    write_samples(folder / "samples", [[50.0] * 721] * 2)
    rows = ({"step": at, "time": START + 60 * at, "loss": 1.0} for at in range(1, 90))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    keep_accounts(programs, resized(3600, 7200))
    answer = cli("stats", "77", "--html", "page.html", "--svg", "page.svg")
    assert answer.status == 0, answer.err
    page = read_html(Path("page.html"))
    verdict = page.one("section", id="verdict").text
    assert "COMPLETED after 2 h 00 min in 2 parts of one attempt." in verdict
    assert page.one("p", id="remarks").text == "The 2 parts of one attempt stand on one axis."
    table = page.one("table", id="table-attempts")
    assert [cell.text for cell in table.every("th")][:2] == ["part", "state"]
    data = data_of(page, "page-data")
    assert ([line["word"] for line in data["attempts"]], data["breaks"]) == (["part"] * 2, [])
    picture = Path("page.svg").read_text()
    assert "part 0: RESIZING" in picture
    assert not any(words in picture for words in ("attempt 0", "Grey"))
    said = cli("stats", "77").out
    assert "2 parts of one attempt (figures" in said
    assert "parts 0-1" in said
    metrics = cli("stats", "77", "--openmetrics").out
    (count,) = (line for line in metrics.splitlines() if line.startswith("hpckit_job_attempts{"))
    assert count.endswith("} 1")


def test_of_a_resized_job_that_was_requeued_the_page_says_both(
    here: Path, programs: Path, cli: Cli
) -> None:
    sampled_run(here)
    again = moments(8000) | {"Submit": str(START + 7200)}
    first, second = resized(3600, 7200, State="NODE_FAIL")
    keep_accounts(programs, [first, second, row("77", **again)])
    assert cli("stats", "77", "--html", "page.html").status == 0
    page = read_html(Path("page.html"))
    verdict = page.one("section", id="verdict").text
    assert " in 2 attempts with 3 parts (1 ended NODE_FAIL)." in verdict
    said = page.one("p", id="remarks").text
    assert said.startswith("The 2 attempts with 3 parts stand on one axis; between attempts, in")


def test_a_requeue_after_a_change_of_size_of_which_accounting_has_no_row_keeps_its_samples(
    here: Path, programs: Path, cli: Cli
) -> None:
    """Slurm 22.05 then ends the row of the last size with the whole job."""
    folder = sampled_run(here)
    write_samples(folder / "samples", [[50.0] * 721] * 2)
    write_samples(folder / "samples", [[50.0] * 361] * 2, host="n2", end=False)
    for host in ("n1", "n2"):
        write_samples(folder / "samples", [[80.0] * 361] * 2, host=host, restart=1, late_s=7200)
    keep_accounts(programs, resized(3600, 7200 + 3600))
    found = document(cli, "77")
    rows = [(one["start"] - START, one["gpu_utilization_percent"]) for one in found["attempts"]]
    assert rows == [(0, 50), (3600, 50), (7200, pytest.approx(80))]
    assert [one["hosts"] for one in found["attempts"]] == [["n1", "n2"], ["n1"], ["n1", "n2"]]
    assert found["summary"]["gpu_hours"] == pytest.approx(4 + 2 + 4, abs=0.01)
    assert "unmatched" in codes(found)


@pytest.mark.parametrize("whole", [False, True])
def test_a_record_with_suspended_time_in_its_means_is_of_no_use(
    programs: Path, cli: Cli, whole: bool
) -> None:
    known = {"gpu_utilization": {"0": 60, "1": 60}, "cpus": 16}
    record = encode({"gpus": 2, "nodes": {"n1": known}, "total_time": 5400 if whole else 3600})
    keep_accounts(programs, [row("77", End=str(START + 5400), AdminComment=record)])
    found = document(cli, "77")
    assert found["summary"]["gpu_utilization_percent"] == (None if whole else 60)
    said = "record includes time in which the job was suspended: 1 h 30 min of 1 h 00 min."
    assert said in " ".join(note["text"] for note in found["notes"]) or not whole


def test_any_number_of_foreign_jobs_are_one_question_to_each_program(
    here: Path, programs: Path, cli: Cli
) -> None:
    ids = [str(number) for number in range(100, 140)]
    log = keep_accounts(programs, [row(job_id) for job_id in ids])
    answer = cli("stats", *ids, "--json")
    assert answer.status == 0
    assert [one["job_id"] for one in json.loads(answer.out)["jobs"]] == ids
    calls = [line.partition(" ")[0] for line in log.read_text().splitlines()]
    assert calls.count("squeue") == 1
    assert calls.count("sacct") == 2  # its columns, and the jobs


@pytest.mark.parametrize(
    ("state", "said", "code"),
    [
        ("COMPLETED", "0:0", 0),
        ("FAILED", "3:0", 3),
        ("FAILED", "0:9", 137),
        ("TIMEOUT", "0:0", None),
        ("OUT_OF_MEMORY", "0:125", 253),
        ("RUNNING", "0:0", None),
        ("CANCELLED by 1000", "0:15", 143),
    ],
)
def test_the_exit_code_is_in_the_document(
    here: Path, programs: Path, cli: Cli, state: str, said: str, code: int | None
) -> None:
    keep_accounts(programs, [row("88", State=state, ExitCode=said)])
    assert document(cli, "88")["exit_code"] == code
    assert (f"exit status {code}" in cli("stats", "88").out) == bool(code)


@pytest.mark.parametrize(
    ("state", "full", "rule"),
    [("OUT_OF_MEMORY", True, "out-of-memory"), ("FAILED", None, "failed")],
)
def test_slurms_word_for_full_memory_is_the_figure_that_rules_ask(
    programs: Path, cli: Cli, state: str, full: bool | None, rule: str
) -> None:
    keep_accounts(programs, [row("88", State=state, ExitCode="0:125")])
    found = document(cli, "88")
    assert found["out_of_memory"] is full
    assert {"out-of-memory", "failed"} & {item["id"] for item in found["advice"]} == {rule}
