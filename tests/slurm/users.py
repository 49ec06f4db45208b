"""Real users of this machine and of the box, with an installation of hpckit that all may read."""

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hpckit.version import DISTRIBUTION
from tests.patience import LONG_S
from tests.slurm.conftest import Answer, Desk
from tests.slurmbox.fixture import Slurm

ROOT = Path(__file__).parents[2]
GROUP = "hpckit-lab"
# Users are the machine's, not the box's: the tests of another checkout may run beside these.
_LOCK = Path("/run/hpckit-users.lock")


@dataclass(frozen=True)
class Person(Desk):
    """A user of their own, who runs everything with `runuser`."""

    name: str = ""
    python: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *argv: str | Path, check: bool = True) -> str:
        """Run any program as this user; give what it printed."""
        done = self._run(argv, self.work, {}, LONG_S)
        assert done.returncode == 0 or not check, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def call(self, *argv, env=None, cwd=None, expect=0, timeout_s=LONG_S) -> Answer:
        """Run hpckit as this user; `expect` is its exit status, None any."""
        words = (self.python, "-m", "hpckit", *argv)
        done = self._run(words, cwd or self.work, env or {}, timeout_s)
        said = f"{self.name}: hpckit {argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert expect is None or done.returncode == expect, said
        return Answer(done.returncode, done.stdout, done.stderr)

    def _run(self, argv, cwd, env, timeout_s) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["runuser", "-u", self.name, "--", *argv],
            env={**self.env, **env},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            umask=0o022,
        )


@contextmanager
def people(slurm: Slurm, *names: str) -> Iterator[list[Person]]:
    """Make users in one group, and remove them with all they have."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _people(slurm, names) as made:
            yield made


@contextmanager
def _people(slurm: Slurm, names: tuple[str, ...]) -> Iterator[list[Person]]:
    base = Path(tempfile.mkdtemp(prefix="hpckit-users-", dir="/tmp"))
    base.chmod(0o755)
    _remove(slurm, names)  # of a test that was killed
    try:
        _system("groupadd", GROUP)
        for name in names:
            # runuser takes the home from there.
            home = ("--no-create-home", "--home-dir", str(base / "home" / name))
            _system("useradd", *home, "--groups", GROUP, "--shell", "/bin/sh", name)
            slurm.run("sacctmgr", "-i", "add", "user", name, "Account=lab", "DefaultAccount=lab")
        _install(base / "installed")
        python = _python(names[0])
        made = [_person(slurm, base, name, python) for name in names]
        yield made
        jobs = [job for person in made for job in person.submitted]
        if jobs:
            slurm.run("scancel", *jobs, check=False)
    finally:
        _remove(slurm, names)
        shutil.rmtree(base)


def _remove(slurm: Slurm, names: tuple[str, ...]) -> None:
    for name in names:
        slurm.run("scancel", "--user", name, check=False)
        slurm.run("sacctmgr", "-i", "delete", "user", name, check=False)
        subprocess.run(["userdel", name], capture_output=True, check=False)
    subprocess.run(["groupdel", GROUP], capture_output=True, check=False)


def _system(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def _install(folder: Path) -> None:
    """Copy hpckit and what it needs: the checkout and its environment may be closed to others."""
    for part in ("hpckit", "templates", "workloads"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for name in _needed(DISTRIBUTION, set()):
        for file in importlib.metadata.files(name) or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _needed(name: str, seen: set[str]) -> set[str]:
    for line in importlib.metadata.requires(name) or []:
        word = re.match(r"[\w.-]+", line)
        if word is None or "extra ==" in line or word[0] in seen:
            continue
        try:
            importlib.metadata.distribution(word[0])
        except importlib.metadata.PackageNotFoundError:
            continue  # for other systems or Pythons
        seen.add(word[0])
        _needed(word[0], seen)
    return seen


def _python(user: str) -> str:
    """Return a Python that others than root may start: this one, or the system's."""
    for python in (str(Path(sys.executable).resolve()), "/usr/bin/python3"):
        asks = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        done = subprocess.run(["runuser", "-u", user, "--", *asks], cwd="/", check=False,
                              capture_output=True)  # fmt: skip
        if done.returncode == 0:
            return python
    raise AssertionError(
        f"{sys.executable} may be started by root only, and /usr/bin/python3 is no Python 3.11: "
        "two users need one they may start."
    )


def _person(slurm: Slurm, base: Path, name: str, python: str) -> Person:
    home = base / "home" / name
    for folder in (home, home / "work"):
        folder.mkdir(parents=True)
        shutil.chown(folder, name, name)
    home.chmod(0o755)
    env = slurm.env | {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "USER": name,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(base / "installed"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HPCKIT_RUNS": str(home / "runs"),
        "OMP_NUM_THREADS": "1",
    }
    return Person(slurm=slurm, home=home, work=home / "work", env=env, name=name, python=python)
