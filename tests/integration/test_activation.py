"""Environments that a shell's function activates: stand-ins for micromamba and Spack."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer, write_files

pytestmark = pytest.mark.long
SAY = 'import os, sys\nprint(os.environ.get("SEEN"), sys.argv[1:])\n'
PYTHON = f'#!/bin/bash\nSEEN="$ACTIVE" exec {sys.executable} "$@"\n'
# As micromamba and mamba 2 do: the program prints a function, which changes the shell.
MICROMAMBA = """\
#!/bin/bash
case "$*" in
"shell hook --shell bash") ;;
*) exit 3 ;;
esac
cat <<'HOOK'
micromamba() {
    [ "$1 $2" = "activate torch env" ] || return 1
    export ACTIVE="$UNSET_VARIABLE$2" PATH="PLACE/bin:$PATH"
}
HOOK
"""
SPACK = """\
spack() {
    [ "$1 $2 $3" = "env activate my lab" ] || return 1
    export ACTIVE="$UNSET_VARIABLE$3" PATH="PLACE/bin:$PATH"
}
"""


def place(here: Path) -> dict[str, str]:
    """Make both in folders with blanks; return the variables that name them."""
    root, own = here / "a root", here / "own env"
    files = {
        "own env/bin/python": PYTHON,
        "mm/micromamba": MICROMAMBA,
        "a root/share/spack/setup-env.sh": SPACK,
        "say.py": SAY,
    }
    write_files(here, {name: text.replace("PLACE", str(own)) for name, text in files.items()})
    for name in ("own env/bin/python", "mm/micromamba"):
        (here / name).chmod(0o755)
    return {"SPACK_ROOT": str(root), "MAMBA_EXE": str(here / "mm" / "micromamba")}


@pytest.mark.parametrize(
    ("env", "said"), [("mamba:torch env", "torch env ['x']"), ("spack:my lab", "my lab ['x']")]
)
def test_the_function_of_a_batch_shell_is_made_where_there_is_none(
    env: str,
    said: str,
    here: Path,
    cli: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CONDA_EXE", raising=False)
    for name, value in place(here).items():
        monkeypatch.setenv(name, value)
    words = ("submit", "serial", "say.py", "--gpus", "0", "--executor", "local", "--wait")
    assert cli(*words, "--env", env, "--", "x").status == 0
    assert cli("logs", "latest").out.strip() == said
    wrong = cli(*words, "--env", env + "x")
    assert wrong.status == 1
    errors = cli("logs", "latest", "--errors").out
    assert f"environment {env.partition(':')[2]}x could not be activated" in errors


@pytest.mark.parametrize("env", ["conda:torch", "spack:lab"])
def test_what_is_not_there_is_told(
    env: str, here: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    place(here)
    for name in ("CONDA_EXE", "MAMBA_EXE", "SPACK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    words = ("submit", "serial", "say.py", "--gpus", "0", "--executor", "local", "--wait")
    assert cli(*words, "--env", env).status == 1
    said = cli("logs", "latest", "--errors").out
    assert f"no '{env.partition(':')[0]}'" in said
