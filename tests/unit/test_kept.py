"""What is kept of templates and documents: believed only where nobody else could have written."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit import kept as module
from hpckit.kept import kept
from tests.conftest import Answer


class Maker:
    """Counts how often it is asked."""

    def __init__(self, value: object = (1, ["a"])) -> None:
        self.value, self.calls = value, 0

    def __call__(self) -> object:
        self.calls += 1
        return self.value


def test_the_same_is_made_once(cache_at_home: Path) -> None:
    make = Maker()
    assert [kept(make, "text", "v1") for _ in range(3)] == [make.value] * 3
    assert make.calls == 1
    kept(make, "text", "v2")
    kept(make, "text2", "v1")
    assert make.calls == 3
    assert cache_at_home.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in cache_at_home.iterdir()} == {0o600}


@pytest.mark.parametrize("part", ["file", "folder", "above"])
def test_what_others_may_write_is_neither_read_nor_written(cache_at_home: Path, part: str) -> None:
    kept(Maker("theirs"), "text")
    (file,) = cache_at_home.iterdir()
    before = file.read_bytes()
    {"file": file, "folder": cache_at_home, "above": cache_at_home.parent}[part].chmod(0o777)
    mine = Maker("mine")
    assert kept(mine, "text") == "mine"
    assert mine.calls == 1
    if part != "file":  # which is replaced by one of ours
        assert [*cache_at_home.iterdir()] == [file]
        assert file.read_bytes() == before
        assert kept(mine, "other") == "mine"
        assert [*cache_at_home.iterdir()] == [file]


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
def test_a_damaged_file_is_made_anew(cache_at_home: Path, damage: bytes | None) -> None:
    kept(Maker(), "text")
    (file,) = cache_at_home.iterdir()
    file.write_bytes(file.read_bytes()[:-1] if damage is None else damage)
    make = Maker()
    assert kept(make, "text") == make.value
    assert kept(make, "text") == make.value
    assert make.calls == 1


def test_a_pipe_is_not_waited_for(cache_at_home: Path) -> None:
    kept(Maker(), "text")
    (file,) = cache_at_home.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert kept(Maker("mine"), "text") == "mine"


def test_nothing_is_kept_where_python_keeps_none(
    cache_at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert kept(Maker("mine"), "text") == "mine"
    assert not cache_at_home.exists()


def test_a_home_that_takes_nothing_costs_only_time(cache_at_home: Path) -> None:
    cache_at_home.parent.parent.mkdir()
    cache_at_home.parent.write_text("")
    assert kept(Maker("mine"), "text") == "mine"


def test_the_folder_stays_small(cache_at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    for number in range(8):
        kept(Maker(), str(number))
        assert 1 <= len([*cache_at_home.iterdir()]) <= 3


def test_scripts_are_the_same_with_and_without(
    cache_at_home: Path, cli: Callable[..., Answer]
) -> None:
    def script() -> str:
        found = cli("submit", "ddp", "--nodes", "2", "--gpus", "4", "--dry-run")
        assert found.status == 0
        return re.sub(r"ddp-\d{8}-\d{6}-[0-9a-f]{6}", "RUN", found.out)

    first = script()
    files = sorted(cache_at_home.iterdir())
    assert len(files) > 3
    again = script()
    assert again == first
    assert sorted(cache_at_home.iterdir()) == files


def test_a_wrong_template_or_site_is_told_each_time(
    cache_at_home: Path, here: Path, cli: Callable[..., Answer]
) -> None:
    (here / "templates" / "slurm").mkdir(parents=True)
    (here / "templates" / "slurm" / "mine.sh.j2").write_text("#!/bin/bash\n{% if %}\n")
    (here / "templates" / "sites").mkdir()
    (here / "templates" / "sites" / "mine.yaml").write_text("description: x\nnodes: [\n")
    for words in (["--template", "mine"], ["--site", "mine"]):
        said = {cli("submit", "ddp", "--dry-run", *words).err.splitlines()[-1] for _ in range(2)}
        assert len(said) == 1
        assert "mine" in said.pop()
