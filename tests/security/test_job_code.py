"""What a job imports: nothing that others left in the folder it runs in."""

import os
import subprocess
import sys
from pathlib import Path

from hpckit.payload.supervisor import torchrun_argv
from hpckit.payload.task import Task
from tests.conftest import write_files


def test_torchrun_does_not_import_what_lies_in_the_folder(here: Path, monkeypatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    task = Task(
        run_dir=str(here), run_id="r", executor="local", launcher="torchrun", nodes=1,
        tasks_per_node=1, command=("x",), python=(sys.executable,), device=None,
    )  # fmt: skip
    package = {"__init__.py": "", "distributed/__init__.py": ""}
    run = 'import sys\ndef main(): print("WHOSE", sys.argv[1:])\n' + (
        'if __name__ == "__main__": main()\n'
    )
    for folder, whose in (("work/torch", "anybody"), ("home/site/torch", "environment")):
        text = run.replace("WHOSE", whose)
        write_files(here.parent / folder, {**package, "distributed/run.py": text})
    for name in ("runpy", "os", "types"):  # what Python itself may need on the way
        (here / f"{name}.py").write_text("raise SystemExit('anybody')")
    environ = {**os.environ, "PYTHONPATH": str(here.parent / "home" / "site")}
    done = subprocess.run(
        torchrun_argv(task), env=environ, cwd=here, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.startswith("environment ['--nnodes=1', '--node_rank=0'")
