"""What `make test-gpu` does before its first check: tests/gpu/prepare.py."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.pages import ROOT
from tests.raisers import throw


def prepare() -> ModuleType:
    path = ROOT / "tests/gpu/prepare.py"
    spec = importlib.util.spec_from_file_location("prepare", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_make_says_one_line_and_does_not_succeed(tmp_path: Path) -> None:
    argv = ["make", "-s", "test-gpu", f"PYTHON={sys.executable}", f"GPU_OUT={tmp_path}"]
    environ = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "MAKEFLAGS")}
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, env=environ)
    lines = [row for row in done.stderr.splitlines() if not row.startswith("make")]
    assert done.returncode == 2
    assert len(lines) == 1
    assert "no NVIDIA driver here" in lines[0]
    assert lines[0].endswith("Nothing was tested.")
    assert list(tmp_path.iterdir()) == []


FAKE_TORCH = """
__version__ = "9.9"
class version: cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: {sees})
def ones(count, device):
    raise RuntimeError("CUDA error: no kernel image is available\\nCompile with TORCH_USE_CUDA_DSA")
"""


@pytest.mark.parametrize(
    ("sees", "why"),
    [(True, "cannot compute on this GPU: CUDA error: no kernel image is available. Is it too new"),
     (False, "for CUDA 13.0, sees no GPU: is the driver too old")],
)  # fmt: skip
def test_a_torch_that_cannot_use_the_gpu_is_told_before_any_check(
    tmp_path, monkeypatch, sees, why
) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH.format(sees=sees))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = prepare()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: True)  # fast tests hide torch
    with pytest.raises(module.CannotError, match=re.escape(why)) as caught:
        module.torch_here()
    assert str(caught.value).endswith("make test-gpu PYTHON=/path/to/python3.")


def test_an_environment_over_a_virtual_environment_sees_its_packages(tmp_path: Path) -> None:
    module = prepare()
    python = module.make_venv(tmp_path / "over")
    code = "import hpckit, jinja2, sys; print(hpckit.__file__, jinja2.__file__, sys.prefix)"
    argv = [python, "-E", "-P", "-c", code]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=True)
    hpckit_file, jinja, prefix = done.stdout.split()
    assert Path(hpckit_file).parents[1] == ROOT
    assert Path(jinja).parents[1] in map(Path, module.places())
    assert Path(prefix) == tmp_path / "over"


def test_what_is_met_includes_what_that_needs() -> None:
    module = prepare()
    assert module.met("pytest>=8")
    assert not module.met("pytest>=99")
    assert not module.met("no-such-package-of-hpckit")


@pytest.mark.long
def test_without_packages_and_network_it_says_how_to_bring_them(tmp_path, monkeypatch) -> None:
    module = prepare()
    monkeypatch.setattr(module, "VENV", tmp_path / "over")
    monkeypatch.setattr(module, "WHEELS", tmp_path / "wheels")
    monkeypatch.setattr(module, "wanted", lambda: ["no-such-package-of-hpckit>=1"])
    monkeypatch.setattr(module, "OPTIONAL", ())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    python = module.make_venv(tmp_path / "over")
    with pytest.raises(module.CannotError, match="make gpu-wheels PY=3"):
        module.fill(python)


def test_packages_that_cannot_be_installed_are_told_by_pips_own_word(tmp_path, monkeypatch) -> None:
    module = prepare()
    monkeypatch.setattr(module, "WHEELS", tmp_path / "wheels")
    why = "No matching distribution found for no-such"
    fails = [sys.executable, "-c", f"import sys; sys.exit({why!r})"]
    assert module.install(fails, ["no-such"]) == why
    assert module.install(fails, []) == ""


def test_a_sites_settings_do_not_say_where_pip_installs(monkeypatch) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", "/somewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    found = prepare().pip_environment()
    assert (found["PIP_USER"], found.get("PIP_TARGET")) == ("0", None)
    assert found["PIP_INDEX_URL"] == "https://mirror.example/simple"


def run_prepare(monkeypatch, capsys, **replaced) -> tuple[int, str]:
    module = prepare()
    for name, value in replaced.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(sys, "argv", ["prepare.py"])
    return module.main(), capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [(PermissionError(30, "Read-only file system"), 2, "Copy the clone to a folder of your own"),
     (OSError(28, "No space left on device"), 2, "No space left on device"),
     (KeyboardInterrupt(), 130, "interrupted. Nothing was tested.")],
)  # fmt: skip
def test_what_stops_the_preparation_is_a_sentence(
    monkeypatch, capsys, error, status, words
) -> None:
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    found = {"gpu": lambda: "1", "torch_here": lambda: "9", "make_venv": throw(error)}
    ended, said = run_prepare(monkeypatch, capsys, **found)
    assert ended == status
    assert words in said
    assert said.count("\n") == 1


def test_one_task_of_several_does_not_begin(monkeypatch, capsys) -> None:
    monkeypatch.setenv("SLURM_PROCID", "2")
    status, said = run_prepare(monkeypatch, capsys)
    assert status == 2
    assert "ask for one task, srun --ntasks 1" in said


def test_a_torch_that_dies_or_hangs_is_a_sentence(monkeypatch) -> None:
    module = prepare()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: True)
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(module, "_ASK_TORCH", dies)
    with pytest.raises(module.CannotError, match="cannot be imported: it was ended by signal 4"):
        module.torch_here()
    monkeypatch.setattr(module, "_ASK_TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(module, "_TORCH_S", 0.2)
    with pytest.raises(module.CannotError, match="or the driver hangs"):
        module.torch_here()


def test_an_old_python_reads_the_first_file() -> None:
    """Whoever comes without make gets a sentence: names that are new are used after it."""
    text = (ROOT / "tests/gpu/prepare.py").read_text()
    ast.parse(text, feature_version=(3, 8))
    head = text.partition("\ndef ")[0]
    assert "from __future__ import annotations" in head
    assert "import tomllib" not in head
