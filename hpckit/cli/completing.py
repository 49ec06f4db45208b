"""What a shell's completion is told: the words that may stand where the cursor is.

The commands and options are read from `words.json`, which `make docs` writes from the commands
themselves: loading these takes four times as long as a shell should wait.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.cli import TAKE_REST

if TYPE_CHECKING:
    from hpckit.api.names import Offer

# A word that needs no quotes in any shell; what does is not offered.
_PLAIN = re.compile(r"[\w./:=@,+-]+", re.ASCII)
_MOST_NOTE = 80
# The exit status that asks the shell for names of files.
FILES = 3
# What an option's value is, by the option; others are files where their word says so.
_VALUES = {
    "--site": "site", "--template": "template", "--env": "environment",
    "--partition": "partition", "--launcher": "launcher", "--executor": "executor",
    "--set": "parameter", "--array": "parameter",
    "--grow": "parameter", "--after": "run", "--from": "run", "--skip-check": "check",
    "--state": "state", "--by": "by",
}  # fmt: skip
# Of one command alone.
_OF_COMMAND = {(name, "--template"): "report template" for name in ("report", "stats")}
# And a command's arguments, in order; the last one again and again.
_ARGUMENTS = {
    "submit": ("target", "file"), "scale": ("target", "file"), "jobs": (), "report": (),
    "status": ("run",), "logs": ("run",), "wait": ("run",), "cancel": ("run",),
    "resubmit": ("run",), "stats": ("run",), "code": ("run",), "sample": ("file",),
    "shell": ("run",), "jupyter": ("run",), "ssh-config": ("run",),
    "workloads show": ("workload",), "templates show": ("template file",),
    "templates diff": ("template file",), "sites show": ("site",),
    "templates lint": ("collection",),
    "collections update": ("collection",), "collections sync": ("collection",),
    "collections remove": ("collection",), "collections verify": ("collection",),
    "collections diff": ("collection",), "collections add": ("file",),
    "collections trust": ("file",), "collections new": ("file",),
}  # fmt: skip


def answer(shell: str, given: Sequence[str]) -> int:
    """Print the words for a shell, one a line; return the exit status.

    Args:
        shell: which prints a line as `word` (bash), `word:note` (zsh), or both with a tab (fish).
        given: of bash the line up to the cursor, and the last word as bash splits it; of others all
            words after the program's name, the last one up to the cursor.
    """
    bash = shell == "bash"
    words = split_line(given[0]) if bash else list(given)
    found = complete(words or [""])
    if found is None:
        return FILES
    # bash splits words at `=` and `:`, and replaces the last part alone.
    skip = len(words[-1]) - len(given[1].lstrip("=:")) if bash and len(given) > 1 else 0
    lines = [_line(shell, word[skip:], note) for word, note in found]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _line(shell: str, word: str, note: str) -> str:
    if shell == "bash":
        return word
    if shell == "fish":
        return f"{word}\t{note}"
    return word.replace(":", "\\:") + (f":{note}" if note else "")


def split_line(line: str) -> list[str]:
    """Split what was typed after the program's name as a shell would; quotes may still be open."""
    for end in ("", '"', "'"):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        return words[1:] + ([""] if line[-1:].isspace() and not end else [])
    return [""]


def complete(words: Sequence[str]) -> list[Offer] | None:
    """Return what may stand in the place of the last word; None: names of files."""
    *before, last = words
    commands = _commands()
    name, known = _called(commands, before)
    if known is None:
        return _fitting(_commands_below(commands, name), last)
    rest = before[len(name.split()) :]
    if "--" in rest and name in TAKE_REST:
        return None
    options = known["options"]
    waiting = _waiting(options, rest)
    head, equals, _ = last.partition("=")
    if waiting is None and last.startswith("--") and equals:
        found = _values(options, _first(options, head), name, rest)
        return None if found is None else _fitting([(f"{head}={w}", n) for w, n in found], last)
    if waiting is not None:
        found = _values(options, waiting, name, rest)
    elif last.startswith("-"):
        found = [(flag, row["help"]) for flag, row in options.items() if flag.startswith("--")]
    else:
        found = _argument(name, len(_positionals(options, rest)))
    return None if found is None else _fitting(found, last)


def _commands() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("words.json").read_bytes())
    return found


def _called(commands: dict[str, Any], before: Sequence[str]) -> tuple[str, dict[str, Any] | None]:
    """Return the command typed so far, and what is known of it; None while words are missing."""
    for name in (" ".join(before[:2]), *before[:1]):
        if name in commands and ("options" in commands[name]):
            below = any(row.startswith(f"{name} ") for row in commands)
            if not below or before[1:]:
                return name, commands[name]
    return (before[0] if before else ""), None


def _commands_below(commands: dict[str, Any], name: str) -> list[Offer]:
    """Return the commands of a group, or the first words of all."""
    start = f"{name} " if name else ""
    names = {row[len(start) :].split()[0]: row for row in commands if row.startswith(start) and row}
    return [(word, commands.get(f"{start}{word}", {}).get("help", "")) for word in names]


def _waiting(options: dict[str, Any], rest: Sequence[str]) -> str | None:
    """Return the option whose value the last word is."""
    word = _first(options, rest[-1]) if rest else None
    return word if word and options[word]["value"] else None


def _first(options: dict[str, Any], word: str) -> str | None:
    """Return an option's long word."""
    row = options.get(word)
    return row["word"] if row else None


def _positionals(options: dict[str, Any], rest: Sequence[str]) -> list[str]:
    found, words = [], iter(rest)
    for word in words:
        if not word.startswith("-"):
            found.append(word)
        elif word in options and options[word]["value"]:
            next(words, None)
    return found


def _offers(kind: str, words: tuple[str, ...] = ()) -> list[Offer]:
    from hpckit.api.names import offers  # noqa: PLC0415  # commands and options need none of it

    return offers(kind, words)


def _argument(name: str, number: int) -> list[Offer] | None:
    kinds = _ARGUMENTS.get(name, ())
    if not kinds:
        return []
    kind = kinds[min(number, len(kinds) - 1)]
    return None if kind == "file" else _offers(kind)


def _values(
    options: dict[str, Any], option: str | None, name: str, rest: Sequence[str]
) -> list[Offer] | None:
    if option is None:
        return []
    kind = _OF_COMMAND.get((name, option)) or _VALUES.get(option)
    if kind is None:
        return None if options[option]["value"] in ("DIR", "FILE", "<path>", "PATTERN") else []
    if kind == "parameter":
        return _offers(kind, tuple(_positionals(options, rest)[:1]))
    found = _offers(kind, tuple(_given(rest, "--site")))
    return found or (None if option == "--env" else [])


def _given(rest: Sequence[str], option: str) -> Iterator[str]:
    for word, value in itertools.pairwise(rest):
        if word == option:
            yield value


def _fitting(found: Sequence[Offer], last: str) -> list[Offer]:
    fitting = [row for row in found if row[0].startswith(last) and _PLAIN.fullmatch(row[0])]
    return [(word, _note(note)) for word, note in dict(fitting).items()]


def _note(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MOST_NOTE else line[: _MOST_NOTE - 3] + "..."
