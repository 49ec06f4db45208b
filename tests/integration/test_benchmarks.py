"""Benchmarks that need neither torch nor a Slurm still run: with as little to do as they can."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("report", ("--jobs", "20"), "      20"),
        ("code", ("--files", "5", "--repeat", "1"), "a copy costs"),
    ],
)
def test_a_benchmark_runs(
    name: str, words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    argv = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
    assert "nothing is kept" not in done.stdout
    assert list(tmp_path.iterdir()) == []
