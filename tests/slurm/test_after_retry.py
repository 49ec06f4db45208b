"""`--after` a job with `--retry`: what waits for the job waits for its last retry."""

import json

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, eventually

pytestmark = pytest.mark.slurm
# The first job fails when it is told to; the second one ends as it is told to.
FAILS = """\
import sys, time
from pathlib import Path
home, found = Path(sys.argv[1]), []
mine = "second" if (home / "failed").exists() else "first"
(home / mine).touch()
while not (found := list(home.glob(f"{mine}-ends-*"))):
    time.sleep(0.05)
if mine == "first":
    (home / "failed").touch()
sys.exit(int(found[0].name[-1]))
"""
ASKED = ("--gpus", "0", "--time", "5", "--sample-interval", "0")


def test_what_waits_for_a_job_waits_for_the_one_that_tries_it_again(desk: Desk) -> None:
    (desk.work / "fails.py").write_text(FAILS)
    home = str(desk.home)
    first = desk.submit("serial", "fails.py", *ASKED, "--retry", "fail", "--", home)["job_id"]
    seen = ("serial", SCRIPTS / "seen.py", *ASKED)
    other = desk.submit(*seen)["job_id"]

    def after(*words: str, more: tuple[str, ...] = ()) -> str:
        options = (part for word in words for part in ("--after", word))
        said = desk.submit(*seen, *options, *more)
        return str(said.get("jobs", [said])[0]["job_id"]).partition("_")[0]

    ok, both, array = after(first), after(first, other), after(first, more=("--array", "x=1,2"))
    end, bad, behind = after(f"afterany:{first}"), after(f"afternotok:{first}"), after(ok)

    def squeue(column: str, *jobs: str) -> list[str]:
        said = (
            desk.slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", column) for job in jobs
        )
        return [" ".join(dict.fromkeys(one.stdout.split())) for one in said]

    (desk.home / "first-ends-3").touch()
    assert eventually((desk.home / "second").exists)
    assert eventually(lambda: squeue("%T", first) == ["FAILED"])
    (folder,) = (path.parent for path in desk.runs.glob("*/retry.json"))
    second = json.loads((folder / "retry.json").read_text())["job_id"]
    desk.submitted.append(second)
    waits = f"afterok:{second}(unfulfilled)"
    assert squeue("%E", ok, end, bad, array) == [
        waits,
        f"afterany:{second}(unfulfilled)",
        f"afternotok:{second}(unfulfilled)",
        waits,
    ]
    log = (folder / "job.out").read_text()
    assert f"hpckit: job {ok} waits for job {second} now, in place of job {first}\n" in log
    # Who comes only now waits for the second one, too.
    said = desk.call("submit", *seen, "--after", first, "--json")
    late = said.json["job_id"]
    desk.submitted.append(late)
    assert f"job {first} is tried again as {second}; this one waits for that one" in said.err
    assert squeue("%E", late) == [waits]
    assert squeue("%T", ok, both, array, end, bad, behind, late) == ["PENDING"] * 7
    (desk.home / "second-ends-0").touch()
    for job in (ok, both, array, end, behind, late):
        desk.until(job, "COMPLETED")
    assert eventually(lambda: squeue("%r", bad) == ["DependencyNeverSatisfied"])


def test_of_an_array_it_is_told_that_it_does_not(desk: Desk) -> None:
    asked = (*ASKED, "--retry", "fail", "--array", "x=1,2")
    array = desk.submit("serial", SCRIPTS / "seen.py", *asked)["jobs"][0]["job_id"].split("_")[0]
    words = ("submit", "serial", SCRIPTS / "seen.py", *ASKED, "--after", array, "--dry-run")
    said = desk.call(*words).err
    assert f"--after {array} is an array with --retry: this job waits for each task, not" in said
