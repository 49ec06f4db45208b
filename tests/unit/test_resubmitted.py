"""A run that was submitted again, and the one in its place, know of each other."""

import json
import shutil
from pathlib import Path
from typing import Any

from hpckit.api.resubmit import _before
from hpckit.cli.view import status_page
from hpckit.runs import RESUBMITTED, Run
from hpckit.slurm.states import JobState
from hpckit.submission.resubmitted import before_and_after, resubmitted_as, write_notes
from hpckit.submission.status import RunStatus
from tests.unit.made import make_run


def pair(root: Path, **changes: Any) -> tuple[Run, Run]:
    """Make a run, and one that was submitted in its place."""
    old = make_run(root, "old", job_id="20")
    before = {"of": old.run_id, "job_id": old.job_id, "dir": str(old.dir)}
    return old, make_run(root, "new", job_id="30", resubmit={**before, **changes})


def test_each_names_the_other(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    assert (resubmitted_as(old), before_and_after(old)) == (None, (None, None))
    write_notes([old, new], lambda text: None)
    after = resubmitted_as(old)
    assert after
    assert (after.run_id, after.job_id) == ("new", "30")
    pages = []
    for run, names in ((old, (None, "30")), (new, ("20", None))):
        found = RunStatus(run=run, state=JobState.FAILED, source="squeue")
        assert before_and_after(run) == found.resubmits() == names
        said = found.document()
        assert (said["resubmit_of"], said["resubmitted_as"], said["notes"]) == (*names, [])
        pages.append(status_page(found))
    assert "\n  resubmit job 30 is this one again\n" in pages[0]
    assert "\n  resubmit of job 20\n" in pages[1]
    shutil.rmtree(new.dir)
    assert resubmitted_as(old) is None


def test_what_is_not_that_run_is_not_named(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    write_notes([new], lambda text: None)
    note = json.loads((old.dir / RESUBMITTED).read_text())
    make_run(tmp_path, "third", job_id="40")
    for wrong in (
        {**note, "run_id": "third", "dir": str(tmp_path / "third")},  # it is of no other run
        {**note, "dir": str(tmp_path / "third")},
        {**note, "dir": str(tmp_path / "gone")},
        {"run_id": "new"},
    ):
        (old.dir / RESUBMITTED).write_text(json.dumps(wrong))
        assert resubmitted_as(old) is None


def test_nothing_is_written_to_others_runs_or_to_what_is_gone(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    old.dir.chmod(0o777)
    write_notes([new], lambda text: None)
    assert not (old.dir / RESUBMITTED).exists()
    old.dir.chmod(0o755)
    _, other = pair(tmp_path / "b", of="another", dir=str(old.dir))
    shutil.rmtree(tmp_path / "b" / "old")
    _, gone = pair(tmp_path / "c", dir=str(tmp_path / "b" / "old"))
    write_notes([other, gone], lambda text: None)
    assert not (old.dir / RESUBMITTED).exists()


def test_a_note_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    old, new = pair(tmp_path)
    (old.dir / RESUBMITTED).mkdir()
    write_notes([new, new], said.append)
    assert len(said) == 1
    assert "`hpckit status 20` will not say that it was submitted again" in said[0]
    assert resubmitted_as(old) is None


def test_whose_place_a_new_run_takes(tmp_path: Path) -> None:
    array = {"array": {"job_id": "25", "index": 0, "whole": "20"}}
    task = make_run(tmp_path, "sweep-1_0", job_id="25_0", **array)
    folder = str(tmp_path)
    assert _before(task, alone=False, failed=()) == ()  # all tasks: a new array
    assert _before(task, alone=True, failed=()) == (
        {"of": "sweep-1_0", "job_id": "25_0", "dir": f"{folder}/sweep-1_0"},
    )
    assert _before(task, alone=False, failed=(2, 5)) == (
        {"of": "sweep-1_2", "job_id": "20_2", "dir": f"{folder}/sweep-1_2"},
        {"of": "sweep-1_5", "job_id": "20_5", "dir": f"{folder}/sweep-1_5"},
    )
