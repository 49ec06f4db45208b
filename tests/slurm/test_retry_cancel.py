"""A job is cancelled while it submits its `--retry`: nothing is left that runs."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm.conftest import HPCKIT, Desk, eventually, lacking

pytestmark = pytest.mark.slurm
# Inside the job, sbatch waits before its work, or after it, until the test lets it go on. Slurm's
# SIGTERM does not end it.
SBATCH = """\
trap '' TERM
until_told() {{ touch {home}/there; until [ -e {home}/go ]; do sleep 0.05; done; }}
if [ "$1" != --parsable ] || [ ! -e {home}/armed ]; then exec {real} "$@"; fi
[ {when} = before ] && until_told
{real} "$@" || exit
[ {when} = after ] && until_told
exit 0
"""
# The first job fails once sbatch is armed; the second one would run for ever.
FAILS = """\
import sys, time
from pathlib import Path
home = Path(sys.argv[1])
while not (home / "armed").exists():
    time.sleep(0.05)
if not (home / "failed").exists():
    (home / "failed").touch()
    sys.exit(3)
while True:
    time.sleep(1)
"""
ASKED = ("--gpus", "0", "--time", "5", "--sample-interval", "0", "--retry", "fail")


def fails(desk: Desk, when: str) -> str:
    """Submit a job that fails, and return its id once it is about to submit itself again."""
    (desk.work / "fails.py").write_text(FAILS)
    real = shutil.which("sbatch", path=desk.env["PATH"])
    body = SBATCH.format(home=desk.home, when=when, real=real)
    path = lacking(desk, desk.home / "bin", sbatch=body)
    job = desk.submit("serial", "fails.py", *ASKED, "--", str(desk.home), env=path)
    (desk.home / "armed").touch()
    there = "there" if when != "never" else "failed"
    assert eventually((desk.home / there).exists)
    return str(job["job_id"])


def state(desk: Desk, job_id: str) -> str:
    return desk.slurm.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").stdout.strip()


def of_user(desk: Desk) -> list[str]:
    """Give the states of the jobs whose logs are this desk's, the first job's first."""
    said = desk.slurm.run("squeue", "-h", "-t", "all", "-S", "i", "-O", "State:20,StdOut:500")
    rows = [line.split() for line in said.stdout.splitlines()]
    return [row[0] for row in rows if row[1].startswith(str(desk.runs))]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["hpckit cancel", "scancel"])
def test_whoever_comes_second_ends_the_new_job(desk: Desk, when: str, how: str) -> None:
    first = fails(desk, when)
    argv = [HPCKIT, "cancel", first] if how == "hpckit cancel" else ["scancel", first]
    with subprocess.Popen(argv, env=desk.env, cwd=desk.work) as asked:
        assert eventually(lambda: state(desk, first) == "COMPLETING")
        (desk.home / "go").touch()
        assert asked.wait() == 0
    assert eventually(lambda: of_user(desk) == ["CANCELLED", "CANCELLED"]), of_user(desk)
    (folder,) = (path.parent for path in desk.runs.glob("*/retry.json"))
    second = json.loads((folder / "retry.json").read_text())["job_id"]
    page = desk.call("status", first).out
    assert page.startswith(f"{first} CANCELLED")
    assert f"  note     it failed; job {second} tries again (retry 1 of 1): the same again" in page


def test_a_job_that_slurm_kills_meanwhile_leaves_none_either(desk: Desk) -> None:
    first = fails(desk, "after")
    desk.call("cancel", first)  # it never looks for the mark
    assert eventually(lambda: of_user(desk) == ["CANCELLED", "CANCELLED"]), of_user(desk)
    assert "; job " in desk.call("status", first).out


def test_a_job_that_is_over_ends_with_its_retry(desk: Desk) -> None:
    first = fails(desk, "never")
    assert eventually(lambda: of_user(desk) == ["FAILED", "RUNNING"]), of_user(desk)
    said = desk.call("cancel", first, "--json").json["jobs"]
    assert [row["job_id"] for row in said][:1] == [first]
    assert of_user(desk) == ["FAILED", "CANCELLED"]
    assert Path(said[1]["run_dir"], "run.json").exists()
