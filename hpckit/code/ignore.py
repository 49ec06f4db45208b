"""Which files git ignores: .gitignore of each folder, .git/info/exclude and core.excludesFile.

What a line means is the library pathspec's to say; it is asked once for each text, since to load it
takes as long as all else here.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpckit.files import DamagedFileError, read_bytes
from hpckit.gitfiles import Repository
from hpckit.kept import kept, makers

GITIGNORE = ".gitignore"
_MOST_BYTES = 2**20
# pathspec names the slash at a folder's end; in one expression a name may stand once.
_NAMED = r"\(\?P<\w+>"
_SECTION = r"\s*\[\s*([\w.-]+)\s*(\")?[^\]]*\]"
_EXCLUDES = r"(?i)\s*excludesfile\s*=\s*\"?([^\"#;]+?)\"?\s*(?:[#;].*)?"


class Patterns:
    """The lines of one file; of several that match a path, the last one counts."""

    def __init__(self, groups: Sequence[tuple[bool, str]]) -> None:
        self._groups = [(yes, re.compile(text, re.DOTALL)) for yes, text in reversed(groups)]

    def match(self, path: str) -> bool | None:
        """Say whether a path is ignored; None: no line is about it. A folder's ends in `/`."""
        for yes, expression in self._groups:
            if expression.fullmatch(path):
                return yes
        return None


def patterns(lines: Iterable[str]) -> Patterns | None:
    """Return what lines of a .gitignore mean; None where they mean nothing."""
    text = "\n".join(lines)
    groups = kept(lambda: _translated(text), text, *makers(__name__, "pathspec"))
    return Patterns(groups) if groups else None


def patterns_of(file: Path | str) -> Patterns | None:
    """Return what a file of such lines means; None where there is none.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not a file, or too large.
    """
    try:
        text = read_bytes(file, most=_MOST_BYTES).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return patterns(text.splitlines())


def outer_patterns(repository: Repository) -> list[Patterns]:
    """Return what holds for all of a work tree, the weaker first.

    Raises:
        OSError: a file cannot be read. DamagedFileError: it is not one, or too large.
    """
    files = [_excludes_file(repository), repository.common / "info" / "exclude"]
    return [found for file in files if file and (found := patterns_of(file))]


def _excludes_file(repository: Repository) -> Path | None:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises where there is none
    own = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    found = own / "ignore"
    for config in (own / "config", home / ".gitconfig", repository.common / "config"):
        if named := _setting(config):
            found = Path(os.path.expanduser(named))  # noqa: PTH111
    return found if found.is_absolute() else repository.root / found


def _setting(config: Path) -> str | None:
    """Return core.excludesFile of a configuration; what it includes is not read."""
    try:
        text = read_bytes(config, most=_MOST_BYTES).decode("utf-8", "surrogateescape")
    except (OSError, DamagedFileError):
        return None
    section, found = "", None
    for line in text.splitlines():
        if head := re.match(_SECTION, line):
            section = "" if head[2] else head[1].lower()
        elif section == "core" and (match := re.fullmatch(_EXCLUDES, line)):
            found = match[1]
    return found if found and "\0" not in found else None


def _translated(text: str) -> list[tuple[bool, str]]:
    """Return neighbours of one kind as one expression: whether they ignore, and what."""
    from pathspec.patterns.gitignore import GitIgnorePatternError  # noqa: PLC0415  # as said above
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    groups: list[tuple[bool, list[str]]] = []
    for line in text.split("\n"):
        try:
            found, yes = GitIgnoreSpecPattern.pattern_to_regex(line.removesuffix("\r"))
            expression = found and re.sub(_NAMED, "(?:", _whole(found))
            re.compile(expression or "")
        except (GitIgnorePatternError, re.error):
            continue  # git passes over what is no pattern
        if not expression or yes is None:
            continue
        if not groups or groups[-1][0] != yes:
            groups.append((bool(yes), []))
        groups[-1][1].append(f"(?:{expression})")
    return [(yes, "|".join(each)) for yes, each in groups]


def _whole(expression: str) -> str:
    """Return an expression of a whole path; pathspec looks for one anywhere in it."""
    if not expression.startswith("^"):  # `*`: everything; `**/`: each folder
        return ".+" if expression == "." else ".*/"
    return expression if expression.endswith(("$", "$)", "/)")) else f"{expression}.+"
