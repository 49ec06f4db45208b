"""docs/from-submitit.md: both programs of the page print the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import blocks


@pytest.mark.long
def test_both_programs_print_the_same(here: Path) -> None:
    said = []
    for block in blocks("docs/from-submitit.md"):
        name = block.text.partition("\n")[0].removeprefix("# ")
        # Where Slurm's programs are installed, submitit takes them, whether there is a cluster.
        (here / name).write_text(
            block.text.replace('folder="logs"', 'folder="logs", cluster="local"')
        )
        done = subprocess.run(
            [sys.executable, name], capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said == ["6\n[1, 2, 3]\n"] * 2
