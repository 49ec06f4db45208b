"""A job is cancelled while it submits its `--retry`: whatever comes first, nothing is left.

Both sides are run in this process. Before each step of the one, the other does all of its work.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.api import retry
from hpckit.errors import CommandError, OutsideError, UnknownOutcomeError
from hpckit.job_ends.joblog import was_cancelled
from hpckit.schedulers.slurm import sbatch
from hpckit.slurm import control
from hpckit.submission import called_off, submit
from hpckit.submission.retried import Retried
from hpckit.submission.retry import RetryNote, read_note, write_note
from tests.conftest import FAKES, add_program
from tests.unit.played_slurm import squeue_row
from tests.unit.test_chain import CANCELLED, TIME_LIMIT

SCANCEL = CANCELLED.replace("STEP 11.0", "JOB 1001")
# Each job has a file with its state. A job that was cancelled or is over stays as it is.
_SBATCH = """#!/bin/bash
cd "$FAKE_SLURM_DIR"
case " $* " in *" --parsable "*) ;; *) echo "slurm-wlm 22.05.8"; exit ;; esac
cat >script
id=$((1001 + $(cat taken | wc -l)))
echo "$id  (null)  $(sed -n 's/^#SBATCH --output=//p' script)" >>taken
echo PENDING >$id.state
echo $id
"""
_SQUEUE = """#!/bin/bash
cd "$FAKE_SLURM_DIR"
case "$*" in *Format=*) cat taken; exit ;; esac
for state in [0-9]*.state; do
    sed "s/@ID@/${{state%.state}}/g; s/@STATE@/$(<"$state")/" row
done >rows.$$
{fakes}/say.bash rows.$$ "$@"
rm rows.$$
"""
_SCANCEL = """#!/bin/bash
for id; do echo CANCELLED >"$FAKE_SLURM_DIR/$id.state"; done
"""


class Steps:
    """Counts the steps of one side, and does something before one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, does: Callable[[], object]) -> None:
        self.patch, self.number, self.does, self.seen = patch, number, does, 0

    def watch(self, place: Any, *names: str) -> None:
        for name in names:
            self.patch.setattr(place, name, self.counted(getattr(place, name)))

    def counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.come()
            return step(*args, **options)

        return call

    def come(self) -> None:
        self.seen += 1
        if self.seen == self.number:
            self.does()


class Cluster:
    """A job with `--retry fail` that has failed, and a Slurm that knows what was cancelled."""

    def __init__(self, answers: Path, run: hpckit.Run, patch: pytest.MonkeyPatch) -> None:
        self.answers, self.run, self.patch = answers, run, patch

    def submits_again(self) -> None:
        self.patch.setattr(sys, "argv", ["retry", str(self.run.dir), "fail", "0"])
        retry.main()

    def killed_while_it_does(self, number: int, does: Callable[[], object] = bool) -> None:
        """Submit again in another process, which does something at a step, and dies before one."""
        if not (pid := os.fork()):
            try:
                steps = self.steps(number, lambda: os._exit(0))
                self.steps(number - 1, does)
                self.submits_again()
                steps.come()  # the last one is its end
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0

    def steps(self, number: int, does: Callable[[], object]) -> Steps:
        steps = Steps(self.patch, number, does)
        # The note, a look for the mark, sbatch, the new run's record, the note with its number,
        # another look, and the note again with what came of it.
        steps.watch(retry, "write_note", "refuse_called_off", "is_called_off")
        steps.watch(sbatch, "_run")
        steps.watch(submit, "finish")
        return steps

    def scancel(self) -> None:
        with (self.run.dir / "job.out").open("a") as log:
            log.write(SCANCEL)
        self.says("1001", "CANCELLED")

    def hpckit(self) -> None:
        hpckit.cancel(self.run.job_id)

    def says(self, job_id: str, state: str) -> None:
        (self.answers / f"{job_id}.state").write_text(state)

    @property
    def states(self) -> dict[str, str]:
        files = sorted(self.answers.glob("[0-9]*.state"))
        return {file.stem: file.read_text().strip() for file in files}

    def started(self, job_id: str) -> int | None:
        """Start a job; return the status with which it ends at once, None: it goes on."""
        self.patch.setenv("SLURM_JOB_ID", job_id)
        folder = next(
            path
            for path in self.run.dir.parent.iterdir()
            if path.is_dir() and path != self.run.dir and (path / "job.out").exists()
        )
        return Retried(folder, ("true",)).ends_at_once()


@pytest.fixture
def cluster(here: Path, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, text in {"sbatch": _SBATCH, "squeue": _SQUEUE, "scancel": _SCANCEL}.items():
        add_program(here.parent / "bin" / name, text.format(fakes=FAKES))
    (fake_slurm / "row").write_text(squeue_row("@ID@", "@STATE@", name="train", submit="N/A"))
    (here / "train.py").touch()
    run = hpckit.submit("serial", "train.py", gpus=0, retry="fail", executor="slurm")
    (fake_slurm / "1001.state").write_text("RUNNING")
    return Cluster(fake_slurm, run, monkeypatch)


def nothing_runs(cluster: Cluster) -> bool:
    return set(cluster.states.values()) == {"CANCELLED"}


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("how", ["hpckit", "scancel"])
def test_a_job_that_is_cancelled_at_any_step_leaves_none(
    cluster: Cluster, how: str, number: int
) -> None:
    steps = cluster.steps(number, getattr(cluster, how))
    cluster.submits_again()
    assert steps.seen == (3 if number <= 2 else 7)
    steps.seen = 7
    steps.come()
    note = read_note(cluster.run.dir)
    assert note is not None
    assert (list(cluster.states) == ["1001", "1002"]) == (number > 2) == bool(note.job_id)
    if number > 6 and how == "scancel":  # it had looked for the last time
        assert cluster.states["1002"] == "PENDING"
        assert cluster.started("1002") == 1
    assert nothing_runs(cluster)
    said = "\n".join(cluster.run.status().notes)
    if number > 2:
        assert "it failed; job 1002 tries again (retry 1 of 1): the same again" in said
        assert ("; job 1001 was cancelled meanwhile, and so the new one, too" in said) == (
            number <= 6
        )
    else:
        assert "it failed, and could not be submitted again: Job 1001 was cancelled" in said


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 9))
def test_a_job_that_was_killed_at_any_step_leaves_none_either(
    cluster: Cluster, number: int
) -> None:
    cluster.killed_while_it_does(number)
    assert (list(cluster.states) == ["1001", "1002"]) == (number > 3)
    if number > 3:
        said = "\n".join(cluster.run.status().notes)
        assert ("whether Slurm has taken that run is not known yet" in said) == (number == 4)
        assert ("job 1002 tries again" in said) == (number > 4)
    runs = hpckit.cancel(cluster.run.job_id)
    assert [run.job_id for run in runs] == ["1001", "1002"][: 1 + (number > 3)]
    assert nothing_runs(cluster)
    if number > 3:
        assert "it failed; job 1002 tries again" in "\n".join(cluster.run.status().notes)


@pytest.mark.parametrize("how", ["hpckit", "scancel"])
def test_a_job_cancelled_before_sbatch_and_killed_after_it_leaves_one_that_ends_at_once(
    cluster: Cluster, how: str
) -> None:
    cluster.killed_while_it_does(4, getattr(cluster, how))
    assert cluster.states == {"1001": "CANCELLED", "1002": "PENDING"}
    assert not list(cluster.run.dir.parent.glob("*/run.json"))[1:]  # none knows its number
    assert cluster.started("1002") == 1
    assert nothing_runs(cluster)


def test_a_job_is_found_also_while_its_submitter_lives(cluster: Cluster) -> None:
    """It may be killed before it looks for the mark."""
    steps = Steps(cluster.patch, 1, cluster.hpckit)
    steps.watch(submit, "finish")
    cluster.patch.setattr(retry, "is_called_off", lambda _folder: False)
    cluster.submits_again()
    assert nothing_runs(cluster)


@pytest.mark.parametrize("number", range(1, 7))
def test_whatever_the_canceller_has_done_by_then(cluster: Cluster, number: int) -> None:
    """It leaves its mark, looks for the next run, ends the job, and does the first two again."""
    steps = Steps(cluster.patch, number, cluster.submits_again)
    steps.watch(called_off, "call_off", "retry_after", "next_run")
    steps.watch(control, "cancel")
    cluster.hpckit()
    assert steps.seen >= 5
    if number == 6:
        steps.seen = 5
        steps.come()
    assert nothing_runs(cluster)


def test_a_job_that_is_over_ends_with_its_retries(cluster: Cluster) -> None:
    cluster.submits_again()
    cluster.says("1001", "FAILED")
    cluster.says("1002", "RUNNING")
    assert cluster.started("1002") is None
    first, second = hpckit.cancel(cluster.run)
    assert (first, second.job_id) == (cluster.run, "1002")
    assert cluster.states["1002"] == "CANCELLED"
    # Its own retry would be one of the first job's, too.
    assert called_off.is_called_off(second.dir)


@pytest.mark.long
def test_an_attempt_that_was_ended_while_it_did_so_is_no_reason_to_do_nothing(
    cluster: Cluster,
) -> None:
    cluster.killed_while_it_does(3)  # before sbatch
    assert list(cluster.states) == ["1001"]
    cluster.submits_again()
    cluster.submits_again()
    assert list(cluster.states) == ["1001", "1002"]


def test_a_job_of_which_slurm_said_nothing_is_found_and_ended(cluster: Cluster) -> None:
    def silent(*_: object) -> None:
        raise UnknownOutcomeError("Slurm does not answer.")

    with cluster.patch.context() as patch:
        patch.setattr(submit, "finish", silent)
        cluster.submits_again()
    said = "\n".join(cluster.run.status().notes)
    assert said.startswith("it failed; run train-")
    assert "whether Slurm has taken that run is not known yet. To know: hpckit status train" in said
    assert [run.job_id for run in hpckit.cancel(cluster.run)] == ["1001", "1002"]
    assert nothing_runs(cluster)


def test_one_that_cannot_be_ended_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_jobs: object) -> None:
        raise CommandError("no answer")

    cluster.steps(4, cluster.scancel)
    monkeypatch.setattr(control, "cancel", refused)
    cluster.submits_again()
    said = "\n".join(cluster.run.status().notes)
    assert said.endswith(
        "job 1001 was cancelled meanwhile, but the new one could not be: no answer"
    )


def test_a_mark_that_cannot_be_left_is_told_when_the_job_is_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cluster.run.dir / ".no-retry").symlink_to("elsewhere")
    with pytest.raises(OutsideError, match=r"\(--retry\)\. Look whether it did: hpckit jobs"):
        hpckit.cancel(cluster.run)
    assert nothing_runs(cluster)


def test_what_slurm_writes_of_a_cancelled_job() -> None:
    assert was_cancelled(SCANCEL)
    assert was_cancelled(SCANCEL.replace(" ***\n", " DUE TO SIGNAL Terminated ***\n"))  # 26.05
    assert not was_cancelled(CANCELLED)  # a step of it
    assert not was_cancelled(TIME_LIMIT)
    assert not was_cancelled(f"slurmstepd: error: Job 1 exceeded memory limit\n{SCANCEL}")
    assert not was_cancelled("")


def test_an_old_note_says_nothing_of_the_log(cluster: Cluster) -> None:
    write_note(cluster.run.dir, RetryNote(text="x", run_id="a", job_id="1"))
    (cluster.run.dir / "job.out").write_text(SCANCEL)
    assert not called_off.is_called_off(cluster.run.dir)


def test_a_folder_that_cannot_be_written_is_said_in_the_log(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.run_folders.run_files._PAUSES_S", (0.0,))
    monkeypatch.setattr(retry, "_AGAIN_S", 0.0)
    (cluster.run.dir / "retry.json").mkdir()  # as on a full disk
    cluster.submits_again()
    said = capsys.readouterr().err
    assert f"could not be submitted again: {cluster.run.dir} cannot be written: " in said
    assert cluster.states == {"1001": "RUNNING"}
