"""`hpckit scale`: what it submits, what it refuses before it submits, and what it gathers."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.run_folders.index import add_to_index
from hpckit.run_folders.runs import read_run
from tests.conftest import Answer, add_program
from tests.unit.made import PLAN, make_run
from tests.unit.played_slurm import answers, end_ranks, squeue_row

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
SCRIPT = "import sys\n"
NOW = 1_790_000_000
FOUR = ("scale", "ddp", "train.py", "--nodes", "1,2", "--repeat", "2")


@pytest.fixture
def script(here: Path) -> Path:
    (here / "train.py").write_text(SCRIPT)
    return here


def calls(folder: Path, program: str) -> list[list[str]]:
    rows = map(json.loads, (folder / "calls.jsonl").read_text().splitlines())
    return [row for row in rows if row[0] == program]


def refusing(here: Path, when: str) -> None:
    """Make an sbatch that refuses `when` bash says so; $number is that of the submission."""
    add_program(
        here.parent / "bin" / "sbatch",
        f"""#!/bin/bash
if [ "${{1-}}" = --version ]; then echo "slurm-wlm 22.05.8"; exit 0; fi
test=; [[ " $* " != *" --test-only "* ]] || test=1
number=$(ls "$FAKE_SLURM_DIR"/script-*.sh 2>/dev/null | wc -l)
if {when}; then echo "sbatch: error: no such nodes" >&2; exit 1; fi
[ -z "$test" ] || {{ echo asked >>"$FAKE_SLURM_DIR/asked"
echo "sbatch: Job 1 to start at 2026-01-01T00:00:00" >&2; exit 0; }}
exec {Path(__file__).parents[1]}/fakes/slurm/sbatch "$@"
""",
    )


def records(here: Path) -> list[dict[str, Any]]:
    found = (json.loads(path.read_text()) for path in (here / "runs").glob("*/run.json"))
    return sorted(found, key=lambda row: int(row["job_id"]))


def test_rounds_are_submitted_there_and_back_and_each_run_names_its_study(
    script: Path, fake_slurm: Path, cli: Cli
) -> None:
    refusing(script, "false")
    said = cli(*FOUR, "--no-wait")
    assert said.status == 0, said.err
    rows = records(script)
    assert [row["plan"]["nodes"] for row in rows] == [1, 2, 2, 1]
    assert [row["study"]["repeat"] for row in rows] == [1, 1, 2, 2]
    assert {row["study"]["id"] for row in rows} == {said.out.strip()}
    assert {(row["study"]["sizes"], row["study"]["repeats"]) for row in rows} == {(2, 2)}
    asked = (fake_slurm / "asked").read_text().splitlines()
    assert len(asked) == 2  # one question for each size, before anything is submitted
    assert "afterany" not in "".join(path.read_text() for path in fake_slurm.glob("script-*.sh"))


def test_what_does_not_wait_prints_one_document_too(
    script: Path, fake_slurm: Path, cli: Cli
) -> None:
    refusing(script, "false")
    said = cli(*FOUR, "--no-wait", "--json")
    assert said.status == 0, said.err
    document = json.loads(said.out)
    assert {row["study"]["id"] for row in records(script)} == {document["study"]}
    assert [row["runs"] for row in document["sizes"]] == [0, 0]


@pytest.mark.parametrize("words", [("--csv",), ("--html", "x.html"), ("--svg", "x.svg")])
def test_figures_that_nobody_waits_for_are_refused_before_anything_is_submitted(
    script: Path, fake_slurm: Path, cli: Cli, words: tuple[str, ...]
) -> None:
    said = cli(*FOUR, "--no-wait", *words)
    assert (said.status, said.out) == (2, "")
    assert f"{words[0]} needs figures, and --no-wait does not wait" in said.err
    assert not (script / "runs").exists()


def test_in_turn_each_run_waits_for_the_one_before(
    script: Path, fake_slurm: Path, cli: Cli
) -> None:
    refusing(script, "false")
    assert cli(*FOUR, "--no-wait", "--in-turn").status == 0
    ids = [row["job_id"] for row in records(script)]
    texts = [(script / "runs" / row["run_id"] / "job.sh").read_text() for row in records(script)]
    found = [re.findall(r"#SBATCH --dependency=afterany:(\d+)", text) for text in texts]
    assert found == [[], *([one] for one in ids[:-1])]


@pytest.mark.parametrize("words", [("--gpus", "1,2,99"), ("--gpus", "2,4")])
def test_a_size_that_cannot_be_had_is_refused_before_anything_is_submitted(
    script: Path, fake_slurm: Path, cli: Cli, words: tuple[str, str]
) -> None:
    (script / "templates/sites").mkdir(parents=True)
    (script / "templates/sites/lab.yaml").write_text(
        "description: d\ndefaults: {partition: gpu}\npartitions:\n  gpu: {gpus_per_node: 2}\n"
    )
    refusing(script, "false")
    said = cli("scale", "ddp", "train.py", *words, "--site", "lab")
    assert said.status == 2
    assert f"size with --gpus {words[1].rpartition(',')[2]} cannot be submitted" in said.err
    assert list(fake_slurm.glob("script-*.sh")) == []
    assert not (script / "runs").exists()


def test_slurm_is_asked_about_each_size_before_anything_is_submitted(
    script: Path, fake_slurm: Path, cli: Cli
) -> None:
    refusing(script, '[ "$test" ] && grep -q -e --nodes=2 "${@: -1}"')
    said = cli(*FOUR)
    assert said.status != 0
    assert "no such nodes" in said.err
    assert list(fake_slurm.glob("script-*.sh")) == []
    assert not (script / "runs").exists() or list((script / "runs").iterdir()) == []


def test_where_a_later_run_is_refused_the_earlier_ones_are_cancelled(
    script: Path, fake_slurm: Path, cli: Cli
) -> None:
    refusing(script, '[ -z "$test" ] && [ "$number" -ge 2 ]')
    answers(
        fake_slurm, squeue_out=squeue_row("1001", "CANCELLED") + squeue_row("1002", "CANCELLED")
    )
    said = cli(*FOUR)
    assert said.status != 0
    assert "2 runs of the study were submitted, and are cancelled" in said.err
    assert "no such nodes" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scale", "ddp", "train.py", "--gpus", "2"), "needs two sizes"),
        (("scale", "ddp", "train.py", "--gpus", "1,2", "--weak"), "as in --grow samples"),
        (("scale", "device-bench", "--gpus", "1,2", "--weak"), "does not say which of its"),
        (("scale", "ddp", "train.py", "--gpus", "1,2", "--repeat", "0"), "--repeat 0 must"),
        (("scale", "ddp", "train.py", "--gpus", "1,2", "--repeat", "501"), "are 1002 jobs"),
        (("scale", "ddp", "train.py", "--gpus", "2,2x1"), "Two sizes have 2 GPUs"),
        (("scale", "mpi-vi", "--gpus", "0,1"), "some have none"),
        (("scale", "ddp", "train.py", "--gpus", "1,2", "--efficiency", "70"), "efficiency 70"),
        (("scale", "ddp", "train.py", "--gpus", "1,2", "--png", "a.svg"), "must end in .png"),
        (("scale", "--from", "latest", "--gpus", "1,2"), "--from submits nothing"),
        (("scale", "--from", "nothing"), "There is no study 'nothing'"),
        (("scale", "--gpus", "1,2"), "Give a workload or a strategy"),
        (("scale", "ddp", "train.py", "--gpus", "1,2", "--json", "--csv"), "Give one of --json"),
    ],
)
def test_bad_words_are_one_clear_error(
    script: Path, cli: Cli, words: tuple[str, ...], said: str
) -> None:
    found = cli(*words)
    assert found.status == 2, found.err
    assert said in found.err.splitlines()[-1]
    assert not (script / "runs").exists()


def test_a_dry_run_says_what_grows_and_submits_nothing(script: Path, cli: Cli) -> None:
    found = cli(
        "scale", "ddp", "train.py", "--nodes", "1,2,4", "--weak", "--grow", "batch", "--dry-run",
        "--", "--batch", "32",
    )  # fmt: skip
    assert found.status == 0, found.err
    assert [f"train.py --batch {32 * n}\n" in found.err for n in (1, 2, 4)] == [True] * 3
    assert "#SBATCH --nodes=1" in found.out
    assert not (script / "runs").exists()


def test_workloads_say_what_grows(script: Path, cli: Cli) -> None:
    found = cli("scale", "mpi-vi", "--gpus", "1,2", "--weak", "--dry-run")
    assert found.status == 0, found.err
    grow = [hpckit.workload(row.name).weak_scaling for row in hpckit.workloads()]
    assert ("n-samples-per-epoch", "n-samples-regularisation") in grow
    assert grow.count(("batch-size",)) == 4


def a_study(root: Path, seconds: dict[int, tuple[float | None, ...]], **changes: Any) -> None:
    """Make the runs of a study that is over: seconds per step by size; None failed."""
    for nodes, times in seconds.items():
        for repeat, time in enumerate(times, 1):
            part = {"id": "st", "sizes": len(seconds), "repeats": len(times), "repeat": repeat,
                    "weak": False, "grow": [], "in_turn": True}  # fmt: skip
            plan = {**PLAN, "nodes": nodes, "gpus_per_node": 1, "tasks_per_node": 1, "ranks": nodes,
                    "total_gpus": nodes}  # fmt: skip
            job_id = f"{nodes}{repeat}"
            run = make_run(
                root, f"ddp-{job_id}", job_id=job_id, plan=plan, study={**part, **changes}
            )
            end_ranks(run, *([1 if time is None else 0] * nodes))
            rows = [{"step": at, "s_per_step": time, "total_steps": 50} for at in (1, 2, 3)]
            (run.dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def queue(folder: Path, **states: str) -> None:
    answers(folder, squeue_out="".join(squeue_row(job[1:], it) for job, it in states.items()))


def test_a_study_is_gathered_from_its_runs_with_one_question(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    a_study(here / "runs", {1: (10.0, 10.2), 2: (5.5, 5.3)})
    queue(fake_slurm, j11="COMPLETED", j12="COMPLETED", j21="COMPLETED", j22="COMPLETED")
    found = cli("scale", "--from", "st", "--json")
    assert found.status == 0, found.err
    document = json.loads(found.out)
    assert [row["time_s"]["value"] for row in document["sizes"]] == pytest.approx([10.1, 5.4])
    assert document["law"]["standard_error"] is None
    assert len(calls(fake_slurm, "squeue")) <= 2  # waiting, then gathering
    assert hpckit.study("st").report().document() == document
    assert cli("scale", "--resume", "latest", "--csv").out.startswith("size,label,")


def test_the_latest_study_of_a_folder_is_one_that_lies_in_it(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    """A newer one that the index knows elsewhere is the latest without a folder."""
    a_study(here / "mine", {1: (10.0, 10.2), 2: (5.5, 5.3)}, id="mine")
    a_study(here / "other", {1: (20.0, 20.2), 2: (9.5, 9.3)}, id="other")
    for at, word in enumerate(("mine", "other")):
        for run in hpckit.runs(runs=here / word):
            record = json.loads((run.dir / "run.json").read_text())
            (run.dir / "run.json").write_text(json.dumps(record | {"submitted_at": 1e9 + at}))
    add_to_index([run._folder for run in hpckit.runs(runs=here / "other")])
    assert hpckit.study("latest").name == "other"
    assert hpckit.study("latest", runs=here / "mine").name == "mine"
    assert hpckit.study("other", runs=here / "mine").name == "other"
    (here / "none").mkdir()
    refused = cli("scale", "--from", "latest", "--runs", str(here / "none"))
    assert refused.status == 2
    assert f"There is no study 'latest' in {here / 'none'}: " in refused.err


def test_what_failed_is_said_and_is_the_exit_status(here: Path, fake_slurm: Path, cli: Cli) -> None:
    a_study(here / "runs", {1: (10.0, None), 2: (5.5, 5.3)})
    queue(fake_slurm, j11="COMPLETED", j12="FAILED", j21="COMPLETED", j22="COMPLETED")
    found = cli("scale", "--from", "st", "--efficiency", "0.99")
    assert found.status == 1
    assert (
        "job 12 (1, round 2) does not count: it is FAILED; see hpckit logs 12 --errors"
        in " ".join(found.out.split())
    )
    assert "1/2" in found.out
    assert "has an efficiency of 99 %" not in found.out


def test_a_run_that_still_waits_is_left_out_without_waiting(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    a_study(here / "runs", {1: (10.0,), 2: (5.5,), 4: (3.0,)})
    queue(fake_slurm, j11="COMPLETED", j21="COMPLETED", j41="PENDING")
    found = cli("scale", "--from", "st", "--no-wait")
    assert found.status == 0, found.err
    assert "job 41 (4x1, round 1) does not count: it is PENDING" in found.out


def test_the_runs_of_others_with_the_same_name_do_not_spoil_a_study(
    here: Path, fake_slurm: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_study(here / "runs", {1: (10.0,), 2: (5.5,)})
    a_study(here / "other", {3: (0.1,)})
    theirs = (here / "other/ddp-31").rename(here / "runs/ddp-31")
    theirs.chmod(0o777)  # anybody's words
    queue(fake_slurm, j11="COMPLETED", j21="COMPLETED", j31="COMPLETED")
    assert len(hpckit.study("st").runs) == 2


def test_a_record_whose_study_is_none_is_damaged(tmp_path: Path) -> None:
    run = make_run(tmp_path, study={"id": "st"})
    with pytest.raises(hpckit.DamagedRunError, match=r"study\.\w+' is missing"):
        read_run(run.dir)


def test_the_page_and_pictures_are_written(here: Path, fake_slurm: Path, cli: Cli) -> None:
    a_study(here / "runs", {1: (10.0, 10.2), 2: (5.5, 5.3)}, id="<script>&")
    queue(fake_slurm, j11="COMPLETED", j12="COMPLETED", j21="COMPLETED", j22="COMPLETED")
    found = cli("scale", "--from", "latest", "--html", "s.html", "--png", "s.png", "--svg", "s.svg")
    assert found.status == 0, found.err
    page = (here / "s.html").read_text()
    assert "<script>&<" not in page
    assert "Study &lt;script&gt;&amp;" in page
    assert "http" not in re.sub(
        r"http-equiv|https?://(www\.w3\.org|leeoniya|github)\S*", "", page.partition("<body")[0]
    )
    assert (here / "s.png").read_bytes().startswith(b"\x89PNG")
    svg = (here / "s.svg").read_text()
    assert "Speed-up" in svg
    assert "Amdahl's law" in svg


def test_without_a_law_the_verdict_is_the_largest_size_alone(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    a_study(here / "runs", {1: (10.0,)})
    queue(fake_slurm, j11="COMPLETED")
    found = cli("scale", "--from", "latest", "--html", "s.html")
    assert found.status == 0, found.err
    page = (here / "s.html").read_text()
    verdict = page[page.index('id="verdict"') :].partition("</section>")[0]
    assert verdict.count("<p>") == 1
    assert "Largest size measured" in verdict
    assert page.count("Not measured by the program") == 1


def test_without_matplotlib_pictures_are_refused_before_anything_is_submitted(
    script: Path, fake_slurm: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = cli(*FOUR, "--png", "s.png")
    assert said.status == 3
    assert f"Install it: {sys.executable} -m pip install 'matplotlib>=3.8'" in said.err
    assert not (script / "runs").exists()
    assert not [*fake_slurm.glob("script-*.sh")]


@pytest.mark.parametrize("unit", [lambda at: 2.0 * at, lambda at: (NOW + 2 * at) * 1000])
def test_times_of_lines_that_cannot_be_of_their_run_are_not_timed_and_said_once(
    here: Path, fake_slurm: Path, cli: Cli, unit: Callable[[int], float]
) -> None:
    a_study(here / "runs", {1: (10.0, 10.2), 2: (5.5, 5.3)})
    for folder in (here / "runs").iterdir():
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "submitted_at": NOW}))
        for path in (folder / "ranks").iterdir():
            row = json.loads(path.read_text())
            for attempt in row["attempts"]:
                attempt |= {"started": NOW + 1, "ended": NOW + 41}
            path.write_text(json.dumps(row))
        rows = [{"step": at, "loss": 1.0, "time": unit(at)} for at in range(1, 11)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queue(fake_slurm, j11="COMPLETED", j12="COMPLETED", j21="COMPLETED", j22="COMPLETED")
    document = json.loads(cli("scale", "--from", "st", "--json").out)
    assert document["timed"] == "wall"
    assert [row["time_s"]["value"] for row in document["sizes"]] == [40, 40]
    assert document["notes"] == [
        'in 4 of 4 runs, 40 lines of metrics.jsonl have a "time" that cannot be of the run '
        f'(first {json.dumps(unit(1))}), so they are not timed. "time" must be seconds since '
        "1970-01-01, as time.time() gives."
    ]
    said = cli("status", "11", "--runs", "runs").out
    assert said.count("  note     10 of the newest lines of metrics.jsonl have a") == 1
