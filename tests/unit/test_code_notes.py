"""What people are told of the code that is kept with a job."""

from pathlib import Path

import pytest

from hpckit.api.prepare import prepare
from hpckit.code.files import find_files
from hpckit.code.project import Project, project_of
from hpckit.collections.collection import CodeRules
from hpckit.environments import Environment, EnvironmentKind
from hpckit.job_spec.spec import JobSpec
from hpckit.submission.code_notes import editable_imports, read_later
from hpckit.submission.kept_code import keeping
from tests.unit.projects import found_in, work_tree, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty work tree."""
    return work_tree(tmp_path)


FINDER = "MAPPING: dict[str, str] = {{'mylib': '{0}/lib/mylib', 'inside': '{0}/project/inside'}}\n"


def test_imports_of_editable_installs_outside_the_project_are_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    write(tmp_path, "lib/mylib/__init__.py", "flat/one.py", "flat/two/__init__.py", "flat/util.py")
    write(root, "inside/__init__.py", "util.py")
    site.mkdir(parents=True)
    (site / "__editable___mylib_1_finder.py").write_text(FINDER.format(tmp_path))
    line = "import __editable___mylib_1_finder; __editable___mylib_1_finder.install()"
    (site / "__editable___odd_1_finder.py").write_text("MAPPING = {'a set', 'and no mapping'}\n")
    (site / "__editable__.odd-1.pth").write_text("import __editable___odd_1_finder")
    (site / "__editable__.mylib-1.pth").write_text(line)
    (site / "flat.pth").write_text(f"# a folder\n{tmp_path}/flat\n{tmp_path}/gone\n")
    (site / "broken.pth").write_bytes(b"\xff\xfe\n")
    (root / "train.py").write_text(
        "import os, one.deep as o, util\n"
        "if True:\n    from mylib.part import thing\nfrom . import x\nimport inside, hpckit\n"
        "# import two\n"
    )
    environment = Environment(name="mine", kind=EnvironmentKind.VENV, path=str(tmp_path / "venv"))
    found = found_in(root)
    assert editable_imports(found, environment, "python") == {
        "mylib": f"{tmp_path}/lib/mylib", "one": f"{tmp_path}/flat/one.py"
    }  # fmt: skip
    # What the user has installed at home is every environment's but a venv's.
    home = tmp_path / "home" / ".local" / "lib"
    home.mkdir(parents=True)
    (tmp_path / "venv" / "lib" / "python3.11").rename(home / "python3.11")
    assert editable_imports(found, environment, "python") == {}
    module = Environment(name="m", kind=EnvironmentKind.MODULES, load=("python",))
    assert [*editable_imports(found, module, "python")] == ["mylib", "one"]


def test_a_submission_says_what_is_edited_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "flat/one.py", "venv/bin/python", "venv/lib/python3.11/site-packages/x.txt")
    (tmp_path / "venv/lib/python3.11/site-packages/a.pth").write_text(f"{tmp_path}/flat\n")
    (root / "train.py").write_text("import one\n")
    monkeypatch.chdir(root)
    spec = JobSpec(
        target="serial", program="train.py", gpus=0, executor="local", env=str(tmp_path / "venv")
    )
    (root / "runs").mkdir()
    with keeping(prepare(spec, root / "runs"), root / "runs") as kept:
        assert kept is not None
        (said,) = kept.notes
    assert said.startswith("imported as it is when the job runs, not as it is now: one (")


@pytest.mark.parametrize(
    ("text", "args", "named"),
    [
        ("python util.py --x 1\n", (), "util.py"),
        ("# python util.py\npython ./util.py\n", (), "util.py"),
        ('python "$HPCKIT_CODE_DIR/util.py"\n', (), ""),
        ("python $HOME/util.py other.py\n", (), ""),
        (
            "true\n",
            ("--config=conf/a.yaml", "conf/b.yaml", "nothing.py"),
            "conf/a.yaml, conf/b.yaml",
        ),
        ("true\n", ("../project/util.py", "go.sh"), "util.py"),
        ("true\n", ("ignored.py", "conf"), ""),
    ],
)
def test_files_that_a_job_takes_from_the_project_are_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, text: str, args: tuple[str, ...], named: str
) -> None:
    write(root, "util.py", "conf/a.yaml", "conf/b.yaml", "ignored.py")
    (root / ".gitignore").write_text("ignored.py\n")
    (root / "go.sh").write_text(text)
    monkeypatch.chdir(root)
    spec = JobSpec(target="serial", program="go.sh", gpus=0, executor="local", args=args)
    job = prepare(spec, root / "runs").job
    monkeypatch.chdir(root.parent)  # resubmit is called from anywhere
    said = read_later(job, find_files(_project(root, "go.sh"), CodeRules(), None), str(root))
    assert [line.partition(" will be read")[0] for line in said] == ([named] if named else [])


def _project(root: Path, name: str) -> Project:
    project = project_of(root / name, root)
    assert project is not None
    return project
