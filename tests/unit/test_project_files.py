"""Which files are a project's."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from hpckit.api.prepare import prepare
from hpckit.code.files import TooManyError, find_files
from hpckit.code.making import _mode_over
from hpckit.code.project import Project, part_of, project_of, read_rules
from hpckit.code.rules import unreadable
from hpckit.code.secrets import looks_secret
from hpckit.collections.collection import CodeRules
from hpckit.errors import ConfigError
from hpckit.job_spec.spec import JobSpec
from hpckit.paths import config_folder
from hpckit.report.job_samples import OWN_FOLDER
from hpckit.submission.kept_code import keeping, link_code
from tests.conftest import write_files
from tests.unit.checkouts import git
from tests.unit.projects import PATHS, found_in, names, work_tree, write

IGNORES = [
    "*.o\n!keep.o\n", "/build\n", "build/\n", "a/**\n", "**/deep\n", "*\n!*.py\n!*/\n", "*.log\r\n",
    "# comment\n\\#odd\n", "x/*\n!x/y.py\n", "[ab].py\n", "foo*\n!foo.py\n", "/*\n!/a\n", "**/\n",
    "a/*/c.py\n", "build\n!build/keep.o\n", "*.py[co]\n", "deep/*.log\n", " \nx\\ y\n", "a[\n",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty work tree."""
    return work_tree(tmp_path)


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


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_tracked_files_are_kept_as_they_are_in_the_work_tree(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", kind)
    root = work_tree(tmp_path)
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
    assert project is not None
    assert (project.root, project.git, project.alone) == (tmp_path / "p", False, False)
    assert project.file == tmp_path / "p" / "train.py"
    found = find_files(project, CodeRules(), tmp_path / "p" / "mine")
    assert names(found) == {"train.py", "lib/a.py"}


def test_folders_over_a_project_end_where_places_for_all_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "home/work/a/b/c/d/train.py")
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))

    def over(folder: str) -> list[str]:
        project = project_of(home / folder / "train.py", tmp_path)
        assert project is not None
        assert project.name.split("/") == [row.name for row in (*project.above, project.root)]
        return [str(row.relative_to(tmp_path)) for row in project.above]

    assert over("work/a/b/c/d") == ["home/work/a", "home/work/a/b", "home/work/a/b/c"]
    assert over("work/a") == ["home/work"]
    assert over("work") == ["home"]  # what lies beside a folder in the home is found, too
    monkeypatch.setattr("hpckit.code.project.is_mine", lambda folder: folder != home / "work/a")
    assert over("work/a/b/c") == ["home/work/a/b"]


def test_names_over_a_project_are_those_beside_the_way_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "p/tools/train.py", "p/tools/in.txt", "p/data/a", "p/.env", "p/runs/x",
          "p/__pycache__/x", "p/.git.d", "p/.hg/x", "p/zz", "q.txt")  # fmt: skip
    (tmp_path / "p/gone").symlink_to("nowhere")
    project = project_of(tmp_path / "p/tools/train.py", tmp_path)
    assert project is not None
    found = find_files(project, CodeRules())
    (near, name, names), (far, top, others), *_ = found.beside(tmp_path / "p/runs")
    assert (near, name) == (tmp_path / "p", f"{top}/p")
    assert names == [".env", ".git.d", "data", "gone", "zz"]
    assert (far, others) == (tmp_path, ["q.txt"])
    write(tmp_path, "p/train-1/run.json", "p/.code/trees/x")  # runs in the project's own folder
    assert next(found.beside(tmp_path / "p"))[2] == [".env", ".git.d", "data", "gone", "runs", "zz"]
    monkeypatch.setattr("hpckit.code.files._MOST_LINKS", 2)
    assert [row for _, _, row in found.beside(tmp_path / "p/runs")][:2] == [names[:2], []]


@pytest.mark.parametrize(("mode", "kept"), [(0o755, 0o555), (0o711, 0o511), (0o700, 0o511)])
def test_names_over_a_project_are_shown_to_those_who_may_list_them(
    tmp_path: Path, mode: int, kept: int
) -> None:
    tmp_path.chmod(mode)
    assert _mode_over(tmp_path, is_open=True) == kept
    assert _mode_over(tmp_path, is_open=False) & 0o077 == 0


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
        root=tmp_path / "src" / "pkg", git=False, file=file, above=(tmp_path / "src",)
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
        ((name, _),) = code.tree.manifest.roots
        assert {row.path.removeprefix(f"{name}/") for row in code.tree.manifest.files} == kept
        assert told in " ".join(code.notes)
        assert bool(told) == bool(code.notes)
        # The job script was rendered before anybody looked how much there is.
        submission.place.dir.mkdir()
        link_code(submission.place.dir, code)
        planned = submission.place.dir / str(submission.place.copy)
        assert (planned / "train/run.py").read_text() == "import util\n"


@pytest.mark.parametrize(
    "leaving_out",
    [{".gitignore": "train.py\n"}, {"hpckit.yaml": "code: {exclude: [train.py]}\n"}],
    ids=["git", "rules"],
)
def test_a_program_that_is_left_out_itself_is_named_with_both_reasons(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving_out: dict[str, str]
) -> None:
    write_files(root, {"train.py": "", "other.py": "", **leaving_out})
    monkeypatch.chdir(root)
    spec = JobSpec(target="serial", program="train.py", executor="slurm", gpus=0)
    submission = prepare(spec, tmp_path / "runs", preview=True)
    (tmp_path / "runs").mkdir()
    with keeping(submission, tmp_path / "runs") as code:
        assert code is not None
        said = "is not kept itself: git ignores it, or hpckit.yaml leaves it out"
        assert [note for note in code.notes if said in note]


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
    known = [name for name in found.lasting() if name != ".cache"]  # what hpckit itself keeps
    assert known == [".bashrc", "data", "letters.txt"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("listed", [True, False])
def test_of_a_colleagues_home_the_program_is_kept_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, listed: bool
) -> None:
    """It lies in nobody's project, whatever else does: settings in git, folders closed to all."""
    home, real = tmp_path / "ana", os.listdir
    (tmp_path / "link").symlink_to(home)  # as the machine lists it
    write(home, "train.py", "private/x", "project/train.py")
    git(home, "init", "-q")
    for path in (home, *home.rglob("*")):
        os.chown(path, 61003, 61003)
    row = pwd.struct_passwd(("ana", "x", 61003, 61003, "", str(tmp_path / "link"), "/bin/sh"))
    monkeypatch.setattr("pwd.getpwuid", {0: pwd.getpwuid(0), 61003: row}.__getitem__)

    def names_of(folder: object) -> list[str]:
        if str(folder) == str(home) and not listed:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)

    monkeypatch.setattr(os, "listdir", names_of)
    found = found_in(home)
    assert (names(found), found.project.alone, found.project.git) == ({"train.py"}, True, False)
    assert set(found.left) == ({"private", "project"} if listed else set())
    assert (project := project_of(home / "project/train.py", tmp_path)) is not None
    assert (project.root, project.alone) == (home / "project", False)
    assert project_of(home / "project/a.zip/train.py", tmp_path)  # not a folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_whose_a_file_is_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    write(tmp_path, "private")
    closed = PermissionError(13, "Permission denied")
    assert "Let it be read (chmod u+r), leave it out" in str(unreadable(tmp_path, closed))
    os.chown(tmp_path / "private", 61003, 61003)
    said = str(unreadable(tmp_path / "private", closed))
    assert "Permission denied. Ask 61003, whose it is, leave it out (`code: {exclude" in said
    assert f"in {config_folder() / 'hpckit.yaml'}), or submit without" in said


def test_hidden_folders_over_a_project_keep_their_names(tmp_path: Path) -> None:
    write(tmp_path, ".top/.tools/.fit/train.py")
    project = project_of(tmp_path / ".top/.tools/.fit/train.py", tmp_path)
    assert project is not None
    assert project.name.endswith("/.top/.tools/.fit")
    top = Path("/.top")
    assert Project(root=top / "a", git=False, above=(top,)).name == "top/a"
    assert Project(root=top / "a", git=False, above=(Path("/"), top)).name == "code/.top/a"


def test_a_work_tree_in_a_conda_environment_is_a_project(tmp_path: Path) -> None:
    root = work_tree(tmp_path)
    write(tmp_path, "conda-meta/history")
    write(root, "train.py")
    project = project_of(root / "train.py", tmp_path)
    assert project is not None
    assert (project.root, project.git, project.name) == (root, True, root.name)


def test_a_module_has_what_lies_over_the_folder_it_is_imported_from(tmp_path: Path) -> None:
    write(tmp_path, "p/src/pkg/deep/train.py", "p/src/one.py")
    source = tmp_path / "p/src"
    for file in ("pkg/deep/train.py", "one.py"):
        project = project_of(source / file, tmp_path, source)
        assert project is not None
        assert (project.root, project.above[-1]) == (source, tmp_path / "p")
    package = part_of(project, source / "pkg")
    assert (package.root, package.above[-1], package.alone) == (source / "pkg", source, False)


def test_an_installed_program_has_no_project(tmp_path: Path) -> None:
    write(tmp_path, "lib/site-packages/tool/x.py", "v/pyvenv.cfg", "v/bin/tool",
          "c/conda-meta/history", "c/bin/python")  # fmt: skip
    assert project_of(tmp_path / "lib/site-packages/tool/x.py", tmp_path) is None
    assert project_of(tmp_path / "v/bin/tool", tmp_path) is None
    assert project_of(tmp_path / "c/bin/python", tmp_path) is None
    for path in ("/usr/bin/env", "/opt/julia/bin/julia", "/usr/lib/python3.11/timeit.py"):
        assert project_of(Path(path), tmp_path) is None


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
