"""Lightning and accelerate go on after Slurm's warning, once each, as docs/frameworks.md says."""

import json
import time
from pathlib import Path

import pytest

from tests.clients.test_clients import Shell, logs
from tests.pages import blocks
from tests.slurm.conftest import eventually
from tests.slurmbox.fixture import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.clients, pytest.mark.timeout(600)]
SCRIPTS = Path(__file__).parent / "scripts"
JOBS = ("lightning_requeues", "lightning_stops", "accelerate_stops")


def test_frameworks_go_on_once_after_a_warning(
    slurm: Slurm, client_venv: Path, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, slurm.env)
    jobs = {}
    for name in JOBS:
        # One rank each: starting them is all of this test's time.
        shape = f"--gpus 1 --time 20 --sample-interval 0 --max-requeues 3 --env {client_venv}"
        said = shell.type(f"hpckit submit ddp {SCRIPTS / name}.py {shape} --json")
        assert said.returncode == 0, said.stderr
        jobs[name] = json.loads(said.stdout)
    until = time.monotonic() + 300
    for name in JOBS:
        while not Path(jobs[name]["run_dir"], "begun-0").exists():
            assert time.monotonic() < until, logs(tmp_path)
            time.sleep(0.1)
        slurm.run("scancel", "--signal=USR2", f"{jobs[name]['job_id']}.0")
    for name, job in jobs.items():
        ended = shell.type(f"hpckit wait {job['job_id']}")
        assert ended.returncode == 0, name + ended.stderr + logs(tmp_path)
        asked = ("sacct", "-X", "-D", "-n", "-P", "-o", "JobID", "-j", job["job_id"])
        # Accounting may hear of the second attempt after squeue.
        assert eventually(lambda ask=asked: len(slurm.run(*ask).stdout.split()) == 2), name
        status = json.loads(shell.type(f"hpckit status {job['job_id']} --json").stdout)
        assert (status["state"], status["restarts"]) == ("COMPLETED", 1), name
        said = Path(job["run_dir"], "logs", "0.out").read_text().splitlines()
        found = [line.split()[1] for line in said if line.startswith("weights ")]
        assert len(found) == 2, said
        assert found[0] == found[1], name


def test_the_pages_lines_are_those_that_were_run() -> None:
    shown = [block.text for block in blocks("docs/frameworks.md") if block.language == "text"]
    texts = [(SCRIPTS / f"{name}.py").read_text() for name in JOBS]
    asking = [block for block in shown if "should_stop" in block]
    # Transformers is not in the environment: its page says that this one was not tried.
    known = [block for block in asking if "transformers" not in block]
    assert (len(asking), len(known)) == (3, 2)
    assert all(any(block in text for text in texts) for block in known)
