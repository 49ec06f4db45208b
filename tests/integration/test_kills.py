"""kill -9 after each single step of a command: what is there then is whole, and nothing is lost.

benchmarks/kills.py does the same at random moments of everything.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit import shell
from hpckit.cli import main
from hpckit.code.tree import read_tree, verify
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.index import add_to_index, index_path, read_index
from tests.conftest import processes_of
from tests.integration.test_handover import KNOWS, slurm
from tests.integration.test_local import until
from tests.unit.test_clean import local_run

__all__ = ["slurm"]  # a fixture
pytestmark = pytest.mark.long

STEPS = ("open", "mkdir", "replace", "rename", "unlink", "write", "rmdir")
LOOKING = (
    ("jobs",), ("status", "latest"), ("logs", "latest"), ("stats", "latest"),
    ("clean", "--state", "FAILED", "--dry-run"), ("resubmit", "latest", "--dry-run"),
)  # fmt: skip


def killed(number: int, act: Callable[[], object]) -> bool:
    """Do something in a process that is killed after its step of this number; say whether it was.

    Steps are calls of the kernel that change files, and starts of processes.
    """
    child = os.fork()
    if child == 0:
        try:
            _kill_after(number)
            act()
            os._exit(0)
        except SystemExit as ended:  # of a command
            os._exit(int(ended.code or 0))
        except BaseException:  # noqa: BLE001  # this process ends here
            traceback.print_exc(file=sys.__stderr__)
            sys.__stderr__.flush()
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _kill_after(number: int) -> None:
    left = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*words: Any, **options: Any) -> Any:
            found = real(*words, **options)
            flags = words[1] if real is opening and len(words) > 1 else os.O_CREAT
            if not flags & os.O_CREAT:
                return found
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return step

    opening = os.open
    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    for name in ("run", "spawn"):
        setattr(shell, name, counted(getattr(shell, name)))


def every_step(act: Callable[[], object]) -> Iterator[int]:
    """Do something again and again, killed one step later each time, to its end."""
    number = 0
    while killed(number, act):
        yield number
        number += 1
    yield number


def no_command_stumbles(cli) -> None:
    for words in LOOKING:
        said = cli(*words)
        assert said.status == 0, (words, said)
        assert "Traceback" not in said.out + said.err


def clean_all(cli, root: Path) -> list[str]:
    """Let everything be old, and clean; return what is left in a folder of runs."""
    then = time.time() - 7200
    for path in (root, *root.rglob("*")):
        os.utime(path, (then, then), follow_symlinks=False)
    assert cli("clean", "--yes").status == 0
    names = sorted(path.name for path in root.iterdir())
    runs = [name for name in names if name not in {".code", ".gitignore"}]
    trees = {path.resolve().parent for path in root.glob("*/code")}
    assert (".code" in names) == bool(trees)  # of each run left the code is kept, and no other
    for tree in trees:
        verify(read_tree(tree))
    return runs


@pytest.mark.parametrize("array", [None, {"x": [1, 2]}])
def test_a_submission_to_slurm_that_is_killed_anywhere(here, cli, slurm, array) -> None:
    answers, root = slurm("echo 77", f"{KNOWS} 2>/dev/null || true"), here / "runs"
    (here / "x.py").touch()
    tasks, seen = 2 if array else 1, set()
    for number in every_step(
        # An array without its code: the steps of keeping it are the same.
        lambda: hpckit.submit(
            "serial", "x.py", executor="slurm", gpus=0, array=array, no_code=bool(array)
        )
    ):
        said = cli("jobs", "--json")
        assert said.status == 0
        taken = (answers / "taken").exists()
        seen.add(taken)
        assert len(json.loads(said.out)["jobs"]) == taken * tasks, (number, said)
        assert len(read_index()[0]) == taken * tasks, number
        if root.exists():
            assert len(clean_all(cli, root)) == (tasks + bool(array) if taken else 0), number
            shutil.rmtree(root)
        for path in (index_path(), answers / "taken"):
            path.unlink(missing_ok=True)
    assert seen == {False, True}


def test_a_submission_to_this_machine_that_is_killed_anywhere(here, cli) -> None:
    began = here / "began"
    (here / "x.py").write_text(
        f"import os\nwith open({str(began)!r}, 'a') as stream:\n"
        "    stream.write(os.environ['HPCKIT_RUN_ID'] + '\\n')\n"
    )
    began.touch()
    steps = every_step(
        lambda: hpckit.submit(
            "serial", "x.py", executor="local", gpus=0, sample_interval=0, no_code=True
        )
    )
    last = max(steps)
    until(lambda: not processes_of(here))
    found = {row["run_id"]: row for row in json.loads(cli("jobs", "--json", "-n0").out)["jobs"]}
    assert sorted(found) == sorted(began.read_text().split())
    assert {row["state"] for row in found.values()} == {"COMPLETED"}
    # It was killed before its controller's start, and after it, its record, the index and more.
    assert 5 < len(found) < last
    no_command_stumbles(cli)
    assert set(clean_all(cli, here / "runs")) == {row.run_id for row in read_index()[0]} == {*found}


@pytest.mark.parametrize("words", [("jobs", "--rebuild"), ("clean", "--older", "1d", "--yes")])
def test_a_command_that_is_killed_anywhere_loses_no_run(here, cli, words) -> None:
    stays = local_run(here / "runs", 1, submitted_at=time.time())
    for number in range(2, 8):
        add_to_index([local_run(here / f"in-{number}", number)])
    add_to_index([stays])
    for _ in every_step(lambda: main([*words])):
        assert stays.run_id in {row.run_id for row in read_index()[0]}
        left = {path.parent for path in here.glob("in-*/[!.]*/run.json")}
        assert {run.dir for run in newest_runs(here / "nowhere", None)} == left | {stays.dir}
        no_command_stumbles(cli)
    assert not list(index_path().parent.glob(".*")) or clean_all(cli, index_path().parent)
