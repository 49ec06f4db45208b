"""A clock that is set, forth or back, while a job runs, is submitted or looked for."""

import time
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import CommandError
from hpckit.payload.recorder import Recorder
from hpckit.payload.task import Task
from hpckit.rank_variables import RankPlacement
from hpckit.run_folders.ranks import read_ranks
from hpckit.schedulers.local import local_job
from hpckit.schedulers.local.gpus import GpuPool
from hpckit.schedulers.local.local_job import ControllerSpec, LocalJob
from hpckit.schedulers.local.state import (
    LocalState,
    read_local_state,
    states_of_runs,
    write_local_state,
)
from hpckit.schedulers.slurm.sbatch import job_of
from hpckit.slurm.states import JobState
from tests.unit.made import make_run
from tests.unit.test_local import local

DAY_S = 86400.0


class Clock:
    """What `time.time` says, set by tests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self.ahead_s = time.time, 0.0
        monkeypatch.setattr(time, "time", lambda: self._real() + self.ahead_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Going:
    """A keeper that goes on until it is told to end."""

    pid, returncode = 2**22 + 1, 0

    def __init__(self) -> None:
        self.over = False

    def poll(self) -> int | None:
        return 0 if self.over else None

    def terminate(self) -> None:
        self.over = True

    def kill(self) -> None:
        self.over = True

    def wait(self, timeout: float | None = None) -> int:
        return 0


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S])
def test_a_local_job_lasts_as_long_as_it_does_whatever_the_clock_says(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    monkeypatch.setattr(local_job.shell, "spawn", lambda *_, **__: Going())
    monkeypatch.setattr(local_job, "sweep", lambda *_, **__: [])
    spec = ControllerSpec(script="", run_dirs=(), job_ids=(), time_min=60)
    job = LocalJob(spec, tmp_path, "local-1", 0, [], GpuPool(spec.gpus))
    job.start({})
    clock.ahead_s = ahead_s
    job.look({})
    assert job.state.state is JobState.RUNNING  # not over its time limit
    monkeypatch.setattr(LocalJob, "elapsed_s", 61 * 60.0)
    job.look({})
    found = read_local_state(tmp_path)
    assert found is not None
    assert found.state is JobState.TIMEOUT
    assert found.started is not None
    assert found.ended == found.started + 61 * 60.0


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S])
def test_a_rank_lasts_as_long_as_it_does(tmp_path: Path, clock: Clock, ahead_s: float) -> None:
    task = Task(run_dir=str(tmp_path), run_id="r", executor="local", launcher="srun", nodes=1,
                tasks_per_node=1, command=("x",), python=("python",), device="cpu")  # fmt: skip
    place = RankPlacement(rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    notes = Recorder(task, place)
    with notes.logs():
        notes.begin("cpu")
        clock.ahead_s = ahead_s
        notes.finish(0, by_signal=False)
    (row,) = read_ranks(tmp_path)
    assert row.ended is not None
    assert 0 <= row.ended - row.started < DAY_S / 2


def test_how_long_a_run_lasted_whose_controller_vanished_is_not_known(tmp_path: Path) -> None:
    run = make_run(tmp_path, "one", job_id="local-1", executor="local")

    def elapsed(**changes: Any) -> float | None:
        state: LocalState = local(started=time.time() - 5, **changes)
        write_local_state(run.dir, state)
        return states_of_runs([run]).records["local-1"].elapsed_s

    assert elapsed(pid=2**22 + 1) is None
    assert elapsed(host="elsewhere") is None
    assert 5 <= (elapsed() or 0) < DAY_S
    assert elapsed(ended=time.time() + 5, state=JobState.COMPLETED) == pytest.approx(10, abs=60)


@pytest.mark.parametrize(("age_s", "known"), [(10.0, True), (DAY_S, False), (-DAY_S, False)])
def test_a_job_that_slurm_may_have_forgotten_is_not_called_none(
    here: Path, fake_slurm: Path, age_s: float, known: bool
) -> None:
    (fake_slurm / "sacct.rc").write_text("1")
    since = time.time() - age_s
    if known:
        assert job_of("run-1", since) is None
        return
    with pytest.raises(CommandError):  # since long, or by a clock that was set back meanwhile
        job_of("run-1", since)


def test_accounting_is_asked_for_more_than_a_clocks_error(here: Path, fake_slurm: Path) -> None:
    assert job_of("run-1", time.time()) is None
    (line,) = [
        row for row in (fake_slurm / "calls.jsonl").read_text().splitlines() if "sacct" in row
    ]
    start = line.partition("--starttime=")[2].partition('"')[0]
    assert time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%S")) < time.time() - DAY_S / 2
