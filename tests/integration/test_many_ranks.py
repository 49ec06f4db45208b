"""What a rank costs a shared file system does not grow with the number of ranks."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.environ import own_python
from hpckit.payload import bundle
from hpckit.run_folders.ranks import read_ranks
from tests.conftest import Answer
from tests.patience import LONG_S

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """#!/bin/sh
: > "$HPCKIT_RUN_DIR/alive/$RANK"
while [ ! -e "$HPCKIT_RUN_DIR/go" ]; do sleep 0.1; done
case $1 in ends) exit 0;; esac
[ "$RANK" = 0 ] && exit 3
exec sleep 600
"""
# A rank asks for some 25 things; what it finds made by another one, or makes, is some more.
MOST, CHANCE = 40, 6

Command = Callable[..., Answer]


def submitted(cli: Command, here: Path, ranks: int, *words: str) -> Path:
    """Submit a job of so many ranks to the stand-in; return its run's folder."""
    program = here / "program.sh"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    size = ("--nodes", str(ranks // 4), "--tasks-per-node", "4", "--gpus", "0")
    more = ("--sample-interval", "0", "--time", "5m", "--name", f"of{ranks}")
    done = cli("submit", "ddp", str(program), *size, *more, "--", *words)
    assert done.status == 0, done.err
    return next((here / "runs").glob(f"of{ranks}-*"))


def run(folder: Path, ranks: int, case: str) -> dict[str, Any]:
    """Run all ranks of a job; return what each asked of its folder, and ended with."""
    for name in ("alive", "events"):
        (folder / name).mkdir()
    job = {"SLURM_JOB_ID": "1001", "SLURM_JOB_NUM_NODES": str(ranks // 4), "SLURM_NNODES": "1"}
    env = {**os.environ, **job, "SUBMITIT_EXECUTOR": "slurm", "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "tests.integration.many_ranks", str(folder / "submitit")]
    done = subprocess.run(
        [*argv, str(ranks), case], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.parametrize("case", ["ends", "fails"])
def test_a_rank_asks_as_much_among_16_as_among_4(
    case: str, cli: Command, here: Path, fake_slurm: Path
) -> None:
    (fake_slurm / "sbatch.out").write_text("Submitted batch job 1001\n")
    most = {}
    for ranks in (4, 16):
        folder = submitted(cli, here, ranks, case)
        found = run(folder, ranks, case)
        most[ranks] = max(found["counts"])
        records = read_ranks(folder)
        assert [row.rank for row in records] == list(range(ranks))
        assert found["codes"] == [0 if case == "ends" else 3] * ranks
        assert min(found["counts"]) > 10, "nothing was counted"
    assert most[4] <= MOST
    assert most[16] <= most[4] + CHANCE


def import_with(folder: Path, names: str) -> list[str]:
    """Import modules where a folder may have a bundle; return which of hpckit's came from it."""
    code = (
        "import sys; from hpckit.payload.bundle import use_bundle; use_bundle(sys.argv[1])\n"
        f"import {names}\n"
        "print(*sorted(name for name, it in sys.modules.items() if name.startswith('hpckit')"
        " and type(it.__spec__.loader).__name__ == '_Bundle'))"
    )
    argv = [*own_python(), "-c", code, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.split()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundle, as the job script does; return its folder."""
    folder = tmp_path_factory.mktemp("submitit")
    folder.chmod(0o700)
    argv = [*own_python(), "-m", "hpckit.payload.rendezvous", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/")
    assert re.fullmatch(r"127\.0\.0\.1 \d+\n", done.stdout)
    assert not done.stderr
    return folder


def test_modules_come_from_the_bundle(written: Path) -> None:
    found = import_with(written, "hpckit.submission.in_job, hpckit.payload.rank")
    assert {"hpckit.submission.in_job", "hpckit.payload.rank", "hpckit.files"} <= set(found)


def test_who_may_read_a_bundles_folder_may_not_bring_one(written: Path) -> None:
    written.chmod(0o755)
    try:
        assert import_with(written, "hpckit.payload.rank") == []
    finally:
        written.chmod(0o700)


def test_no_bundle_no_matter(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert import_with(tmp_path, "hpckit.payload.rank") == []
    (tmp_path / bundle.NAME).write_bytes(b"\0" * 7)
    assert import_with(tmp_path, "hpckit.payload.rank") == []


def test_the_bundle_of_another_python_is_not_used(written: Path, tmp_path: Path) -> None:
    content = (written / bundle.NAME).read_bytes()
    version = sys.version.encode()
    tmp_path.chmod(0o700)
    (tmp_path / bundle.NAME).write_bytes(content.replace(version, version[::-1], 1))
    assert import_with(tmp_path, "hpckit.payload.rank") == []


def test_a_bundle_that_ends_early_is_read_from_the_modules_files(
    written: Path, tmp_path: Path
) -> None:
    content = (written / bundle.NAME).read_bytes()
    tmp_path.chmod(0o700)
    (tmp_path / bundle.NAME).write_bytes(content[: len(content) // 2])
    assert "hpckit.payload.rank" in import_with(tmp_path, "hpckit.payload.rank")


def test_a_supervisor_opens_hardly_any_module_of_ours(
    cli: Command, here: Path, fake_slurm: Path
) -> None:
    """The job script of 32 ranks runs; a stand-in for srun starts one supervisor."""
    (fake_slurm / "sbatch.out").write_text("Submitted batch job 1001\n")
    folder = submitted(cli, here, 32, "ends")
    for name in ("alive", "go"):
        (folder / name).mkdir()
    opened = here / "opened"
    srun = here.parent / "bin" / "srun"
    srun.write_text(f"#!{sys.executable}\n{SRUN.format(opened=str(opened))}")
    srun.chmod(0o755)
    job = {"SLURM_JOB_ID": "1001", "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "8"}
    place = {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NTASKS": "32", "SLURM_NODEID": "0"}
    done = subprocess.run(
        ["bash", str(folder / "job.sh")], env={**os.environ, **job, **place},
        capture_output=True, text=True, check=False, timeout=LONG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = opened.read_text().split()
    ours = {Path(name).name.partition(".")[0] for name in names if "/hpckit/" in name}
    assert ours <= {"__init__", "version", "in_job", "bundle"}, ours
    assert not [name for name in names if "/submitit/" in name and name.endswith(".pyc")]
    assert [row.exit_code for row in read_ranks(folder)] == [0]


SRUN = """
import os, runpy, sys
at = next(n for n, word in enumerate(sys.argv) if word.startswith("/"))
if "hook" not in os.environ:  # with the options that hpckit gives its own Python
    end = sys.argv.index("-m")
    os.environ["hook"] = "1"
    os.execv(sys.argv[at], [*sys.argv[at:end], sys.argv[0], *sys.argv[at:]])
del os.environ["hook"]
sys.argv = sys.argv[sys.argv.index("-m") + 1 :]
log = os.open({opened!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
sys.addaudithook(
    lambda event, words: os.write(log, (words[0] + "\\n").encode())
    if event == "open" and str(words[0]).endswith(".pyc") else None
)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
