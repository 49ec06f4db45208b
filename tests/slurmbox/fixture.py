"""The pytest fixture `slurm`: a running box, and ways to break it."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurmbox import box, daemons
from tests.slurmbox.layout import DEFAULT_DIR, NODES, Layout

MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slurm:
    """A running box. What a test breaks, it mends before it ends: others share the box."""

    layout: Layout

    @property
    def dir(self) -> Path:
        """The box's folder."""
        return self.layout.dir

    @property
    def env(self) -> dict[str, str]:
        """The variables to add to a process's own, or to monkeypatch.setenv."""
        return self.layout.exports

    @property
    def impatient(self) -> dict[str, str]:
        """`env` for programs that give up on a stopped controller after 2 s.

        They try once a second, one time less than MessageTimeout, which is 10 s for others.
        """
        conf = self.layout.conf.with_name("impatient.conf")
        beside = conf.with_suffix(".part")  # a job that was submitted with it may be reading it
        beside.write_text(self.layout.conf.read_text() + "MessageTimeout=3\n")
        beside.replace(conf)
        return self.env | {"SLURM_CONF": str(conf)}

    def run(
        self, *command: str | Path, check: bool = True, timeout_s: float = LONG_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command against this box, with the caller's environment and `env`."""
        return subprocess.run(
            command,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_s,
        )

    def kill_controller(self) -> None:
        """Stop slurmctld: commands then fail (after 9 s of trying; see `impatient`), jobs go on.

        It may save its state first: after SIGKILL it would forget the jobs of the last
        seconds and give their ids to other jobs, which no test wants.
        """
        daemons.stop(self.layout, "slurmctld")

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers and both nodes are back."""
        box.start_controller(self.layout)
        for node in NODES:
            box.start_node(self.layout, node)

    def kill_dbd(self) -> None:
        """Kill slurmdbd: sacct then fails, squeue and sbatch go on."""
        daemons.kill(self.layout, "slurmdbd")

    def start_dbd(self) -> None:
        """Start slurmdbd and wait until it answers."""
        box.start_dbd(self.layout)

    def kill_node(self, name: str, *, noticed: bool = False) -> None:
        """Kill a node with all its jobs.

        Args:
            noticed: Tell the controller at once, and so end the jobs as NODE_FAIL. Without
                it the controller notices half a minute later, or not before the node is
                back, and calls the jobs RUNNING until then.
        """
        daemons.kill(self.layout, name)
        if noticed:
            self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=killed")

    def start_node(self, name: str) -> None:
        """Start a node and wait until the controller gives it jobs again."""
        box.start_node(self.layout, name)


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Give a running box: the one in $HPCKIT_SLURMBOX or the default folder, or a new one there.

    Each of pytest's workers has one of its own, beside it.
    """
    if reason := box.obstacle():
        pytest.skip(f"NO SLURM: tests against a real Slurm do not run. {reason}")
    folder = os.environ.get("HPCKIT_SLURMBOX", DEFAULT_DIR)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        folder = f"{folder}-{worker}"
    layout = Layout(dir=Path(folder))
    started = box.up(layout)
    yield Slurm(layout=layout)
    if started:
        box.down(layout)
