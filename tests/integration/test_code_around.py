"""A program outside git finds what lies over its folder, from the copy of it that runs."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from tests.conftest import Answer
from tests.unit.projects import work_tree

pytestmark = pytest.mark.long

# How scripts find their project's top: each line a way that people write.
TRAIN = """
import os, sys
from pathlib import Path
own = os.path.abspath(__file__)
tops = [
    os.path.dirname(os.path.dirname(os.path.dirname(own))),
    os.path.join(os.path.dirname(__file__), "..", ".."),
    os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")),
    str(Path(__file__).resolve().parents[2]),
]
for top in tops:
    print(Path(top, "data", "a.txt").read_text(), Path(top, "tools", "b.txt").read_text())
sys.path.insert(0, tops[int(sys.argv[1])])
import models.net
print(models.net.NAME, Path(models.net.__file__).is_relative_to(sys.argv[2]), Path.cwd().name)
print(Path(own).parent.joinpath("near.txt").read_text())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {
        "tools/fit/train.py": TRAIN, "tools/fit/near.txt": "near", "tools/b.txt": "tools",
        "data/a.txt": "data", "models/net.py": "NAME = 'net'\n",
    }.items():  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("stood", [".", "tools/fit", "elsewhere"])
def test_a_script_finds_the_top_of_its_project(project: Path, here: Path, stood: str) -> None:
    os.chdir(here if stood == "elsewhere" else project / stood)
    program = project / "tools/fit/train.py"
    for way in range(4):
        run = hpckit.submit(
            "serial", program, args=[way, project], executor="local", gpus=0, wait=True
        )
        assert run.state == "COMPLETED", run.errors()
        name = Path.cwd().name
        assert run.logs().splitlines() == ["data tools"] * 4 + [f"net True {name}", "near"]


def test_only_the_programs_folder_is_kept(project: Path, here: Path) -> None:
    run = hpckit.submit(
        "serial", project / "tools/fit/train.py", args=[0, project], executor="local", gpus=0,
        wait=True,
    )  # fmt: skip
    assert run.code.files == 2
    over = run.code.path.parents[1]
    assert sorted(path.name for path in over.iterdir()) == ["data", "models", "tools"]
    assert (over / "data").resolve() == project / "data"
    assert [path.name for path in run.dir.glob("code/**/near.txt")] == ["near.txt"]
    (project / "tools/fit/near.txt").write_text("later")
    (project / "models/net.py").write_text("NAME = 'later'\n")
    again = run.resubmit(same_code=True, wait=True)
    assert again.logs().splitlines()[4:] == [f"later True {here.name}", "near"]
    elsewhere = run.resubmit(same_code=True, runs=here / "others", wait=True)
    assert elsewhere.logs() == again.logs()
    assert elsewhere.dir.parent == here / "others"


PROGRAM = """
#include <stdio.h>
int answer(void);
int main(void) { return printf("the library says %d\\n", answer()) < 0; }
"""


def test_an_installed_program_finds_its_libraries_and_keeps_its_name(
    tmp_path: Path, here: Path
) -> None:
    prefix = tmp_path / "solver-1.0"
    for name in ("bin", "lib", "share"):
        (prefix / name).mkdir(parents=True)
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }\n")
    (tmp_path / "solver.c").write_text(PROGRAM)
    library = prefix / "lib/libanswer.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "answer.c"], check=True)
    argv = ["cc", "-o", prefix / "bin/solver", tmp_path / "solver.c", library]
    subprocess.run([*argv, "-Wl,-rpath,$ORIGIN/../lib"], check=True)
    tool = prefix / "bin/tool"
    tool.write_text('#!/bin/bash\necho "${0##*/}:" $(cd "$(dirname "$0")/.." && ls)\n')
    tool.chmod(0o755)
    (prefix / "bin/other").symlink_to("tool")  # some programs do what their name says
    said = {"solver": "the library says 42", "tool": "tool: bin lib share",
            "other": "other: bin lib share"}  # fmt: skip
    for name, line in said.items():
        run = hpckit.submit("serial", prefix / "bin" / name, executor="local", gpus=0, wait=True)
        assert run.logs() == f"{line}\n", run.errors()


def test_a_program_of_the_system_runs_where_it_is(here: Path, cli: Callable[..., Answer]) -> None:
    said = cli("submit", "serial", "/usr/bin/env", "--executor", "local", "--gpus", "0", "--wait")
    assert said.status == 0, said.err
    assert "note: " not in said.err
    (run,) = hpckit.runs(runs=here / "runs")
    assert run._folder.record["code"]["not_kept"] == ("/usr/bin/env is installed, not in a project")


def test_what_lies_over_a_folder_is_named_to_nobody_new(project: Path, here: Path) -> None:
    """Names in a folder that others may pass, and not list, are not to be listed in the copy."""
    (project / "tools").chmod(0o711)
    run = hpckit.submit(
        "serial", project / "tools/fit/train.py", args=[0, project], executor="local", gpus=0,
        wait=True,
    )  # fmt: skip
    assert run.state == "COMPLETED", run.errors()
    mode = run.code.path.parent.stat().st_mode & 0o777
    everybody = all(folder.stat().st_mode & 0o001 for folder in project.parents)
    assert mode == (0o511 if everybody else 0o500)


def outcome(run: hpckit.Run) -> list[str]:
    assert run.state == "COMPLETED", run.errors()
    return run.logs().splitlines()


FINDS = """
import sys
from pathlib import Path
own = Path(__file__).resolve()
top = next(path for path in own.parents if (path / ".project-root").exists())
sys.path.insert(0, str(top))
import tools.fit.near
import tools.fit
import tools.other
print((top / ".env").read_text(), tools.fit.NAME, tools.fit.near.NAME, tools.other.NAME)
"""


def test_a_hidden_mark_is_found_and_the_programs_own_package_is_the_copy(
    project: Path, here: Path
) -> None:
    for name, text in {
        ".project-root": "", ".env": "set", "tools/__init__.py": "",
        "tools/fit/near.py": "NAME = 1", "tools/fit/__init__.py": "NAME = 1",
        "tools/other.py": "NAME = 1", "tools/fit/train.py": FINDS,
    }.items():  # fmt: skip
        (project / name).write_text(text)
    words = {"executor": "local", "gpus": 0, "wait": True}
    run = hpckit.submit("serial", project / "tools/fit/train.py", **words)
    assert outcome(run) == ["set 1 1 1"]
    for name in ("fit/near", "fit/__init__", "other"):
        (project / f"tools/{name}.py").write_text("NAME = 'later'")
    assert outcome(run.resubmit(same_code=True, wait=True)) == ["set 1 1 later"]


def test_a_module_below_src_finds_the_top_of_its_project(
    project: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = project / "src/pkg/train.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    module.write_text(
        "from pathlib import Path\n"
        "print(Path(__file__).resolve().parents[2].joinpath('data/a.txt').read_text())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(project / "src"))
    run = hpckit.submit("serial", module="pkg.train", executor="local", gpus=0, wait=True)
    assert outcome(run) == ["data"]
    assert run.code.path.name == "src"


LISTS = """
import pkgutil, sys
from pathlib import Path
top = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(top))
import plugins, scripts
for path in (plugins.__path__, [str(top)], scripts.__path__):
    print(*sorted(f"{row.name}{'/' * row.ispkg}" for row in pkgutil.iter_modules(path, "x.")))
"""


@pytest.mark.parametrize("git", [False, True])
def test_pkgutil_lists_modules_as_where_the_program_lies(
    tmp_path: Path, here: Path, git: bool
) -> None:
    root = work_tree(tmp_path) if git else tmp_path / "project"
    for name in ("scripts/__init__", "scripts/plugins/__init__", "scripts/plugins/a",
                 "scripts/plugins/b", "models/__init__", "top"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").touch()
    program = root / "scripts/train.py"
    program.write_text(LISTS)
    run = hpckit.submit("serial", program, executor="local", gpus=0, wait=True)
    assert outcome(run) == ["x.a x.b", "x.models/ x.scripts/ x.top", "x.plugins/ x.train"]
