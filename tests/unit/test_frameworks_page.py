"""docs/frameworks.md: each script is python, and each line plans eight ranks on two nodes.

tests/clients runs those whose frameworks are there, benchmarks/foreign.py all of them.
"""

import ast
import importlib.util
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.page import PAGE, Snippet, read_page
from tests.conftest import Answer
from tests.pages import ROOT

_SNIPPETS = read_page()


def test_the_table_has_the_rows_of_the_program_that_fills_it() -> None:
    path = ROOT / "benchmarks" / "foreign.py"
    spec = importlib.util.spec_from_file_location("foreign", path)
    assert spec is not None
    assert spec.loader is not None
    foreign = sys.modules["foreign"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(foreign)
    table = (ROOT / PAGE).read_text().partition("## What was run")[2].split("|---|", 1)[1]
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    shown = [(line[0].removeprefix("| "), line[1]) for line in lines]
    assert shown == [(row.name, row.set) for row in foreign.rows()]


def test_the_page_has_every_framework() -> None:
    headings = [line for line in (ROOT / PAGE).read_text().splitlines() if line.startswith("## ")]
    for word in (
        "nanoGPT",
        "Lightning",
        "Trainer",
        "accelerate",
        "DeepSpeed",
        "submitit",
        "mpi4py",
        "TensorFlow",
        "JAX",
        "Horovod",
    ):
        assert any(word in heading for heading in headings), word
    assert len(_SNIPPETS) == 7


@pytest.mark.parametrize("snippet", _SNIPPETS.values(), ids=_SNIPPETS)
def test_each_script_and_its_line(
    snippet: Snippet, cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ast.parse(snippet.text)
    (here / snippet.name).write_text(snippet.text)
    venv = here.parent / "home" / "venvs" / "torch" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to("/usr/bin/env")
    words = shlex.split(snippet.submit.replace("~", str(here.parent / "home")))
    answer = cli(*words[1:], "--dry-run")
    assert answer.status == 0, answer.err
    assert "--nodes=2 --ntasks=8 --ntasks-per-node=4" in answer.out
