"""What users get from a wheel is what lies in the tree."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hpckit.collections import builtin_folder

ROOT = builtin_folder()
SKIP = shutil.ignore_patterns(".*", "__pycache__", "runs", "tests", "benchmarks", "build", "dist")


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the tree, caches and all; return it unpacked."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, place / "tree", ignore=SKIP)
    (place / "tree" / "workloads" / "ddp" / "__pycache__").mkdir()
    (place / "tree" / "workloads" / "ddp" / "__pycache__" / "x.pyc").touch()
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    subprocess.run(argv, cwd=place / "tree", check=True, capture_output=True, timeout=120)
    [built] = (place / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(place / "site")
    return place / "site"


@pytest.mark.parametrize("folder", ["templates", "workloads"])
def test_the_built_in_collection_is_in_the_wheel_whole(wheel: Path, folder: str) -> None:
    assert files(wheel / "hpckit" / "builtin" / folder) == files(ROOT / folder)


def test_the_package_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    code = {name for name in files(wheel / "hpckit") if not name.startswith("builtin/")}
    assert code == files(ROOT / "hpckit")
    assert not list(wheel.rglob("__pycache__"))
    assert {path.name.partition("-")[0] for path in wheel.iterdir()} == {"hpckit"}


def run(wheel: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The wheel in front of the editable install, whose finder comes after sys.path.
    program = f"import sys; sys.path.insert(0, {str(wheel)!r}); from hpckit.cli import main; "
    return subprocess.run(
        [sys.executable, "-P", "-c", program + "main(sys.argv[1:])", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_the_wheel_works_from_its_own_files(wheel: Path, here: Path) -> None:
    script = run(wheel, "submit", "ddp", "--dry-run").stdout
    assert str(wheel / "hpckit" / "builtin" / "workloads" / "ddp" / "train.py") in script
    # The interpreter may lie in the tree (.venv); templates and workloads must not.
    assert not [part for part in ("templates", "workloads") if f"{ROOT}/{part}" in script]
    assert str(wheel / "hpckit" / "builtin") in run(wheel, "collections", "list").stdout
