"""A planted pickle is refused, and nothing of it is executed."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.submission.job_process import open_own_folder
from tests.patience import LONG_S

OTHER = 61001


class Planted:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    (folder / "submitit").mkdir(mode=0o700)
    (folder / "submitit" / "7_submitted.pkl").write_bytes(pickle.dumps(Planted(tmp_path / "owned")))
    (folder / "submitit" / "7_submitted.pkl").chmod(0o644)
    return folder


def start(run: Path) -> str:
    """Start what srun starts in the job; give what it said."""
    env = {**os.environ, "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "7",
           "SUBMITIT_LOCAL_NTASKS": "1", "SUBMITIT_LOCAL_GLOBALID": "0",
           "SUBMITIT_LOCAL_LOCALID": "0", "SUBMITIT_LOCAL_NODEID": "0",
           "SUBMITIT_LOCAL_JOB_NUM_NODES": "1"}  # fmt: skip
    argv = [sys.executable, "-m", "hpckit.submission.in_job", str(run / "submitit")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LONG_S)
    return f"{done.returncode} {done.stdout}{done.stderr}"


def test_in_ones_own_folder_it_would_be_loaded(run: Path) -> None:
    start(run)
    assert (run.parent / "owned").exists()  # so the tests below can fail


def mode(place: str, bits: int) -> Callable[[Path], None]:
    return lambda run: (run / place).chmod(bits)


def opened(place: str, bits: int) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / "submitit").chmod(0o755)
        (run / place).chmod(bits)

    return change


def owner(place: str) -> Callable[[Path], None]:
    return lambda run: os.chown(run / place, OTHER, -1)


def behind_a_link(run: Path) -> None:
    (run / "submitit").rename(run.parent / "elsewhere")
    (run / "submitit").symlink_to(run.parent / "elsewhere")


def a_link(run: Path) -> None:
    path = run / "submitit" / "7_submitted.pkl"
    path.rename(run.parent / "planted")
    path.symlink_to(run.parent / "planted")


PICKLE = "submitit/7_submitted.pkl"
SHARED = {
    "the folder is the group's": mode("submitit", 0o770),
    "the folder is everybody's": mode("submitit", 0o707),
    "the run's folder is the group's": mode(".", 0o775),
    "the run's folder is everybody's": mode(".", 0o757),
    "the folder is open and the pickle is the group's": opened(PICKLE, 0o664),
    "the folder is open and the pickle is everybody's": opened(PICKLE, 0o646),
    "the run is another user's": owner("."),
    "the folder is another user's": owner("submitit"),
    "the pickle is another user's": owner(PICKLE),
    "the folder is a link": behind_a_link,
    "the pickle is a link": a_link,
}


@pytest.mark.parametrize("how", SHARED)
def test_a_pickle_that_others_could_have_written_is_refused(run: Path, how: str) -> None:
    if "another user" in how and os.geteuid() != 0:
        pytest.skip("changing owners needs root")
    SHARED[how](run)
    said = start(run)
    assert said.startswith("1 hpckit: "), said
    assert len(said.splitlines()) == 1
    assert "can be written by others, so nothing is loaded from it" in said or "opened" in said
    assert not (run.parent / "owned").exists()


def test_a_folder_put_in_its_place_after_the_check_is_not_the_one_that_is_read(run: Path) -> None:
    checked = open_own_folder(run / "submitit", "7")
    run.rename(run.parent / "moved")
    (run / "submitit").mkdir(parents=True)
    (run / PICKLE).write_bytes(b"another's")
    assert (checked / "7_submitted.pkl").read_bytes() != b"another's"
