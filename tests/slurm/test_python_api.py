"""The Python API on a real Slurm of two nodes: docs/python.md, functions, and how they end."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT, blocks
from tests.slurm.conftest import Desk, desk_in
from tests.slurmbox.fixture import Slurm

pytestmark = pytest.mark.slurm


def run(desk: Desk, text: str, timeout_s: float = 500) -> str:
    """Run a Python program as this user does; return what it prints."""
    (desk.work / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=desk.env | {"PYTHONPATH": str(ROOT)},
        cwd=desk.work,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def limited(
    slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Desk, list[str]]]:
    """A job that works on to its time limit, a minute, and one after it: others run beside it."""
    with desk_in(tmp_path_factory.mktemp("limited"), slurm) as desk:
        said = run(
            desk,
            "import time, hpckit\n"
            "limit = hpckit.call(time.sleep, 600, gpus=0, time=1)\n"
            "never = hpckit.call(time.sleep, 1, gpus=0, after=limit.job_id)\n"
            "print(limit.job_id, never.job_id)\n",
        )
        desk.submitted.extend(said.split())
        yield desk, said.split()


def answer(desk: Desk, text: str, **options: Any) -> Any:
    """Run a program whose last line is a JSON document."""
    return json.loads(run(desk, text, **options).splitlines()[-1])


def test_the_page_runs_from_top_to_bottom(desk: Desk) -> None:
    program = []
    for block in blocks("docs/python.md"):
        first = block.text.partition("\n")[0]
        if first.endswith(".py"):
            (desk.work / first.removeprefix("# ")).write_text(block.text)
        else:
            program.append(block.text)
    said = run(desk, "\n".join(program))
    assert "ValueError: no such data" in said
    assert "is CANCELLED and has no result" in said
    assert {row["executor"] for row in map(record, desk.runs.glob("*/run.json"))} == {"slurm"}


def record(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_exceptions_of_a_function_come_back(desk: Desk) -> None:
    said = answer(
        desk,
        "import json, hpckit\n"
        "from tests import raisers\n"
        "jobs = hpckit.map(raisers.end, raisers.ENDS, gpus=0, sample_interval=0)\n"
        "for name, job in zip(raisers.ENDS, jobs.calls):\n"
        "    raisers.check(name, job.exception())\n"
        "print(json.dumps([len(jobs), sorted({run.state for run in jobs.wait().runs})]))\n",
    )
    assert said[0] >= 20
    assert said[1] == ["FAILED"]


def test_ranks_of_two_nodes_have_their_results_and_commands_see_the_job(desk: Desk) -> None:
    said = answer(
        desk,
        "import json, os, socket, hpckit\n"
        "def where():\n"
        "    print('hello')\n"
        "    return socket.gethostname(), int(os.environ['RANK']), os.environ['WORLD_SIZE']\n"
        "job = hpckit.call(where, strategy='ddp', nodes=2, gpus=2, name='where')\n"
        "found = [job.result(rank=rank) for rank in range(4)]\n"
        "job.wait()\n"
        "print(json.dumps([job.job_id, found, [r.host for r in job.ranks], str(job.state)]))\n",
    )
    job_id, found, hosts, state = said
    assert found == [["c1", 0, "4"], ["c1", 1, "4"], ["c2", 2, "4"], ["c2", 3, "4"]]
    assert (hosts, state) == (["c1", "c1", "c2", "c2"], "COMPLETED")
    assert desk.status(job_id)["state"] == "COMPLETED"
    assert desk.call("logs", job_id, "--rank", "3").out == "hello\n"
    assert desk.scontrol(job_id)["JobName"] == "where"
    assert desk.call("stats", job_id, "--json").json["nodes"] == 2


def test_results_come_as_they_end_and_in_order(desk: Desk) -> None:
    said = answer(
        desk,
        "import json, pathlib, time, hpckit\n"
        "mark = pathlib.Path('others').absolute()\n"
        "def slow_first(number):\n"
        "    while number == 0 and not mark.exists(): time.sleep(0.1)\n"
        "    return number * number\n"
        "jobs = hpckit.map(slow_first, range(4), parallel=4, gpus=0)\n"
        "ends = []\n"
        "for job in jobs.as_completed():\n"
        "    ends.append(job.index)\n"
        "    if len(ends) == 3: mark.touch()\n"
        "print(json.dumps([ends, list(jobs), jobs.calls[0].job_id]))\n",
    )
    ends, results, job_id = said
    assert sorted(ends) == [0, 1, 2, 3]
    assert ends[-1] == 0
    assert results == [0, 1, 4, 9]
    assert job_id.endswith("_0")


def test_a_job_that_slurm_ends_says_so(limited: tuple[Desk, list[str]]) -> None:
    desk, (limit, never) = limited
    said = answer(
        desk,
        "import json, os, subprocess, time, hpckit\n"
        f"limit, never = hpckit.find({limit!r}), hpckit.find({never!r})\n"
        "cancelled = hpckit.call(time.sleep, 600, gpus=0)\n"
        "while cancelled.state != 'RUNNING': time.sleep(0.3)\n"
        "subprocess.run(['scancel', cancelled.job_id], check=True)\n"
        "killed = hpckit.call(os.kill, 0, 9, gpus=0)\n"
        "said = {}\n"
        "for name in ('cancelled', 'limit', 'killed'):\n"
        "    try: globals()[name].result()\n"
        "    except hpckit.JobError as error: said[name] = str(error)\n"
        "try: never.result()\n"
        "except hpckit.JobError as error: said['never'] = str(error)\n"
        "never.cancel()\n"
        "print(json.dumps(said))\n",
    )
    assert "is CANCELLED and has no result" in said["cancelled"]
    assert "is TIMEOUT and has no result" in said["limit"]
    assert "time limit" in said["limit"]
    assert "FAILED" in said["killed"] or "CANCELLED" in said["killed"]
    assert "can never start" in said["never"]


def test_a_lost_node_is_told(desk: Desk, slurm: Slurm) -> None:
    start = (
        "import time, hpckit\n"
        "job = hpckit.call(time.sleep, 600, gpus=0, sbatch={'nodelist': 'c1'})\n"
        "while job.state != 'RUNNING' or not job.ranks: time.sleep(0.3)\n"
        "print(job.job_id)\n"
    )
    job_id = run(desk, start).strip()
    slurm.kill_node("c1", noticed=True)
    try:
        end = (
            f"import hpckit\njob = hpckit.find({job_id})\n"
            "try: job.result()\nexcept hpckit.JobError as error: print(error)\n"
        )
        assert f"Job {job_id} is NODE_FAIL and has no result" in run(desk, end)
    finally:
        slurm.start_node("c1")


def test_another_version_of_python_is_one_clear_error(desk: Desk) -> None:
    said = run(
        desk,
        "import hpckit, hpckit.payload.function as in_job\n"
        "in_job.VERSION = '3.2'\n"
        "try: hpckit.call(print, gpus=0).result()\n"
        "except hpckit.JobError as error: print(error)\n",
    )
    assert "was pickled by Python 3.2, but the job's environment has Python 3." in said


def test_slurms_refusal_is_an_error_of_hpckits_and_leaves_nothing(desk: Desk) -> None:
    said = run(
        desk,
        "import hpckit\n"
        "try: hpckit.call(print, gpus=0, account='nobodys')\n"
        "except hpckit.SubmissionError as error: print(error)\n",
    )
    assert "Invalid account" in said
    assert not desk.runs.exists()
