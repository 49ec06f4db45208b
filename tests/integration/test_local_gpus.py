"""Local jobs on a machine with four GPUs, which a stand-in for nvidia-smi lists."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HPCKIT, add_program
from tests.integration.test_local import hpckit, nothing_runs, state, submit, until

pytestmark = pytest.mark.long

FOUR = "".join(f"GPU {n}: NVIDIA A100 (UUID: GPU-{n}{n}{n}{n}-a)\n" for n in range(4))
# It says which GPUs it has, and works until there is a file `go`.
WORK = """\
import os, pathlib, time
folder, rank = pathlib.Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["RANK"]
(folder / f"new-{rank}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "nobody said"))
(folder / f"new-{rank}").rename(folder / f"gpus-{rank}")
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""
INNER = """\
import os, subprocess, sys
for _ in range(2):
    words = "submit serial work.py --executor local --gpus 1 --wait".split()
    subprocess.run([sys.executable, "-m", "hpckit", *words], check=True)
"""


@pytest.fixture
def four(here: Path) -> Path:
    add_program(here.parent / "bin" / "nvidia-smi", f"#!/bin/sh\nprintf '%s' '{FOUR}'\n")
    return here


def has_begun(run: dict[str, Any], rank: int = 0) -> bool:
    return (Path(run["run_dir"]) / f"gpus-{rank}").exists()


def gpus(run: dict[str, Any], rank: int = 0) -> str:
    until(lambda: has_begun(run, rank))
    return (Path(run["run_dir"]) / f"gpus-{rank}").read_text()


def waits(run: dict[str, Any]) -> bool:
    found = state(run["job_id"])
    return (found["state"], found["reason"]) == ("PENDING", "Resources")


def test_tasks_of_an_array_that_run_at_once_have_different_gpus(four: Path) -> None:
    found = submit(WORK, "--gpus", "1", "--array", "a=1,2,3", "--parallel", "3")["jobs"]
    assert {gpus(run) for run in found} == {"0", "1", "2"}  # none ends before all have begun
    Path("go").touch()
    hpckit("wait", *(run["job_id"] for run in found))
    local = json.loads((Path(found[1]["run_dir"]) / "local.json").read_text())
    assert local["gpus"] == [gpus(found[1])]


def test_a_job_waits_for_gpus_that_another_has_and_may_be_cancelled_meanwhile(four: Path) -> None:
    first = submit(WORK, "--gpus", "3")
    assert gpus(first) == "0,1,2"
    second, third = submit(WORK, "--gpus", "2"), submit(WORK, "--gpus", "4")
    until(lambda: waits(second) and waits(third))
    page = hpckit("status", second["job_id"]).stdout.splitlines()[0]
    assert page.endswith("It waits for 2 GPUs of this machine to come free: other jobs of yours "
                         "have them")  # fmt: skip
    assert gpus(submit(WORK, "--gpus", "1")) == "3"
    hpckit("cancel", third["job_id"])
    assert state(third["job_id"])["state"] == "CANCELLED"
    with subprocess.Popen(
        [*HPCKIT, "wait", second["job_id"]],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        assert "PENDING: It waits for 2 GPUs" in waiting.stderr.readline()
        Path("go").touch()
        out, err = waiting.communicate(timeout=280)
    assert f"{second['job_id']} COMPLETED" in out
    assert err == ""
    assert gpus(second) == "0,1"
    assert not has_begun(third)
    nothing_runs(four)


def test_a_run_whose_controller_is_killed_gives_its_gpus_back(four: Path) -> None:
    first = submit(WORK, "--gpus", "4")
    assert gpus(first) == "0,1,2,3"
    second = submit(WORK, "--gpus", "1")
    until(lambda: waits(second))
    local = json.loads((Path(first["run_dir"]) / "local.json").read_text())
    os.kill(local["pid"], signal.SIGKILL)
    assert gpus(second) == "0"
    Path("go").touch()
    hpckit("wait", second["job_id"])


def test_more_than_the_machine_has_starts_at_once_on_the_cpu(four: Path) -> None:
    first = submit(WORK, "--gpus", "4")
    assert gpus(first) == "0,1,2,3"
    words = ("--nodes", "2", "--gpus", "4", "--tasks-per-node", "4")
    many = submit(WORK, *words)
    assert [gpus(many, rank) for rank in (0, 7)] == ["nobody said"] * 2
    none = submit(WORK, "--gpus", "0")
    assert gpus(none) == "nobody said"
    Path("go").touch()
    hpckit("wait", *(run["job_id"] for run in (first, many, none)))


def test_users_limit_the_gpus_and_share_them_if_they_say_so(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2222-a,1")
    found = [submit(WORK, "--gpus", "1") for _ in range(3)]
    assert [gpus(run) for run in found[:2]] == ["GPU-2222-a", "1"]
    until(lambda: waits(found[2]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HPCKIT_SHARE_GPUS", "1")
    found += [submit(WORK, "--gpus", "1") for _ in range(2)]
    assert [gpus(run) for run in found[3:]] == ["3", "3"]
    Path("go").touch()
    hpckit("wait", *(run["job_id"] for run in found))


def test_a_job_that_has_all_gpus_gives_them_to_those_it_submits(four: Path) -> None:
    Path("go").touch()
    Path("work.py").write_text(WORK)
    outer = submit(INNER, "--gpus", "4", "--wait")
    assert outer["state"] == "COMPLETED"
