"""A made-up lab's collection, as a folder or in git, for tests of `hpckit collections`."""

import os
import subprocess
from pathlib import Path

from tests.conftest import write_files

MANIFEST = "name: lab\ndescription: What the lab shares\ncontact: alice\nurl: https://lab.example\n"
TEMPLATE = """\
{% extends "slurm/base.sh.j2" %}
{% block setup %}
{{ super() -}}
export LAB=VERSION
{% endblock %}
"""
FILES = {
    "hpckit.yaml": MANIFEST,
    "templates/slurm/base.sh.j2": TEMPLATE.replace("VERSION", "one"),
    "templates/sites/lab-box.yaml": "description: the lab's cluster\n",
    "workloads/lab-hello/workload.yaml": "description: hello\nstrategy: ddp\nscript: hello.py\n",
    "workloads/lab-hello/hello.py": "print('hello')\n",
}
_GIT = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *words], env={**os.environ, **_GIT}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout.strip()


def make_lab(folder: Path, **files: str) -> Path:
    write_files(folder, {**FILES, **files})
    return folder


def make_repository(folder: Path) -> Path:
    """Make a repository with one commit, tagged v1, on main."""
    make_lab(folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    git(folder, "tag", "v1")
    return folder


def commit(folder: Path, files: dict[str, str] | None = None) -> str:
    write_files(folder, files or {})
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=changed")
    return git(folder, "rev-parse", "HEAD")


def version(word: str) -> dict[str, str]:
    return {"templates/slurm/base.sh.j2": TEMPLATE.replace("VERSION", word)}
