"""More tasks than Slurm takes in one array: several arrays, one run. Here MaxArraySize is 1001."""

import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, eventually, rank_files

pytestmark = pytest.mark.slurm
SEEN = SCRIPTS / "seen.py"
TASKS = 2500
REFUSES = (
    "echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy' >&2"
)
AT_THE_SECOND = """\
#!/bin/bash
[[ $1 = --version ]] || echo x >>{folder}/calls
if [[ $1 != --version && $(wc -l <{folder}/calls) -gt 1 ]]; then
  {then}
  exit 1
fi
exec {real} "$@"
"""


def long_array(folder: Path) -> tuple[str | Path, ...]:
    values = folder / "values.txt"
    values.write_text("".join(f"{number}\n" for number in range(TASKS)))
    return (
        "serial", SEEN, "--gpus", "0", "--sample-interval", "0", "--array", f"seed=@{values}",
        "--parallel", "2",
    )  # fmt: skip


def second_sbatch(desk: Desk, tmp_path: Path, then: str) -> dict[str, str]:
    """Return the environment in which the second sbatch does something else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    real = desk.slurm.run("which", "sbatch").stdout.strip()
    (folder / "sbatch").write_text(AT_THE_SECOND.format(folder=folder, real=real, then=then))
    (folder / "sbatch").chmod(0o755)
    return {"PATH": f"{folder}:{desk.env['PATH']}"}


def test_2500_tasks_are_one_array_to_its_user(desk: Desk, tmp_path: Path) -> None:
    jobs = desk.submit(*long_array(tmp_path))["jobs"]
    arrays = list(dict.fromkeys(row["job_id"].partition("_")[0] for row in jobs))
    assert [row["job_id"] for row in jobs] == [
        f"{arrays[number // 1000]}_{number % 1000}" for number in range(TASKS)
    ]
    run_id = jobs[0]["run_id"].removesuffix("_0")
    assert [row["run_id"] for row in jobs] == [f"{run_id}_{number}" for number in range(TASKS)]

    queue = desk.slurm.run(
        "squeue", "--array", "--noheader", "--Format=ArrayJobID:20,Dependency:60"
    ).stdout.splitlines()
    count = Counter(row.split()[0] for row in queue)
    assert 0 < count[arrays[0]] <= 1000  # some are over, many where the machine stands still
    assert [count[array] for array in arrays[1:]] == [1000, 500]
    for array, before in zip(arrays[1:], arrays, strict=False):
        assert f"afterany:{before}" in desk.scontrol(f"{array}_0")["Dependency"]

    for word in (arrays[0], run_id, "latest"):
        found = json.loads(desk.call("status", word, "--json").out)["jobs"]
        assert [row["job_id"] for row in found] == [row["job_id"] for row in jobs]
    desk.until(jobs[0]["job_id"], "COMPLETED")
    desk.slurm.run("scancel", arrays[0])  # then the second one's turn has come
    later = jobs[1000]
    desk.until(later["job_id"], "COMPLETED")
    (seen,) = rank_files(later["run_dir"]).values()
    assert seen["argv"] == ["--seed", "1000"]
    assert (seen["env"]["SLURM_ARRAY_JOB_ID"], seen["env"]["SLURM_ARRAY_TASK_ID"]) == (
        arrays[1], "0",
    )  # fmt: skip
    alone = json.loads(desk.call("status", f"{arrays[0]}_1000", "--json").out)
    assert alone["job_id"] == later["job_id"]
    assert Path(later["run_dir"], "job.out").exists()
    assert desk.call("logs", f"{arrays[0]}_1000").out == desk.call("logs", later["job_id"]).out

    desk.call("cancel", run_id)
    mine = ",".join(arrays)
    assert eventually(
        lambda: not desk.slurm.run("squeue", "--noheader", f"--jobs={mine}").stdout.strip()
    )
    ended = json.loads(desk.call("status", run_id, "--json").out)["jobs"]
    assert {row["state"] for row in ended} == {"COMPLETED", "CANCELLED"}
    assert ended[-1]["state"] == "CANCELLED"


def test_of_several_arrays_all_are_taken_or_none(desk: Desk, tmp_path: Path) -> None:
    before = desk.slurm.run("squeue", "--noheader", "--array", "--format=%F").stdout
    environ = second_sbatch(desk, tmp_path, REFUSES)
    said = desk.call("submit", *long_array(tmp_path), expect=None, env=environ)
    assert "sbatch refused the job: Job violates accounting/QOS policy" in said.err
    assert "of tasks 1000 to 1999; none of them is left" in said.err
    assert not desk.runs.exists()
    after = desk.slurm.run("squeue", "--noheader", "--array", "--format=%F").stdout
    assert set(after.split()) <= set(before.split())


def test_a_program_that_reads_slurms_number_is_named(desk: Desk, tmp_path: Path) -> None:
    words = ["serial", "n.py", *long_array(tmp_path)[2:]]
    note = "note: n.py reads SLURM_ARRAY_TASK_ID, which begins at 0 in each of the 3 arrays"
    environ = second_sbatch(desk, tmp_path, REFUSES)
    for text, told in (("import os; os.environ['SLURM_ARRAY_TASK_ID']", 1), ("pass", 0)):
        (desk.work / "n.py").write_text(text)
        said = desk.call("submit", *words, expect=None, env=environ)
        assert said.err.count(note) == told


def test_tasks_that_were_never_submitted_leave_no_folders(desk: Desk, tmp_path: Path) -> None:
    environ = second_sbatch(desk, tmp_path, "kill -9 $PPID")
    desk.call("submit", *long_array(tmp_path), expect=-signal.SIGKILL, env=environ)
    said = desk.call("jobs", "--limit", "1")
    assert "taken only tasks 0 to 999" in said.err
    run_id = re.search(r"hpckit cancel (\S+)", said.err)[1]
    desk.call("cancel", run_id)
    assert len([*desk.runs.glob(f"{run_id}_*")]) == 1000
