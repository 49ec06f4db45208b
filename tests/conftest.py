"""Fixtures: a clean place to work in, no Slurm or a fake one, and the command line in-process."""

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hpckit.cli import main
from hpckit.paths import cache_folder

# What these compare for tests is said when it differs, as of a test itself.
pytest.register_assert_rewrite("tests.slurm.playing", "tests.slurm.users", "tests.stats.exact")

# What CI says of one commit must not change from run to run: there the examples are always the
# same. On a developer's own runs of pytest Hypothesis looks for new ones.
# How long an example takes is the machine's matter. `make fast` looks at a tenth of the examples.
settings.register_profile("new", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("fast", derandomize=True, deadline=None, max_examples=10)
FAST = bool(os.environ.get("HPCKIT_FAST"))
settings.load_profile("fast" if FAST else "ci" if os.environ.get("HPCKIT_NO_SKIPS") else "new")
if FAST:  # no test of `make fast` may need torch, whether this environment has it or not
    sys.modules.update(dict.fromkeys(("torch", "mpi4py", "deepwave")))


# Tests write programs and configurations that do not quote the folder they are in, and a socket's
# path has 107 bytes. What odd paths do to hpckit has tests of its own, wherever this is.
if not re.fullmatch(r"[A-Za-z0-9_./-]{1,40}", tempfile.gettempdir()):
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"


# hpckit loads no result from a folder that a group may write to, which a shell's mask of 002 makes.
os.umask(0o022)


def pytest_collection_finish() -> None:
    """Give torch one thread in this process: several that share cores with others mostly wait."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


FAKES = Path(__file__).parent / "fakes" / "slurm"
# The fake sbatch answers every call alike; `--version` is how hpckit asks whether Slurm is there.
_SBATCH = f"""#!/bin/bash
if [ "${{1-}}" = --version ]; then echo "slurm-wlm 22.05.8"; exit 0; fi
exec {FAKES}/sbatch "$@"
"""
# An sbatch without a cluster, as Debian's client without slurm.conf.
_NO_SLURM = (
    "#!/bin/sh\necho 'sbatch: fatal: Could not establish a configuration source' >&2\nexit 1\n"
)

# What a developer's shell or a parallel pytest (COLUMNS) has, and no test may see.
_OWN = ("HPCKIT_", "SLURM", "SBATCH", "SUBMITIT", "XDG_", "CUDA_VISIBLE", "COLUMNS")


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


def document(cli: Callable[..., Answer], *words: str) -> dict[str, Any]:
    """Return what `hpckit stats --json` says, which says nothing else."""
    answer = cli("stats", *words, "--json")
    assert (answer.status, answer.err) == (0, "")
    found: dict[str, Any] = json.loads(answer.out)
    return found


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where this process keeps what it made of templates and sites (`hpckit.kept`).

    Each test has a home of its own, and would make all of them anew. Programs that a test starts
    find nothing but their home's, as a new user's do.
    """
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def here(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with an empty home; nothing of the developer's own is seen."""
    for name in ("work", "home", "tmp", "bin"):
        (tmp_path / name).mkdir()
    for name in list(os.environ):
        if name.startswith(_OWN):
            monkeypatch.delenv(name)
    # A fake Slurm on a machine that stands still for some seconds is not a silent one.
    monkeypatch.setenv("HPCKIT_PATIENCE", "60")
    for slow in ("slurm.client.SLOW_S", "schedulers.slurm.sbatch._SILENT_S",
                 "submission.waiting._SHORTEST_S"):  # fmt: skip
        monkeypatch.setattr(f"hpckit.{slow}", 30.0)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("hpckit.kept.cache_folder", lambda: made)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    add_program(tmp_path / "bin" / "sbatch", _NO_SLURM)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def cache_at_home(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what is made of templates and sites in the test's own home; return that folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr("hpckit.kept.cache_folder", cache_folder)
    return here.parent / "home" / ".cache" / "hpckit" / "made"


@pytest.fixture
def fake_slurm(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the fake Slurm on PATH; return its folder of answers and calls."""
    answers = here.parent / "slurm"
    answers.mkdir()
    monkeypatch.setenv("FAKE_SLURM_DIR", str(answers))
    monkeypatch.setenv("PATH", f"{here.parent / 'bin'}:{FAKES}:{os.environ['PATH']}")
    add_program(here.parent / "bin" / "sbatch", _SBATCH)
    return answers


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run hpckit's command line in this process."""

    def call(*argv: str) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(argv))
        said = capsys.readouterr()
        return Answer(status=int(ended.value.code or 0), out=said.out, err=said.err)

    return call


def examples(count: int) -> int:
    """Return how many examples Hypothesis looks at where `count` is right: fewer in `make fast`."""
    return max(1, count // 10) if FAST else count


def needs(*packages: str) -> None:
    """Skip the test, or the whole module, where one of these is not installed; import none."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)


def add_program(path: Path, text: str) -> None:
    """Write a program for a PATH."""
    path.write_text(text)
    path.chmod(0o755)


def write_files(folder: Path, files: Mapping[str, str | bytes | None]) -> None:
    """Write files below a folder; None makes a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")


def processes_of(folder: Path) -> list[str]:
    """Return command lines of living processes that name a folder, or work or log in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        if entry.name == str(os.getpid()):
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            places = [
                words,
                *(str(link.readlink()) for link in (entry / "cwd", entry / "fd" / "1")),
            ]
        except OSError:
            continue  # gone, or a zombie
        if words and any(str(folder) in place for place in places):
            found.append(words)
    return found


HPCKIT = (sys.executable, "-m", "hpckit")
