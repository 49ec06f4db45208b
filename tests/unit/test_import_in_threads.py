"""The first submissions of a program may come from several threads at once."""

import subprocess
import sys
from pathlib import Path

from tests.patience import LONG_S

# Its modules tell whether a thread imports one while another thread still imports the package.
PACKAGE = {
    "__init__.py": "from submitit.core import core\nimport time\ntime.sleep(1)\nwhole = True\n",
    "core/__init__.py": "",
    "core/core.py": "",
    "slurm/__init__.py": "",
    "slurm/slurm.py": "import sys\nassert sys.modules['submitit'].whole\n",
}
PROGRAM = """\
import sys
from concurrent.futures import ThreadPoolExecutor
from hpckit.schedulers import pickles
sys.path.insert(0, sys.argv[1])

def first():
    from submitit.core import core

def second():
    while "submitit.core.core" not in sys.modules:
        pass
    pickles.load()

with ThreadPoolExecutor() as pool:
    for row in [pool.submit(first), pool.submit(second)]:
        row.result()
"""


def test_a_second_thread_waits_until_submitit_is_whole(tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        (tmp_path / "submitit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "submitit" / name).write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, timeout=LONG_S
    )  # fmt: skip
