"""Each command in the documentation stands where tests/slurm/test_pages.py finds it."""

import re

import pytest

from tests.pages import MARK, PAGES, ROOT, blocks, indented, to_type

COMMAND = re.compile(
    r"(\$ |hpckit |python3? |pip |git |make |srun |sbatch |scancel |mpirun |eval |cd |cp |export )"
)
LANGUAGES = {"sh", "bash", "text", "yaml", "python", "jinja"}  # bash: of a script, not typed


@pytest.mark.parametrize("page", PAGES)
def test_each_block_says_what_it_is(page: str) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_commands_stand_in_blocks_for_a_shell(page: str) -> None:
    loose = [row for row in indented(page) if COMMAND.match(row[1])]
    assert loose == []
    others = [block for block in blocks(page) if block.language == "text"]
    typed = [block.line for block in others if block.text.startswith("$ ")]
    assert typed == []


@pytest.mark.parametrize("page", PAGES)
def test_marks_have_a_block_and_a_reason(page: str) -> None:
    reasons = [row for row in (ROOT / page).read_text().splitlines() if row.startswith("<!-- not")]
    assert all(MARK.fullmatch(row) for row in reasons)
    assert len(reasons) == len([block for block in to_type(page) if block.not_run])


def test_there_are_blocks_to_type() -> None:
    typed = {page for page in PAGES if any(not block.not_run for block in to_type(page))}
    assert typed == {
        "README.md",
        "docs/collections.md",
        "docs/first-job.md",
        "docs/first-result.md",
        "docs/new-cluster.md",
        "docs/programs.md",
    }
