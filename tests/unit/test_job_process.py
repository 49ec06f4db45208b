"""A supervisor reads what its job runs as submitit does, but without it."""

import pickle
import signal
import sys
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission, cloudpickle_dump
from submitit.local.local import LocalJobEnvironment
from submitit.slurm.slurm import SlurmJobEnvironment

from hpckit.payload.task import Task
from hpckit.submission import in_job, job_process
from hpckit.submission.job_process import own_job_id, own_payload
from hpckit.submission.payload import Payload

JOB = {"SLURM_JOB_ID": "12"}
TASK = JOB | {"SLURM_ARRAY_JOB_ID": "11", "SLURM_ARRAY_TASK_ID": "3"}
LOCAL = {"SUBMITIT_LOCAL_JOB_ID": "local-a_1"}


@pytest.mark.parametrize(
    ("executor", "environ", "job_id"),
    [
        ("slurm", JOB, "12"),
        ("slurm", TASK, "11_3"),
        ("slurm", TASK | LOCAL, "11_3"),
        ("local", TASK | LOCAL, "local-a_1"),  # in a job of Slurm's
    ],
)
def test_a_jobs_id_is_the_one_that_submitit_finds(
    monkeypatch: pytest.MonkeyPatch, executor: str, environ: dict[str, str], job_id: str
) -> None:
    for name in TASK | LOCAL:
        monkeypatch.delenv(name, raising=False)
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    kind = {"slurm": SlurmJobEnvironment, "local": LocalJobEnvironment}[executor]
    assert own_job_id(environ | {"SUBMITIT_EXECUTOR": executor}) == kind().job_id == job_id


def test_the_id_of_others_jobs_is_left_to_submitit() -> None:
    assert own_job_id(JOB) is None
    assert own_job_id(JOB | {"SUBMITIT_EXECUTOR": "flux"}) is None


def payload(**more: int) -> Payload:
    task = Task(run_dir="/r", run_id="r", executor="slurm", launcher="srun", nodes=1,
                tasks_per_node=1, command=("x",), python=("p",), device=None, **more)  # fmt: skip
    return Payload(task.to_json())


@pytest.mark.parametrize("more", [{}, {"max_requeues": 1}, {"chain": 1}])
def test_what_a_job_runs_is_read_out_of_submitits_pickle(
    tmp_path: Path, more: dict[str, int]
) -> None:
    path = tmp_path / "1_submitted.pkl"
    cloudpickle_dump(DelayedSubmission(payload(**more)), path)
    found = own_payload(path)
    assert found is not None
    assert found.text == payload(**more).text
    assert found.may_be_requeued is bool(more)


def test_older_pickles_name_the_door(tmp_path: Path) -> None:
    path = tmp_path / "1_submitted.pkl"
    cloudpickle_dump(DelayedSubmission(payload()), path)
    older = path.read_bytes()
    # A short text has its length before it (pickle's SHORT_BINUNICODE), a frame in its header.
    now, then = (b"\x8c%chpckit.submission.%s" % (18 + len(n), n) for n in (b"payload", b"in_job"))
    assert now in older
    size = int.from_bytes(older[3:11], "little") - len(now) + len(then)
    path.write_bytes(older[:3] + size.to_bytes(8, "little") + older[11:].replace(now, then))
    assert in_job.Payload is Payload
    found = own_payload(path)
    assert found is not None
    assert found.text == payload().text


def test_what_others_have_pickled_is_left_to_submitit(tmp_path: Path) -> None:
    path, mark = tmp_path / "1_submitted.pkl", tmp_path / "mark"

    class Planted:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (mark,)

    cloudpickle_dump(DelayedSubmission(Planted()), path)
    assert own_payload(path) is None
    path.write_bytes(pickle.dumps(payload()))  # no submission
    assert own_payload(path) is None
    path.write_bytes(path.read_bytes()[:-9])
    assert own_payload(path) is None
    assert own_payload(tmp_path / "none") is None
    assert not mark.exists()


@pytest.mark.parametrize("ignored", [True, False])
def test_a_sigterm_waits_where_it_would_be_lost(
    monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
    """The job script has it ignored where it may begin a preemption; else it ends this process."""
    seen: list[set[int]] = []
    monkeypatch.setattr(sys, "argv", ["in_job", "/nowhere"])
    monkeypatch.setattr(
        job_process, "_process", lambda _: seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    )
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        job_process.main()
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert [signal.SIGTERM in row for row in seen] == [ignored]
    assert signal.SIGUSR2 in seen[0]
