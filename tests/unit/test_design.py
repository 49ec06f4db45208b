"""DESIGN.md is short and true; what a room holds is said in the docstring of its package."""

import ast
import re
from pathlib import Path

import pytest

from hpckit.cli import COMMANDS
from hpckit.collections.collection import LOCK, MANIFEST
from tests.pages import ROOT

DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "hpckit"
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))
# A newcomer reads it in six minutes.
MOST_WORDS = 1500
# Not in the repository.
OF_USERS = ("/etc/", "~/")


def contents(folder: Path) -> set[str]:
    """Return the modules and folders of a package, by name."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in folder.glob("*/*.*")} - {"__pycache__"}


def rooms(page: str) -> set[str]:
    """Return what the first column of the table of rooms names."""
    table = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    return {
        name.rstrip("/")
        for row in re.findall(r"^\| (`.*?) \|", table, re.M)
        for name in re.findall(r"`([\w/]+)`", row)
    } - {"hpckit"}


def lost_paths(page: str) -> list[str]:
    """Return the paths that a page names and that lead nowhere, from here or from hpckit/."""
    words = re.findall(r"`([^`\s]*/[^`\s]*)`", page)
    return [
        word
        for word in words
        if not word.startswith(OF_USERS)
        and not any([*place.glob(word.replace("NAME", "*"))] for place in (ROOT, PACKAGE))
    ]


def lost_modules(page: str) -> list[str]:
    """Return the names in Python that a page has and that are of no module of hpckit."""
    found = re.findall(r"`(hpckit(?:\.\w+)+)`", page)
    words = [word for word in found if word not in (LOCK, MANIFEST)]
    modules = [word.rpartition(".")[0] if word.split(".")[-1][0].isupper() else word
               for word in words]  # fmt: skip
    places = [ROOT.joinpath(*name.split(".")) for name in modules]
    return [
        word
        for word, place in zip(words, places, strict=True)
        if not place.with_suffix(".py").is_file() and not (place / "__init__.py").is_file()
    ]


def named(folder: Path) -> set[str]:
    """Return the bare words in backquotes of a package's docstring: these are its modules."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    return set(re.findall(r"`([a-z_][a-z0-9_]*)/?`", text or "")) - {"hpckit"}


def own_commands(folder: Path) -> set[str]:
    """Return the modules that a table in the package names: the commands of the command line."""
    names = {name.replace("-", "_") for name in COMMANDS}
    return names & contents(folder) if folder == PACKAGE / "cli" else set()


def test_design_is_read_in_some_minutes() -> None:
    assert len([word for word in DESIGN.split() if re.search(r"\w", word)]) <= MOST_WORDS


def test_design_names_every_room_and_nothing_else() -> None:
    assert rooms(DESIGN) == contents(PACKAGE)


def test_what_design_names_is_there() -> None:
    assert len(re.findall(r"`[^`\s]*/[^`\s]*`", DESIGN)) > 50
    assert lost_paths(DESIGN) == []
    assert lost_modules(DESIGN) == []


def test_what_design_names_in_vain_is_seen() -> None:
    page = "`hpckit/nowhere.py` `cli/nowhere/` `cli/submit.py` `~/.x/y` `templates/sites/NAME.yaml`"
    assert lost_paths(page) == ["hpckit/nowhere.py", "cli/nowhere/"]
    page = "`hpckit.nowhere`, `hpckit.cli.submit`, `hpckit.submission.payload.Payload`"
    assert lost_modules(page) == ["hpckit.nowhere"]
    assert rooms("\n## Rooms\n\n| `one/` `two` | all |\n\n## Laws\n") == {"one", "two"}


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_says_what_it_holds(folder: Path) -> None:
    there = contents(folder)
    assert named(folder) - there == set(), "named, but not there"
    assert there - named(folder) - own_commands(folder) == set(), "there, but not named"


def test_modules_and_names_of_a_package_are_compared(tmp_path: Path) -> None:
    for name in ("one.py", "__main__.py", "sub/two.py", "__pycache__/one.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "__init__.py").write_text(
        '"""Has `one`, `sub/`, `three`; `four()`, `{{ x }}`."""\n'
    )
    assert contents(tmp_path) == {"one", "sub"}
    assert named(tmp_path) == {"one", "sub", "three"}
