"""The code travels with the job: what was submitted runs, whatever is edited before it starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.slurm.conftest import Desk, eventually
from tests.unit.checkouts import commit, git

pytestmark = pytest.mark.slurm
TRAIN = """\
import os, time
from pathlib import Path
import lib.part, made
said = {
    "text": "old", "part": lib.part.TEXT, "made": made.TEXT, "data": Path("data.txt").read_text(),
    "beside": Path(__file__).with_name("table.csv").read_text(), "cwd": os.getcwd(),
    "code": os.environ["HPCKIT_CODE_DIR"], "file": __file__, "part_file": lib.part.__file__,
}
run, restart = Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["HPCKIT_RESTART"]
import json
(run / f"said-{restart}.json.part").write_text(json.dumps(said))
(run / f"said-{restart}.json.part").replace(run / f"said-{restart}.json")
while not (run / "go").exists() and restart == "0":
    time.sleep(0.1)
"""


def make_project(root: Path) -> None:
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "train.py").write_text("print('committed, and edited since')\n")
    (root / "lib").mkdir()
    (root / "lib" / "part.py").write_text("TEXT = 'old'\n")
    (root / ".gitignore").write_text("made.py\n*.csv\n")
    commit(root)
    (root / "train.py").write_text(TRAIN)
    git(root, "add", "train.py")  # a dirty index
    (root / "made.py").write_text("TEXT = 'ignored'\n")
    (root / "table.csv").write_text("a,b\n")
    (root / ".env").write_text("TOKEN=1\n")


def said(run_dir: str, restart: int) -> dict[str, str]:
    path = Path(run_dir, f"said-{restart}.json")
    assert eventually(path.exists), [*Path(run_dir).iterdir()]
    found: dict[str, str] = json.loads(path.read_text())
    return found


def test_what_was_submitted_runs_also_after_a_requeue_and_in_the_last_task(desk: Desk) -> None:
    root = desk.work / "project"
    make_project(root)
    (desk.work / "data.txt").write_text("data")
    held = ("serial", "project/train.py", "--gpus", "0", "--sbatch", "hold", "--max-requeues", "1")
    answer = desk.call("submit", *held, "--array", "x=1,2,3", "--parallel", "1", "--json")
    assert "note: not kept with the code: .env (looks like a secret)" in answer.err
    jobs = answer.json["jobs"]
    desk.submitted.extend(row["job_id"] for row in jobs)
    array = jobs[0]["job_id"].partition("_")[0]
    kept = json.loads(Path(jobs[2]["run_dir"], "run.json").read_text())["code"]
    assert (kept["root"], kept["script"], kept["files"]) == (str(root), "train.py", 3)
    (root / "train.py").write_text("raise SystemExit('edited')\n")
    (root / "lib" / "part.py").unlink()
    (desk.work / "data.txt").write_text("today's data")
    desk.slurm.run("scontrol", "release", array)
    first = said(jobs[0]["run_dir"], 0)
    desk.slurm.run("scontrol", "requeue", jobs[0]["job_id"])
    for row in jobs:
        Path(row["run_dir"], "go").write_text("")
    assert eventually(
        lambda: (
            bool(
                desk.slurm.run("scontrol", "update", f"jobid={array}", "starttime=now", check=False)
            )
            and Path(jobs[0]["run_dir"], "said-1.json").exists()
        ),
        pause_s=0.5,
    )
    for row in jobs:
        assert desk.over(row["job_id"])["state"] == "COMPLETED"
    for found in (first, said(jobs[0]["run_dir"], 1), said(jobs[2]["run_dir"], 0)):
        assert (found["text"], found["part"], found["made"]) == ("old", "old", "ignored")
        assert (found["data"], found["beside"]) == ("today's data", "a,b\n")
        assert found["cwd"] == str(desk.work)
        assert found["file"] == f"{found['code']}/train.py"
        assert f"/trees/{kept['tree']}/project/lib/part.py" in found["part_file"]
    # The current code would fail.
    again = ("resubmit", jobs[1]["job_id"], "--unset", "sbatch:hold", "--same-code")
    row = desk.call(*again, "--max-requeues", "0", "--json").json
    desk.submitted.append(row["job_id"])
    Path(row["run_dir"], "go").write_text("")
    assert said(row["run_dir"], 0)["text"] == "old"
    assert desk.over(row["job_id"])["state"] == "COMPLETED"
    trees = [*(desk.runs / ".code" / "trees").iterdir()]
    assert [path.name for path in trees] == [kept["tree"]]
    assert not [*trees[0].rglob("__pycache__")]
    assert os.readlink(
        desk.runs / answer.json["jobs"][0]["run_id"].rpartition("_")[0] / "code"
    ) == (f"../.code/trees/{kept['tree']}/project")


CALLER = """\
import functools, json, sys
import hpckit, lib.part
free = {"gpus": 0, "sample_interval": 0}
options = free | {"sbatch": {"hold": True}}
def own(x):
    from lib import part
    return part.text(x)
jobs = [
    hpckit.call(functools.partial(lib.part.text, 1, "once"), retry="fail", **free),
    hpckit.call(own, 2, **options),
    hpckit.call(lib.part.text, 3, no_code=True, **options),
    *hpckit.map(lib.part.text, [4, 5], parallel=1, **options).calls,
]
print(json.dumps([[job.job_id, str(job.dir)] for job in jobs]), flush=True)
sys.stdin.readline()
found = [(job.exception() and str(job.exception())) or job.result() for job in jobs]
print(json.dumps(found))
"""
OLD = """\
import time
from pathlib import Path
def text(x, name=""):
    if name and not Path("edited").exists():
        while not Path("edited").exists():
            time.sleep(0.05)
        raise RuntimeError(name)
    return f"old {x}"
"""


def test_a_function_runs_the_modules_as_they_were_when_it_was_called(desk: Desk) -> None:
    root = desk.work / "project"
    make_project(root)
    (root / "lib" / "part.py").write_text(OLD)
    (root / "call.py").write_text(CALLER)
    with subprocess.Popen(
        [sys.executable, "call.py"],
        cwd=root,
        env=desk.env | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin
        assert program.stdout
        rows = json.loads(program.stdout.readline())
        desk.submitted.extend(job_id for job_id, _ in rows)
        (root / "lib" / "part.py").write_text("def text(x):\n    return f'edited {x}'\n")
        (root / "edited").touch()
        for job_id in {job_id.partition("_")[0] for job_id, _ in rows[1:]}:
            desk.slurm.run("scontrol", "release", job_id)
        program.stdin.write("\n")
        program.stdin.flush()
        found = json.loads(program.stdout.readline())
    assert found == ["old 1", "old 2", "edited 3", "old 4", "old 5"]
    codes = [json.loads(Path(folder, "run.json").read_text())["code"] for _, folder in rows]
    assert [code.get("source") for code in codes[:2]] == ["lib/part.py", "call.py"]
    assert codes[2]["not_kept"] == "--no-code was given"
