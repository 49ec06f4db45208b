"""Other programs than Python's on this machine: arguments, arrays, workloads, what is on record."""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import add_program, write_files
from tests.integration.test_local import HOST, hpckit

pytestmark = pytest.mark.long

LOCAL = ("--executor", "local", "--sample-interval", "0", "--wait", "--json")
SAYS = 'echo "$RANK/$WORLD_SIZE $HPCKIT_RESTART $PWD: $*"\n'


def log(job: dict, rank: int = 0, end: str = "out") -> str:
    return Path(job["run_dir"], "logs", f"{rank}.{end}").read_text()


def test_a_script_of_the_shell_is_a_job_like_any_other(here: Path) -> None:
    (here / "a b.sh").write_text(SAYS)
    argv = ("ddp", "a b.sh", "--tasks-per-node", "2", "--array", "lr=1,it's")
    done = hpckit("submit", *argv, *LOCAL, "--", "-x", "$HOME *")
    jobs = json.loads(done.stdout)["jobs"]
    assert "never met" not in done.stderr
    for job, value in zip(jobs, ("1", "it's"), strict=True):
        assert log(job, 1) == f"1/2 0 {here}: -x $HOME * --lr {value}\n"
    record = json.loads(Path(jobs[0]["run_dir"], "run.json").read_text())
    assert record["program"] == {"kind": "file", "word": f"{here}/a b.sh"}
    assert record["request"]["program"] == f"{here}/a b.sh"
    assert record["script_hash"].startswith("sha256:")
    again = hpckit("resubmit", jobs[1]["job_id"], "--wait", "--json")
    assert log(json.loads(again.stdout)) == f"0/2 0 {here}: -x $HOME * --lr it's\n"
    (here / "a b.sh").write_text(f"{SAYS}true\n")
    said = hpckit("resubmit", jobs[1]["job_id"], "--dry-run").stderr
    assert "the script itself has changed" in said


def test_a_word_of_a_workload_runs_in_the_folder_of_submission(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "tools").mkdir()
    add_program(here / "tools" / "melt", f"#!/bin/sh\n{SAYS}")
    head = "description: d\nstrategy: ddp\nparameters: {t: {type: float, default: 3, help: h}}\n"
    write_files(here, {"workloads/melt/workload.yaml": f"{head}program: melt\n"})
    missing = hpckit("submit", "melt", "--gpus", "0", *LOCAL, status=1)
    job = json.loads(missing.stdout)
    assert job["exit_code"] == 127
    assert "'melt' is not a program on this machine: it is looked for on the" in missing.stderr
    assert log(job, end="err").startswith(f"hpckit: Program 'melt' was not found on {HOST}. ")
    assert f"PATH is {os.environ['PATH']}\n" in log(job, end="err")
    monkeypatch.setenv("PATH", f"{here}/tools:{os.environ['PATH']}")
    found = json.loads(hpckit("submit", "melt", "--gpus", "0", *LOCAL).stdout)
    assert log(found) == f"0/1 0 {here}: --t 3\n"


def test_a_container_runs_any_program_inside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = here / "image.sif"
    image.touch()
    says = 'echo "apptainer: $*"; while [ "$1" != "$IMAGE" ]; do shift; done; shift; exec "$@"'
    add_program(here.parent / "bin" / "apptainer", f"#!/bin/sh\n{says}\n")
    monkeypatch.setenv("IMAGE", str(image))
    argv = ("serial", "sh", "--gpus", "0", "--env", f"apptainer:{image}")
    job = json.loads(hpckit("submit", *argv, *LOCAL, "--", "-c", "echo $NODE_RANK").stdout)
    inside = f"apptainer: exec --nv {image} sh -c echo $NODE_RANK\n0\n"
    assert log(job) == inside


def test_a_workload_of_the_shell_hears_the_warning_it_traps(here: Path) -> None:
    head = "description: d\nstrategy: ddp\nhandles_stop_signal: true\nprogram: run.sh\n"
    text = "trap 'echo saved; exit 0' USR2\nkill -USR2 $$\nsleep 1\nexit 5\n"
    write_files(here, {"workloads/w/workload.yaml": head, "workloads/w/run.sh": text})
    job = json.loads(hpckit("submit", "w", "--gpus", "0", "--max-requeues", "1", *LOCAL).stdout)
    assert (job["state"], log(job)) == ("COMPLETED", "saved\n")
