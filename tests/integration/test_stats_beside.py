"""`hpckit stats` of a long job: with a second process it says what one process says."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.stats import make_run
from tests.patience import LONG_S

# A small file counts as a long one, and a core as idle. The first word says how many cores there
# are; how often the command forked is its last line on stderr.
COMMAND = """
import atexit, os, sys
from hpckit import beside
from hpckit.__main__ import main
from hpckit.stats.samples import reading
from hpckit.stats.summary import attempts

cores, first, fork, forks = int(sys.argv.pop(1)), os.getpid(), os.fork, []
reading.HALVED_BYTES = attempts._MANY = 0
beside._running = lambda: 1
os.sched_getaffinity = lambda _process: set(range(cores))
os.fork = lambda: forks.append(first) or fork()
atexit.register(lambda: print(len(forks), file=sys.stderr))
sys.argv[:1] = ["hpckit", "stats"]
main()
"""
FILES = ("summary.json", "timeseries.json")


def said(run: Path, cores: int, *words: str) -> tuple[str, int, list[str]]:
    """Return what the command printed, how often it forked, and what it wrote."""
    argv = [sys.executable, "-c", COMMAND, str(cores), str(run), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=True)
    forks = int(done.stderr.splitlines()[-1])
    return done.stdout, forks, [(run / name).read_text() for name in FILES]


@pytest.mark.parametrize("gaps", [0, 50])
def test_a_second_process_changes_no_figure(tmp_path: Path, gaps: int) -> None:
    run = make_run(tmp_path, "long", 1200, 1.0, gaps=gaps)
    for words in (["--json"], []):
        alone, beside = said(run, 1, *words), said(run, 2, *words)
        assert alone[1] == 0
        assert beside[1] == 2  # the file's second half, and half of the GPUs
        assert beside[0] == alone[0]
        assert beside[2] == alone[2]


def test_one_gpu_is_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.stats.GPUS", 1)
    run = make_run(tmp_path, "long", 300, 1.0)
    assert said(run, 2, "--json")[1] == 1  # the file's second half
