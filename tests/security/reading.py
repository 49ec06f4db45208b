"""How bash and sbatch read a job script: every command with its words, every option."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.patience import LONG_S

RECORDERS = Path(__file__).parent / "recorders.bash"
Commands = list[list[str]]


def commands(scripts: Sequence[str], folder: Path) -> list[list[Commands]]:
    """Give what each script would run when all goes well, and when every command fails."""
    paths = [folder / f"{number}.sh" for number in range(len(scripts))]
    for path, text in zip(paths, scripts, strict=True):
        path.write_text(text, encoding="utf-8")
    (folder / "empty").mkdir()
    for status in ("0", "1"):
        subprocess.run(
            ["/bin/bash", RECORDERS, status, *paths],
            cwd=folder / "empty",
            env={"HOME": "/home/x", "LC_ALL": "C.UTF-8"},
            check=True,
            timeout=LONG_S,
        )
    assert list((folder / "empty").iterdir()) == [], "a redirection was carried out"
    return [[_parsed(Path(f"{path}.{status}")) for status in ("0", "1")] for path in paths]


def _parsed(said: Path) -> Commands:
    found: Commands = [[]]
    for word in said.read_bytes().decode().split("\0")[:-1]:
        if word == "\n":
            found.append([])
        else:
            found[-1].append(word)
    return found[:-1]


def options(script: str) -> list[str]:
    """Give the words of the `#SBATCH` lines as sbatch reads them (slurm 22.05, `_get_argument`).

    It stops at the first line that is neither empty nor a comment. A backslash is an escape
    everywhere, also between single quotes.
    """
    found = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            found += _words(line.removeprefix("#SBATCH"))
        elif line.strip() and not line.startswith("#"):
            break
    return found


def _words(line: str) -> list[str]:
    words, place = [], 0
    while place < len(line):
        if line[place].isspace():
            place += 1
            continue
        if line[place] == "#":
            break
        word, quote, escaped = "", "", False
        while place < len(line) and (quote or escaped or not line[place].isspace()):
            letter = line[place]
            if escaped:
                word, escaped = word + letter, False
            elif letter == "\\":
                escaped = True
            elif quote and letter == quote:
                quote = ""
            elif not quote and letter in "'\"":
                quote = letter
            else:
                word += letter
            place += 1
        assert not quote, f"sbatch would refuse {line!r}"
        words.append(word)
    return words
