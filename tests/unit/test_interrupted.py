"""Ctrl-C while a command waits for what it has submitted: with --json, stdout has its document."""

import errno
import json
import os
import pwd
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpckit.run_folders.runs import Run
from hpckit.submission.status import RunStatus
from tests.conftest import Answer, add_program

Cli = Callable[..., Answer]


SQUEUE = """#!/bin/bash
for word; do case $word in --format=*) row=${word#*=} ;; --jobs=*) ids=${word#*=} ;; esac; done
for cell in %u=USER %a=lab %P=gpu %q=normal %T=PENDING %M=0:00 %l=2:00 %V=N/A %S=N/A %e=N/A %N= \
    %r=Priority %j=; do row=${row//${cell%%=*}/${cell#*=}}; done
for id in ${ids//,/ }; do
    [ -z "$ARRAY" ] || id=${id}_[0-1]
    line=${row//%i/$id}; printf '%s\n' "${line//%A/$id}"
done
"""


@pytest.fixture
def stopped(here: Path, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let all that is submitted wait in Slurm's queue, and stop whoever waits for it."""

    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    clock = SimpleNamespace(**vars(time) | {"sleep": sleep})
    for module in ("submission.waiting", "api.jupyter"):
        monkeypatch.setattr(import_module(f"hpckit.{module}"), "time", clock)
    (here / "train.py").touch()
    me = pwd.getpwuid(os.getuid()).pw_name
    add_program(here.parent / "bin" / "squeue", SQUEUE.replace("USER", me))
    return here


@pytest.mark.parametrize("how", ["--wait", "--follow"])
def test_submit_tells_a_script_of_the_job(stopped: Path, cli: Cli, how: str) -> None:
    words = ("submit", "serial", "train.py", "--gpus", "0")
    said = cli(*words, how, "--json")
    assert said.status == 130
    (run,) = (stopped / "runs").glob("train-*")
    assert json.loads(said.out) == {
        "job_id": "1001", "run_id": run.name, "run_dir": str(run), "executor": "slurm",
        "state": "PENDING", "exit_code": None,
    }  # fmt: skip
    assert "No longer waiting; the job goes on. Stop it: hpckit cancel 1001" in said.err
    said = cli(*words, how)
    assert (said.status, said.out) == (130, "Submitted 1002\n")


def test_a_script_that_does_not_wait_is_told_of_the_job(
    stopped: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_status = import_module("hpckit.api.run_status")
    answers = iter([KeyboardInterrupt(), None])

    def asked(runs: list[Run], **words: bool) -> list[RunStatus]:
        if stop := next(answers):
            raise stop
        return real(runs, **words)

    real = run_status.statuses
    monkeypatch.setattr(run_status, "statuses", asked)
    said = cli("submit", "serial", "train.py", "--gpus", "0", "--json")
    assert (said.status, json.loads(said.out)["job_id"]) == (130, "1001")
    assert "No longer waiting" not in said.err


def test_an_array_is_told_of_with_all_its_tasks(
    stopped: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRAY", "yes")
    words = ("submit", "serial", "train.py", "--gpus", "0", "--array", "lr=1,2")
    said = cli(*words, "--wait", "--json")
    assert said.status == 130
    assert [row["job_id"] for row in json.loads(said.out)["jobs"]] == ["1001_0", "1001_1"]


def test_scale_tells_a_script_of_the_study(stopped: Path, cli: Cli) -> None:
    words = ("scale", "ddp", "train.py", "--nodes", "1,2", "--gpus", "1", "--repeat", "1")
    said = cli(*words, "--json")
    assert said.status == 130, said.err
    found = json.loads(said.out)
    assert f"hpckit scale --from {found['study']}" in said.err
    assert [row["state"] for row in found["runs"]] == ["PENDING", "PENDING"]


def test_jupyter_tells_a_script_of_the_job(stopped: Path, cli: Cli) -> None:
    add_program(stopped.parent / "bin" / "jupyter-server", "#!/bin/sh\n")
    said = cli("jupyter", "--json")
    assert said.status == 130, said.err
    found = json.loads(said.out)
    assert (found["job_id"], found["state"]) == ("1001", "PENDING")
    assert cli("jupyter", found["run_id"], "--json").out == ""


@pytest.mark.parametrize("words", [("submit", "serial", "train.py"), ("jupyter",)])
def test_a_script_learns_of_a_job_that_an_error_leaves(
    stopped: Path, cli: Cli, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_seconds: float) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    for module in ("submission.waiting", "api.jupyter"):
        monkeypatch.setattr(import_module(f"hpckit.{module}").time, "sleep", refuse)
    add_program(stopped.parent / "bin" / "jupyter-server", "#!/bin/sh\n")
    said = cli(*words, "--gpus", "0", "--json", *(["--wait"] if words[0] == "submit" else []))
    assert (said.status, json.loads(said.out)["job_id"]) == (3, "1001")
    assert "job may go on" in said.err
    assert "hpckit cancel 1001" in said.err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "no")])
def test_what_is_looked_at_after_a_submission_hides_no_job(
    stopped: Path, cli: Cli, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_run: Run) -> None:
        raise error

    monkeypatch.setattr("hpckit.submission.used_before.gpus_used_before", fail)
    said = cli("submit", "serial", "train.py", "--gpus", "1")
    if isinstance(error, OSError):
        assert (said.status, said.out) == (0, "Submitted 1001\n")
    else:
        assert said.status == 130
        assert "Job 1001 is submitted and goes on. End it: hpckit cancel 1001" in said.err
