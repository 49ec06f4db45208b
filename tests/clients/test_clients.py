"""Scripts that hpckit has never seen run unchanged: those of docs/frameworks.md, by its lines.

What .venv-clients lacks (transformers, DeepSpeed) is run by benchmarks/foreign.py.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.page import Snippet, read_page
from tests.conftest import needs
from tests.pages import ROOT
from tests.slurmbox.fixture import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.clients, pytest.mark.timeout(600)]

_PAGE = read_page()
_SAYS = re.compile(r"^rank (\d+) of (\d+): (.+)$", re.MULTILINE)
_ALONE = ROOT / "benchmarks" / "scripts" / "lightning_default.py"
# What hpckit's own environment has, and the clients' has not.
_OURS = (("submitit_train.py", 1), ("mpi_train.py", 4))


# Eight ranks for one of them, as on the page: starting them is most of a test's time.
@pytest.mark.parametrize(
    ("name", "gpus"), [("gpt_train.py", 4), ("lightning_train.py", 2), ("accelerate_train.py", 1)]
)
def test_the_pages_line_on_two_nodes(
    name: str, gpus: int, slurm: Slurm, client_venv: Path, tmp_path: Path
) -> None:
    _run_as_shown(_PAGE[name], tmp_path, client_venv, slurm, gpus=gpus)


@pytest.mark.parametrize(("name", "gpus"), _OURS)
def test_the_pages_line_in_hpckits_own_environment(
    name: str, gpus: int, slurm: Slurm, tmp_path: Path
) -> None:
    needs("mpi4py", "torch")
    _run_as_shown(_PAGE[name], tmp_path, Path(sys.prefix), slurm, gpus=gpus)


def test_lightning_under_torchrun_on_two_nodes(
    slurm: Slurm, client_venv: Path, tmp_path: Path
) -> None:
    words = "--nodes 2 --gpus 1 --launcher torchrun"
    _run(_PAGE["lightning_train.py"], words, tmp_path, client_venv, slurm.env)


# Here no variable of Slurm's tells Lightning that there are others.
def test_lightning_on_two_simulated_nodes(client_venv: Path, tmp_path: Path) -> None:
    words = "--nodes 2 --gpus 1 --executor local"
    _run(_PAGE["lightning_train.py"], words, tmp_path, client_venv, {})


def test_accelerate_under_torchrun_on_two_simulated_nodes(
    client_venv: Path, tmp_path: Path
) -> None:
    words = "--nodes 2 --gpus 1 --executor local --launcher torchrun"
    _run(_PAGE["accelerate_train.py"], words, tmp_path, client_venv, {})


# Lightning imports much of torch that could have met others, and has not.
def test_a_trainer_that_was_told_nothing_trains_alone_and_is_told_of(
    client_venv: Path, tmp_path: Path
) -> None:
    (tmp_path / _ALONE.name).write_text(_ALONE.read_text())
    shell = Shell(tmp_path, {})
    words = "--tasks-per-node 2 --gpus 0 --executor local --wait"
    ended = shell.type(f"hpckit submit ddp {_ALONE.name} {words} --env {client_venv}")
    assert ended.returncode == 0, ended.stderr + logs(tmp_path)
    assert "the 2 ranks never met: no rank joined a process group" in ended.stderr
    found = _SAYS.findall(shell.type("hpckit logs latest --all").stdout)
    assert [row[:2] for row in found] == [("0", "1"), ("0", "1")]


def _run_as_shown(snippet: Snippet, folder: Path, venv: Path, slurm: Slurm, *, gpus: int) -> None:
    """Type the page's line into a shell whose ~/venvs/torch is `venv`, for `gpus` a node."""
    assert " --nodes 2 --gpus 4 " in snippet.submit
    line = snippet.submit.replace("--gpus 4", f"--gpus {gpus}")
    hosts = _type(snippet, line, folder, venv, slurm.env, ranks=2 * gpus)
    assert hosts == ["c1"] * gpus + ["c2"] * gpus


def _run(snippet: Snippet, words: str, folder: Path, venv: Path, env: dict[str, str]) -> None:
    """Submit the page's script with other words, on 2 x 1 ranks."""
    line = f"hpckit submit ddp {snippet.name} {words} --env ~/venvs/torch"
    _type(snippet, line, folder, venv, env, ranks=2)


def _type(
    snippet: Snippet, line: str, folder: Path, venv: Path, env: dict[str, str], *, ranks: int
) -> list[str]:
    """Submit a script, wait, check what its ranks said; return the host of each."""
    (folder / snippet.name).write_text(snippet.text, encoding="utf-8")
    (folder / "home" / "venvs").mkdir(parents=True)
    (folder / "home" / "venvs" / "torch").symlink_to(venv)
    shell = Shell(folder, env)
    submitted = shell.type(line)
    assert submitted.returncode == 0, submitted.stderr
    ended = shell.type("hpckit wait latest")
    said = shell.type("hpckit logs latest --all").stdout
    assert ended.returncode == 0, ended.stdout + ended.stderr + said + logs(folder)
    found = sorted((int(rank), int(world), result) for rank, world, result in _SAYS.findall(said))
    # The same result, from data of its own, shows that each rank had something from all others.
    assert found == [(rank, ranks, found[0][2]) for rank in range(ranks)], said
    status = json.loads(shell.type("hpckit status latest --json").stdout)
    # Nothing of ranks that never met.
    assert [note for note in status["notes"] if "no GPU driver" not in note] == []
    return [rank["host"] for rank in status["ranks"]]


class Shell:
    """A user's shell in `folder`, at home in `folder`/home, that finds hpckit."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self.env = {**_clean_environment(), **env, "PATH": os.pathsep.join(paths)}
        self.env["HOME"] = str(folder / "home")

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run one line."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=580,
        )


def logs(folder: Path) -> str:
    """Return all logs of a run that failed."""
    found = [path for part in ("job.out", "logs/*") for path in folder.glob(f"runs/*/{part}")]
    return "".join(f"\n--- {path}\n{path.read_text()}" for path in sorted(found))


def _clean_environment() -> dict[str, str]:
    """Return this process's environment without what torch scripts and hpckit would react to."""
    prefixes = ("HPCKIT_", "SLURM", "SBATCH", "SUBMITIT", "PYTHON", "VIRTUAL_ENV", "XDG_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**ours, "OMP_NUM_THREADS": "1"}
