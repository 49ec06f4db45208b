"""Ranks that go on after others have ended: who is told of, who is ended."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpckit.launchers.srun import srun_wait_s
from hpckit.run_folders.ranks import not_ended, write_rank
from hpckit.schedulers.local import stragglers
from hpckit.schedulers.local.stragglers import Stragglers, _Work, _work
from hpckit.submission.verdict import straggling
from tests.unit.made import rank

WELL = {"exit_code": 0, "ended": 100.0}
FAILED = {"exit_code": 1, "ended": 100.0}


@pytest.mark.parametrize(
    ("ends", "planned", "words"),
    [
        ([WELL, {}, WELL], 3, "2 of 3 ranks have ended, rank 1 has not"),
        ([WELL, {}, {}], 3, "1 of 3 ranks have ended, ranks 1, 2 have not"),
        ([{}, {}], 2, None),  # none has ended
        ([WELL, WELL], 2, None),  # all have
        ([WELL, FAILED, {}], 3, None),  # it is being ended for that
        ([WELL, {}], 3, None),  # one has not begun
        ([{}], 1, None),
    ],
)
def test_ranks_that_go_on_after_others_are_told_of_in_time(ends, planned, words) -> None:
    rows = [rank(number, **end) for number, end in enumerate(ends)]
    assert not_ended(rows, planned) == words
    assert straggling(rows, planned, 100.0 + 60) is None
    assert straggling(rows, planned, 100.0 + 130) == (words and f"{words} for 2 min")


IDLE, LITTLE, BUSY, READS = _Work(500, 0), _Work(580, 900), _Work(601, 0), _Work(500, 2 << 20)


@pytest.mark.parametrize(
    ("looks", "ended"),
    [
        ([IDLE, IDLE, IDLE, IDLE], True),
        ([IDLE, IDLE, LITTLE, LITTLE], True),
        ([IDLE, IDLE, BUSY, BUSY], False),
        ([IDLE, IDLE, READS, READS], False),
        ([IDLE, IDLE, _Work(100, 0), _Work(100, 0)], False),  # a child of it has ended
    ],
)
def test_only_ranks_that_do_nothing_are_ended(tmp_path: Path, monkeypatch, looks, ended) -> None:
    clock = iter(range(0, 400, 110))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    rows, works = [rank(0, **WELL), rank(1)], iter(looks)
    monkeypatch.setattr(stragglers, "_work", lambda _: next(works))
    for row in rows:
        write_rank(tmp_path, row)
    watched = Stragglers(tmp_path, rows[0].restart, planned=2)
    *before, last = [watched.idle() for _ in looks]
    assert not any(before)
    assert last == ("1 of 2 ranks have ended, rank 1 has not" if ended else None)


@pytest.mark.long
def test_the_work_of_a_script_is_that_of_all_it_started() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(end='.', flush=True)\ninput()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    argv = [sys.executable, "-c", outer]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        # The kernel gives whole ticks of user's and system's time each: up to two fewer.
        assert _work([child.pid]).ticks >= 0.3 * os.sysconf("SC_CLK_TCK")
        assert _work([child.pid]).moved > 1000
        child.communicate(b"\n")
    assert _work([child.pid]) == _Work(0, 0)


def test_the_time_is_the_sites_own_word_for_srun() -> None:
    assert srun_wait_s(("--cpu-bind=cores",)) == 300
    assert srun_wait_s(("--wait=60", "--wait=0")) == 0
