"""A job is the same from a clean shell, from one with a job's leftovers, and from inside a job."""

import json
from pathlib import Path

import pytest

from tests.slurm.conftest import HPCKIT, SCRIPTS, Desk, Record, rank_files

pytestmark = pytest.mark.slurm
REQUEST = ("ddp", str(SCRIPTS / "seen.py"), "--nodes", "2", "--gpus", "2", "--time", "7")
STALE = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOBID": "4242",
    "SLURM_NTASKS": "99",
    "SLURM_NPROCS": "99",
    "SLURM_NNODES": "9",
    "SLURM_NTASKS_PER_NODE": "11",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "5",
    "SLURM_JOB_NODELIST": "elsewhere[1-9]",
    "SLURM_RESTART_COUNT": "3",
    "SLURM_ARRAY_TASK_ID": "8",
    "SLURM_CPU_BIND": "map_cpu:7",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_MPI_TYPE": "none",
    "SBATCH_PARTITION": "nonsense",
    "SBATCH_ACCOUNT": "nonsense",
    "SBATCH_TIMELIMIT": "1",
    "SBATCH_ARRAY_INX": "0-3",
    "SRUN_CPUS_PER_TASK": "99",
    "SUBMITIT_LOCAL_GLOBALID": "3",
    "SUBMITIT_FOLDER": "/nowhere",
    "RANK": "5",
    "WORLD_SIZE": "99",
    "LOCAL_RANK": "5",
    "LOCAL_WORLD_SIZE": "9",
    "NODE_RANK": "4",
    "MASTER_ADDR": "elsewhere",
    "MASTER_PORT": "1",
    "TORCHELASTIC_RUN_ID": "none",
    "PMIX_RANK": "5",
    "OMPI_COMM_WORLD_RANK": "5",
    "HPCKIT_RUN_DIR": "/nowhere",
    "HPCKIT_RESTART": "7",
    "HPCKIT_DEVICE": "cuda",
    "HPCKIT_TASK": "{}",
}
# What must differ from job to job, or says where in time and in the process tree a rank is.
OWN_FIELDS = {
    "JobId", "Priority", "StartTime", "EndTime", "SubmitTime", "EligibleTime", "AccrueTime",
    "LastSchedEval", "RunTime", "Comment", "Command", "StdErr", "StdOut", "JobState", "Reason",
    "AllocNode:Sid", "ExitCode", "PreemptEligibleTime", "Deadline", "JOB_GRES", "Scheduler",
    "BatchHost",
}  # fmt: skip
GPUS = {
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
    "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
}  # fmt: skip
OWN_VARIABLES = GPUS | {
    "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME",
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_TASK_PID", "SLURM_STEP_LAUNCHER_PORT",
    "SLURM_SRUN_COMM_PORT", "SLURM_SUBMIT_HOST", "SLURM_WORKING_CLUSTER", "SUBMITIT_FOLDER",
    "MASTER_PORT", "HPCKIT_RUN_DIR", "HPCKIT_RUN_ID",
    "HPCKIT_CODE_DIR", "HPCKIT_CODE_MAP", "HPCKIT_END_INODE", "HPCKIT_SIGNALS",
    # Of the shell, not of the job.
    "HOSTNAME", "SHLVL", "_", "PWD", "OLDPWD",
}  # fmt: skip


def fingerprint(desk: Desk, job: Record) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Give what Slurm and the ranks know of a finished job, without what is each job's own."""
    assert desk.over(job["job_id"])["state"] == "COMPLETED", desk.call(
        "logs", job["job_id"], "--all"
    ).out
    known = desk.scontrol(job["job_id"])
    assert known["Comment"] == f"hpckit:{job['run_id']}"
    fields = {k: v for k, v in known.items() if k not in OWN_FIELDS}
    ranks = {
        rank: {k: v for k, v in seen["env"].items() if k not in OWN_VARIABLES}
        for rank, seen in rank_files(job["run_dir"]).items()
    }
    assert len(ranks) == 4
    # Which two of a node's four GPUs is chance, when other jobs run.
    for seen in rank_files(job["run_dir"]).values():
        assert seen["env"]["CUDA_VISIBLE_DEVICES"] in ("0,1", "2,3")
    return fields, ranks


def check_same(
    clean: tuple[dict[str, str], dict[int, dict[str, str]]],
    other: tuple[dict[str, str], dict[int, dict[str, str]]],
) -> None:
    assert other[0] == clean[0]
    for rank, env in clean[1].items():
        differing = {
            name: (env.get(name), other[1][rank].get(name))
            for name in env.keys() | other[1][rank].keys()
            if env.get(name) != other[1][rank].get(name)
        }
        assert differing == {}, f"rank {rank}: {differing}"


def test_stale_variables_change_nothing(desk: Desk) -> None:
    clean = fingerprint(desk, desk.submit(*REQUEST))
    stale = fingerprint(desk, desk.submit(*REQUEST, env=STALE))
    check_same(clean, stale)


@pytest.mark.parametrize("launcher", ["srun", "torchrun", "mpirun"])
def test_a_job_may_submit_another(desk: Desk, launcher: str) -> None:
    clean = fingerprint(desk, desk.submit(*REQUEST))
    strategy = "mpi" if launcher == "mpirun" else "ddp"
    outer = desk.done(
        strategy, SCRIPTS / "nested.py", "--gpus", "2", "--launcher", launcher, "--time", "3",
        "--", str(HPCKIT), "submit", *REQUEST, "--json",
    )  # fmt: skip
    inner = json.loads(Path(outer["run_dir"], "answer.json").read_text())
    desk.submitted.append(inner["job_id"])
    # HPCKIT_RUNS is the user's own: the inner run lies beside the outer one, not inside.
    assert Path(inner["run_dir"]).parent == desk.runs
    check_same(clean, fingerprint(desk, inner))


def test_a_cpu_job_from_a_gpu_job_inherits_no_gpu(desk: Desk) -> None:
    request = ("serial", str(SCRIPTS / "seen.py"), "--gpus", "0", "--json")
    outer = desk.done(
        "serial", SCRIPTS / "nested.py", "--gpus", "1", "--", str(HPCKIT), "submit", *request
    )
    inner = json.loads(Path(outer["run_dir"], "answer.json").read_text())
    desk.submitted.append(inner["job_id"])
    assert desk.over(inner["job_id"])["state"] == "COMPLETED"
    (seen,) = rank_files(inner["run_dir"]).values()
    assert "CUDA_VISIBLE_DEVICES" not in seen["env"]
