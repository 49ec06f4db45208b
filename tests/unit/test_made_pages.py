"""Pages that are made from the code are those that are committed; roff can read the man page."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from types import ModuleType

import pytest

from hpckit.cli import COMMANDS
from tests.conftest import Answer
from tests.pages import ROOT
from tests.patience import LONG_S


def made_by(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


commands, schemas = made_by("make_commands"), made_by("make_schemas")


@pytest.mark.parametrize(
    ("name", "text"),
    [("commands.md", commands.page), ("hpckit.1", commands.man), ("schemas.md", schemas.page)],
)
def test_the_page_is_as_it_is_made(name: str, text: Callable[[], str]) -> None:
    assert (ROOT / "docs" / name).read_text() == text(), "run: make pages"


def test_the_keys_of_files_say_numbers_and_truth_as_yaml_writes_them() -> None:
    page = schemas.page()
    assert "| `parameters.NAME.default` | text or number or true or false |" in page
    assert "| `advice.NAME` | `false`, `off` or keys |" in page


def test_both_pages_have_every_command_and_its_options() -> None:
    page, man = (
        (ROOT / "docs" / "commands.md").read_text(),
        (ROOT / "docs" / "hpckit.1").read_text(),
    )
    for name in COMMANDS:
        assert f"\n## hpckit {name}\n" in page
        assert f'\n.SS "hpckit {name}"\n'.replace("-", "\\-") in man
    for word in ("--errors", "--partition", "--fail-under", "--why"):
        assert f"`{word}" in page
        assert word.replace("-", "\\-") in man


@pytest.mark.parametrize("name", ["collections", "templates", "sites", "doctor"])
def test_what_each_command_of_a_group_does_fits_a_line_of_80(
    cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in cli(name, "--help").out.split("Commands:")[1]


def test_no_line_of_the_man_page_is_taken_for_a_request() -> None:
    lines = (ROOT / "docs" / "hpckit.1").read_text().splitlines()
    assert all(
        re.match(r"[^.']|\.(TH|SH|SS|TP|PP|B|BR|RI|nf|fi|\\\")\b|\.\\\"", line) for line in lines
    )
    assert all(line.isascii() and line for line in lines)


@pytest.mark.skipif(
    shutil.which("groff") is None, reason="NOT RUN: needs groff (tests/setup_system.sh)"
)
def test_roff_has_no_warning() -> None:
    argv = ["groff", "-man", "-Tutf8", "-ww", "-z", str(ROOT / "docs" / "hpckit.1")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=LONG_S)
    assert done.stderr == ""
