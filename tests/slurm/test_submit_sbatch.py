"""Options of sbatch that hpckit has no word of its own for, as Slurm records them."""

import json
import re
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, add_site

pytestmark = pytest.mark.slurm

# What is asked, and what `scontrol show job` then says.
ASKED = {
    "hold": "Priority=0",
    "exclusive": "OverSubscribe=NO",
    "nice=7": "Nice=7",
    'comment=Ada\'s "3" $x #a \\ é': 'Comment=Ada\'s "3" $x #a \\ é',
    "begin=2035-01-02T03:04:05": "StartTime=2035-01-02T03:04:05",
    "deadline=2036-01-02T03:04:05": "Deadline=2036-01-02T03:04:05",
    "nodelist=c2": "ReqNodeList=c2",
    "contiguous": "Contiguous=1",
    "switches=1@5": "Switches=1@00:05:00",
    "tmp=1M": "MinTmpDiskNode=1M",
    "mail-user=ada@example.org": "MailUser=ada@example.org",
    "mail-type=END": "MailType=END",
}


def shown(desk: Desk, job_id: str) -> str:
    return desk.slurm.run("scontrol", "show", "job", "--oneliner", job_id).stdout


def test_options_reach_slurm_and_are_changed_and_dropped(desk: Desk) -> None:
    add_site(desk, "defaults: {sbatch: [nice=3, comment=of-the-site]}\n")
    words = [word for text in ASKED for word in ("--sbatch", text)]
    script = SCRIPTS / "seen.py"
    said = desk.call("submit", "serial", script, "--gpus=0", "--site=box", *words, "--json")
    job_id = json.loads(said.out)["job_id"]
    record = shown(desk, job_id)
    missing = [text for text, field in ASKED.items() if field not in record]
    assert missing == [], record
    more = ("--sbatch", "nice=9", "--unset", "sbatch:comment", "--unset", "sbatch:begin", "--json")
    again = desk.call("resubmit", job_id, *more)
    assert "sbatch: " in again.err  # what differs is said
    record = shown(desk, json.loads(again.out)["job_id"])
    assert "Nice=9" in record
    assert "Comment=of-the-site" in record
    assert "2035-01-02" not in record
    desk.call("cancel", job_id, json.loads(again.out)["job_id"])


def test_slurm_itself_judges_an_option_before_and_at_submission(desk: Desk) -> None:
    script = SCRIPTS / "seen.py"
    runs = Path(desk.work, "runs")
    for words in (("--check",), ()):
        said = desk.call(
            "submit", "serial", script, "--gpus", "0", "--sbatch", "no-such-option", *words,
            expect=3,
        )  # fmt: skip
        assert re.search(r"no-such-option|unrecognized option", said.err), said.err
    assert not runs.exists() or not list(runs.iterdir())
