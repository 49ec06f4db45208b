"""Planted run folders: what others can have written is looked at, not believed, not obeyed."""

import json
import os
import sys
from pathlib import Path

import pytest

from hpckit.run_folders.find import find_runs
from hpckit.run_folders.index import add_to_index, handed_over
from hpckit.run_folders.runs import DamagedRun, list_runs, read_run
from tests.conftest import add_program
from tests.unit.made import make_run

COLLEAGUE, GROUP = 61002, 61000
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
COMPLETED = {"job_id": "local-1", "state": "COMPLETED", "host": "x", "pid": 1, "pid_started": 1,
             "started": 1.0, "ended": 2.0, "exit_code": 0}  # fmt: skip


def theirs(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, COLLEAGUE, GROUP)


def plant(root: Path, name: str, **changes) -> Path:
    """A finished local run, as a colleague may make one up."""
    values = {"job_id": "local-1", "executor": "local", "cwd": str(root), **changes}
    folder = make_run(root, name, **values).dir
    (folder / "local.json").write_text(json.dumps(COMPLETED))
    theirs(folder)
    return folder


@pytest.mark.parametrize("claims", ["folder", "job_id"])
def test_a_folder_named_like_a_job_or_claiming_it_is_not_that_job(here, cli, claims) -> None:
    root = here / "runs"
    if claims == "folder":
        plant(root, "4711")
    else:
        plant(root, "evil-1", job_id="4711")
    for command in ("wait", "resubmit", "cancel"):
        said = cli(command, "4711")
        assert said.status in (2, 3), (command, said.err)
        assert said.out == ""
        assert "4711" in said.err


def test_ones_own_run_of_the_index_comes_first(here, cli) -> None:
    mine = make_run(here / "elsewhere", "mine-1", job_id="4711", executor="slurm")
    add_to_index([mine])
    plant(here / "runs", "4711", job_id="4711")
    plant(here / "runs", "mine-1", job_id="4711")
    for word in ("4711", "mine-1"):
        assert [run.dir for run in find_runs(word, here / "runs")] == [mine.dir]


@pytest.mark.parametrize(
    ("bits", "path", "says"),
    [
        (0o777, ".", "everybody may write to it"),
        (0o2775, ".", "group 61000 may write to it"),
        (0o666, "run.json", "everybody may write to it"),
        (0o664, "run.json", "group 61000 may write to it"),
    ],
)
def test_what_others_may_write_is_looked_at_and_not_obeyed(here, cli, bits, path, says) -> None:
    run = make_run(here / "runs", "mine-1", job_id="local-1", executor="local", cwd=str(here))
    (run.dir / "local.json").write_text(json.dumps(COMPLETED))
    assert read_run(run.dir).mine
    os.chown(run.dir / path, 0, GROUP)
    (run.dir / path).chmod(bits)
    assert not read_run(run.dir).mine
    for command in ("wait", "resubmit", "cancel"):
        said = cli(command, "mine-1")
        assert (said.status, said.out) == (2, ""), command
        assert says in said.err
        assert "chmod go-w" in said.err
    assert cli("submit", "ddp", "--executor=local", "--after=mine-1").status == 2
    looked = cli("status", "mine-1")
    assert looked.status == 0
    assert f"note: it is not certain who has written run mine-1: {says}" in looked.err
    assert cli("status", "latest").status == 2


def test_a_record_of_another_hand_or_another_run_is_not_believed(here, cli) -> None:
    run = make_run(here / "runs", "mine-1", job_id="local-1", executor="local", cwd=str(here))
    os.chown(run.dir / "run.json", COLLEAGUE, GROUP)
    assert "does not belong to the owner of its folder" in cli("wait", "mine-1").err
    os.chown(run.dir / "run.json", 0, 0)
    run.dir.rename(here / "runs" / "other-2")
    said = cli("wait", "./runs/other-2")
    assert said.status == 2
    assert "its folder is called other-2" in said.err
    assert f"If it is yours: mv {run.dir.with_name('other-2')} {run.dir}\n" in said.err
    (here / "runs" / "mine-1").symlink_to("other-2")
    assert cli("cancel", "mine-1").status == 2


def test_a_colleagues_run_called_by_its_name_says_whose_it_is(here, cli) -> None:
    plant(here / "runs", "theirs-1")
    for command, status in (
        ("status", 0), ("wait", 0), ("logs", 0), ("stats", 0), ("cancel", 2),
    ):  # fmt: skip
        said = cli(command, "theirs-1")
        assert said.status == status, said.err
        assert "user 61002" in said.err
    again = cli("resubmit", "theirs-1", "--dry-run")
    assert "run theirs-1 is of user 61002, and so are its script and its settings" in again.err


QUEUE = """#!/bin/bash
printf '[squeue %s]\\n' "$*" >>"$FAKE_SLURM_DIR/asked"
for word; do case $word in --format=*) format=${{word#--format=}} ;; esac; done
[ -e "$FAKE_SLURM_DIR/ended" ] && state=CANCELLED || state=RUNNING
row=$format
for cell in %i=4711 %A=4711 %u={user} %a=lab %P=gpu %q=normal %T=$state %M=1:00 %l=2:00 %V=1 %S=1 \\
    %e=2 %N=c1 %r=None %j=x; do row=${{row//${{cell%%=*}}/${{cell#*=}}}}; done
printf '%s\\n' "$row"
"""
SCANCEL = '#!/bin/bash\necho "$*" >>"$FAKE_SLURM_DIR/cancelled"; touch "$FAKE_SLURM_DIR/ended"\n'


@pytest.mark.parametrize("user", ["root", "colleague"])
@pytest.mark.parametrize("run", ["none", "unreadable", "damaged", "planted"])
def test_a_jobs_id_is_enough_to_cancel_what_slurm_says_is_ones_own(
    here, cli, fake_slurm, monkeypatch, user, run
) -> None:
    add_program(here.parent / "bin" / "squeue", QUEUE.format(user=user))
    add_program(here.parent / "bin" / "scancel", SCANCEL)
    if run != "none":
        made = make_run(here / "runs", "mine-1", job_id="4711")
        add_to_index([made])
        if run == "damaged":
            (made.dir / "run.json").write_text("{")
        if run == "planted":
            theirs(made.dir)
        if run == "unreadable":
            broken(monkeypatch, made.dir / "run.json")
    said = cli("cancel", "4711")
    if user == "root":
        assert (said.status, said.out) == (
            0,
            "4711 CANCELLED according to Slurm; hpckit has no run of this job\n",
        ), said.err
        assert (fake_slurm / "cancelled").read_text() == "4711\n"
    else:
        assert said.status == 2
        assert "Job 4711 belongs to colleague. Only its owner can cancel it" in said.err
        assert not (fake_slurm / "cancelled").exists()


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_job_that_goes_on_is_not_said_to_be_cancelled(
    here, cli, fake_slurm, monkeypatch, run, json
) -> None:
    ending = "schedulers.slurm.ending"
    for name in ("submission.waiting._SETTLING_S", f"{ending}._SETTLING_S", f"{ending}._PAUSE_S"):
        monkeypatch.setattr(f"hpckit.{name}", 0.0)
    add_program(here.parent / "bin" / "squeue", QUEUE.format(user="root"))
    add_program(here.parent / "bin" / "scancel", "#!/bin/sh\nexit 0\n")
    if run:
        add_to_index([make_run(here / "runs", "mine-1", job_id="4711", name="x")])
    said = cli("cancel", "4711", *json)
    assert said.status == 1
    assert "RUNNING" in said.out
    assert "hpckit: error: Asked Slurm to cancel 4711; it still runs (RUNNING). " in said.err
    assert "still ending" not in said.err


def broken(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let a disk fail under one file."""
    real = os.open

    def failing(name, *words, **options):
        if str(name) == str(path):
            raise OSError(5, "Input/output error")
        return real(name, *words, **options)

    monkeypatch.setattr(os, "open", failing)


def test_commands_that_look_name_the_disks_error(here, cli, monkeypatch) -> None:
    run = make_run(here / "runs", "mine-1", job_id="4711")
    add_to_index([run])
    broken(monkeypatch, run.dir / "run.json")
    for command in ("status", "logs", "wait", "resubmit", "stats"):
        said = cli(command, "mine-1")
        assert said.status == 3, (command, said.err)
        assert "Input/output error" in said.err


def test_a_job_id_of_the_other_executor_ends_no_list(here, cli) -> None:
    plant(here / "runs", "evil-1", job_id="local-a", executor="slurm")
    make_run(here / "runs", "mine-1", job_id="local-2", executor="local")
    said = cli("jobs")
    assert said.status == 0
    assert "mine-1" in said.out
    assert "'local-a' is not a job id of slurm" in said.err


def test_colleagues_records_push_ones_own_out_of_no_list(here, cli, monkeypatch) -> None:
    make_run(here / "runs", "mine-1", job_id="local-2", executor="local")
    for number in range(4):
        folder = plant(here / "runs", f"evil-{number}", submitted_at=2e11)
        os.utime(folder / "run.json", (4e9, 4e9))
    assert "mine-1" in cli("jobs", "--limit", "2").out
    # In bytes: none of theirs is read.
    monkeypatch.setattr(sys.modules["hpckit.run_folders.runs"], "_MOST_OF_OTHERS", 10)
    said = cli("jobs")
    assert [word for word in ("mine-1", "evil") if word in said.out] == ["mine-1"]
    assert "too many records of other users to read them all" in said.err


def test_what_was_read_of_a_damaged_record_is_not_kept(here) -> None:
    make_run(here / "runs", "bad-1").dir.joinpath("run.json").write_text("[" * 100_000)
    damaged: list[DamagedRun] = []
    assert list(list_runs(here / "runs", damaged)) == []
    assert damaged[0].error.__cause__ is damaged[0].error.__context__ is None


@pytest.mark.parametrize("reader", ["listdir", "scandir"])
def test_a_list_of_submissions_that_is_a_strangers_ends_no_command(
    here, cli, monkeypatch, reader
) -> None:
    make_run(here / "runs", "mine-1", job_id="local-2", executor="local")
    handed_over().mkdir(parents=True)
    read = getattr(os, reader)

    def refused(path="."):  # as to everybody but root
        if Path(path) == handed_over():
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(os, reader, refused)
    said = cli("jobs")
    assert said.status == 0
    assert "mine-1" in said.out
