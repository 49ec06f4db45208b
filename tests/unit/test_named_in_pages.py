"""What pages name is there: commands with their options, names in Python, variables, files."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

import hpckit
from tests.pages import PAGES, ROOT, blocks, indented
from tests.unit.test_made_pages import commands

OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
# A command ends where the program's own arguments, a remark or another command begin.
END = re.compile(r" -- |\s+#|\s{3,}|[|;&>]")
FOLDERS = r"(?:benchmarks|docs|examples|hpckit|tests)/[\w./-]+"
EXAMPLES = [str(path.relative_to(ROOT)) for path in ROOT.glob("examples/**/*.md")]
HELP = {"--help", "-h"}
# The lines of hpckit in its blocks are rows of figures.
FIGURES = "docs/benchmarks.md"


@cache
def known() -> dict[str, set[str]]:
    """Return the options of each command of hpckit."""
    typed = {row.name: " ".join(one.typed for one in row.rows) for row in commands.commands()}
    of_job = {row.name: row.of_job for row in commands.commands()}
    return {name: {*OPTION.findall(words), *of_job[name]} for name, words in typed.items()}


def said(page: str) -> Iterator[str]:
    """Yield each line of hpckit that a page shows, in its text or in a block."""
    text = (ROOT / page).read_text().replace("\\\n", "")
    yield from re.findall(r"`(hpckit [a-z][^`\n]*)`", text)
    languages = ("sh", "bash") if page == FIGURES else ("sh", "bash", "text")
    shown = [block.text for block in blocks(page) if block.language in languages]
    lines = "".join(shown).replace("\\\n", "").splitlines()
    lines += [line for _, line in indented(page)]
    yield from (line for line in lines if re.match(r"hpckit [a-z]+( |$)", line))


def wrong(line: str) -> list[str]:
    """Return what a line names that is not there."""
    words = END.split(line.removeprefix("hpckit "))[0].split()
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in known()), None)
    if name is None:
        return [words[0]]
    return [word for word in OPTION.findall(" ".join(words)) if word not in known()[name] | HELP]


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES])
def test_commands_and_options_are_there(page: str) -> None:
    assert [(line, wrong(line)) for line in said(page) if wrong(line)] == []


def test_a_command_or_an_option_that_is_not_there_is_seen() -> None:
    assert wrong("hpckit sumbit ddp") == ["sumbit"]
    assert wrong("hpckit doctor mpi --within 3m --witin 3m -- --mine") == ["--witin"]
    assert sum(len([*said(page)]) for page in PAGES) > 300


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES])
def test_names_in_python_and_files_of_this_repository_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    assert {*re.findall(r"\bhpckit\.(\w+)\(", text)} <= {*hpckit.__all__}
    named = {word.rstrip(".") for word in re.findall(rf"`({FOLDERS})`", text)}
    assert [word for word in named if not [*ROOT.glob(word)]] == []
