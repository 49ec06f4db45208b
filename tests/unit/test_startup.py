"""Start-up is a feature: what each command loads, told by a fresh interpreter."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.cli import COMMANDS
from tests.conftest import Answer

HEAVY = {"torch", "numpy", "mpi4py", "pandas", "sklearn", "scipy", "matplotlib"}
# What only some commands need, and --help never.
LAZY = {"jinja2", "submitit", "yaml", "rich", "asyncio"}
PROGRAM = """\
import sys
from hpckit.cli import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as ended:
        print(f"\\nENDED {line}: {ended.code}", file=sys.stderr)
    print("\\0", end="")
    print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
HELP = [
    "--help",
    *(f"{name} --help" for name in (
        "submit", "jobs", "status", "logs", "cancel", "wait", "resubmit", "workloads",
        "workloads list", "workloads show", "templates", "templates list", "templates show",
        "templates vars", "templates lint", "templates diff", "sites", "sites list", "sites show",
        "collections", "collections list", "collections add", "collections update",
        "collections sync", "collections verify", "collections new", "stats", "sample", "init",
        "sites detect", "doctor", "doctor mpi", "doctor gpu",
    )),
]  # fmt: skip
WORK = [
    "--version",
    "templates list",
    "templates vars",
    "workloads show ddp",
    "sites list",
    "collections list",
    "submit ddp --dry-run",
    "jobs",
    "doctor",
]


def loaded(*lines: str) -> list[set[str]]:
    """Return what is loaded after each command line, all given to one interpreter in turn."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *lines],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    printed, said = done.stdout.split("\0")[:-1], done.stderr.splitlines()
    assert all(text or line == "jobs" for text, line in zip(printed, lines, strict=True))
    ended = [line for line in said if line.startswith("ENDED ")]
    assert ended == [f"ENDED {line}: 0" for line in lines]
    return [set(line.split()[1:]) for line in said if line.startswith("LOADED ")]


def test_ctrl_c_while_it_is_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "hpckit", "jobs"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    console = Path(__file__).parents[2] / "pyproject.toml"
    assert 'hpckit = "hpckit.__main__:main"' in console.read_text()


def test_help_loads_nothing_heavy_and_nothing_it_does_not_print_with(here: Path) -> None:
    found = loaded(*HELP)
    assert len(found) == len(HELP)
    for line, modules in zip(HELP, found, strict=True):
        assert modules & (HEAVY | LAZY) == set(), line


def test_the_first_page_and_the_version_start_without_typer(here: Path) -> None:
    for line in ("--help", "-h", "--version"):
        (modules,) = loaded(line)
        assert modules & {"typer", "dataclasses", "inspect", "pathlib", "shutil", "json"} == set()


def test_the_first_page_is_one_however_it_is_asked_for(
    cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in ("20", "60", "200"):
        monkeypatch.setenv("COLUMNS", width)
        page = cli("--help").out
        assert cli("--help", "jobs").out == cli("-h").out == page
        assert cli().err == page
        assert max(map(len, page.splitlines())) <= min(max(int(width) - 2, 50), 78)
        words = page.split()
        for name, line in COMMANDS.items():
            at = words.index(name, words.index("Commands:"))
            assert words[at + 1 : at + 1 + len(line.split())] == line.split()


@pytest.mark.parametrize("line", WORK)
def test_the_login_node_side_loads_nothing_heavy(line: str, here: Path) -> None:
    (found,) = loaded(line)
    assert found & HEAVY == set()
    assert "submitit" not in found  # only a real submission needs it


# Rooms that only some commands need: a package's first module must not bring them to all.
ASKING = {"hpckit.job.script", "hpckit.schedulers.pickles", "hpckit.schedulers.local.controller",
          "hpckit.payload.sweep"}  # fmt: skip
DRY_RUN = {"hpckit.failures", "hpckit.submission.states", "hpckit.schedulers.slurm.asking",
           "hpckit.schedulers.slurm.sbatch", "hpckit.schedulers.pickles"}  # fmt: skip


@pytest.mark.parametrize(("line", "rooms"), [("jobs", ASKING), ("submit ddp --dry-run", DRY_RUN)])
def test_a_command_loads_no_room_it_does_not_enter(line: str, rooms: set[str], here: Path) -> None:
    program = PROGRAM.replace('{name.partition(".")[0] for name in sys.modules}', "sys.modules")
    done = subprocess.run(
        [sys.executable, "-c", program, line], capture_output=True, text=True, check=True
    )
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("LOADED ")]
    loaded_modules = set(told.split())
    assert "hpckit.cli" in loaded_modules
    assert loaded_modules & rooms == set()
