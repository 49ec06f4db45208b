"""What Slurm itself records of values that try to be options, and what stays out of its files."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, add_site

pytestmark = pytest.mark.slurm
# The ones a shell or sbatch is likeliest to trip over; fast tests try all.
NASTY = [
    "x\\' --account=evil #", "x\\\" --uid=0 '", "\\';touch owned", "\\", "a\\",
    "it's \"$(touch owned)\"", "`touch owned`; # --uid=0", "#SBATCH --uid=0", " --hold",
    "-x --hold", "%j %x\\n", "{{ 7*7 }} * ?", "näme 🚀 日本", "a" * 300,
]  # fmt: skip
GROUPS = """{% extends "slurm/base.sh.j2" %}
{% block header %}
{{ super() -}}
#SBATCH --comment={{ run.name }}
{% endblock %}
"""


def shown(desk: Desk, job_id: str, field: str) -> str:
    """Give one field of `scontrol show job`, which has each of these on a line of its own."""
    text = desk.slurm.run("scontrol", "show", "job", job_id).stdout
    (value,) = re.findall(rf"^\s+{field}=(.*)$", text, re.MULTILINE)
    return value


def test_slurm_records_names_and_comments_as_they_are_and_nothing_else(desk: Desk) -> None:
    folder = desk.work / "templates" / "slurm"
    folder.mkdir(parents=True)
    (folder / "base.sh.j2").write_text(GROUPS)
    plain: dict[str, str] | None = None
    for value in NASTY:
        job = desk.submit("serial", SCRIPTS / "seen.py", "--gpus=0", f"--name={value}", "--time=5")
        job_id = job["job_id"]
        # A space of scontrol's own follows it, until 26.05.
        assert shown(desk, job_id, "Comment").removesuffix(" ") == value.removesuffix(" ")
        text = desk.slurm.run("scontrol", "show", "job", job_id).stdout
        assert f"JobName={value}\n" in text
        fields = dict(re.findall(r"^\s+(Account|UserId|Requeue|TimeLimit|WorkDir)=(\S*)",
                                 text, re.MULTILINE))  # fmt: skip
        found = {**fields, "held": str("JobHeld" in text), "uid": str(os.getuid())}
        plain = plain or found
        assert found == plain
    assert not list(desk.work.rglob("owned"))


def test_a_working_folder_that_reads_as_an_option_is_a_folder(desk: Desk) -> None:
    place = desk.work / "it's \\' --hold #$(touch owned)"
    place.mkdir()
    job = desk.submit("serial", SCRIPTS / "seen.py", "--gpus=0", cwd=place)
    assert shown(desk, job["job_id"], "WorkDir") == str(place)
    assert "JobHeld" not in desk.slurm.run("scontrol", "show", "job", job["job_id"]).stdout
    assert not list(desk.work.rglob("owned"))


def test_slurm_gives_back_the_name_and_the_terminal_gets_no_orders(desk: Desk) -> None:
    """Slurm itself takes any name: one with orders for a terminal is spelt out by hpckit."""
    name = "n\x1b]0;owned\x07\x1b[2Jx"
    told = desk.slurm.run(
        "sbatch", "--hold", "--parsable", "--job-name", name, "--output=/dev/null", "--wrap", "true"
    )
    job_id = told.stdout.strip()
    desk.submitted.append(job_id)
    said = desk.call("stats", job_id, expect=None)
    assert not set("\x1b\x07") & set(said.out + said.err)
    assert r"n\x1b]0;owned\x07\x1b[2Jx" in said.out


def test_no_secret_of_the_submitter_is_in_any_file_of_the_run(desk: Desk) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "planted-aws-1", "HF_TOKEN": "planted-hf-2"}
    add_site(desk, "defaults: {partition: gpu}\nenv: {NAMED: named-3}\n")
    # Not where it is: this file would be in the copy of its project.
    shutil.copy(SCRIPTS / "meet.py", desk.work)
    job = desk.submit(
        "ddp", "meet.py", "--gpus=0", "--nodes=2", "--tasks-per-node=1", "--site=box",
        "--sample-interval=0.5", env=secrets,
    )  # fmt: skip
    desk.over(job["job_id"])
    desk.call("stats", job["job_id"], env=secrets)
    files = [path for path in desk.home.parent.rglob("*") if path.is_file()]
    assert {"run.json", "job.sh", "job.out", "0.out", "summary.json"} <= {p.name for p in files}
    for path in files:
        assert b"planted" not in path.read_bytes(), path
    assert "named-3" in (Path(job["run_dir"]) / "job.sh").read_text()


def test_a_groups_umask_lets_the_group_read_and_not_write(desk: Desk, tmp_path: Path) -> None:
    runs = tmp_path / "lab"
    runs.mkdir()
    runs.chmod(0o3775)
    before = os.umask(0o002)
    try:
        status = desk.done("serial", SCRIPTS / "seen.py", "--gpus=0", "--runs", runs)
    finally:
        os.umask(before)
    folder = Path(status["run_dir"])
    for name in (".", "run.json", "job.sh", "job.out", "logs", "logs/0.out", "ranks/0.json"):
        mode = (folder / name).stat().st_mode
        assert not mode & 0o022, name
        assert mode & 0o040, name
    # The script's own files are its user's affair.
    assert next(folder.glob("seen-*.json")).stat().st_mode & 0o020
