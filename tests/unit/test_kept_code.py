"""Which files of a project are kept, and how: `hpckit.code`."""

import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from hpckit.api.prepare import prepare
from hpckit.code import making
from hpckit.code.difference import compare, unified
from hpckit.code.files import Found, TooManyError, find_files
from hpckit.code.ignore import patterns
from hpckit.code.project import Project, project_of, read_rules
from hpckit.code.secrets import looks_secret
from hpckit.code.store import Store
from hpckit.code.tree import Tree, read_tree, verify
from hpckit.collections.collection import CodeRules
from hpckit.environments import Environment, EnvironmentKind
from hpckit.errors import ConfigError, OutsideError
from hpckit.files import DamagedFileError
from hpckit.report.job_samples import OWN_FOLDER
from hpckit.spec import JobSpec
from hpckit.submission.editable import editable_imports
from hpckit.submission.kept_code import keeping, read_later
from tests.unit.checkouts import git

IGNORES = [
    "*.o\n!keep.o\n", "/build\n", "build/\n", "a/**\n", "**/deep\n", "*\n!*.py\n!*/\n", "*.log\r\n",
    "# comment\n\\#odd\n", "x/*\n!x/y.py\n", "[ab].py\n", "foo*\n!foo.py\n", "/*\n!/a\n", "**/\n",
    "a/*/c.py\n", "build\n!build/keep.o\n", "*.py[co]\n", "deep/*.log\n", " \nx\\ y\n", "a[\n",
]  # fmt: skip
PATHS = [
    "a.py", "b.py", "keep.o", "t.o", "foo.py", "foo.txt", "#odd", "x y", "x/y.py", "x/z.py",
    "build/out.py", "build/keep.o", "a/b/c.py", "a/c.py", "a/deep/d.log", "deep/e.log", "m.log",
    "a/build/n.py", "x/y/z.o", "foodir/inner/f.py",
]  # fmt: skip


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"text of {path}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty work tree."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    return root


def found_in(root: Path, rules: CodeRules | None = None, runs: Path | None = None) -> Found:
    project = project_of(root / "train.py", root)
    assert project is not None
    return find_files(project, rules or CodeRules(), runs)


def names(found: Found) -> set[str]:
    return {row.path for row in found.files} | {*found.links}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "runs").mkdir()
    return Store(tmp_path / "runs")


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


def keep(store: Store, found: Found) -> Tree:
    with store.shared():
        return store.keep(found)


def of_git(root: Path) -> set[str]:
    argv = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True)
    said = done.stdout.split("\0")
    return {path for path in said if path and os.path.lexists(root / path)}


@pytest.mark.parametrize("text", IGNORES)
def test_what_git_ignores_is_left_out(root: Path, text: str) -> None:
    write(root, *PATHS)
    (root / ".gitignore").write_text(text)
    assert names(found_in(root)) == of_git(root)


def test_each_place_where_git_is_told_to_ignore_is_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    write(root, "a.one", "a.two", "a.three", "in/a.four", "in/a.one", "in/b.four", "kept.py")
    (root / ".git" / "info" / "exclude").write_text("*.one\n")
    (root / "in" / ".gitignore").write_text("a.four\n!a.one\n")
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("*.two\n")
    assert names(found_in(root)) == of_git(root) == {
        "a.three", "in/a.one", "in/b.four", "in/.gitignore", "kept.py"
    }  # fmt: skip
    (tmp_path / "Mine").write_text("*.three\n")
    (tmp_path / ".gitconfig").write_text(
        '[other]\n excludesFile = no\n[Core]\n excludesFile = "~/Mine"\n'
    )
    assert names(found_in(root)) == of_git(root) == {
        "a.two", "in/a.one", "in/b.four", "in/.gitignore", "kept.py"
    }  # fmt: skip


def test_tracked_files_are_kept_as_they_are_in_the_work_tree(root: Path) -> None:
    write(root, "train.py", "build/tracked.py", "gone.py", "staged.py")
    git(root, "add", ".")
    write(root, "build/other.py")
    (root / ".gitignore").write_text("build/\n")
    (root / "gone.py").unlink()
    (root / "staged.py").write_text("edited after git add\n")
    write(root, "new.py")
    (root / "model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    found = found_in(root)
    assert names(found) == of_git(root)
    assert names(found) == {
        "train.py", "build/tracked.py", "staged.py", ".gitignore", "new.py", "model.bin"
    }  # fmt: skip


def test_what_a_sparse_checkout_leaves_out_is_not_kept_and_marks_hide_nothing(root: Path) -> None:
    write(root, "train.py", "in/a.py", "out/kept.py", "marked.py", "skipped.py")
    (root / ".gitignore").write_text("/out/\n")
    git(root, "add", "-f", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    git(root, "update-index", "--assume-unchanged", "marked.py")
    git(root, "update-index", "--skip-worktree", "skipped.py")
    (root / "skipped.py").write_text("now another\n")
    write(root, "out/huge.txt")  # ignored: that git knows files of its folder changes nothing
    found = found_in(root)
    assert names(found) == {".gitignore", "train.py", "in/a.py", "marked.py", "skipped.py"}
    (skipped,) = (row for row in found.files if row.path == "skipped.py")
    assert skipped.size == len("now another\n")


def test_a_submodules_files_are_kept_by_its_own_rules(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    write(other, "lib.py", "made.o")
    (other / ".gitignore").write_text("*.o\n")
    git(other, "add", ".")
    git(other, "commit", "-qm", "one")
    write(root, "train.py")
    git(
        root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "libs/other"
    )
    (root / ".gitignore").write_text("*.py\n!train.py\nlibs/\n")
    write(root, "libs/other/untracked.py", "libs/other/x.o", "libs/beside.txt")
    assert names(found_in(root)) == {
        "train.py", ".gitignore", ".gitmodules", "libs/other/lib.py", "libs/other/.gitignore",
        "libs/other/untracked.py",
    }  # fmt: skip


def test_outside_git_the_scripts_folder_is_the_project(tmp_path: Path) -> None:
    write(tmp_path, "p/train.py", "p/lib/a.py", "p/__pycache__/a.pyc", "p/env/bin/python", "q.py",
          "p/runs/r1/run.json", "p/runs/r1/job.sh", "p/mine/x/ranks", "p/a.pyc")  # fmt: skip
    write(tmp_path, "p/env/pyvenv.cfg", "p/conda/conda-meta/history")
    write(tmp_path, f"p/{OWN_FOLDER}/4242/c1.r0.7.jsonl")
    project = project_of(tmp_path / "p" / "train.py", tmp_path)
    assert project == Project(root=tmp_path / "p", git=False, file=tmp_path / "p" / "train.py")
    found = find_files(project, CodeRules(), tmp_path / "p" / "mine")
    assert names(found) == {"train.py", "lib/a.py"}


def test_outside_git_an_earlier_folder_of_runs_is_no_code(tmp_path: Path) -> None:
    write(tmp_path, "p/train.py", "p/old/.gitignore", "p/old/.code/trees/x/y", "p/old/notes.txt",
          "p/kept/.gitignore", "p/kept/.code/x.py", "p/mine/.code/trees/x/y",
          "p/mine/lib.py")  # fmt: skip
    project = project_of(tmp_path / "p" / "train.py", tmp_path)
    assert project is not None
    kept = {"train.py", "kept/.gitignore", "mine/lib.py"}  # the last is not hpckit's alone
    assert names(find_files(project, CodeRules())) == kept
    write(tmp_path, "p/old/fit.py")
    program = Project(root=tmp_path / "p", git=False, file=tmp_path / "p" / "old" / "fit.py")
    assert "old/fit.py" in names(find_files(program, CodeRules()))


def test_outside_git_a_modules_project_is_the_folder_it_is_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "src/pkg/sub/run.py", "src/pkg/util.py", "src/models/net.py", "notes.txt")
    file = tmp_path / "src" / "pkg" / "sub" / "run.py"
    project = project_of(file, tmp_path, tmp_path / "src")
    assert project is not None
    assert (project.root, project.package) == (tmp_path / "src", tmp_path / "src" / "pkg")
    assert names(find_files(project, CodeRules())) == {
        "pkg/sub/run.py", "pkg/util.py", "models/net.py"
    }  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path / "src"))  # a place for all kinds of things
    assert project_of(file, tmp_path, tmp_path / "src") == Project(
        root=tmp_path / "src" / "pkg", git=False, file=file
    )


@pytest.mark.parametrize(
    ("most", "kept", "told"),
    [
        (99, {"train/run.py", "train/util.py", "data/a", "data/b"}, ""),
        (5, {"run.py", "util.py"}, "its folder train alone is kept"),
        (1, {"run.py"}, "the program's file alone is kept"),
    ],
)
def test_of_a_large_folder_outside_git_a_modules_package_is_kept_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, kept: set[str], told: str
) -> None:
    write(tmp_path, "p/train/run.py", "p/train/util.py", "p/data/a", "p/data/b")
    (tmp_path / "p/train/run.py").write_text("import util\n")
    monkeypatch.setattr("hpckit.code.files.MAX_PLAIN_FILES", most)
    monkeypatch.chdir(tmp_path / "p")
    spec = JobSpec(target="serial", module="train.run", executor="slurm", gpus=0)
    submission = prepare(spec, tmp_path / "runs", preview=True)
    (tmp_path / "runs").mkdir()
    with keeping(submission, tmp_path / "runs") as code:
        assert code is not None
        assert {row.path.partition("/")[2] for row in code.tree.manifest.files} == kept
        assert told in " ".join(code.notes)
        assert bool(told) == bool(code.notes)


def test_a_place_for_all_kinds_of_things_is_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "train.py", "letters.txt", "data/large", ".bashrc")
    git(tmp_path, "init", "-q")
    project = project_of(tmp_path / "train.py", tmp_path)
    assert project == Project(root=tmp_path, git=False, file=tmp_path / "train.py", alone=True)
    found = find_files(project, CodeRules())
    assert names(found) == {"train.py"}
    assert found.lasting() == ["data", "letters.txt"]


def test_an_installed_program_has_no_project(tmp_path: Path) -> None:
    write(tmp_path, "lib/site-packages/tool/x.py", "v/pyvenv.cfg", "v/bin/tool")
    assert project_of(tmp_path / "lib/site-packages/tool/x.py", tmp_path) is None
    assert project_of(tmp_path / "v/bin/tool", tmp_path) is None


SECRETS = [".env", ".env.local", "a.pem", "b.key", "id_rsa", "id_ed25519.old", ".netrc",
           "credentials", "Credentials.json", "kaggle.json", "c.p12"]  # fmt: skip
PLAIN = ["id_rsa.pub", ".env.example", "credentials.py", "keys.py", "environment.yml", "monkey.txt"]


def test_what_looks_like_a_secret_is_left_out_also_when_git_tracks_it(root: Path) -> None:
    write(root, *SECRETS, *PLAIN, "in/.ssh/config", "in/deep.pem")
    git(root, "add", "-f", ".")
    found = found_in(root)
    assert names(found) == {*PLAIN}
    assert {*found.secrets} == {*SECRETS, "in/.ssh", "in/deep.pem"}
    assert not any(looks_secret(name) for name in PLAIN)
    rules = CodeRules(include=("credentials", "in/deep.pem"))
    assert names(found_in(root, rules)) == {*PLAIN, "credentials", "in/deep.pem"}


def test_links_are_kept_inside_and_never_followed_outside(
    root: Path, tmp_path: Path, store: Store
) -> None:
    write(root, "data/a.txt", "train.py")
    write(tmp_path, "elsewhere/big.bin", "secret.txt")
    (root / "inside").symlink_to("data/a.txt")
    (root / "data" / "whole").symlink_to(root / "train.py")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "file").symlink_to("../secret.txt")
    os.mkfifo(root / "pipe")
    found = found_in(root)
    assert names(found) == {"data/a.txt", "train.py", "inside", "data/whole"}
    assert (found.outward, found.odd) == (["file", "out"], ["pipe"])
    top = keep(store, found).path / "project"
    assert os.readlink(top / "data" / "whole") == "../train.py"
    assert (top / "inside").resolve() == top / "data" / "a.txt"
    # What is left out is found where it lies, and is not copied.
    assert os.readlink(top / "out") == str(root / "out")
    assert (top / "file").read_text() == "text of secret.txt\n"


def test_rules_include_and_exclude(root: Path) -> None:
    write(root, "train.py", "gen/made.py", "gen/x.txt", "data/a.csv", "data/b.py", "lib/_c.so")
    (root / ".gitignore").write_text("gen/\n*.so\n")
    rules = CodeRules(include=("gen/*.py", "*.so"), exclude=("data/",))
    assert names(found_in(root, rules)) == {".gitignore", "train.py", "gen/made.py", "lib/_c.so"}


def test_the_rules_are_read_strictly(root: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (root / "hpckit.yaml").write_text("code:\n  exclude: [data/]\n  max_mb: 5\n")
    write(tmp_path, "config/hpckit/hpckit.yaml")
    (tmp_path / "config" / "hpckit" / "hpckit.yaml").write_text("code: {keep: false, max_mb: 9}\n")
    assert read_rules(root) == CodeRules(keep=False, exclude=("data/",), max_mb=5)
    for text, fault in (
        ("code:\n  exlude: [a]\n", "hpckit.yaml:2: unknown key 'exlude' in code."),
        ("code: {max_mb: 0}\n", "'max_mb' is 0, must be at least 1"),
        ("code:\n  exclude: ['!x']\n", "hpckit.yaml:2: 'exclude' holds '!x'"),
        ("code: no\n", "must be a mapping"),
    ):
        (root / "hpckit.yaml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_rules(root)
        assert fault in str(caught.value)


def test_the_same_files_are_the_same_tree_without_new_space(root: Path, store: Store) -> None:
    write(root, "train.py", "lib/a.py", "lib/b.py", "copy.py")
    (root / "copy.py").write_text("text of train.py\n")
    (root / "train.py").chmod(0o755)
    first = keep(store, found_in(root))
    assert first.made
    again = keep(store, found_in(root))
    assert (again.path, again.made) == (first.path, False)
    (root / "lib" / "a.py").write_text("another\n")
    other = keep(store, found_in(root))
    assert other.path != first.path
    assert (other.path / "project/lib/b.py").samefile(first.path / "project/lib/b.py")
    assert (first.path / "project/lib/a.py").read_text() == "text of lib/a.py\n"
    assert read_tree(first.path).manifest.text() == first.manifest.text()
    assert (first.manifest.bytes, len(first.manifest.files)) == (2 * 17 + 2 * 17, 4)


def test_nothing_in_a_tree_can_be_written_and_no_mode_is_wider(root: Path, store: Store) -> None:
    write(root, "train.py", "run.sh", "own.py", "closed/a.py")
    (root / "run.sh").chmod(0o755)
    (root / "own.py").chmod(0o600)
    (root / "closed").chmod(0o700)
    top = keep(store, found_in(root)).path
    modes = {
        str(path.relative_to(top)): stat.S_IMODE(path.lstat().st_mode) for path in top.rglob("*")
    }
    assert not any(mode & 0o222 for mode in [*modes.values(), stat.S_IMODE(top.lstat().st_mode)])
    closed = ("project/own.py", "project/closed", "project/closed/a.py")
    assert all(modes[name] & 0o077 == 0 for name in closed)
    assert modes["project/run.sh"] & 0o100
    everybody = all(folder.stat().st_mode & 0o001 for folder in root.parents)
    assert modes["project/train.py"] == (0o444 if everybody else 0o400)


def test_an_edit_that_keeps_size_and_time_is_seen(root: Path, store: Store) -> None:
    write(root, "train.py")
    past = time.time_ns() - 10**10
    os.utime(root / "train.py", ns=(past, past))
    first = keep(store, found_in(root))
    (root / "train.py").write_text("TEXT of train.py\n")
    os.utime(root / "train.py", ns=(past, past))
    assert keep(store, found_in(root)).path != first.path


def test_what_is_known_of_files_is_not_read_again(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, *PATHS)
    read: list[str] = []
    put = making.Maker._put

    def counted(self: making.Maker, path: str, mode: int) -> tuple[str, int, str]:
        read.append(path)
        return put(self, path, mode)

    monkeypatch.setattr(making.Maker, "_put", counted)
    monkeypatch.setattr(making, "_RACY_NS", 10**15)
    keep(store, found_in(root))
    keep(store, found_in(root))
    assert len(read) == 2 * len(PATHS)  # changed a moment ago: not believed
    monkeypatch.setattr(making, "_RACY_NS", -(10**15))
    keep(store, found_in(root))
    del read[:]
    keep(store, found_in(root))
    assert read == []
    shutil.rmtree(store.path / "objects")  # all that is kept but the trees
    (root / "a.py").write_text("new\n")
    tree = keep(store, found_in(root))
    verify(tree)


def test_a_tree_that_was_changed_is_made_anew(root: Path, store: Store) -> None:
    write(root, "train.py", "lib/a.py")
    tree = keep(store, found_in(root))
    place = tree.path / "project" / "lib" / "a.py"
    place.chmod(0o644)
    place.write_text("TEXT OF lib/a.py\n")  # also in the object
    with pytest.raises(DamagedFileError, match=r"lib/a\.py is not what was kept"):
        verify(tree)
    again = keep(store, found_in(root))
    assert (again.path, again.made) == (tree.path, True)
    verify(again)
    place.parent.chmod(0o755)
    (place.parent / "planted.py").write_text("")
    place.parent.chmod(0o555)
    assert keep(store, found_in(root)).made
    assert not (place.parent / "planted.py").exists()


_KEEPER = """\
import os, signal, sys
from pathlib import Path
from hpckit.code import making
from hpckit.code.files import find_files
from hpckit.code.project import project_of
from hpckit.code.store import Store
from hpckit.collections.collection import CodeRules
calls, last = 0, int(sys.argv[3])
def watch(frame, event, arg):
    global calls
    calls += event == "c_call" and getattr(arg, "__module__", "") == "posix"
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)
root = Path(sys.argv[1])
store = Store(Path(sys.argv[2]))
found = find_files(project_of(root / "train.py", root), CodeRules())
sys.setprofile(watch)
with store.shared():
    tree = store.keep(found)
sys.setprofile(None)
print(tree.path)
"""


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_no_torn_tree(root: Path, store: Store) -> None:
    write(root, "train.py", "lib/a.py", "lib/b.py")
    killed, at = 0, 1
    while True:
        argv = [sys.executable, "-c", _KEEPER, str(root), str(store.path.parent), str(at)]
        done = subprocess.run(argv, capture_output=True, text=True)
        for path in store.trees.iterdir() if store.trees.is_dir() else ():
            verify(read_tree(path))  # whatever has a tree's name is whole
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed, at = killed + 1, at + 1 + at // 6
    assert killed > 5
    tree = keep(store, found_in(root))
    verify(tree)
    assert store.remove(lambda: {tree.name}) == 0
    assert [*(store.path / "tmp").iterdir()] == []  # what kills left is swept


def _kept_by(root: Path, runs: Path, start: "multiprocessing.synchronize.Barrier") -> None:
    start.wait()
    tree = keep(Store(runs), found_in(root))
    verify(tree)


def test_two_at_once_share_one_tree(root: Path, store: Store) -> None:
    write(root, *(f"d{number % 7}/f{number}.py" for number in range(200)))
    several = multiprocessing.get_context("fork")
    start = several.Barrier(3)
    rows = [
        several.Process(target=_kept_by, args=(root, store.path.parent, start)) for _ in range(3)
    ]
    for row in rows:
        row.start()
    for row in rows:
        row.join()
    assert [row.exitcode for row in rows] == [0, 0, 0]
    assert len([*store.trees.iterdir()]) == 1
    assert [*(store.path / "tmp").iterdir()] == []


@pytest.mark.parametrize("gone", [("tmp",), ("objects", "seen", "bytecode", "tmp", "lock")])
def test_what_rm_has_begun_is_removed(root: Path, store: Store, gone: tuple[str, ...]) -> None:
    write(root, "train.py", "lib/a.py")
    keep(store, found_in(root))
    # `rm -r` of a folder of runs stops at the read-only trees, and removes all beside them.
    for name in gone:
        path = store.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert store.remove(set)
    assert not store.path.exists()


def test_a_full_disk_leaves_nothing(root: Path, store: Store, monkeypatch) -> None:
    write(root, "train.py", "lib/a.py")

    def full(_folder: Path, _paths: list[str]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(making, "sync", full)
    with pytest.raises(OSError, match="No space"):
        keep(store, found_in(root))
    assert [*store.trees.iterdir()] == [*(store.path / "tmp").iterdir()] == []


def test_without_hard_links_files_are_copied(root: Path, store: Store, monkeypatch) -> None:
    write(root, "train.py", "lib/a.py")

    def refused(*_args: object, **_words: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(making.os, "link", refused)
    tree = keep(store, found_in(root))
    assert (tree.made, tree.copied) == (True, True)
    verify(tree)
    assert not keep(store, found_in(root)).made


def test_an_unreadable_file_is_named(root: Path, store: Store, monkeypatch) -> None:
    write(root, "train.py")
    real = os.open

    def closed(path: object, *args: int, **words: int) -> int:
        if str(path).endswith("train.py"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **words)

    monkeypatch.setattr(making.os, "open", closed)
    with pytest.raises(OutsideError, match=r"train\.py' is part of the code and cannot be read"):
        keep(store, found_in(root))


def vanishing(monkeypatch: pytest.MonkeyPatch, root: Path, *gone: str) -> None:
    """Let another program remove files and folders between the list of the root and the rest."""
    real = os.scandir

    def listed(path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if path != f"{root}/":
            return real(path)
        with real(path) as found:
            entries = [*found]
        for name in gone:
            place = root / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        return nullcontext(iter(entries))

    monkeypatch.setattr("hpckit.code.files.os.scandir", listed)


def test_what_others_remove_meanwhile_was_never_there(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "train.py", "module.py", "part.tmp", "work/one.tmp", "later.tmp")
    git(root, "add", "train.py", "module.py")
    with monkeypatch.context() as patch:
        vanishing(patch, root, "part.tmp", "work")
        found = found_in(root)
    assert names(found) == {"train.py", "module.py", "later.tmp"}
    (root / "later.tmp").unlink()
    tree = keep(store, found)
    assert {row.path for row in tree.manifest.files} == {"project/train.py", "project/module.py"}


@pytest.mark.parametrize("needed", ["train.py", "module.py", "lib"])
def test_the_program_and_what_git_tracks_may_not_be_gone(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    write(root, "train.py", "module.py", "lib/a.py")
    git(root, "add", "module.py", "lib")
    found = found_in(root)
    vanishing(monkeypatch, root, needed)
    with pytest.raises(OutsideError, match="is part of the code and cannot be read"):
        found_in(root)
    with pytest.raises(OutsideError, match="is part of the code and cannot be read"):
        keep(store, found)


def test_too_many_files_are_not_looked_through(root: Path, tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, *(f"many/{number}.dat" for number in range(50)), "many/train.py")
    monkeypatch.setattr("hpckit.code.files.MAX_PLAIN_FILES", 20)
    monkeypatch.setattr("hpckit.code.files.MAX_FILES", 20)
    with pytest.raises(TooManyError):
        find_files(Project(root=tmp_path / "many", git=False), CodeRules())
    write(root, *(f"out/{number}.dat" for number in range(50)), "train.py")
    (root / ".gitignore").write_text("*.dat\n")
    assert names(found_in(root)) == {"train.py", ".gitignore"}  # what is ignored does not count
    (root / ".gitignore").unlink()
    with pytest.raises(TooManyError):
        found_in(root)


def test_what_no_run_needs_goes_and_the_rest_stays(root: Path, store: Store) -> None:
    write(root, "train.py", "same.py")
    (root / "big.bin").write_bytes(os.urandom(200_000))
    first = keep(store, found_in(root))
    (root / "big.bin").write_bytes(b"small")
    second = keep(store, found_in(root))
    found = store.unneeded(lambda: {second.name})
    assert found
    assert [*found.trees] == [first.path]
    assert 200_000 <= found.size < 250_000
    with store.shared():
        assert store.remove(lambda: {second.name}) is None  # somebody submits
    assert store.remove(lambda: {second.name}) == found.size
    verify(second)
    assert not first.path.exists()
    assert len([*(store.path / "objects").rglob("*.*")]) == 3
    assert store.remove(set)
    assert not store.path.exists()


def test_what_runs_need_is_asked_while_nobody_can_submit(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "train.py")
    tree = keep(store, found_in(root))
    monkeypatch.setattr("hpckit.code.store._PATIENCE_S", 0.0)
    asked = []

    def needed() -> set[str]:
        with pytest.raises(OutsideError, match="hpckit clean has been at work"):
            keep(store, found_in(root))
        asked.append(tree.name)
        return {tree.name}

    found = store.unneeded(needed)
    assert found
    assert (found.trees, found.rest) == ((), False)
    assert store.remove(needed) == 0
    assert asked == [tree.name] * 2
    verify(tree)


def test_the_difference_is_told_by_names_and_by_lines(root: Path, store: Store) -> None:
    write(root, "a.py", "b.py", "gone.py", "same.py", "run.sh", "bin.dat")
    (root / "bin.dat").write_bytes(b"\0\1")
    tree = keep(store, found_in(root))
    assert not compare(tree, "project", found_in(root))
    (root / "a.py").write_text("other\ntext")
    (root / "gone.py").unlink()
    (root / "run.sh").chmod(0o755)
    (root / "bin.dat").write_bytes(b"\0\2")
    write(root, "new.py")
    found = compare(tree, "project", found_in(root))
    assert found.lines() == [
        "changed: a.py, bin.dat, run.sh", "added: new.py", "removed: gone.py",
    ]  # fmt: skip
    assert list(unified(tree, "project", root, found)) == [
        "--- kept/a.py", "+++ now/a.py", "@@ -1 +1,2 @@", "-text of a.py", "+other", "+text",
        "\\ No newline at end of file",
        "File bin.dat differs (binary, a link, or large)",
        "--- kept/gone.py", "+++ /dev/null", "@@ -1 +0,0 @@", "-text of gone.py",
        "--- /dev/null", "+++ now/new.py", "@@ -0,0 +1 @@", "+text of new.py",
        "File run.sh differs in whether it may be started",
    ]  # fmt: skip


def test_a_tree_of_another_folder_of_runs_is_believed_by_its_hashes(
    root: Path, store: Store, tmp_path: Path
) -> None:
    write(root, "train.py", "lib/a.py")
    tree = keep(store, found_in(root))
    (tmp_path / "others").mkdir()
    other = Store(tmp_path / "others")
    with other.shared():
        copy = other.adopt(tree)
    assert (copy.name, copy.path.parent) == (tree.name, other.trees)
    verify(copy)
    place = tree.path / "project" / "train.py"
    place.chmod(0o644)
    place.write_text("planted\n")
    with other.shared(), pytest.raises(DamagedFileError):
        other.adopt(tree)
    assert patterns(()) is None
