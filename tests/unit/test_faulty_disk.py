"""A disk, or a server of files, that refuses something once or for good, at any moment."""

import errno
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hpckit import cli as command_line
from hpckit import shell
from hpckit.api.top import Watch
from hpckit.collections import git
from hpckit.collections.lockfile import changing
from hpckit.collections.source import parse_source
from hpckit.doctor import attempt, good
from hpckit.errors import ConfigError, OutsideError
from hpckit.files import replace_file
from hpckit.job_ends.causes import Kind, find_cause
from hpckit.job_ends.failures import _known
from hpckit.paths import refuse_foreign
from hpckit.payload import keeper, spawn
from hpckit.report import at_end
from hpckit.run_folders import ranks as rank_files
from hpckit.run_folders import run_files
from hpckit.run_folders.find import refuse_doubtful
from hpckit.run_folders.ranks import read_ranks, write_rank
from hpckit.run_folders.runs import Run
from hpckit.schedulers import local
from hpckit.schedulers.base import Sent
from hpckit.schedulers.local import controller, local_job, state
from hpckit.schedulers.local.gpus import GpuPool
from hpckit.schedulers.local.local_job import ControllerSpec, LocalJob
from hpckit.schedulers.local.state import read_local_state
from hpckit.schedulers.slurm import sbatch
from hpckit.session.connection import Connection, forget, read_connection, write_connection
from hpckit.session.served import put
from hpckit.slurm.states import JobState
from hpckit.stop_marks import was_full
from hpckit.submission import folders
from tests.conftest import FAKES, Answer, add_program
from tests.unit.made import make_run, rank
from tests.unit.played_slurm import answers, end_ranks, one, squeue_row
from tests.unit.test_clocks import Going

Cli = Callable[..., Answer]


def refused(number: int, name: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), name)


def refuse(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, number: int,
    *, only: str = "", times: int = 10**9,
) -> list[str]:  # fmt: skip
    """Let a function refuse so many calls on paths with a word; return what it refused."""
    real, said = getattr(where, name), []

    def refusing(path: Any, *words: Any, **options: Any) -> Any:
        if only in str(path) and len(said) < times:
            said.append(str(path))
            raise refused(number, str(path))
        return real(path, *words, **options)

    monkeypatch.setattr(where, name, refusing)
    return said


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (refused(errno.EIO, "/a/b"), "'/a/b' cannot be read or written: Input/output error. Try"),
        (refused(errno.ENOSPC, "/a"), "No space left on device. Free some space there."),
        (refused(errno.EMFILE), "A file cannot be read or written: Too many open files. Let more"),
    ],
)
def test_what_no_command_expects_is_one_line(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def run(*_: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "_run", run)
    said = cli("jobs")
    assert (said.status, said.out, len(said.err.splitlines())) == (3, "", 1)
    assert words in said.err


def test_a_record_that_cannot_be_read_now_makes_no_job_fail(
    fake_slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    end_ranks(run, 0, 0, 0, 0)
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED"))
    refuse(monkeypatch, rank_files, "read_attempts", errno.EMFILE, only="3.json")
    found = one(run)
    assert (found.state, found.damaged) == (
        JobState.COMPLETED, ("ranks/3.json: Too many open files",)
    )  # fmt: skip
    refuse(monkeypatch, rank_files.os, "scandir", errno.EIO, only="ranks")
    found = one(run)
    assert (found.state, found.damaged) == (JobState.COMPLETED, ("ranks: Input/output error",))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_the_latest_run_is_no_older_one_while_a_disk_is_silent(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name, then in (("old", 100.0), ("new", 200.0)):
        folder = make_run(here / "runs", name, submitted_at=then).dir
        os.utime(folder / "run.json", (then, then))
    assert "new" in cli("status", "latest").out
    refuse(monkeypatch, os, "open", number, only="new/run.json")
    said = cli("cancel", "latest")
    assert (said.status, said.out) == (3, "")
    assert f"'{here}/runs/new' cannot be read: {os.strerror(number)}" in said.err


def test_runs_that_cannot_be_read_are_not_called_none(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(here / "runs", "only")
    refuse(monkeypatch, os, "open", errno.EIO, only="run.json")
    refuse(monkeypatch, os, "stat", errno.EIO, only="run.json")
    said = cli("jobs")
    assert "cannot be read: Input/output error" in said.err
    assert "No runs yet" not in said.err
    assert "cannot be read: Input/output error" in cli("status", "latest").err


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_a_rank_writes_its_record_again_that_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0, 0.0))
    said = refuse(monkeypatch, rank_files, "write_json", number, times=2)
    write_rank(tmp_path, rank(0, ended=20.0, exit_code=0))
    assert (len(said), len(read_ranks(tmp_path)), was_full(tmp_path, 0)) == (2, 1, False)
    refuse(monkeypatch, rank_files, "write_json", number)
    with pytest.raises(OSError, match=r"\[Errno"):
        write_rank(tmp_path, rank(1))
    assert was_full(tmp_path, 0) == (number == errno.ENOSPC)


def test_an_end_that_was_refused_was_not_killed_from_outside(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    log = (
        "hpckit: rank 0 on n1 cannot write to /r: Read-only file system. "
        "The rank's end is not recorded.\n"
    )
    rows = [rank(0), *(rank(number, ended=20.0, exit_code=0) for number in (1, 2, 3))]
    found = find_cause(_known(run, rows, JobState.FAILED, log))
    assert found is not None
    assert found.kind is Kind.UNKNOWN
    assert found.text.endswith("recorded no end: it cannot be written (Read-only file system)")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], LocalJob]:
    """Return how a controller's job is made; it has not begun."""
    monkeypatch.setattr(local_job.shell, "spawn", lambda *_, **__: Going())
    monkeypatch.setattr(local_job, "sweep", lambda *_, **__: [])
    monkeypatch.setattr(local_job, "_AGAIN_S", 0.0)
    spec = ControllerSpec(script="", run_dirs=(), job_ids=(), time_min=60)
    return lambda: LocalJob(spec, tmp_path, "local-1", 0, [], GpuPool(spec.gpus))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_local_job_goes_on_whose_state_cannot_be_written(
    tmp_path: Path, job: Callable[[], LocalJob], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, state, "write_json", number)
        refuse(patch, state, "open_to_write", number, only=".local.room")
        one = job()
        one.start({})
        one.look({})
        one.save()
        assert (one.state.state, read_local_state(tmp_path)) == (JobState.RUNNING, None)
    one.save()
    found = read_local_state(tmp_path)
    assert found is not None
    assert found.state is JobState.RUNNING
    with monkeypatch.context() as patch:
        refuse(patch, state, "write_json", number)
        one.end(JobState.COMPLETED, 0)
        assert (one.over, one.finished) == (True, False)
    one.save()
    found = read_local_state(tmp_path)
    assert found is not None
    assert (found.state, one.finished) == (JobState.COMPLETED, True)


def test_an_end_that_is_never_taken_keeps_no_controller(
    job: Callable[[], LocalJob], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_job, "_LAST_S", -1.0)
    one = job()
    one.start({})
    refuse(monkeypatch, local_job, "write_last_state", errno.EROFS)
    one.end(JobState.COMPLETED, 0)
    assert one.finished
    assert "local-1: its end is not recorded" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_silent_disk_neither_cancels_nor_removes_a_local_job(
    tmp_path: Path, job: Callable[[], LocalJob], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    spec = ControllerSpec(
        script="", run_dirs=(), job_ids=(), time_min=60, after=(f"afterok:{tmp_path / 'before'}",)
    )
    one = job()
    one.start({})
    with monkeypatch.context() as patch:
        refuse(patch, os, "stat", number)
        refuse(patch, os, "fstat", number)
        assert controller._gate(spec.after) is JobState.PENDING
        controller._look_at([one], ControllerSpec(**{**vars_of(spec), "after": ()}), {})
    assert one.state.state is JobState.RUNNING
    assert controller._gate(spec.after) is JobState.CANCELLED
    one.end(JobState.CANCELLED)


def vars_of(spec: ControllerSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__slots__}


def test_a_run_whose_state_cannot_be_read_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Going()
    monkeypatch.setattr(local, "_CONTROLLERS", [child])
    monkeypatch.setattr("hpckit.payload.children.wait_for", lambda *_: None)
    refuse(monkeypatch, os, "open", errno.EMFILE, only=str(tmp_path))
    local.LOCAL.take_back([tmp_path], Sent())
    assert child.over


def test_a_file_system_without_locks_takes_a_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(refused(errno.ENOLCK)))
    with changing(tmp_path / "hpckit.lock"):
        pass
    assert json.loads((tmp_path / "hpckit.lock").read_text())["collections"] == []
    source = parse_source(f"git+file://{tmp_path}/lab")
    with git._alone(source, tmp_path / "cache") as clone:
        assert (clone / "HEAD").is_file()


def test_what_refuses_a_collection_is_named(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = parse_source(f"git+file://{tmp_path}/lab")
    monkeypatch.setattr(
        tempfile,
        "NamedTemporaryFile",
        lambda *_, **__: (_ for _ in ()).throw(refused(errno.EDQUOT)),
    )
    place = tempfile.gettempdir()
    with pytest.raises(OutsideError, match=rf"'{place}' .*: Disk quota exceeded. Free some space"):
        git.fetch_commit(source, None, tmp_path / "cache")
    with (
        pytest.raises(OutsideError, match=r"'.*/collections/.*' cannot be .*: Input/output error"),
        git._alone(source, tmp_path / "cache"),
    ):
        raise refused(errno.EIO)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_run_folder_that_cannot_be_entered_is_not_left(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (here / "x.py").touch()
    submit = ("submit", "serial", "x.py", "--executor=slurm", "--gpus=0", "--no-code")
    for name in ("x-", str(here / "runs")):
        with monkeypatch.context() as patch:
            refuse(patch, folders.os, "open", number, only=name, times=1)
            said = cli(*submit)
        assert (said.status, len(said.err.splitlines())) == (3, 1), said
        assert os.strerror(number) in said.err
        assert not (here / "runs").exists()


def nobody_answers(*_: object) -> None:
    raise OutsideError("no answer")


def test_a_folder_that_cannot_be_removed_is_told_of(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "x.py").touch()
    submit = ("submit", "serial", "x.py", "--executor=slurm", "--gpus=0", "--no-code")
    monkeypatch.setattr(
        "hpckit.submission.submit.begin", lambda *_: (_ for _ in ()).throw(refused(errno.EROFS))
    )
    with monkeypatch.context() as patch:
        refuse(patch, folders, "_remove", errno.EROFS, times=2)
        said = cli(*submit)
    (run,) = here.glob("runs/[!.]*")
    assert f"Left there, and of no job: {run.name} (hpckit clean)." in said.err
    with monkeypatch.context() as patch:
        refuse(patch, folders, "_remove", errno.EROFS, times=2)
        patch.setattr("hpckit.submission.submit.begin", nobody_answers)
        said = cli(*submit)
    (second,) = {*here.glob("runs/[!.]*")} - {run}
    assert said.err == (
        f"hpckit: error: no answer Left there, and of no job: {second.name} (hpckit clean).\n"
    )
    shutil.rmtree(second)
    refuse(monkeypatch, folders, "_remove", errno.EROFS, times=1)
    assert "Left there" not in cli(*submit).err  # the second time it went
    assert [*here.glob("runs/[!.]*")] == [run]


def test_a_job_stays_whose_handover_cannot_be_removed(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "x.py").touch()
    with monkeypatch.context() as patch:
        refuse(patch, os, "unlink", errno.EIO, only="handover.json")
        said = cli("submit", "serial", "x.py", "--executor=slurm", "--gpus=0", "--no-code")
    assert (said.status, said.out) == (0, "Submitted 1001\n")
    assert [row["job_id"] for row in json.loads(cli("jobs", "--json").out)["jobs"]] == ["1001"]
    assert "scancel" not in (fake_slurm / "calls.jsonl").read_text()


def test_top_says_which_run_cannot_be_read_and_keeps_it(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(here / "runs", "only")
    watch = Watch(here / "runs")
    watch._find_runs()
    assert (len(watch._runs), watch.trouble) == (1, "")
    with monkeypatch.context() as patch:
        refuse(patch, os, "stat", errno.EIO, only="only")
        refuse(patch, os, "open", errno.EIO, only="run.json")
        watch._stamp = None
        watch._find_runs()
        assert len(watch._runs) == 1
        assert "cannot be read: Input/output error" in watch.trouble
        # As much of it as a line has room for; the path is as long as this machine's.
        assert f"; Run '{here.parents[1]}" in cli("top", "--once").out
    watch._find_runs()
    assert (len(watch._runs), watch.trouble) == (1, "")


def test_no_stranger_is_blamed_where_a_record_can_no_longer_be_read(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(here / "runs", "only")
    for name in ("stat", "lstat"):
        refuse(monkeypatch, os, name, errno.EIO, only="run.json")
    said = cli("status", str(run.dir))
    assert "run only: it can no longer be read" in said.err
    assert "another user" not in said.err


def test_a_full_tmp_is_a_finding_and_named(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, os, "mkdir", errno.ENOSPC, only=f"{tempfile.gettempdir()}/tmp")
    (here / "x.py").touch()
    said = cli("submit", "serial", "x.py", "--executor=slurm", "--gpus=0", "--check")
    assert (said.status, said.out) == (3, "")
    assert f"'{tempfile.gettempdir()}/tmp" in said.err
    (found,) = attempt("a thing", lambda: [Path("/x/y").rmdir() or good("it")])
    assert found.todo.startswith("'/x/y' cannot be read or written: No such file")


def test_a_run_that_can_no_longer_be_read_is_not_called_a_strangers(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(here / "runs", "only")
    monkeypatch.setattr(Run, "need_folder", lambda _self: None)  # a moment before
    refuse(monkeypatch, os, "stat", errno.EIO, only="/only", times=1)
    with pytest.raises(OutsideError, match=r"only' can no longer be read: try again\.$"):
        refuse_doubtful(run, "11")
    refuse_doubtful(run, "11")


def test_a_folder_of_the_user_that_gives_no_answer_is_not_called_a_strangers(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stat", "lstat"):
        refuse(monkeypatch, os, name, errno.ESTALE, only="collections")
    with pytest.raises(ConfigError, match=r"collections' cannot be read or written: Stale file"):
        refuse_foreign(tmp_path / "collections", "XDG_CACHE_HOME")


def test_records_of_earlier_attempts_outlive_a_disk_that_refuses_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    write_rank(tmp_path, rank(0, ended=20.0, exit_code=143))
    refuse(monkeypatch, rank_files, "read_attempts", errno.EIO, times=1)
    write_rank(tmp_path, rank(0, restart=1))
    assert [row.restart for row in rank_files.read_all_attempts(tmp_path)] == [0, 1]


def test_a_local_job_begins_whose_log_is_refused_once(
    job: Callable[[], LocalJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    one = job()
    refuse(monkeypatch, local_job, "open_to_write", errno.EIO, only="job.out", times=1)
    controller._look_at([one], one.spec, {})
    assert (one.state.state, one.state.reason) == (JobState.RUNNING, "")


@pytest.mark.parametrize(
    ("module", "words"),
    [(keeper, ["0"]), (spawn, ["1", "2", "--", "true"])],
    ids=["keeper", "spawn"],
)
def test_a_machine_without_room_for_a_process_is_told_of_in_a_line(
    module: ModuleType, words: list[str]
) -> None:
    code = f"""if 1:
        import sys
        from hpckit import shell
        from hpckit.errors import CommandError
        def spawn(*_, **__):
            raise CommandError("'x' cannot be started: no memory.")
        shell.spawn = spawn
        sys.argv = ["x", *{words!r}]
        from {module.__name__} import main
        main()
    """
    done = shell.run([sys.executable, "-c", code], check=False)
    assert (done.returncode, done.stderr) == (1, "hpckit: 'x' cannot be started: no memory.\n")


def test_a_job_that_is_over_before_its_submission_has_no_summary_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["at_end", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        at_end.main()
    assert capsys.readouterr().err.endswith("is not a run's folder: it has no run.json.\n")


def test_half_of_sbatchs_answer_is_no_jobs_number(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbatch, "_PAUSE_S", 0.0)
    (here / "x.py").touch()
    answers(fake_slurm, squeue_out="")
    add_program(
        here.parent / "bin" / "sbatch",
        f'#!/bin/bash\nif [ "$1" = --version ]; then exit; fi\n{FAKES}/sbatch "$@" | head -c 2\n',
    )
    said = cli("submit", "serial", "x.py", "--executor=slurm", "--gpus=0", "--no-code")
    assert (said.status, said.out) == (3, "")
    assert "sbatch's answer, '10', has no end. Slurm shows no job of this run" in said.err


def test_bad_nodes_that_cannot_be_read_are_not_called_none(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("bad-nodes", "--cluster", "c")
    assert cli(*words, "--add", "n1", "--why", "slow").status == 0
    refuse(monkeypatch, os, "open", errno.ESTALE, only="bad-nodes.jsonl")
    said = cli(*words)
    assert "bad-nodes.jsonl cannot be read: Stale file handle" in said.err
    assert "is known" not in said.err


def test_a_file_of_the_code_that_gives_no_answer_is_named(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "x.py").touch()
    real = os.fstat

    def fstat(opened: int) -> os.stat_result:
        link = ""
        with suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{opened}")
        if link == str(here / "x.py"):
            raise refused(errno.ESTALE)
        return real(opened)

    monkeypatch.setattr("hpckit.code.making.os.fstat", fstat)
    said = cli("submit", "serial", "x.py", "--executor=slurm", "--gpus=0")
    assert said.status == 3
    assert "x.py' is part of the code and cannot be read: Stale file handle" in said.err


def test_what_cannot_be_taken_away_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, os, "replace", errno.ENOSPC)
    refuse(monkeypatch, os, "unlink", errno.EIO)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "x", "text")


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOSPC])
def test_a_session_outlives_a_disk_that_refuses_once(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Connection(node="c1", port=1, token="")
    for name, act, only in (
        ("mkdir", lambda: write_connection(tmp_path, place), "session"),
        ("open", lambda: write_connection(tmp_path, place), "connection"),
        ("open", lambda: read_connection(tmp_path), "connection"),
        ("stat", lambda: read_connection(tmp_path), "session"),
        ("unlink", lambda: forget(tmp_path), "connection"),
    ):
        with monkeypatch.context() as patch:
            said = refuse(patch, os, name, number, only=only, times=1)
            found = act()
        assert (len(said), found in (None, place)) == (1, True), name
    assert read_connection(tmp_path) is None


def test_a_place_that_cannot_be_read_ends_no_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_connection(tmp_path, Connection(node="c1", port=1, token=""))
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0, 0.0))
    refuse(monkeypatch, os, "stat", errno.EIO, only="session")
    with pytest.raises(OutsideError, match="Input/output error"):
        read_connection(tmp_path)


def test_a_full_disk_takes_no_line_and_ends_no_session() -> None:
    with Path("/dev/full").open("wb") as full:
        put(full.fileno(), b"a line")
