"""Which GPUs of this machine local jobs get: each its own, and where there are too few, later."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from hpckit.cli.view import NeverStarting
from hpckit.schedulers.base import Machine, this_machine
from hpckit.schedulers.local.gpus import GpuPool, GpuRequest, GpuShare, request_gpus
from hpckit.schedulers.local.state import LocalState, my_start_ticks, write_local_state
from hpckit.slurm.states import JobState
from hpckit.submission.states import statuses
from hpckit.values import rebuild
from tests.conftest import add_program
from tests.unit.made import make_run

FOUR = "".join(f"GPU {n}: NVIDIA A100 (UUID: GPU-{n}{n}{n}{n}-a)\n" for n in range(4))
SLICES = "  MIG 1g.5gb     Device  0: (UUID: MIG-1a)\n  MIG 1g.5gb     Device  1: (UUID: MIG-1b)\n"


class Jobs:
    """What jobs have: `start` is one that begins, on the GPUs that it returns, or has to wait."""

    def __init__(self) -> None:
        self.shares: list[GpuShare] = []

    def start(self, gpus: GpuPool) -> str | None:
        share = gpus.take()
        if share is None:
            return None
        self.shares.append(share)
        return ",".join(share.names)

    def end(self, gpus: GpuPool, number: int) -> None:
        gpus.give_back(self.shares[number])


@pytest.fixture
def jobs(here: Path) -> Iterator[Jobs]:
    """Have an nvidia-smi that lists four GPUs, the last of them in slices."""
    add_program(here.parent / "bin" / "nvidia-smi", f"#!/bin/sh\nprintf '%s' '{FOUR}{SLICES}'\n")
    made = Jobs()
    yield made
    for share in made.shares:
        for file in share.files:
            file.close()


def submission(count: int, **environ: str) -> GpuPool:
    """Return the GPUs as a submission sees them, each of whose jobs gets `count`."""
    given = {**os.environ, **environ}
    return GpuPool(request_gpus(this_machine(given), count, given))


def test_tasks_of_an_array_and_other_submissions_get_gpus_of_their_own(jobs: Jobs) -> None:
    array, other = submission(1), submission(2)
    assert [jobs.start(one) for one in (array, array, other)] == ["0", "1", "2,3"]
    assert jobs.start(array) is None
    jobs.end(array, 0)
    assert jobs.start(array) == "0"


def test_a_job_takes_all_of_its_gpus_or_none(jobs: Jobs) -> None:
    big, small = submission(3), submission(2)
    assert jobs.start(small) == "0,1"
    assert jobs.start(big) is None
    assert jobs.start(submission(2)) == "2,3"  # what the big one found, it did not keep
    jobs.end(small, 0)
    jobs.end(small, 1)
    assert jobs.start(submission(3)) == "0,1,2"


def test_a_job_whose_controller_is_killed_keeps_its_gpus_until_its_keeper_ends(jobs: Jobs) -> None:
    assert jobs.start(submission(4)) == "0,1,2,3"
    (share,) = jobs.shares
    keeper = subprocess.Popen(["sleep", "600"], pass_fds=share.descriptors)
    for file in share.files:  # as the kernel does when the controller is killed
        file.close()
    assert jobs.start(submission(1)) is None
    keeper.kill()
    keeper.wait()
    assert jobs.start(submission(4)) == "0,1,2,3"


@pytest.mark.parametrize(
    ("mask", "count", "gets"),
    [
        ("2,3", 1, ["2", "3", None]),
        ("3,1", 2, ["3,1", None]),
        ("GPU-1111-a,GPU-2222", 1, ["GPU-1111-a", "GPU-2222", None]),
        ("MIG-1a,MIG-1b", 1, ["MIG-1a", "MIG-1b", None]),
        # Fewer than one job was to get: as ever.
        ("2", 2, ["2", "2"]),
        ("2,2", 2, ["2,2", "2,2"]),
    ],
)
def test_the_users_mask_limits_the_gpus(
    jobs: Jobs, mask: str, count: int, gets: list[str | None]
) -> None:
    mine = submission(count, CUDA_VISIBLE_DEVICES=mask)
    assert [jobs.start(mine) for _ in gets] == gets


def test_a_gpu_is_the_same_under_all_its_names(jobs: Jobs) -> None:
    assert jobs.start(submission(1, CUDA_VISIBLE_DEVICES="GPU-1111")) == "GPU-1111"
    assert jobs.start(submission(3)) == "0,2,3"
    assert jobs.start(submission(1, CUDA_VISIBLE_DEVICES="GPU-1111-a")) is None
    assert jobs.start(submission(1, CUDA_VISIBLE_DEVICES="1")) is None


def test_jobs_inside_a_job_share_out_the_gpus_that_it_has(jobs: Jobs) -> None:
    assert jobs.start(submission(2)) == "0,1"
    inside = jobs.shares[0].variables({}) | {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert jobs.start(submission(1, **inside)) == "0"
    assert jobs.start(submission(1, **inside)) == "1"
    assert jobs.start(submission(1, **inside)) is None
    # So it is one level deeper, and a job on the CPU in between forgets nothing.
    deeper = jobs.shares[1].variables(inside) | {"CUDA_VISIBLE_DEVICES": "0"}
    deeper |= GpuShare().variables(deeper)
    assert jobs.start(submission(1, **deeper)) == "0"
    assert jobs.start(submission(2)) == "2,3"


def test_who_shares_says_so_and_never_shares_with_others(jobs: Jobs) -> None:
    sharing = submission(1, HPCKIT_SHARE_GPUS="1", CUDA_VISIBLE_DEVICES="0,1")
    assert [jobs.start(sharing) for _ in range(4)] == ["0", "1", "0", "1"]
    assert jobs.start(submission(2, HPCKIT_SHARE_GPUS="1")) == "0,1"
    assert jobs.start(submission(2)) == "2,3"
    assert jobs.start(submission(1)) is None
    assert jobs.start(submission(1, HPCKIT_SHARE_GPUS="1", CUDA_VISIBLE_DEVICES="2")) is None


def test_where_nothing_can_be_locked_a_submissions_own_jobs_still_differ(
    jobs: Jobs, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "hpckit").write_text("a file where the folder would be")
    mine = submission(2, XDG_STATE_HOME=str(here))
    assert [jobs.start(mine) for _ in range(3)] == ["0,1", "2,3", None]
    assert capsys.readouterr().err.count("GPUs are not kept from other submissions") == 1
    assert jobs.start(submission(2, XDG_STATE_HOME=str(here))) == "0,1"
    jobs.end(mine, 0)
    assert jobs.start(mine) == "0,1"


def test_gpus_without_uuids_are_those_of_this_machine() -> None:
    machine = Machine(gpus=("0", "MIG-GPU-9/1/0"), uuids=("0", "MIG-GPU-9/1/0"))
    ids = request_gpus(machine, 1, {"HOME": "/nowhere"}).ids
    assert ids == (f"{os.uname().nodename}-0", "MIG-GPU-9_1_0")


def test_a_job_without_gpus_takes_none_and_a_request_survives_its_json(tmp_path: Path) -> None:
    assert GpuPool(GpuRequest()).take() == GpuShare()
    machine = Machine(gpus=("0",), uuids=("GPU-0",))
    request = request_gpus(machine, 1, {"XDG_STATE_HOME": str(tmp_path)})
    assert rebuild(GpuRequest, asdict(request)) == request


def test_who_has_no_home_shares_gpus_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    request = request_gpus(Machine(gpus=("0",), uuids=("GPU-0",)), 1, {})
    assert (request.count, request.folder) == (1, None)


def test_status_says_why_a_local_job_waits_and_wait_says_it_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = ["Resources", "Resources", "JobArrayTaskLimit", ""]
    runs = [
        make_run(tmp_path, f"ddp-1_{task}", executor="local", job_id=f"local-aaaaaa_{task}",
                 array={"job_id": "local-aaaaaa", "task": task, "parameters": {}})
        for task in range(len(why))
    ]  # fmt: skip
    for run, reason in zip(runs, why, strict=True):
        state = LocalState(
            job_id=run.job_id, state=JobState.PENDING, host=os.uname().nodename,
            pid=os.getpid(), pid_started=my_start_ticks(), reason=reason,
        )  # fmt: skip
        write_local_state(run.dir, state)
    found = statuses(runs)
    assert [row.reason for row in found] == ["Resources", "Resources", "JobArrayTaskLimit", None]
    texts = [str(row.reason_text) for row in found]
    gpus = runs[0].record["plan"]["total_gpus"]
    assert texts[0].startswith(f"It waits for {gpus} GPUs of this machine to come free: ")
    assert texts[2].startswith("It waits until another task of its array has ended: ")
    assert texts[3] == "It is about to start."
    look = NeverStarting()
    look(found)
    look(found)
    said = capsys.readouterr().err
    assert (said.count("PENDING"), said.count("local-aaaaaa_0 PENDING")) == (1, 1)
