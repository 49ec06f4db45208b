"""The box for the clients, and the environment they live in."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.slurmbox.fixture import slurm  # noqa: F401  # a fixture

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def client_venv() -> Path:
    """Give the clients' virtual environment, which holds no hpckit."""
    venv = Path(os.environ.get("HPCKIT_CLIENTS_VENV", _ROOT / ".venv-clients"))
    python = venv / "bin" / "python"
    if not python.exists():
        pytest.skip(
            f"NO CLIENTS: Lightning and accelerate do not run under hpckit, there is no {python}. "
            "Make it with `make .venv-clients/.done`, or name another with HPCKIT_CLIENTS_VENV."
        )
    found = subprocess.run([python, "-I", "-c", "import hpckit"], capture_output=True, check=False)
    assert found.returncode == 1, f"{venv} must hold no hpckit: a user's environment has none"
    return venv.absolute()
