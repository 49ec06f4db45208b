"""`hpckit report` where accounting has lost the end of a job: its row says RUNNING for ever."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer, add_program
from tests.report.groups import HOUR, NOW, accounts, row
from tests.report.test_group_ledger import ME, ledger, line, put

pytestmark = pytest.mark.long
__all__ = ["accounts", "ledger"]
Cli = Callable[..., Answer]
RUNS = {"State": "RUNNING", "End": "Unknown", "TimelimitRaw": "60", "ElapsedRaw": str(30 * HOUR)}
_SQUEUE = """#!{python}
import json, sys
open({log!r}, "a").write(" ".join(sys.argv[1:]) + chr(10))
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
for job, user in json.loads({jobs!r}).items():
    text = options["--format"].replace("%i", job).replace("%u", user).replace("%T", "RUNNING")
    print(text.replace("%A", job))
"""


@pytest.fixture
def queue(here: Path) -> Callable[..., Path]:
    """Let squeue list jobs, with their users; return what logs how it was asked."""

    def add(**jobs: str) -> Path:
        log = here.parent / "asked-of-squeue"
        names = {name.removeprefix("job"): user for name, user in jobs.items()}
        text = _SQUEUE.format(python=sys.executable, log=str(log), jobs=json.dumps(names))
        add_program(here.parent / "bin" / "squeue", text)
        return log

    return add


def test_a_job_that_only_accounting_has_is_left_out_and_said(accounts, queue, cli: Cli) -> None:
    log = queue(job3="alice")
    accounts(
        row("1", NOW - 3 * HOUR, 1),
        row("2", NOW - 30 * HOUR, 0, **RUNS),
        row("3", NOW - 30 * HOUR, 0, **RUNS),  # the site lets jobs go on
        row("4", NOW - HOUR, 0, **RUNS | {"ElapsedRaw": str(HOUR)}),  # may be hidden from squeue
        row("5", NOW - 30 * HOUR, 0, **RUNS | {"TimelimitRaw": "UNLIMITED"}),
    )
    said = json.loads(cli("report", "--since", "2d", "--json").out)
    assert said["total"]["jobs"] == 4
    assert said["total"]["gpu_hours"] == 2 * (1 + 30 + 1 + 30)
    assert said["notes"] == [
        "1 attempt left out of all figures: accounting has lost the end. The job is RUNNING there, "
        "beyond the time limit, and the queue does not have it (2 of alice). Administrators "
        "correct this: sacctmgr show runawayjobs"
    ]
    (asked,) = log.read_text().strip("\n").split("\n")
    assert asked.endswith("--jobs=2,3")
    hidden = cli("report", "--since", "2d", "--hide-names", "--json").out
    assert ("1 attempt left out" in hidden, "alice" in hidden) == (True, False)


def test_the_queue_is_asked_only_where_accounting_cannot_be_right(
    accounts, queue, cli: Cli
) -> None:
    log = queue()
    accounts(row("1", NOW - 30 * HOUR, 1), row("2", NOW - HOUR, 0, **RUNS | {"ElapsedRaw": "10"}))
    assert json.loads(cli("report", "--json").out)["notes"] == []
    assert not log.exists()


def test_a_number_that_is_another_users_now_is_not_that_job(accounts, queue, cli: Cli) -> None:
    """The controller lost its state, and counts anew."""
    queue(job2="bob")
    accounts(row("2", NOW - 30 * HOUR, 0, **RUNS))
    said = json.loads(cli("report", "--json").out)
    assert (said["total"]["jobs"], len(said["notes"])) == (0, 1)


def test_a_queue_that_does_not_answer_leaves_the_job_in_and_says_so(
    accounts, here: Path, cli: Cli
) -> None:
    add_program(
        here.parent / "bin" / "squeue", "#!/bin/sh\necho 'slurm_load_jobs error' >&2\nexit 1\n"
    )
    accounts(row("2", NOW - 30 * HOUR, 0, **RUNS))
    said = json.loads(cli("report", "--json").out)
    assert said["total"]["gpu_hours"] == 60
    (note,) = said["notes"]
    assert note.startswith("1 attempt is beyond the time limit in accounting, and it may be over: ")


def test_a_ledger_knows_the_end(accounts, queue, ledger: Path, cli: Cli) -> None:
    queue()
    accounts(row("2", NOW - 30 * HOUR, 0, User=ME, **RUNS))
    put(ledger, ME, line(ME, "2", NOW - 30 * HOUR + 1, 0.5))
    said = json.loads(cli("report", "--site", "ours", "--since", "2d", "--all", "--json").out)
    assert (said["total"]["jobs"], said["total"]["gpu_hours"]) == (1, pytest.approx(1, abs=0.01))
    assert not any("left out" in note for note in said["notes"])
