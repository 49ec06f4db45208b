"""Start-up is a feature: what each command loads, told by a fresh interpreter."""

import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.cli import COMMANDS
from tests.conftest import Answer
from tests.patience import LONG_S

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
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
        "submit", "jobs", "free", "top", "status", "logs", "cancel", "wait", "resubmit",
        "workloads", "workloads list", "workloads show", "templates", "templates list",
        "templates show",
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
        timeout=LONG_S,
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
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    console = ROOT / "pyproject.toml"
    assert 'hpckit = "hpckit.__main__:main"' in console.read_text()


@pytest.mark.parametrize("words", [":/nowhere", "{0}/../{0.name}/"])
def test_a_module_that_pythonpath_leads_to_does_not_stand_in_for_one_of_hpckit_s(
    tmp_path: Path, words: str
) -> None:
    for name in ("logging", "submitit", "yaml", "typer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the user has one of that name')\n")
    (tmp_path / "fit.py").write_text("")
    # As where hpckit is installed: this file's own folder is no part of PYTHONPATH.
    found = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    door = f"{found}; from hpckit.__main__ import main; main()"
    line = "submit serial fit.py --executor local --gpus 0 --wait"
    done = subprocess.run(
        [sys.executable, "-P", "-c", door, *line.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": words.format(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "COMPLETED" in done.stdout) == (0, True), done.stderr


def test_help_loads_nothing_heavy_and_nothing_it_does_not_print_with(here: Path) -> None:
    found = loaded(*HELP)
    assert len(found) == len(HELP)
    for line, modules in zip(HELP, found, strict=True):
        assert modules & (HEAVY | LAZY) == set(), line


def test_the_first_page_and_the_version_start_without_typer(here: Path) -> None:
    for line in ("--help", "-h", "--version"):
        (modules,) = loaded(line)
        assert modules & {"typer", "dataclasses", "inspect", "pathlib", "shutil", "json"} == set()


def test_a_job_s_page_starts_without_typer_and_is_the_same_with_it(
    here: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typer reads a command's options; most ask for a page and give none.

    Python's parser reads rules of advice, which are kept from the first page on.
    """
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    made = Path(__file__).parents[1] / "data/runs-0.1/made"
    shutil.copytree(made, here / "runs")
    run = "ranks-20261122-111740-537f12"
    plain, asked = f"stats {run}", f"stats {run} --runs runs"
    without, with_options = loaded(plain)[0], loaded(asked)[0]
    assert "ast" in without
    assert "typer" in with_options
    again = loaded(plain)[0]
    assert again & {"typer", "argparse", "ast", "datetime", "ipaddress"} == set()
    assert cli(*plain.split()) == cli(*asked.split())
    for wrong in ("nothing", "7 nothing", "latest ''"):
        told = cli("stats", *wrong.split())
        assert told.status == 2
        assert told == cli("stats", *wrong.split(), "--runs", "runs")


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
ASKING = {"hpckit.job.script", "hpckit.schedulers.pickles", "hpckit.schedulers.local.local_job",
          "hpckit.payload.sweep", "hpckit.sites", "hpckit.collections",
          "hpckit.job_spec.spec"}  # fmt: skip
DRY_RUN = {"hpckit.job_ends.failures", "hpckit.submission.states", "hpckit.schedulers.slurm.asking",
           "hpckit.schedulers.slurm.sbatch", "hpckit.schedulers.pickles"}  # fmt: skip
# What the job itself needs, and what became of runs.
SUBMIT = {"hpckit.payload.supervisor", "hpckit.payload.children", "ctypes",
          "hpckit.run_folders.metrics", "hpckit.cli.view", "hpckit.submission.waiting"}  # fmt: skip
# What one submission after another finds kept: PyYAML is not asked again. And what others import
# for what no command does.
KEPT = {"yaml", "jinja2.ext", "importlib.metadata._meta", "asyncio.base_events", "email", "ssl",
        "bz2", "lzma", "ipaddress", "jinja2.compiler", "jinja2.lexer", "jinja2.parser", "difflib",
        "datetime", "textwrap", "_hashlib", "typer.completion",
        "submitit.auto.auto"}  # fmt: skip
if hasattr(urllib.parse, "ipaddress"):  # newer Pythons load it for every address
    KEPT.remove("ipaddress")
# Each command line: the modules of hpckit that it may load, at most, and those it never does.
STARTS = {
    "jobs": (50, ASKING | KEPT),
    "status latest": (63, ASKING | KEPT),
    "logs latest": (39, ASKING | KEPT),
    "submit ddp --dry-run": (79, DRY_RUN | KEPT),
    "submit serial noop.py --executor slurm": (119, SUBMIT | KEPT),
}
ALL_MODULES = (
    PROGRAM.replace('{name.partition(".")[0] for name in sys.modules}', "read")
    + """
import dataclasses
standard = [
    f"{kind.__module__}.{kind.__name__}"
    for module in list(sys.modules.values())
    if getattr(module, "__name__", "").startswith("hpckit")
    for kind in vars(module).values()
    if isinstance(kind, type) and "__dataclass_params__" in vars(kind)
    if kind.__dataclass_params__.frozen
]
print("STANDARD", *sorted(set(standard)), file=sys.stderr)
"""
)


@pytest.mark.parametrize("line", STARTS)
def test_a_command_loads_no_room_it_does_not_enter(line: str, fake_slurm: Path) -> None:
    read = "read = [n for n, m in sys.modules.items() if type(m).__name__ != '_LazyModule']"
    program = ALL_MODULES.replace('    print("LOADED"', f'    {read}\n    print("LOADED"')
    Path("noop.py").write_text("")
    environ = {**os.environ, "HPCKIT_RUNS": "runs", "PYTHONDONTWRITEBYTECODE": ""}
    first = "submit serial noop.py --executor slurm"

    def call(words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, words],
            capture_output=True, text=True, check=True, env=environ,
        )  # fmt: skip
        assert f"ENDED {words}: 0" in done.stderr, done.stderr
        return done.stderr.splitlines()

    if line != "jobs":
        call(line if "dry" in line else first)
    for folder in Path("runs").glob("*-*-*"):  # of a job without a log, Slurm is asked for more
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs" / "0.out").write_text("a line\n")
    said = call(line)
    (told,) = [row for row in said if row.startswith("LOADED ")]
    modules = set(told.split()[1:])
    assert "hpckit.cli" in modules
    most, never = STARTS[line]
    assert modules & never == set()
    ours = sorted(name for name in modules if name.partition(".")[0] == "hpckit")
    assert len(ours) <= most, ours
    # The standard ones take a sixth of a start: hpckit.frozen.
    assert [row for row in said if row.startswith("STANDARD")] == ["STANDARD"]


# In front of every rank, beside its own imports: what submitit and the standard library load for
# others, and what only a sampler needs.
IN_FRONT = {"_hashlib", "asyncio.base_events", "bz2", "ssl", "tarfile", "logging.config",
            "numpy._core", "importlib.metadata", "hpckit.bad_nodes.faults",
            "hpckit.stats.samples.records"}  # fmt: skip
# The rendezvous is one small module.
ALL_ELSE = {"dataclasses", "enum", "pathlib", "re", "socket", "typing", "hpckit.errors"}


@pytest.mark.parametrize(
    ("words", "never", "said"),
    [
        (("hpckit.submission.in_job", "/nonexistent"), IN_FRONT, "/nonexistent"),
        (("hpckit.payload.rendezvous",), IN_FRONT | ALL_ELSE, ""),
    ],
    ids=["supervisor", "rendezvous"],
)
def test_what_stands_before_a_rank_loads_little(
    words: tuple[str, ...], never: set[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *words],
        env={**os.environ, "SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "hpckit.payload" in modules
    assert modules & never == set()
    told = [line for line in lines if not line.startswith("import time:")]
    assert all(line.startswith("hpckit: ") and said in line for line in told), told
    assert len(told) == bool(said)


def test_a_level_of_submitits_log_stops_no_job() -> None:
    asked = "from hpckit.submission import job_process; print(job_process._import_submitit()[1])"
    names = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7", "SUBMITIT_LOG_LEVEL": "INFO"}
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


STAND_IN = """\
import sys
from hpckit.stand_ins import stand_ins
with stand_ins("typing_extensions"):
    from typing_extensions import TypedDict
    assert not hasattr(sys.modules["typing_extensions"], "__file__")
    class Names(TypedDict, total=False):
        name: str
    from typing_extensions import deprecated  # which `typing` does not have
    assert sys.modules["typing_extensions"].deprecated is deprecated
    assert sys.modules["typing_extensions"].__file__
"""


USED_LATER = """\
import sys
from hpckit.stand_ins import stand_ins
with stand_ins("random", "difflib"):
    import random
    from difflib import SequenceMatcher, get_close_matches
    early = random.choice("a")  # in the block, too
assert early == "a" and "difflib" not in sys.modules
assert get_close_matches("gpu", ["gpus"]) == ["gpus"]
import difflib
assert SequenceMatcher(None, "a", "a").ratio() == 1
assert isinstance(difflib.SequenceMatcher(), SequenceMatcher)
assert SequenceMatcher.ratio is difflib.SequenceMatcher.ratio
assert not hasattr(SequenceMatcher, "__wrapped__")
class Own(SequenceMatcher):
    text: SequenceMatcher | None
    other: None | SequenceMatcher
assert Own.__mro__[1] is difflib.SequenceMatcher
assert 0 <= random.random() < 1
"""


def test_what_is_used_later_comes_then_and_is_the_modules_own() -> None:
    subprocess.run([sys.executable, "-c", USED_LATER], check=True)


def test_what_typing_has_is_taken_from_there() -> None:
    subprocess.run([sys.executable, "-c", STAND_IN], check=True)
