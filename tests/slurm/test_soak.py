"""benchmarks/soak.py in small: jobs of several kinds, some killed; none lost, none misreported."""

import json
import sys
from pathlib import Path

import pytest

from tests.slurmbox.fixture import Slurm

pytestmark = pytest.mark.slurm
SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
# Of this seed: serial jobs (one ends by `hpckit cancel`, one loses its rank), one that raises, mpi,
# a call that scancel ends, a map, and a job on this machine.
SEED = 206


def test_ten_jobs_of_many_kinds_of_which_three_are_killed(slurm: Slurm, tmp_path: Path) -> None:
    argv = [sys.executable, str(SOAK), "--jobs", "10", "--killed", "0.3", "--json"]
    done = slurm.run(*argv, f"--seed={SEED}", f"--folder={tmp_path}", "--at-once=10", check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == report["processes_left"] == []
    assert (report["jobs"], report["killed"], report["lost"], done.returncode) == (10, 3, 0, 0)
    assert report["by"]["done to it"] == {
        "cancel": {"CANCELLED": 1},
        "scancel": {"CANCELLED": 1},
        "rank": {"FAILED": 1},
    }
