"""What a job's state is when Slurm cannot say all of it: never over when that is not known."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.slurm.cluster import slurm_version
from tests.slurm.conftest import OVER, SCRIPTS, Desk, Record, add_site, eventually, lacking

pytestmark = pytest.mark.slurm
SEEN, FAIL = str(SCRIPTS / "seen.py"), str(SCRIPTS / "fail.py")
PAIR = ("--nodes", "2", "--tasks-per-node", "1")
NO_ACCOUNTING = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


ENDS_EARLY = """\
setup:
  - 'exit 5'
"""


def test_of_several_jobs_each_has_slurms_exit_status(desk: Desk, tmp_path: Path) -> None:
    """Where no rank has one, and accounting says nothing."""
    no_sacct = lacking(desk, tmp_path / "bin", sacct=NO_ACCOUNTING)
    add_site(desk, ENDS_EARLY)
    small = ("serial", SEEN, "--gpus", "0", "--site", "box")
    names = [desk.submit(*small)["job_id"] for _ in range(2)]
    names += [job["job_id"] for job in desk.submit(*small, "--array", "lr=1,2")["jobs"]]
    for name in names:
        assert desk.until(name, "FAILED", env=no_sacct)["exit_code"] == 5
    found = desk.call("status", *names, "--json", env=no_sacct).json["jobs"]
    assert [(row["source"], row["exit_code"]) for row in found] == [("squeue", 5)] * 4
    waited = desk.call("wait", *names, expect=1, env=no_sacct).out
    assert waited.count("FAILED") == waited.count("exit status 5") == 4


def test_a_cluster_that_gives_out_no_configuration_is_not_taken_for_none(desk: Desk) -> None:
    """As on a login node whose slurm.conf comes from slurmctld, while that is down."""
    env = {name: value for name, value in desk.env.items() if name != "SLURM_CONF"}
    login = replace(desk, env=env | {"SLURM_CONF_SERVER": "127.0.0.1:1"})
    said = login.call("submit", "serial", SEEN, "--gpus", "0", expect=3).err
    failed = (
        "failed to fetch remote configs: Unable to contact slurm controller",
        "Try again soon, or run on this machine: --executor local",
    )
    # Slurm 26.05 asks for longer than hpckit waits.
    slow = ("'sbatch' gave no answer within 10 s", "Or run on this machine: --executor local")
    assert any(all(words in said for words in answer) for answer in (failed, slow)), said
    assert not login.runs.exists()
    nowhere = replace(desk, env=env)
    assert "on this machine" in nowhere.call("submit", "serial", SEEN, "--gpus", "0", "--wait").err


def held(desk: Desk) -> Record:
    """Start a job that runs until its run folder has a file `go`."""
    job = desk.submit("ddp", SEEN, *PAIR, "--", "--hold")
    desk.until(job["job_id"], "RUNNING")
    return job


def test_without_a_controller_a_running_job_is_not_over(desk: Desk, tmp_path: Path) -> None:
    job_id = (job := held(desk))["job_id"]
    no_sacct = lacking(desk, tmp_path / "bin", sacct=NO_ACCOUNTING)
    known = ("sacct", "-X", "-n", "-o", "State", "-j", job_id)
    assert eventually(lambda: desk.slurm.run(*known).stdout.split() == ["RUNNING"])
    impatient = {"SLURM_CONF": desk.slurm.impatient["SLURM_CONF"]}
    no_sacct |= impatient
    desk.slurm.kill_controller()
    try:
        with ThreadPoolExecutor() as pool:
            asked = [
                pool.submit(desk.call, "status", job_id, "--json", env=impatient),
                pool.submit(desk.call, "status", job_id, env=no_sacct),
                pool.submit(desk.call, "wait", job_id, "--timeout", "1", expect=3, env=no_sacct),
                # Slurm's own programs give up after MessageTimeout; hpckit's commands sooner.
                pool.submit(desk.call, "status", job_id, "--json"),
                pool.submit(desk.call, "cancel", job_id, expect=3),
            ]
    finally:
        desk.slurm.start_controller()
        # Until the nodes have registered anew, Slurm 22.05 miscounts the GPUs of jobs it starts.
        show = ("scontrol", "show", "node")
        assert eventually(lambda: "SlurmdStartTime=None" not in desk.slurm.run(*show).stdout)
    by_accounting, page, waited, patient, cancelled = [answer.result() for answer in asked]
    assert (by_accounting.json["state"], by_accounting.json["source"]) == ("RUNNING", "sacct")
    # The squeue of 26.05 tries twice as long, if it is asked for a job: hpckit may stop it.
    version = slurm_version(desk.slurm.run("squeue", "--version").stdout)
    longer = version is not None and version >= (26, 0, 0)
    stopped = "'squeue' gave no answer within 6 s"
    for said in (by_accounting.json["reason_text"], page.out):
        assert "Unable to contact slurm controller" in said or (longer and stopped in said), said
    assert page.out.startswith(f"{job_id} UNKNOWN")
    assert "not over after 1 s" in waited.err
    assert (patient.json["state"], patient.json["source"]) == ("RUNNING", "sacct")
    assert "'squeue' gave no answer within 6 s" in patient.json["reason_text"]
    assert "'scancel' gave no answer within" in cancelled.err
    assert desk.status(job_id)["state"] == "RUNNING"
    Path(job["run_dir"], "go").touch()
    assert desk.over(job_id)["state"] == "COMPLETED"


def test_without_accounting_squeue_is_enough(desk: Desk, tmp_path: Path) -> None:
    no_sacct = lacking(desk, tmp_path / "bin", sacct=NO_ACCOUNTING)
    good, bad = (desk.submit("serial", script, "--gpus", "0") for script in (SEEN, FAIL))
    assert desk.until(good["job_id"], *OVER, env=no_sacct)["state"] == "COMPLETED"
    failed = desk.until(bad["job_id"], *OVER, env=no_sacct)
    assert (failed["state"], failed["exit_code"], failed["source"]) == ("FAILED", 1, "squeue")


def test_when_slurm_has_forgotten_the_ranks_own_files_count(desk: Desk, tmp_path: Path) -> None:
    nothing = lacking(desk, tmp_path / "bin", squeue=FORGOTTEN, sacct=NO_ACCOUNTING)
    good = desk.done("ddp", SEEN, *PAIR)
    bad = desk.over(desk.submit("ddp", FAIL, *PAIR, "--", "--rank", "1", "--exit", "7")["job_id"])
    found = desk.status(good["job_id"], env=nothing)
    assert (found["state"], found["exit_code"], found["source"]) == ("COMPLETED", 0, "ranks")
    assert found["nodes"] == ["c1", "c2"]
    found = desk.status(bad["job_id"], env=nothing)
    assert (found["state"], found["exit_code"], found["source"]) == ("FAILED", 7, "ranks")
    # What one rank left out cannot be guessed.
    Path(good["run_dir"], "ranks", "1.json").unlink()
    found = desk.status(good["job_id"], env=nothing)
    assert (found["state"], found["exit_code"]) == ("UNKNOWN", None)
    answer = desk.call("wait", good["job_id"], "--timeout", "1", expect=3, env=nothing)
    assert "not over" in answer.err


def test_a_running_job_that_slurm_does_not_know_is_unknown(desk: Desk, tmp_path: Path) -> None:
    nothing = lacking(desk, tmp_path / "bin", squeue=FORGOTTEN, sacct=NO_ACCOUNTING)
    job = held(desk)
    found = desk.status(job["job_id"], env=nothing)
    assert (found["state"], found["exit_code"]) == ("UNKNOWN", None)
    assert [row["host"] for row in found["ranks"]] in ([], ["c1"], ["c2"], ["c1", "c2"])
    waiting = lacking(desk, tmp_path / "bin", squeue="exit 0", sacct="exit 0")
    assert desk.status(job["job_id"], env=waiting)["state"] == "UNKNOWN"


def test_squeue_says_completing_while_it_ends(desk: Desk, tmp_path: Path) -> None:
    """A state between two others is neither waiting nor over."""
    job = desk.done("serial", SEEN, "--gpus", "0")
    change = 'exec /usr/bin/squeue "$@" | sed s/COMPLETED/COMPLETING/'
    ending = lacking(desk, tmp_path / "bin", squeue=change)
    assert desk.status(job["job_id"], env=ending)["state"] == "COMPLETING"
    answer = desk.call("wait", job["job_id"], "--timeout", "1", expect=3, env=ending)
    assert "not over" in answer.err
