"""Ranks that never met: each script says so of itself at its end, and the job's people are told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpckit.payload.end_line import EndLine
from hpckit.payload.environment import IMPORTABLE
from hpckit.run_folders.ranks import never_met
from tests.patience import LONG_S
from tests.unit.made import rank

# What torch keeps of a process group that was made, and of one that was destroyed since.
TORCH = """\
import sys, types
torch = types.ModuleType("torch.distributed.distributed_c10d")
torch.is_initialized, torch.get_world_size = lambda: {up}, lambda: {size}
torch._backend, torch._default_pg_init_method = {backend!r}, {method!r}
sys.modules[torch.__name__] = torch
"""
RPC = """\
import sys, types
rpc = types.ModuleType("torch.distributed.rpc.api")
rpc._ALL_WORKER_NAMES = {names}
sys.modules[rpc.__name__] = rpc
"""
NEVER = TORCH.format(up=False, size=0, backend=None, method=None)
MPI = """\
import sys, types
mpi = types.ModuleType("mpi4py.MPI")
mpi.Is_initialized, mpi.Is_finalized = lambda: True, lambda: {over}
mpi.COMM_WORLD = types.SimpleNamespace(Get_size=lambda: {size})
sys.modules[mpi.__name__] = mpi
"""
CHILD = "import subprocess, sys\nsubprocess.run([sys.executable, {path!r}], close_fds={close})\n"


def told(path: Path, *argv: str, text: str = "", world: int = 4) -> bool | None:
    """Run a script as its supervisor does; return what it said."""
    path.write_text(text)
    with EndLine() as line:
        child = subprocess.Popen(
            argv or (sys.executable, str(path)),
            env={**os.environ, "PYTHONPATH": IMPORTABLE, "WORLD_SIZE": str(world)}
            | line.variables(),
            close_fds=False,
        )
        line.started()
        assert child.wait(LONG_S) == 0
        return line.met(child.pid)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("print()", False),
        (NEVER, False),
        (TORCH.format(up=True, size=4, backend="gloo", method="env://"), True),
        (TORCH.format(up=True, size=1, backend="gloo", method="env://"), False),
        (TORCH.format(up=False, size=0, backend="gloo", method=None), True),  # by a store
        (TORCH.format(up=False, size=0, backend="undefined", method="env://"), True),
        (TORCH.format(up=False, size=0, backend="undefined", method=None), False),
        (NEVER + "del torch._backend", None),
        (NEVER + "torch.is_initialized = None", None),  # and no traceback of ours
        (RPC.format(names="set()"), False),  # as `import torch` leaves it
        (RPC.format(names="{'a', 'b'}"), True),
        (RPC.format(names="None"), None),  # a torch that keeps no account of it
        (MPI.format(over=False, size=4), True),
        (MPI.format(over=False, size=1), False),
        (MPI.format(over=True, size=4), None),
        (NEVER + MPI.format(over=False, size=4), True),
        (NEVER + "sys.modules['horovod'] = torch", None),
        (NEVER + "# shares its data by RANK", None),
        (NEVER + "import os; os._exit(0)", None),
        (NEVER + "import os; os.execvp('true', ['true'])", None),
        ("import sys; sys.exit(0)", False),
    ],
)
def test_a_script_says_whether_it_met_others(tmp_path: Path, text: str, met: bool | None) -> None:
    assert told(tmp_path / "a.py", text=text) is met


def test_what_the_script_starts_may_have_met(tmp_path: Path) -> None:
    script, meeting, quiet = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    meeting.write_text(TORCH.format(up=True, size=4, backend="gloo", method="env://"))
    quiet.write_text(NEVER)
    # Most children lose the line: one that worked longer than the script may have met.
    assert told(script, text=CHILD.format(path=str(meeting), close=True)) is None
    assert told(script, text=CHILD.format(path=str(meeting), close=False)) is True
    python = f"{sys.executable} {quiet}"
    # A program that is not Python never says so, whatever it starts.
    assert told(script, "bash", "-c", f"{python}; true") is None
    assert told(script, "bash", "-c", f"{python}; {sys.executable} {meeting}") is True
    # What the script became is the script.
    assert told(script, "bash", "-c", f"exec {python}") is False
    assert told(script, sys.executable, "-c", "print()") is None


def test_a_lone_rank_has_nobody_to_meet(tmp_path: Path) -> None:
    assert told(tmp_path / "a.py", text="print()", world=1) is None


def test_only_a_job_of_which_every_rank_worked_alone_is_told_so() -> None:
    alone = [rank(number, met=False, exit_code=0) for number in range(4)]
    assert (never_met("ddp", 4, alone) or "").startswith("the 4 ranks never met: no rank joined")
    assert "mpi4py" in (never_met("mpi", 4, alone) or "")
    assert never_met("serial", 4, alone) is None
    assert never_met("ddp", 1, alone[:1]) is None
    assert never_met("ddp", 5, alone) is None
    for other in (
        rank(3, met=None, exit_code=0),
        rank(3, met=True, exit_code=0),
        rank(3, met=False, exit_code=1),
        rank(3),
    ):
        assert never_met("ddp", 4, [*alone[:3], other]) is None


def test_a_module_beside_the_script_may_share_the_work_out(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("import os\nrank = os.environ.get('RANK')\n")
    assert told(tmp_path / "a.py", text="import lib\n") is None
    (tmp_path / "lib.py").write_text("")
    assert told(tmp_path / "a.py", text="import lib\n") is False


def test_no_file_beside_the_script_runs_at_its_end(tmp_path: Path) -> None:
    for name in ("resource", "socket", "signal", "struct", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a')\n")
    assert told(tmp_path / "train.py", text="print()") is False
    assert not (tmp_path / "ran").exists()


def test_a_module_made_up_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a job starts: most often the script's folder
    made_up = "import types\nops = types.ModuleType('ops')\nops.__file__ = '_ops.py'\n"
    assert told(tmp_path / "a.py", text=f"import sys\n{made_up}sys.modules['ops'] = ops") is False


def test_an_open_mpi_waits_for_the_others_after_that(tmp_path: Path) -> None:
    """Its ranks are not at their ends: MPI_Finalize waits for all of them."""
    line = EndLine()
    os.write(line._theirs.fileno(), b"met\n")
    assert (line.met(7), line.at_its_end(7)) == (True, False)
    os.write(line._theirs.fileno(), b"alone 7\n")
    assert line.at_its_end(7)
    with line:
        line.started()
