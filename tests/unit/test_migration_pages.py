"""docs/from-*.md: what a page says to write asks Slurm for what its batch script asked for."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.pages import ROOT, Block, blocks

PAGES = ("docs/from-sbatch.md", "docs/from-torchrun.md")
# What the pages say follows by itself, or is hpckit's own to say.
OWN = ("output", "ntasks-per-node")


def asked(script: str) -> dict[str, str]:
    """Return the options of a script's #SBATCH lines, sizes of memory in GB alike."""
    rows = re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", script, re.MULTILINE)
    return {key: re.sub(r"(?<=\d)G$", "GB", value) for key, value in rows}


def pairs() -> Iterator[tuple[Block, str]]:
    """Yield each batch script of the pages with the lines of hpckit after it; without one, too."""
    for page in PAGES:
        before = None
        for block in blocks(page):
            if block.language == "bash":
                before = block
            elif block.language == "sh" and before and "hpckit submit" in block.text:
                lines = block.text.replace("\\\n", "").splitlines()
                yield from ((before, line) for line in lines)
                before = None


def lines_of(page: str) -> list[str]:
    """Return the lines of a page's blocks and tables that are whole commands of hpckit."""
    text = (ROOT / page).read_text().replace("\\\n", "")
    return re.findall(r"^hpckit submit .*|(?<=`)hpckit submit [^`…]*(?=`)", text, re.MULTILINE)


@pytest.fixture
def dry_run(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Give a function that returns the job script of a line that a page shows."""
    home = here.parent / "home"
    python = home / "venvs" / "torch" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    for name in ("train.py", "a.out", "job.sh"):
        (here / name).write_text("#!/bin/sh\n" * (not name.endswith(".py")))
    (here / "a.out").chmod(0o755)

    def shown(line: str) -> str:
        words = shlex.split(line.replace("~", str(home)))[1:]
        at = words.index("--") if "--" in words else len(words)
        skipped = ("--executor", "slurm", "--skip-check", "shared-runs", "--dry-run")
        follow = [word for word in words[:at] if word != "--follow"]
        answer = cli(*follow, *skipped, *words[at:])
        assert answer.status == 0, answer.err
        return answer.out

    return shown


@pytest.mark.parametrize(
    ("before", "line"), [pytest.param(*row, id=row[1][:60]) for row in pairs()]
)
def test_the_line_asks_for_what_the_script_asked_for(
    before: Block, line: str, dry_run: Callable[[str], str]
) -> None:
    script = dry_run(line)
    wanted, got = asked(before.text), asked(script)
    assert {key: got.get(key) for key in wanted if key not in OWN} == {
        key: value for key, value in wanted.items() if key not in OWN
    }
    started = re.search(r"python train\.py (.*?)'?$", before.text, re.MULTILINE)
    if started and "$" not in started[1]:
        assert f"train.py {started[1]}" in script


def test_there_are_pairs() -> None:
    assert len(list(pairs())) == 5
    assert sum(bool(asked(before.text)) for before, _ in pairs()) == 4


@pytest.mark.parametrize("page", PAGES)
def test_short_lines_are_taken_as_well(page: str, dry_run: Callable[[str], str]) -> None:
    assert all(dry_run(line).startswith("#!/bin/bash") for line in lines_of(page))


def test_the_keys_of_jobstats_are_those_of_the_document(cli: Callable[..., Answer]) -> None:
    known = json.loads(cli("stats", "--schema").out)
    below = {"per_node": "NodeUse", "per_gpu": "GpuUse"}
    page = (ROOT / "docs" / "from-jobstats.md").read_text()
    table = page.partition("## The record")[2].partition("\n\nIn hpckit's")[0]
    keys = [
        key
        for row in table.splitlines()
        if row.startswith("| `")
        for key in re.findall(r"`([^`]+)`", row.split("|")[2])
    ]
    assert len(keys) == 9
    for key in keys:
        name, _, field = key.rpartition("[].")
        fields = known["$defs"][below[name]] if name else known
        assert field in fields["properties"], key
