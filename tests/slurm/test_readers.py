"""Proves the readers of hpckit/slurm against a real Slurm."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpckit.errors import CommandError
from hpckit.slurm import cluster, control, jobs, usage
from hpckit.slurm.states import JobRecord, JobState, is_finished
from tests.patience import LONG_S
from tests.slurmbox.fixture import Slurm

pytestmark = pytest.mark.slurm
Submit = Callable[..., str]
Reader = Callable[[list[str]], dict[str, JobRecord]]
_ROW = ["99999999"] * 2 + ["root", "lab", "gpu", "normal", "RUNNING"]
# A name that reads like rows of squeue and sacct, and a job of scontrol; Slurm keeps 255 bytes.
FORGED = "\n".join((
    "two", "\x1e" + "\x1f".join([*_ROW, "0:01", "1:00", "1", "2", "N/A", "c1", "None", "x"]),
    "\x1f".join([*_ROW, "", "c1", "5", "60", "1", "2", "3", "0:0", "x"]),
    "", "JobId=99999999 JobName=x", "   UserId=bob(1) JobState=RUNNING", "lines|",
))  # fmt: skip


@pytest.fixture
def submit(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Submit]:
    """Gives a function that submits a command; what is left of the jobs is cancelled after."""
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    submitted: list[str] = []

    def sbatch(command: str, *options: str) -> str:
        argv = ["sbatch", f"--output={tmp_path}/%j.out", "--mem=10", *options, "--wrap", command]
        job_id = control.parse_job_id(slurm.run(*argv).stdout)
        submitted.append(job_id)
        return job_id

    yield sbatch
    control.cancel(submitted)


def wait(
    reader: Reader, job_id: str, good: Callable[[JobRecord], bool], within_s: float = LONG_S
) -> JobRecord:
    """Read a job until it is as it should be, for a scheduler takes its time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        record = reader([job_id]).get(job_id)
        if record is not None and good(record):
            return record
        time.sleep(0.05)
    raise AssertionError(f"{job_id} is {reader([job_id])} after {within_s} s")


def finished(record: JobRecord) -> bool:
    return is_finished(record.state)


def running(record: JobRecord) -> bool:
    """Say whether a job runs, and accounting knows more of it than that a step began."""
    return record.state is JobState.RUNNING and record.name is not None


def test_both_readers_see_a_running_job_alike(submit: Submit) -> None:
    job_id = submit("sleep 600", "--job-name=a|b c", "--nodes=2", "--time=7")
    fresh, kept = wait(jobs.squeue, job_id, running), wait(jobs.sacct, job_id, running)
    for record in (fresh, kept):
        assert (record.name, record.nodes, record.user) == ("a|b c", ("c1", "c2"), "root")
        assert (record.time_limit_min, record.end_time, record.exit_code) == (7, None, None)
        assert record.start_time is not None
        assert record.submit_time is not None
        assert record.submit_time <= record.start_time <= time.time()
    assert fresh.submit_time == kept.submit_time


def test_a_finished_job_is_known_to_all(submit: Submit) -> None:
    job_id = submit("true", f"--job-name={FORGED}")
    assert wait(jobs.squeue, job_id, finished).state is JobState.COMPLETED
    kept = wait(jobs.sacct, job_id, lambda record: finished(record) and record.name is not None)
    assert (kept.state, kept.exit_code, kept.restarts) == (JobState.COMPLETED, 0, 0)
    assert (kept.name, kept.partition) == (FORGED, "gpu")
    assert jobs.ends([job_id]) == {job_id: ("0:0", 0)}


def test_a_name_forges_no_row(submit: Submit) -> None:
    """Neither squeue nor sacct escapes what a name holds."""
    job_id = submit("exit 3", f"--job-name={FORGED}", f"--comment={FORGED}")
    other = "99999999"
    wait(jobs.squeue, job_id, finished)  # accounting may know of the end before the controller
    wait(jobs.sacct, job_id, lambda record: finished(record) and record.name is not None)
    for reader in (jobs.squeue, jobs.sacct, usage.job_usage):
        assert reader([job_id, other]).keys() == {job_id}, reader
    fresh, kept = jobs.squeue([job_id])[job_id], jobs.sacct([job_id])[job_id]
    for record in (fresh, kept, usage.job_usage([job_id])[job_id][-1].record):
        assert (record.name, record.state, record.user) == (FORGED, JobState.FAILED, "root")
    assert jobs.ends([job_id]) == {job_id: ("3:0", 0)}


def test_a_failed_job_has_its_exit_code(submit: Submit) -> None:
    job_id = submit("exit 3")
    wait(jobs.squeue, job_id, finished)  # its epilog first: until then the job is COMPLETING
    kept = wait(jobs.sacct, job_id, finished)
    assert (kept.state, kept.exit_code) == (JobState.FAILED, 3)
    killed = submit("kill -KILL $$")
    wait(jobs.squeue, killed, finished)
    assert jobs.ends([job_id, killed]) == {job_id: ("3:0", 0), killed: ("0:9", 0)}


def test_a_job_killed_by_a_signal_has_the_shells_exit_code(submit: Submit) -> None:
    kept = wait(jobs.sacct, submit("kill -KILL $$"), finished)
    assert (kept.state, kept.exit_code) == (JobState.FAILED, 137)


def test_a_cancelled_job_is_cancelled_for_both(submit: Submit) -> None:
    job_id = submit("sleep 600")
    wait(jobs.squeue, job_id, running)
    control.cancel([job_id, "99999999"])
    assert wait(jobs.squeue, job_id, finished).state is JobState.CANCELLED
    assert wait(jobs.sacct, job_id, finished).state is JobState.CANCELLED


def test_a_requeued_job_counts_its_restart(submit: Submit, slurm: Slurm) -> None:
    job_id = submit("sleep 600", "--requeue")
    wait(jobs.sacct, job_id, running)
    slurm.run("scontrol", "requeue", job_id)
    wait(jobs.squeue, job_id, lambda record: record.state is JobState.PENDING)
    wait(jobs.sacct, job_id, lambda record: record.restarts == 1)
    # Slurm starts it again by itself when the box's credentials have expired (cred_expire).
    wait(jobs.sacct, job_id, running)
    states = [attempt.state for attempt in jobs.sacct_attempts([job_id])[job_id]]
    assert states == [JobState.REQUEUED, JobState.RUNNING]


def test_an_array_is_its_tasks_from_waiting_to_cancelled(submit: Submit) -> None:
    array = submit("sleep 600", "--array=0-300:2%1")
    wait(jobs.squeue, f"{array}_0", running)
    wanted = {f"{array}_{task}" for task in range(0, 301, 2)}
    # Accounting hears of the first and of those that wait one after the other.
    wait(
        jobs.sacct,
        f"{array}_0",
        lambda first: running(first) and set(jobs.sacct([array])) == wanted,
    )
    assert set(jobs.squeue([array])) == wanted
    # Slurm says why when it has tried to start one of them.
    last = wait(jobs.squeue, f"{array}_300", lambda one: one.reason == "JobArrayTaskLimit")
    assert last.state is JobState.PENDING
    control.cancel([array])
    # squeue forgets which tasks had not started; accounting knows them.
    assert wait(jobs.sacct, f"{array}_300", finished).start_time is None
    assert wait(jobs.squeue, f"{array}_0", finished).state is JobState.CANCELLED


def test_components_of_a_heterogeneous_job_are_found(submit: Submit) -> None:
    job_id = submit("sleep 600", "--nodes=1", ":", "--nodes=1")
    assert wait(jobs.squeue, f"{job_id}+1", running).job_id == f"{job_id}+1"
    assert wait(jobs.sacct, f"{job_id}+1", running).nodes is not None


def test_a_held_job_says_why_it_waits_and_one_with_a_begin_says_when(submit: Submit) -> None:
    held, later = submit("true", "--hold"), submit("true", "--begin=now+1hour")
    both = submit("true", "--hold", "--begin=now+1hour")
    found = jobs.squeue([held, later, both, "99999999"])
    for job in (held, both):
        assert (found[job].state, found[job].reason) == (JobState.PENDING, "JobHeldUser")
    assert found[held].start_time is None
    wait(jobs.squeue, later, lambda record: record.start_time is not None)
    start = jobs.squeue([later])[later].start_time
    assert start is not None
    assert 3000 < start - time.time() < 4000


def test_a_job_slurm_never_had_is_left_out(submit: Submit) -> None:
    assert jobs.squeue(["99999999"]) == jobs.sacct(["99999999"]) == {}
    assert jobs.squeue(["99999998", "99999999"]) == {}


def test_a_script_is_tried_without_being_submitted(submit: Submit, tmp_path: Path) -> None:
    script = tmp_path / "job with space.sh"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\ntrue\n")
    verdict = control.test_only(script, None)
    assert verdict.accepted
    assert verdict.nodes == ("c1", "c2")
    assert verdict.start_time is not None
    assert verdict.start_time - time.time() < 86400


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--nodes=5", "node configuration is not available"),
        ("--gpus-per-node=9", "node configuration is not available"),
        ("--partition=nope", "invalid partition specified: nope"),
        ("--account=nope", "Invalid account"),
    ],
)
def test_a_script_slurm_would_refuse_says_why(
    submit: Submit, tmp_path: Path, option: str, words: str
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH {option}\ntrue\n")
    verdict = control.test_only(script, None)
    assert not verdict.accepted
    assert words in verdict.message


def test_the_cluster_is_described(submit: Submit, slurm: Slurm) -> None:
    found = {one.name: one for one in cluster.partitions()}
    assert set(found) == {"gpu", "short", "urgent"}
    assert found["gpu"].default
    assert (found["gpu"].gpus_per_node, found["gpu"].nodes) == (4, ("c1", "c2"))
    assert found["short"].max_time_min == 30
    assert cluster.config()["ClusterName"] == "box"
    version = cluster.slurm_version(slurm.run("sinfo", "--version").stdout)
    assert version is not None
    assert version >= (22, 5, 0)
    assert "pmix" in cluster.mpi_types()


def test_without_a_controller_only_accounting_answers(
    submit: Submit, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit("exit 4")
    wait(jobs.sacct, job_id, finished)
    monkeypatch.setenv("SLURM_CONF", slurm.impatient["SLURM_CONF"])
    slurm.kill_controller()
    try:
        with pytest.raises(CommandError, match="controller is down or restarting"):
            jobs.squeue([job_id, "99999999"])
        assert jobs.sacct([job_id])[job_id].exit_code == 4
    finally:
        slurm.start_controller()


def test_without_accounting_only_the_controller_answers(submit: Submit, slurm: Slurm) -> None:
    job_id = submit("exit 4")
    wait(jobs.squeue, job_id, finished)
    slurm.kill_dbd()
    try:
        with pytest.raises(CommandError):
            jobs.sacct([job_id])
        assert jobs.squeue([job_id])[job_id].state is JobState.FAILED
        assert jobs.ends([job_id]) == {job_id: ("4:0", 0)}
    finally:
        slurm.start_dbd()
