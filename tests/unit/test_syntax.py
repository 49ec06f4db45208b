"""A Python program that Python cannot read is seen before its job queues."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.job.syntax import syntax_error
from tests.conftest import Answer, add_program

BAD = "import os\n\n\ndef f(:\n    pass\n"
DRY = ("--executor", "slurm", "--dry-run")


def add_files(here: Path) -> None:
    (here / "pkg").mkdir()
    for name in ("bad.py", "pkg/mod.py", "pkg/__main__.py"):
        (here / name).write_text(BAD)
    (here / "started").write_text(f"#!/usr/bin/env python3\n{BAD}")


@pytest.mark.parametrize(
    ("argv", "after", "at"),
    [
        (("ddp", "bad.py"), (), "bad.py:4"),
        (("serial", "started"), (), "started:5"),
        (("ddp", "-m", "pkg.mod"), (), "pkg/mod.py:4"),
        (("ddp", "-m", "pkg"), (), "pkg/__main__.py:4"),
        (("serial", "python"), ("bad.py", "--lr", "1"), "bad.py:4"),
    ],
)
def test_it_is_refused_with_file_line_and_pythons_words(
    cli: Callable[..., Answer], here: Path, argv: tuple[str, ...], after: tuple[str, ...], at: str
) -> None:
    add_files(here)
    more = ("--", *after) if after else ()
    said = cli("submit", *argv, *DRY, *more)
    assert (said.status, said.out) == (2, "")
    assert f"Python cannot read the program. {here}/{at}: SyntaxError: invalid syntax." in said.err
    assert "(--skip-check program submits it anyway.)" in said.err
    skipped = cli("submit", *argv, *DRY, "--skip-check", "program", *more)
    assert skipped.status == 0
    assert skipped.out.startswith("#!")


def test_a_workload_of_the_project_is_read_too(cli: Callable[..., Answer], here: Path) -> None:
    folder = here / "workloads" / "mine"
    folder.mkdir(parents=True)
    (folder / "workload.yaml").write_text(
        "description: mine\nstrategy: serial\nscript: bad.py\n",
    )
    (folder / "bad.py").write_text(BAD)
    said = cli("submit", "mine", *DRY)
    assert said.status == 2
    assert f"{folder}/bad.py:4: SyntaxError" in said.err


def test_of_a_python_that_may_know_more_it_is_a_note(
    cli: Callable[..., Answer], here: Path
) -> None:
    add_files(here)
    for name in ("other", "same"):
        (here / name / "bin").mkdir(parents=True)
    add_program(here / "other" / "bin" / "python", "#!/bin/sh\n")
    (here / "same" / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    for word in ("conda:lab", "apptainer:/x/a.sif", f"{here}/other", f"{here}/other/bin/python"):
        said = cli("submit", "ddp", "bad.py", *DRY, "--env", word)
        assert said.status == 0
        (note,) = [row for row in said.err.splitlines() if "SyntaxError" in row]
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        assert note.startswith(
            f"note: {here}/bad.py:4: SyntaxError: invalid syntax. So says {version}"
        )
        assert word.rpartition(":")[2] in note
    assert cli("submit", "ddp", "bad.py", *DRY, "--env", f"{here}/same").status == 2


@pytest.mark.parametrize(
    "text",
    [
        b"print('x')\n",
        b"",
        b"\xef\xbb\xbfprint(1)\n",
        "# coding: latin-1\nname = 'é'\n".encode("latin-1"),
        b"if 1 is 1: print('\\d')\n",  # warnings, which are errors in these tests
        b"PK\x03\x04\0\0",
        b"#" * (2 << 20) + b"\ndef f(:\n",  # too long to ask
        b"raise SystemExit('it ran')\n",
    ],
)
def test_what_python_reads_or_nobody_asks_has_no_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.py").write_bytes(text)
    assert syntax_error(tmp_path / "a.py") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"x = 1\n\tpass\n", ":2: IndentationError: unexpected indent"),
        (b"print(1)\nreturn 3\n", ":2: SyntaxError: 'return' outside function"),
        (b"name = '\xe9'\n", "codec can't decode byte"),
        (b"# coding: no-such\n", "SyntaxError: unknown encoding"),
    ],
)
def test_all_that_python_refuses_is_told(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / "a.py").write_bytes(text)
    assert says in (syntax_error(tmp_path / "a.py") or "")


def test_an_encoding_that_the_jobs_python_may_know_is_a_note(
    cli: Callable[..., Answer], here: Path
) -> None:
    (here / "a.py").write_text("# coding: no-such\n")
    said = cli("submit", "ddp", "a.py", *DRY)
    assert said.status == 0
    assert "unknown encoding: no-such. So says Python" in said.err


def test_hpckits_own_workloads_are_not_read_again(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr("hpckit.job.syntax.syntax_error", asked.append)
    assert cli("submit", "ddp", *DRY).status == 0
    assert asked == []
    (here / "a.py").write_text("")
    assert cli("submit", "ddp", "a.py", *DRY).status == 0
    assert asked == [here / "a.py"]
