"""What is not a Python file is refused before a job is made of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.job.program import not_python
from tests.conftest import Answer

PIPS = "#!/bin/sh\n'''exec' \"/a/long/path/python\" \"$0\" \"$@\"\n' '''\nimport sys\n"


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("train.py", "import torch\n"),
        ("train.py", "#!/bin/bash\nprint(1)\n"),  # Python does not mind
        ("train", "import torch\n"),
        ("train", "#!/usr/bin/env python3\n#SBATCH --nodes=2\n"),
        ("train.sh", "#!/venv/bin/python\nprint(1)\n"),
        ("train", "#!/usr/bin/env -S uv run --script\nprint(1)\n"),
        ("torchrun", PIPS),
        ("train", ""),
    ],
)
def test_what_may_be_python_is_taken(tmp_path: Path, name: str, start: str) -> None:
    (tmp_path / name).write_text(start)
    assert not_python(tmp_path / name) is None


@pytest.mark.parametrize(
    ("name", "start", "says"),
    [
        ("batch.sh", b"#!/bin/bash\n#SBATCH -N 2\nsrun python a.py\n", "'#!/bin/bash'"),
        ("job", b'#!/bin/bash -l\n#SBATCH -N 2\n"$HOME/v/bin/python" a.py\n', "'#!/bin/bash -l'"),
        ("run", b"#!/usr/bin/env Rscript\n1\n", "Rscript"),
        ("long", b"#!/" + b"x" * 300 + b"\xff\n", "xxx"),
        ("batch.SH", b"module load python\n", "named as a shell script"),
        ("solver", b"\x7fELF\x02\x01", "compiled program"),
        ("fit.ipynb", b'{"cells": []}', "nbconvert"),
        ("fit.jl", b"println(1)\n", "ends in .jl"),
    ],
)
def test_what_is_not_python_is_named(tmp_path: Path, name: str, start: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(start)
    found = not_python(tmp_path / name)
    assert found is not None
    assert f"{name}' is not a Python file (" in found
    assert says in found
    assert len(found) < 250 + len(str(tmp_path))


def test_the_check_has_its_switch(cli: Callable[..., Answer], here: Path) -> None:
    (here / "batch.sh").write_text("#!/bin/bash\n")
    assert cli("submit", "serial", "batch.sh", "--dry-run").status == 2
    assert cli("submit", "serial", "batch.sh", "--dry-run", "--skip-check", "script").status == 0
