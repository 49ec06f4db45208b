"""What `--compile` needs beside torch is missed before the first batch, and by its name."""

from pathlib import Path

import pytest

from hpckit.parallel import compiling
from hpckit.parallel.errors import SetupError

pytestmark = pytest.mark.torch


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Play a machine with compilers and Triton; return where its Python's headers would be."""
    monkeypatch.setattr(compiling.shutil, "which", lambda word: f"/usr/bin/{word}")
    monkeypatch.setattr(compiling, "find_spec", lambda _: object())
    # As Debian's Python says: the first is of a scheme that nothing is installed to.
    monkeypatch.setattr(compiling.sysconfig, "get_path", lambda _: "/usr/local/include/none")
    headers = tmp_path / "python3.12"
    headers.mkdir()
    monkeypatch.setattr(compiling.sysconfig, "get_config_var", lambda _: str(headers))
    for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    return headers


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_with_headers_nothing_is_missing(machine: Path, kind: str) -> None:
    (machine / "Python.h").touch()
    compiling.check_programs({kind})


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_without_headers_the_line_says_what_to_install(machine: Path, kind: str) -> None:
    with pytest.raises(SetupError) as caught:
        compiling.check_programs({kind})
    assert str(caught.value) == (
        "--compile needs Python's headers, and /usr/local/include/none has no Python.h: install "
        "them (python3-dev, python3-devel), name their folder in $CPATH, or leave --compile out"
    )


def test_headers_may_lie_where_the_compiler_is_told(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "Python.h").touch()
    monkeypatch.setenv("CPATH", f"/elsewhere:{tmp_path / 'own'}")
    compiling.check_programs({"cuda"})


def test_triton_takes_gcc_or_clang_and_no_other(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "Python.h").touch()
    monkeypatch.setattr(
        compiling.shutil, "which", lambda word: f"/usr/bin/{word}" if word == "cc" else None
    )
    with pytest.raises(SetupError, match="no gcc or clang is here"):
        compiling.check_programs({"cuda"})
    monkeypatch.setenv("CC", "cc -m64")
    compiling.check_programs({"cuda"})
