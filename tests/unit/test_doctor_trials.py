"""The test jobs of `hpckit doctor mpi` and `hpckit doctor gpu`, and what their ends mean."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.api.prepare import prepare
from hpckit.doctor import JOBS, Level, all_good
from hpckit.doctor.trials import (
    Trial,
    by_every_launcher,
    gpu_checks,
    mpi_checks,
    shape,
    srun_kinds,
    used_label,
)
from hpckit.job import Job
from hpckit.job_spec.spec import JobSpec
from hpckit.launchers import LAUNCHERS, Launcher, find_launcher
from hpckit.submission.model import Submission
from tests.unit.detected import a_site, cluster

SRUN = find_launcher("srun")


def trial(label: str, **changed: Any) -> Trial:
    said = {rank: {"host": f"c{rank + 1}", "library": "Open MPI v5"} for rank in range(2)}
    return Trial(**{"label": label, "job_id": "7", "good": True, "said": said, **changed})


def failed(label: str, why: str = "they did not meet") -> Trial:
    return trial(label, good=False, why=why, said={})


def test_only_what_submit_uses_decides_over_mpi() -> None:
    trials = [trial("srun --mpi=pmix"), failed("srun --mpi=pmi2")]
    found = list(mpi_checks(trials, "srun --mpi=pmix", "/s.yaml"))
    assert [str(row) for row in found] == [
        "ok   srun --mpi=pmix: 2 ranks on c1, c2, Open MPI v5 <- hpckit submit uses this",
        "bad  srun --mpi=pmi2: they did not meet (hpckit logs 7 --errors)",
    ]
    assert all_good(found)
    found = list(mpi_checks(trials, "srun --mpi=pmi2", "/s.yaml"))
    assert "Set 'launch: {mpi: pmix}' in /s.yaml" in found[1].todo
    assert not all_good(found)
    found = list(mpi_checks([failed("srun"), trial("mpirun")], "srun", "/s.yaml"))
    assert "Use --launcher mpirun" in found[0].todo
    found = list(mpi_checks([failed("mpirun")], "srun", "/s.yaml"))
    assert (found[-1].what, all_good(found)) == ("no launcher works", False)


def test_one_cause_is_told_once_and_where_submit_meets_it() -> None:
    trials = [failed("a", "no mpi4py"), failed("b", "no mpi4py"), failed("c"), failed("d")]
    found = [str(row) for row in mpi_checks(trials, "b", "/s.yaml")]
    assert found[0] == "bad  a: no mpi4py (hpckit logs 7 --errors)"
    assert found[1].startswith("bad  b <- hpckit submit uses this: no mpi4py. mpi4py must be built")
    assert "--env NAME" in found[1]
    assert found[2:] == [
        "bad  c: they did not meet (hpckit logs 7 --errors)",
        "bad  d: the same as with c (hpckit logs 7 --errors)",
    ]


def test_a_job_that_waits_too_long_says_nothing_of_mpi() -> None:
    late = trial("srun", good=False, late=True, why="waits for its turn", said={})
    (found,) = mpi_checks([late], "srun", "/s.yaml")
    assert found.level is Level.UNKNOWN
    assert "was cancelled (waits for its turn)" in found.todo
    assert not all_good([found])
    (found,) = mpi_checks([late], "mpirun", "/s.yaml")
    assert all_good([found])
    (found,) = gpu_checks(late, 1)
    assert (found.level, all_good([found])) == (Level.UNKNOWN, False)
    (found,) = gpu_checks(replace(late, goes_on=True), 1)
    assert "goes on although Slurm was asked to cancel it (waits for" in found.todo


def test_mpi_is_tried_on_two_nodes_where_there_are_two() -> None:
    assert shape(cluster("25.05"), None) == (2, 1)
    assert shape(cluster("20.11"), "long") == (1, 2)  # MaxNodes=1
    assert shape(cluster("23.11"), None) == (1, 2)  # no default partition is known
    assert shape(cluster("23.11"), "main") == (2, 1)


def test_every_kind_but_none_is_tried_and_the_one_used_is_known() -> None:
    assert srun_kinds(a_site(), cluster("21.08")) == ("pmix_v3", "pmix", "pmi2")
    assert srun_kinds(a_site(mpi="mine"), cluster("21.08"))[-1] == "mine"
    assert used_label(SRUN, a_site(), cluster("21.08")) == "srun --mpi=pmix"
    assert used_label(SRUN, a_site(mpi="pmi2"), cluster("21.08")) == "srun --mpi=pmi2"
    assert used_label(SRUN, a_site(), cluster("23.11")) == "srun --mpi=pmix"


class Serial(Launcher):
    name = "serial-only"

    def refusal(self, job: Job) -> str | None:
        return f"{job.ranks} are too many."


def test_mpi_is_tried_by_every_launcher_of_the_table_that_can(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Launcher()
    own.name = "own"
    monkeypatch.setattr(LAUNCHERS, "_rows", {"own": own, "serial-only": Serial()})
    spec = JobSpec(
        target="mpi", program=str(JOBS / "mpi_hello.py"), tasks_per_node=2, executor="local"
    )

    def prepared(word: str) -> Submission:
        return prepare(replace(spec, name=f"doctor-{word}"), here / "runs")

    jobs, used = by_every_launcher(prepared, a_site(), None)
    assert ([*jobs], used) == (["mpirun", "own"], "mpirun")
    assert [(row.spec.launcher, row.job.launcher.name) for row in jobs.values()] == [
        ("mpirun", "mpirun"),
        ("own", "own"),
    ]
    jobs, _ = by_every_launcher(prepared, a_site(), cluster("21.08"))
    kinds = ["pmix_v3", "pmix", "pmi2"]
    assert [*jobs] == [*(f"srun --mpi={kind}" for kind in kinds), "mpirun", "own"]
    assert [row.job.site.mpi for row in jobs.values()][:3] == kinds
    assert [row.job.name for row in jobs.values()][2:] == [
        "doctor-pmi2",
        "doctor-mpirun",
        "doctor-own",
    ]


def test_each_gpu_gets_a_line() -> None:
    said = {
        0: {"host": "g1", "index": 0, "name": "H200", "memory_bytes": 150754820096,
            "by": "torch 2.9"},
        1: {"host": "g1", "index": 1, "fault": "no GPU driver"},
        2: {"host": "g1", "index": 2, "name": "H200", "memory_bytes": None, "by": "NVML"},
    }  # fmt: skip
    found = list(gpu_checks(trial("gpu", good=False, said=said, why="ended FAILED"), 4))
    assert [str(row).split(":")[0] for row in found] == [
        "ok   g1 GPU 0", "bad  g1 GPU 1", "ok   g1 GPU 2", "bad  GPU of rank 3 was not reached",
    ]  # fmt: skip
    assert str(found[0]) == "ok   g1 GPU 0: H200, 140 GiB, computes correctly (torch 2.9)"
    assert "found, but not tested" in str(found[2])


def test_a_rank_without_a_gpu_does_not_end_the_job_of_the_others(tmp_path: Path) -> None:
    """srun would end them before they have looked: theirs were said to be bad, too."""
    script = JOBS / "gpu_hello.py"
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    env = {"PATH": "/nonexistent", "PYTHONPATH": f"{tmp_path}:{script.parents[3]}"}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.removeprefix("hpckit-doctor "))["fault"]


def test_no_gpu_is_no_question(here: Path, cli) -> None:
    assert cli("doctor", "gpu", "--gpus", "0").status == 2
    assert cli("doctor", "mpi", "--nodes", "3").status == 2
