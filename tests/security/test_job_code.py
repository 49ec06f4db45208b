"""What a job imports: nothing that others left in the folder it runs in."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpckit.launchers import find_launcher
from hpckit.payload.task import Task
from tests.conftest import write_files
from tests.unit.lab import make_lab


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
    # What Python itself, and hpckit's lines before torchrun, may need on the way.
    for name in ("runpy", "os", "types", "shutil", "tempfile"):
        (here / f"{name}.py").write_text("raise SystemExit('anybody')")
    environ = {**os.environ, "PYTHONPATH": str(here.parent / "home" / "site")}
    done = subprocess.run(
        find_launcher("torchrun").child(task),
        env=environ,
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    logs = re.escape(f"--log_dir={here.parent}/tmp/torchelastic_")
    assert re.fullmatch(rf"environment \['{logs}\w+', '--nnodes=1', .*\]\n", done.stdout)
    assert not [*(here.parent / "tmp").iterdir()]


SCRIPT = """\
import multiprocessing, pathlib, sys, helper, pack.inner
sys.path.append(str(pathlib.Path(__file__).parents[2] / "venv"))
import sizable  # a package that loads from its bytecode as ever
def child():
    import helper
    print("child", helper.WHOSE)
if __name__ == "__main__":
    print("script", helper.WHOSE, pack.inner.WHOSE)
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
"""


def plant(source: Path) -> Path:
    """Put bytecode beside a source that Python never compares with it (PEP 552, unchecked)."""
    beside = Path(importlib.util.cache_from_source(str(source)))
    beside.parent.mkdir(exist_ok=True)
    other = source.with_name("other")
    other.write_text(f"WHOSE = 'anybody'; open({str(source.parents[3] / 'EVIL')!r}, 'w')")
    done = (
        "import py_compile, sys; mode = py_compile.PycInvalidationMode.UNCHECKED_HASH; "
        "py_compile.compile(sys.argv[1], cfile=sys.argv[2], invalidation_mode=mode)"
    )
    subprocess.run([sys.executable, "-c", done, other, beside], check=True)
    other.unlink()
    return beside


@pytest.mark.long
def test_planted_bytecode_of_a_collection_does_not_run(here: Path, cli, monkeypatch) -> None:
    lab = make_lab(here.parent / "shared" / "lab")
    folder = lab / "workloads" / "lab-hello"
    mine = "WHOSE = 'the source'\n"
    write_files(folder, {"hello.py": SCRIPT, "helper.py": mine, "pack/__init__.py": "",
                         "pack/inner.py": mine, "../../venv/sizable.py": ""})  # fmt: skip
    assert cli("collections", "add", str(lab)).status == 0
    planted = [plant(folder / name) for name in ("helper.py", "pack/inner.py")]
    before = [path.read_bytes() for path in planted]
    assert cli("collections", "verify").out.startswith("lab: as pinned")
    # A distribution's or a user's own sitecustomize still has its turn.
    # In one write: `print` makes two where nothing is buffered, and two processes say it at once.
    say = "import os; os.write(1, b'customized\\n')"
    write_files(here.parent, {"home/site/sitecustomize.py": say})
    monkeypatch.setenv("PYTHONPATH", str(here.parent / "home" / "site"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    words = "submit lab-hello --executor local --gpus 0 --sample-interval 0 --wait --json"
    answer = cli(*words.split())
    assert answer.status == 0, answer.err
    out = (Path(json.loads(answer.out)["run_dir"]) / "logs" / "0.out").read_text().splitlines()
    assert [line for line in out if line != "customized"] == [
        "script the source the source",
        "child the source",
    ]
    assert out[0] == "customized"
    assert not list(here.parent.rglob("EVIL"))
    assert [path.read_bytes() for path in planted] == before
    assert len(list((lab / "venv").rglob("sizable.*.pyc"))) == 1
    found = [path for path in folder.rglob("*.pyc") if path not in planted]
    assert found == []  # none is made there either, for others to believe
