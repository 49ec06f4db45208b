import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hpckit.schedulers.local as controllers
from hpckit.errors import CommandError, TooSlowError
from hpckit.schedulers.base import Sent, automatic, this_machine
from hpckit.schedulers.local.state import (
    LocalState,
    ask_cancel,
    cancel_asked,
    my_start_ticks,
    read_local_state,
    start_ticks,
    write_local_state,
)
from hpckit.slurm import client
from hpckit.slurm.states import JobState
from tests.conftest import add_program

GPUS = "".join(f"GPU {n}: NVIDIA A100 (UUID: GPU-{n})\n" for n in range(4))


def local(**changes: Any) -> LocalState:
    values = {
        "job_id": "local-1",
        "state": JobState.RUNNING,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_started": my_start_ticks(),
        **changes,
    }
    return LocalState(**values)


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({}, JobState.RUNNING, ""),
        ({"state": JobState.PENDING, "reason": "Resources"}, JobState.PENDING, "Resources"),
        ({"pid_started": 1}, JobState.NODE_FAIL, "its controlling process is gone"),
        ({"pid": 2**22 + 1}, JobState.NODE_FAIL, "its controlling process is gone"),
        ({"host": "elsewhere"}, JobState.UNKNOWN, "it runs on elsewhere; ask there"),
        ({"pid": 2**22 + 1, "ended": 5.0, "state": JobState.FAILED}, JobState.FAILED, ""),
        ({"host": "elsewhere", "ended": 5.0, "state": JobState.COMPLETED}, JobState.COMPLETED, ""),
    ],
)
def test_a_local_state_is_believed_only_while_its_controller_lives(
    tmp_path: Path, changes: dict, state: JobState, reason: str
) -> None:
    write_local_state(tmp_path, local(**changes))
    found = read_local_state(tmp_path)
    assert found is not None
    assert (found.state, found.reason) == (state, reason)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"state": "DREAMING"}'])
def test_a_state_file_that_is_absent_or_damaged_says_nothing(tmp_path: Path, text: str) -> None:
    assert read_local_state(tmp_path) is None
    (tmp_path / "local.json").write_text(text)
    assert read_local_state(tmp_path) is None


def test_a_process_is_known_by_its_start_and_a_dead_one_not_at_all() -> None:
    assert start_ticks(os.getpid()) == my_start_ticks() > 0
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert start_ticks(child) is None  # a zombie
    os.waitpid(child, 0)
    assert start_ticks(child) is None


NO_SOURCE = "sbatch: fatal: Could not establish a configuration source"
FETCH = "sbatch: error: _fetch_child: failed to fetch remote configs: Unable to contact it"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (f"sbatch: error: fetch_config: DNS SRV lookup failed\n{NO_SOURCE}", None),
        (f"{FETCH}\n{NO_SOURCE}", "failed to fetch remote configs: Unable to contact it. Try"),
        ("sbatch: error: Zero Bytes were transmitted", "failed: sbatch: error: Zero Bytes were"),
        ("", "failed: no reason. Try again soon, or run on this machine: --executor local"),
    ],
)
def test_an_sbatch_that_fails_makes_this_machine_a_place_for_jobs_only_without_a_cluster(
    here: Path, monkeypatch: pytest.MonkeyPatch, said: str, why: str | None
) -> None:
    add_program(here / "sbatch", f"#!/bin/sh\nprintf '{said}' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    if why is None:
        assert automatic().one_machine
        return
    with pytest.raises(CommandError) as failed:
        automatic()
    assert why in str(failed.value)


def test_an_sbatch_that_gives_no_answer_is_one_of_a_cluster(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm 26.05 asks a controller that hands out the configuration for longer than 10 s."""
    add_program(here / "sbatch", "#!/bin/sh\nsleep 60\n")
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    monkeypatch.setattr(client, "_VERSION_S", 0.2)
    why = r"^'sbatch' gave no answer within 0\.2 s .*\. Or run on this machine: --executor local$"
    with pytest.raises(TooSlowError, match=why):
        automatic()


def test_cancelling_is_a_file(tmp_path: Path) -> None:
    assert not cancel_asked(tmp_path)
    ask_cancel(tmp_path)
    ask_cancel(tmp_path)
    assert cancel_asked(tmp_path)


@pytest.mark.parametrize(
    ("mask", "gpus"),
    [
        (None, ("0", "1", "2", "3")),
        ("2,0", ("2", "0")),
        (" 1 , 3 ", ("1", "3")),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,9,1", ("0",)),
        ("0,-1,1", ("0",)),
        ("GPU-1,GPU-2", ("GPU-1", "GPU-2")),
        ("MIG-12ab", ("MIG-12ab",)),
    ],
)
def test_the_users_mask_decides_which_gpus_there_are(here: Path, mask, gpus) -> None:
    add_program(here.parent / "bin" / "nvidia-smi", f"#!/bin/sh\nprintf '%s' '{GPUS}'\n")
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    assert this_machine(environ).gpus == gpus


@pytest.mark.parametrize("program", ["exit 9", "echo 'No devices were found'; exit 6", "echo"])
def test_a_driver_without_devices_means_no_gpu(here: Path, program: str) -> None:
    add_program(here.parent / "bin" / "nvidia-smi", f"#!/bin/sh\n{program}\n")
    assert this_machine({"CUDA_VISIBLE_DEVICES": "0"}).gpus == ()
    assert this_machine({}).cpus >= 1


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    write_local_state(tmp_path, local())
    record = json.loads((tmp_path / "local.json").read_text())
    (tmp_path / "local.json").write_text(json.dumps({**record, "colour": "red"}))
    assert read_local_state(tmp_path) == local()


def test_a_controller_that_does_not_end_is_named_in_place_of_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(controllers, "_CONTROLLERS", [deaf])
    monkeypatch.setattr(controllers, "_ENDS_WITHIN_S", 0.1)
    try:
        said = controllers.LOCAL.take_back([tmp_path], Sent())
        assert said is not None
        assert f"process {deaf.pid}, its controller, still runs after 0 s" in said
    finally:
        deaf.kill()
        deaf.wait()
    assert controllers.LOCAL.take_back([tmp_path], Sent()) is None


def test_a_run_that_cannot_be_told_in_its_folder_is_taken_back_by_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_local_state(tmp_path, local())
    (tmp_path / ".cancel").symlink_to("nowhere")  # no link is followed: as on a full disk
    with subprocess.Popen(["sleep", "60"]) as controller:
        monkeypatch.setattr(controllers, "_CONTROLLERS", [controller])
        assert controllers.LOCAL.take_back([tmp_path], Sent()) is None
    assert controller.returncode == -signal.SIGTERM
