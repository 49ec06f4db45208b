"""What users get from a wheel is what lies in the tree."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from hpckit.collections import builtin_folder
from hpckit.version import DISTRIBUTION, __version__
from tests.patience import LONG_S

ROOT = builtin_folder()
SKIP = shutil.ignore_patterns(".*", "__pycache__", "runs", "tests", "benchmarks", "build", "dist")


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def build(tree: Path, kind: str, folder: Path) -> Path:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(argv, cwd=tree, check=True, capture_output=True, timeout=LONG_S)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the tree, caches and all."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, place / "tree", ignore=SKIP)
    (place / "tree" / "workloads" / "ddp" / "__pycache__").mkdir()
    (place / "tree" / "workloads" / "ddp" / "__pycache__" / "x.pyc").touch()
    return build(place / "tree", "wheel", place / "dist")


@pytest.fixture(scope="module")
def wheel(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(scope="module")
def programs(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with pip, without an index, where other packages are; return its bin."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    argv = [*pip, "--no-index", "--no-deps", str(packed)]
    subprocess.run(argv, check=True, capture_output=True, timeout=LONG_S)
    # Files named .pth in there are not read, so the editable hpckit stays unknown.
    [site] = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


@pytest.mark.long
@pytest.mark.parametrize("folder", ["templates", "workloads"])
def test_the_built_in_collection_is_in_the_wheel_whole(wheel: Path, folder: str) -> None:
    assert files(wheel / "hpckit" / "builtin" / folder) == files(ROOT / folder)


def test_the_package_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    code = {name for name in files(wheel / "hpckit") if not name.startswith("builtin/")}
    assert code == files(ROOT / "hpckit")
    assert not list(wheel.rglob("__pycache__"))
    name = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
    assert {path.name for path in wheel.iterdir()} == {
        "hpckit",
        f"{name}.dist-info",
        f"{name}.data",
    }
    assert files(wheel / f"{name}.data") == {"data/share/man/man1/hpckit.1"}


def run(wheel: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The wheel in front of the editable install, whose finder comes after sys.path.
    program = f"import sys; sys.path.insert(0, {str(wheel)!r}); from hpckit.cli import main; "
    return subprocess.run(
        [sys.executable, "-P", "-c", program + "main(sys.argv[1:])", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )


@pytest.mark.long
def test_the_wheel_works_from_its_own_files(wheel: Path, here: Path) -> None:
    script = run(wheel, "submit", "ddp", "--dry-run").stdout
    assert str(wheel / "hpckit" / "builtin" / "workloads" / "ddp" / "train.py") in script
    # The interpreter may lie in the tree (.venv); templates and workloads must not.
    assert not [part for part in ("templates", "workloads") if f"{ROOT}/{part}" in script]
    assert str(wheel / "hpckit" / "builtin") in run(wheel, "collections", "list").stdout


@pytest.mark.long
@pytest.mark.torch
def test_an_installed_wheel_trains(programs: Path, here: Path) -> None:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    environment.pop("PYTHONPATH", None)

    def hpckit(*words: str) -> str:
        argv = [str(programs / "hpckit"), *words]
        return subprocess.run(
            argv, cwd=here, env=environment, capture_output=True, text=True, check=True, timeout=300
        ).stdout

    assert hpckit("--version").split() == ["hpckit", __version__]
    assert f"{programs.parent}/lib" in hpckit("workloads", "show", "ddp")
    assert (programs.parent / "share" / "man" / "man1" / "hpckit.1").is_file()
    words = ("--executor", "local", "--gpus", "0", "--tasks-per-node", "2", "--set", "epochs=1")
    hpckit("submit", "ddp", *words, "--wait")
    assert "2 ranks on 1 host (cpu, gloo)" in hpckit("logs", "latest")


@pytest.mark.long
def test_the_source_distribution_makes_the_same_wheel(
    packed: Path, wheel: Path, tmp_path: Path
) -> None:
    source = build(packed.parents[1] / "tree", "sdist", tmp_path / "source")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    tree = tmp_path / source.name.removesuffix(".tar.gz")
    with zipfile.ZipFile(build(tree, "wheel", tmp_path / "dist")) as archive:
        archive.extractall(tmp_path / "again")
    assert files(tmp_path / "again") == files(wheel)
