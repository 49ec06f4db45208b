"""Checkouts in many states, made with git itself."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

_SETTINGS = (
    *("user.email=a@b", "user.name=a", "init.defaultBranch=main", "commit.gpgSign=false"),
    "protocol.file.allow=always",
)


def git(folder: Path, *words: str) -> str:
    """Run git without anybody's configuration; a status that is not 0 is for the caller to see.

    New repositories have SHA-1, as they had before git 3, or what $GIT_DEFAULT_HASH says.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    environ["GIT_DEFAULT_HASH"] = os.environ.get("GIT_DEFAULT_HASH", "sha1")
    settings = [word for pair in _SETTINGS for word in ("-c", pair)]
    argv = ["git", *settings, "-C", str(folder), *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False).stdout


def make_checkout(root: Path) -> Path:
    """Make a checkout of two commits: scripts, a folder in a folder, a link, a program."""
    root.mkdir(parents=True)
    git(root, "init", "--quiet")
    (root / "train.py").write_text("print(1)\n")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "c.txt").write_text("c\n")
    (root / "a.b").write_text("sorts between a and a/\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("./a/b/c.txt")
    (root / "naïve\n日本").write_text("odd\n")
    commit(root)
    (root / "a" / "two.txt").write_text("2\n")
    commit(root)
    return root


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=x")


def edit(root: Path, name: str = "train.py", text: str = "print(2)\n") -> None:
    (root / name).write_text(text)


def _worktree(root: Path) -> Path:
    git(root, "worktree", "add", "--quiet", str(root.parent / "second"), "-b", "other")
    return root.parent / "second"


def _worktree_edited(root: Path) -> Path:
    second = _worktree(root)
    edit(second)
    return second


def _conflict(root: Path) -> None:
    git(root, "checkout", "--quiet", "-b", "other", "HEAD~1")
    edit(root, text="other\n")
    commit(root)
    git(root, "checkout", "--quiet", "main")
    edit(root, text="mine\n")
    commit(root)
    git(root, "merge", "other")


def _many_commits(root: Path) -> None:
    """Fill a pack in which commits are differences from others."""
    words = " ".join(f"word{n}" for n in range(200))
    for n in range(12):
        edit(root, text=f"{n}\n")
        git(root, "add", "train.py")
        git(root, "commit", "--quiet", f"--message={words} {n}")
    git(root, "repack", "-adfq", "--depth=50", "--window=50")
    git(root, "checkout", "--quiet", "HEAD~5")


def _packed(root: Path) -> None:
    git(root, "gc", "--quiet")
    (root / ".git" / "refs" / "heads" / "main").mkdir(exist_ok=True)


def _sparse(root: Path) -> None:
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "elsewhere")


def _sparse_edited(root: Path) -> None:
    _sparse(root)
    edit(root)


def _submodule(root: Path) -> None:
    inner = make_checkout(root.parent / "inner")
    git(root, "submodule", "--quiet", "add", str(inner), "sub")
    commit(root)


def _submodule_edited(root: Path) -> None:
    _submodule(root)
    edit(root / "sub")


def _submodule_moved(root: Path) -> None:
    _submodule(root)
    edit(root / "sub")
    commit(root / "sub")


def _submodule_itself(root: Path) -> Path:
    _submodule(root)
    return root / "sub"


def _submodule_not_fetched(root: Path) -> Path:
    _submodule(root)
    git(root, "submodule", "--quiet", "deinit", "--force", "sub")
    return root


def _borrowed(root: Path) -> Path:
    git(root.parent, "clone", "--quiet", "--shared", str(root), "second")
    return root.parent / "second"


def _shallow(root: Path) -> Path:
    git(root.parent, "clone", "--quiet", "--depth=1", f"file://{root}", "second")
    return root.parent / "second"


def _copied(root: Path) -> Path:
    """Copy everything, so that no inode and time is as in the index."""
    subprocess.run(["cp", "-r", str(root), str(root.parent / "copy")], check=True)
    return root.parent / "copy"


def _linked_folder(root: Path) -> None:
    (root / "a").rename(root / "elsewhere")
    (root / "a").symlink_to("elsewhere")


def _empty(root: Path) -> Path:
    (root.parent / "new").mkdir()
    git(root.parent / "new", "init", "--quiet")
    return root.parent / "new"


def _empty_with_staged(root: Path) -> Path:
    new = _empty(root)
    edit(new)
    git(new, "add", "train.py")
    return new


def _line_ends(root: Path) -> None:
    edit(root, ".gitattributes", "* text=auto\n")
    commit(root)
    edit(root)


def _by(*commands: str) -> Callable[[Path], None]:
    """Do one thing after another: `edit FILE N`, or git's own commands."""

    def made(root: Path) -> None:
        for words in map(str.split, commands):
            if words[0] == "edit":
                edit(root, words[1], f"print({words[2]})\n")
            else:
                git(root, *words)

    return made


def _mode(root: Path) -> None:
    (root / "train.py").chmod(0o755)


def _mode_not_looked_at(root: Path) -> None:
    git(root, "config", "core.fileMode", "false")
    _mode(root)


def _link_elsewhere(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("a/b/c.txt")


def _link_to_file(root: Path) -> None:
    (root / "link").unlink()
    edit(root, "link", "./a/b/c.txt")


def _file_to_pipe(root: Path) -> None:
    (root / "train.py").unlink()
    os.mkfifo(root / "train.py")


# Name -> what makes of a clean checkout one in this state; it may return another folder to look at.
STATES: dict[str, Callable[[Path], Path | None]] = {
    "clean": _by(),
    "edited": _by("edit train.py 2"),
    "edited to another size": _by("edit train.py 22"),
    "touched": _by("edit train.py 1"),
    "staged": _by("edit train.py 2", "add ."),
    "staged and taken back": _by("edit train.py 2", "add .", "edit train.py 1"),
    "staged and unstaged": _by("edit train.py 2", "add .", "edit train.py 1", "add ."),
    "new and staged": _by("edit new.py 1", "add ."),
    "new and intended": _by("edit new.py 1", "add -N ."),
    "untracked": _by("edit new.py 1"),
    "split": _by("update-index --split-index"),
    "split and edited": _by("update-index --split-index", "edit train.py 2"),
    "split and staged": _by("update-index --split-index", "edit train.py 2", "add ."),
    "deleted": lambda root: (root / "train.py").unlink(),
    "deleted and staged": _by("rm --quiet train.py"),
    "only out of the index": _by("rm --quiet --cached train.py"),
    "renamed": _by("mv train.py new.py"),
    "program now": _mode,
    "program, not looked at": _mode_not_looked_at,
    "link elsewhere": _link_elsewhere,
    "link became a file": _link_to_file,
    "file became a pipe": _file_to_pipe,
    "folder became a link": _linked_folder,
    "index 4": _by("update-index --index-version=4"),
    "index 4, edited": _by("update-index --index-version=4", "edit train.py 2"),
    "detached": _by("checkout --quiet --detach HEAD~1"),
    "branch with a slash": _by("checkout --quiet -b some/thing"),
    "packed": _packed,
    "differences in a pack": _many_commits,
    "second working tree": _worktree,
    "second working tree, edited": _worktree_edited,
    "conflict": _conflict,
    "empty": _empty,
    "empty, staged": _empty_with_staged,
    "sparse": _sparse,
    "sparse, edited": _sparse_edited,
    "submodule": _submodule,
    "submodule, edited": _submodule_edited,
    "submodule, moved": _submodule_moved,
    "submodule itself": _submodule_itself,
    "submodule not fetched": _submodule_not_fetched,
    "borrowed objects": _borrowed,
    "shallow": _shallow,
    "copied": _copied,
    "line ends, edited": _line_ends,
    "a commit undone": _by("reset --quiet --soft HEAD~1"),
    "fetched and reset": _by("reset --quiet --hard HEAD~1"),
    "orphan": _by("checkout --quiet --orphan fresh"),
    "untracked cache": _by("update-index --untracked-cache", "status"),
}  # fmt: skip
