"""What stands between a supervisor's start and its rank: the modules that it imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpckit.environ import own_python
from hpckit.run_folders.ranks import read_ranks
from tests.integration.test_many_ranks import Command

pytestmark = pytest.mark.long

# Of these each takes a millisecond or more. What only a failure needs is imported then.
NOT_NEEDED = {
    "logging", "locale", "shutil", "socket", "traceback",
    "hpckit.run_folders.run_record", "hpckit.run_folders.runs",
    "hpckit.schedulers.base", "hpckit.slurm.states",
    "hpckit.payload.mpi_script", "hpckit.submission.checkpoints",
}  # fmt: skip
SUBMITITS = "submitit.core.submission"


def imported(run: Path) -> set[str]:
    """Start the supervisor of a run's only rank; return the modules it has imported at its end."""
    job = {"SLURM_JOB_ID": "1001", "SLURM_JOB_NUM_NODES": "1", "SUBMITIT_EXECUTOR": "slurm"}
    place = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NODEID": "0"}
    argv = [*own_python(), "-X", "importtime", "-m", "hpckit.submission.in_job"]
    done = subprocess.run(
        [*argv, str(run / "submitit")], env={**os.environ, **job, **place},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [row.exit_code for row in read_ranks(run)] == [0]
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_a_rank_waits_for_no_module_that_its_supervisor_can_do_without(
    cli: Command, here: Path, fake_slurm: Path
) -> None:
    (fake_slurm / "sbatch.out").write_text("Submitted batch job 1001\n")
    program = here / "program.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    words = ("submit", "serial", str(program), "--gpus", "0", "--sample-interval", "0", "--name")
    assert cli(*words, "plain").status == 0
    found = imported(next((here / "runs").glob("plain-*")))
    assert "hpckit.payload.rank" in found
    assert found & (NOT_NEEDED | {SUBMITITS}) == set()
    assert ("inspect" in found) == (sys.version_info >= (3, 12))  # newer dataclasses use it
    assert cli(*words, "again", "--max-requeues", "1").status == 0
    found = imported(next((here / "runs").glob("again-*")))
    assert SUBMITITS in found
    assert not [name for name in found if name.startswith("numpy.")]
