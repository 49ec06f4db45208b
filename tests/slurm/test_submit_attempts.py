"""A job that is taken away twice, by a higher partition and with a lost node: it is shown whole."""

import json
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.report.html import data_of, read_html
from tests.slurm.conftest import SCRIPTS, Desk, eventually

pytestmark = pytest.mark.slurm
PAIR = ("--nodes", "2", "--gpus", "1", "--sample-interval", "0.2")
# Logs three steps after what is saved, and saves the first of them; ends in the third attempt.
WORK = """\
import json, os, time
from pathlib import Path

here, number = Path(os.environ["HPCKIT_RUN_DIR"]), int(os.environ["HPCKIT_RESTART"])
if os.environ["RANK"] == "0":
    saved = here / "saved"
    after = int(saved.read_text()) if saved.exists() else 0
    with (here / "metrics.jsonl").open("a") as log:
        for step in range(after + 1, after + 4):
            row = {"step": step, "loss": 1 / step, "restart": number, "time": time.time()}
            log.write(json.dumps(row) + "\\n")
    saved.write_text(str(after + 1))
(here / f"at-{number}-{os.environ['RANK']}").touch()
while number < 2 or not (here / "known").exists():
    time.sleep(0.1)
"""
PREEMPTED = "a job of higher priority took its place"


def test_a_job_taken_away_twice_is_shown_whole(desk: Desk) -> None:
    script = desk.work / "work.py"
    script.write_text(WORK)
    job = desk.submit("ddp", script, *PAIR, "--max-requeues", "2")
    run_dir, job_id = Path(job["run_dir"]), job["job_id"]

    def begun(number: int) -> bool:
        hosts = {path.name.split(".")[0] for path in (run_dir / "samples").glob(f"*.r{number}.*")}
        return hosts == {"c1", "c2"} and all(
            (run_dir / f"at-{number}-{rank}").exists() for rank in (0, 1)
        )

    def ended() -> bool:
        """Say whether accounting has all of each attempt, but for a start that it may have lost.

        What an attempt's first step has told it has an end, and no partition.
        """
        ask = ("sacct", "-X", "-D", "-n", "-P", "-o", "Partition,End", "-j", job_id)
        said = [line.split("|") for line in desk.slurm.run(*ask).stdout.splitlines()]
        return len(said) == 3 and all(partition and end[:1].isdigit() for partition, end in said)

    assert eventually(lambda: begun(0))
    urgent = ("--nodes", "2", "--gpus", "4", "--partition", "urgent")
    desk.done("ddp", SCRIPTS / "seen.py", *urgent)
    assert eventually(lambda: begun(1))
    desk.slurm.kill_node("c2", noticed=True)
    try:
        # Before it goes on, it is known already what took it away.
        waits = desk.until(job_id, "PENDING")
        assert [row["why"] for row in waits["earlier_attempts"]] == [PREEMPTED, "node c2 was lost"]
        said = desk.call("logs", job_id, "--errors").out.splitlines()
        assert said[:2] == [
            f"attempt 0 on c1, c2: {PREEMPTED}",
            "attempt 1 on c1, c2: node c2 was lost",
        ]
        [bad] = desk.call("bad-nodes", "--json").json["nodes"]
        assert (bad["host"], bad["what"]) == ("c2", "the node was lost (Slurm)")
    finally:
        desk.slurm.start_node("c2")
    assert eventually(lambda: begun(2), LONG_S)
    (run_dir / "known").touch()
    status = desk.over(job_id)
    assert (status["state"], status["restarts"]) == ("COMPLETED", 2)
    shown = desk.call("status", job_id).out
    assert "restarted 2x" in shown
    assert "before   attempt 1 on c1, c2: node c2 was lost" in shown

    assert eventually(ended)
    desk.call("stats", job_id, "--html", "job.html")
    document = desk.call("stats", job_id, "--json").json
    attempts = document["attempts"]
    assert [(row["restart"], row["why"]) for row in attempts] == [
        (0, PREEMPTED),
        (1, "node c2 was lost"),
        (2, None),
    ]
    states = [row["state"] for row in attempts]
    assert states == ["PREEMPTED", "NODE_FAIL", "COMPLETED"]
    assert document["elapsed_s"] == pytest.approx(sum(row["elapsed_s"] for row in attempts))
    assert document["submitted"] <= attempts[0]["start"]
    notes = [tuple(note.values()) for note in document["notes"]]
    assert len(notes) == len({*notes})  # not one of each attempt
    drawn = json.loads(Path(document["timeseries_file"]).read_text())["attempts"]
    # To the microsecond: a start that accounting lost is the first rank's.
    starts = pytest.approx([row["start"] for row in attempts], abs=2e-6)
    assert [part["start"] for part in drawn] == starts

    page = data_of(read_html(desk.work / "job.html"), "page-data")
    assert [row["start"] for row in page["attempts"]] == starts
    loss = next(chart for chart in page["charts"] if chart["id"] == "run-loss")
    counts, again = (line["mean"] for line in loss["lines"])
    # Each attempt's first step counts; of the others only the last attempt's.
    assert [value for value in counts if value] == pytest.approx([1 / n for n in range(1, 6)])
    assert len(page["breaks"]) == 2
    assert all(counts[at] is again[at] is None for at in page["breaks"])
    assert "3 attempts (" in desk.call("stats", job_id).out
